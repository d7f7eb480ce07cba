//! Which configuration is meant where neither `-c` nor `-p` says so. `weir` alone serves its welcome page; every other use of
//! the program is about the configuration that a package has installed, if there is one.

use std::path::{Path, PathBuf};

use weir_conf::RealFiles;

use crate::cli::CommandLine;
use crate::load::ConfLocation;
use crate::pid;

/// Where packages install it.
const INSTALLED: &str = "/etc/weir/weir.conf";

/// The command line of `-t` and `-T`: without a file, the installed one.
pub(crate) fn tested(line: &CommandLine) -> CommandLine {
    with_installed(line, Path::new(INSTALLED)).unwrap_or_else(|| line.clone())
}

/// The command line of what is about a running server (`-s`, `weir trace`): without a file, the server of the installed
/// configuration. Where that one does not run, and a `weir` alone does, it is the latter.
pub(crate) fn running(line: &CommandLine) -> CommandLine {
    let Some(installed) = with_installed(line, Path::new(INSTALLED)) else { return line.clone() };
    if !runs(&installed) && runs(line) { line.clone() } else { installed }
}

/// The line with this file, if it names none and the file is there.
fn with_installed(line: &CommandLine, installed: &Path) -> Option<CommandLine> {
    let silent = line.conf.is_none() && line.prefix.is_none();
    (silent && installed.exists())
        .then(|| CommandLine { conf: Some(installed.to_path_buf()), ..line.clone() })
}

/// Whether the server that is meant has a control socket.
fn runs(line: &CommandLine) -> bool {
    let pid: Result<PathBuf, _> = ConfLocation::of(line).pid(&RealFiles);
    pid.is_ok_and(|pid| pid::socket(&pid).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_installed_file_is_meant_where_none_is_named() {
        let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let silent = CommandLine { quiet: true, ..CommandLine::default() };
        let found = with_installed(&silent, &installed).expect("the file is there");
        assert_eq!((found.conf.as_ref(), found.quiet), (Some(&installed), true));
        assert_eq!(with_installed(&silent, Path::new("/absent/weir.conf")), None);
        let conf = CommandLine { conf: Some("a.conf".into()), ..CommandLine::default() };
        let prefix = CommandLine { prefix: Some("/srv".into()), ..CommandLine::default() };
        assert_eq!([with_installed(&conf, &installed), with_installed(&prefix, &installed)], [None, None]);
    }

    #[test]
    fn a_server_runs_that_has_a_control_socket() {
        let directory = std::env::temp_dir().join(format!("weir-installed-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let conf = directory.join("weir.conf");
        std::fs::write(&conf, "pid here.pid;\nevents {}\n").expect("a file");
        let line = CommandLine { conf: Some(conf), ..CommandLine::default() };
        assert!(!runs(&line));
        std::fs::write(pid::socket(&directory.join("here.pid")), "").expect("a file");
        assert!(runs(&line));
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
