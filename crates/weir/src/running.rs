//! The servers that run here, for commands that were not told which one is meant.
//!
//! A server has a control socket beside its pid file: `nginx.pid.sock`. The kernel lists the sockets of this network
//! namespace; one is a server's if the file beside it holds the number of a process that runs this program for this user.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weir_sys::socket::effective_user;

use crate::pid;

/// The pid files of the servers that this user runs, with their processes, in order. Root asks no other user's without
/// being told to: what anybody may leave in a directory is not what root means.
pub(crate) fn servers() -> BTreeMap<PathBuf, i32> {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    pid_files(&sockets)
        .filter_map(|file| pid::read(&file).ok().map(|pid| (file, pid)))
        .filter(is_ours)
        .collect()
}

/// Where the pid files would be of what listens at such sockets.
fn pid_files(sockets: &str) -> impl Iterator<Item = PathBuf> {
    let path = |line: &str| line.find(" /").map(|at| line[at + 1..].to_owned());
    let pid_file = |path: String| path.strip_suffix(SUFFIX).map(PathBuf::from);
    sockets.lines().filter_map(path).filter_map(pid_file)
}

fn is_ours((file, process): &(PathBuf, i32)) -> bool {
    let directory = PathBuf::from(format!("/proc/{process}"));
    let is_of_user = |path: &Path| fs::metadata(path).is_ok_and(|of| of.uid() == effective_user());
    let runs_weir = fs::read_link(directory.join("exe")).is_ok_and(|program| is_weir(&program));
    runs_weir && is_of_user(&directory) && is_of_user(file)
}

/// Whether a program is this one, by its name: another version is asked as well. One that was replaced has ` (deleted)`
/// after its name.
fn is_weir(program: &Path) -> bool {
    let own = std::env::current_exe().ok();
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().replace(" (deleted)", ""));
    name(program).is_some_and(|found| found == "weir" || own.as_deref().and_then(name) == Some(found))
}

/// As [`pid::socket`] adds it.
const SUFFIX: &str = ".sock";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sockets_are_beside_pid_files() {
        let listed = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 21 /srv/a b/nginx.pid.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 22 @abstract.sock\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 23\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 24 /run/docker.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 25 /run/other\n";
        let files: Vec<PathBuf> = pid_files(listed).collect();
        assert_eq!(files, [PathBuf::from("/srv/a b/nginx.pid"), PathBuf::from("/run/docker")]);
    }

    #[test]
    fn only_processes_of_this_program_are_servers() {
        let file = std::env::temp_dir().join(format!("weir-running-{}.pid", std::process::id()));
        fs::write(&file, "1").expect("a file");
        let process = |pid| (file.clone(), pid);
        assert!(is_ours(&process(std::process::id() as i32)), "this very one");
        assert!(!is_ours(&process(i32::MAX)));
        fs::remove_file(&file).expect("removed");
        assert!(!is_ours(&process(std::process::id() as i32)), "a file that is gone");
        assert!(is_weir(Path::new("/usr/sbin/weir (deleted)")) && !is_weir(Path::new("/usr/sbin/nginx")));
    }
}
