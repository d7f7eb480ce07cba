//! The pid file and the files beside it: the control socket and the outcome of the last reload. All three move
//! together when a binary upgrade gives the name away, and go with their owner.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use weir_rt::file::open_trusted;

use crate::settings;

/// A pid file that goes with its owner.
pub(crate) struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes this process' number.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn write(path: PathBuf) -> io::Result<PidFile> {
        // A server in the background has no umask: the mode is the whole truth.
        let mut options = File::options();
        let mut file = open_trusted(options.write(true).create(true).truncate(true).mode(0o644), &path)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(PidFile { path })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the file and its companions, for a binary upgrade and back.
    ///
    /// # Errors
    /// The pid file can't be moved, and nothing is.
    pub(crate) fn rename(&mut self, to: PathBuf) -> io::Result<()> {
        std::fs::rename(&self.path, &to)?;
        for of in [socket, status] {
            // Either may never have come to be.
            let _ = std::fs::rename(of(&self.path), of(&to));
        }
        self.path = to;
        Ok(())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Where another master has taken the name meanwhile, what is there is that one's.
        if is_anothers(&self.path) {
            return;
        }
        for path in [self.path.clone(), socket(&self.path), status(&self.path)] {
            // That it is removed already is no error.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether a pid file at `path` names another process. Only a file is read: a FIFO there would hold up the master's end.
fn is_anothers(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
        && read(path).is_ok_and(|number| u32::try_from(number) != Ok(std::process::id()))
}

/// The number in a pid file.
///
/// # Errors
/// nginx's words: the file can't be read, or holds no number.
pub(crate) fn read(path: &Path) -> Result<i32, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("open() \"{}\" failed ({})", path.display(), settings::reason(&error)))?;
    let number = text.trim().parse().ok().filter(|pid| *pid > 0);
    number.ok_or_else(|| format!("invalid PID number \"{}\" in \"{}\"", text.trim(), path.display()))
}

/// Whether a pid file could be written at `path`, which is left as it is.
///
/// # Errors
/// Those of the file system.
pub(crate) fn probe(path: &Path) -> io::Result<()> {
    match File::options().write(true).create_new(true).mode(0o644).open(path) {
        Ok(_) => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            open_trusted(File::options().write(true), path).map(drop)
        }
        Err(error) => Err(error),
    }
}

/// The name of a pid file while a new binary has its own, `nginx.pid.oldbin`.
pub(crate) fn oldbin(pid: &Path) -> PathBuf {
    with_suffix(pid, ".oldbin")
}

/// Where the control socket of the server with that pid file is.
pub(crate) fn socket(pid: &Path) -> PathBuf {
    with_suffix(pid, ".sock")
}

/// Where the outcome of its last reload is.
pub(crate) fn status(pid: &Path) -> PathBuf {
    with_suffix(pid, ".status")
}

fn with_suffix(pid: &Path, suffix: &str) -> PathBuf {
    let mut name = pid.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    pid.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn companions_move_and_go_with_the_file() {
        let dir = weir_test::TempDir::new();
        let directory = dir.path().join("run");
        std::fs::create_dir(&directory).expect("a fresh folder");
        let path = directory.join("a.pid");
        probe(&path).expect("ours");
        assert!(!path.exists(), "a probe leaves nothing");
        let mut file = PidFile::write(path.clone()).expect("ours");
        std::fs::write(status(&path), "x").expect("ours");
        probe(&path).expect("ours");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), format!("{}\n", std::process::id()));
        file.rename(oldbin(&path)).expect("ours");
        assert!(!path.exists() && !status(&path).exists() && status(&oldbin(&path)).exists());
        drop(file);
        std::fs::remove_dir(&directory).expect("empty again");
        std::fs::create_dir(&directory).expect("once more");
        let file = PidFile::write(path.clone()).expect("ours");
        std::fs::write(&path, "1\n").expect("ours");
        std::fs::write(socket(&path), "").expect("ours");
        drop(file);
        assert!(path.exists() && socket(&path).exists(), "another has them now");
        std::fs::remove_dir_all(&directory).expect("ours");
        assert!(probe(&path).is_err());
    }
}
