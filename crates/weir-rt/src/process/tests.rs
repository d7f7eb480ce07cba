//! What changes a whole process is tested in one of its own: the test binary runs the single test again.

use super::*;
use std::process::{Command, Output};

/// Marks the second run.
const CHILD: &str = "WEIR_RT_TEST_CHILD";

/// Runs the test called `name` in a process of its own, with these variables set, and gives its output. `None`: we
/// are that process.
pub(crate) fn in_child(name: &str, env: &[(&str, &str)]) -> Option<Output> {
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let exe = std::env::current_exe().expect("we run");
    let mut command = Command::new(exe);
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, "1").envs(env.iter().copied());
    Some(command.output().expect("the test binary starts"))
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

/// Forks, and gives the status of the child, which has one thread only. For use [`in_child`], where no other
/// thread does anything a lock would be held for.
pub(crate) fn forked(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: no other thread holds a lock that the child could want (this function's condition), and the child ends by
    // _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(101);
        // SAFETY: ends the process.
        unsafe { libc::_exit(code) }
    }
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    assert_eq!(retry(|| unsafe { libc::waitpid(pid, &mut status, 0) }), pid);
    assert!(libc::WIFEXITED(status), "status {status:x}");
    libc::WEXITSTATUS(status)
}

#[test]
fn facts_of_the_machine() {
    assert!(page_size().is_power_of_two());
    assert!(cpu_count() >= 1);
    assert_eq!(pid(), std::process::id());
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("procfs");
    assert_eq!(hostname().expect("short enough"), name.trim().to_ascii_lowercase());
}

#[test]
fn limits_are_read_and_set() {
    let (soft, hard) = limit(ResourceLimit::OpenFiles).expect("readable");
    assert!(soft <= hard);
    set_limit(ResourceLimit::OpenFiles, soft, hard).expect("no change");
    assert_eq!(limit(ResourceLimit::OpenFiles).expect("readable"), (soft, hard));
    assert_eq!(errno(set_limit(ResourceLimit::Core, 2, 1)), Some(libc::EINVAL));
}

#[test]
fn affinity_needs_a_cpu_that_exists() {
    assert_eq!(errno(set_affinity(&[])), Some(libc::EINVAL));
    assert_eq!(errno(set_affinity(&[5000])), Some(libc::EINVAL));
    // SAFETY: no pointers.
    let here = unsafe { libc::sched_getcpu() };
    set_affinity(&[usize::try_from(here).expect("a number")]).expect("we run there");
    assert_eq!(std::thread::available_parallelism().expect("known").get(), 1);
}

#[test]
fn users_and_groups_are_looked_up() {
    let root = user("root").expect("database").expect("exists everywhere");
    assert_eq!((root.uid, root.gid), (0, 0));
    assert_eq!(group("root").expect("database"), Some(0));
    assert_eq!(user("no-such-user-here").expect("database"), None);
    assert_eq!(group("no-such-group-here").expect("database"), None);
    assert_eq!(user("a\0b").expect("no user"), None);
}

#[test]
fn a_threaded_process_is_not_forked() {
    assert_eq!(errno(daemonize()), Some(libc::EBUSY));
}

#[test]
fn privileges_are_dropped_for_good() {
    if !is_root() {
        eprintln!("skipped: not root");
        return;
    }
    let name = "process::tests::privileges_are_dropped_for_good";
    if let Some(out) = in_child(name, &[]) {
        assert!(out.status.success(), "{out:?}");
        return;
    }
    let Some(nobody) = user("nobody").expect("database") else { return };
    drop_privileges(&nobody, nobody.gid).expect("we are root");
    assert!(!is_root());
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::setuid(0) }, -1);
    assert!(std::fs::read_dir("/proc/self/fd").is_ok(), "still readable for the profiler");
    // The other threads have changed too.
    for task in std::fs::read_dir("/proc/self/task").expect("procfs") {
        let status = std::fs::read_to_string(task.expect("entry").path().join("status")).expect("procfs");
        let uids = status.lines().find(|l| l.starts_with("Uid:")).expect("in every status");
        assert!(uids.split_ascii_whitespace().skip(1).all(|u| u == nobody.uid.to_string()), "{uids}");
    }
}

#[test]
fn the_parent_of_a_daemon_waits_for_it() {
    let name = "process::tests::the_parent_of_a_daemon_waits_for_it";
    if let Some(out) = in_child(name, &[]) {
        assert!(out.status.success(), "{out:?}");
        return;
    }
    let (mut reader, writer) = io::pipe().expect("descriptors");
    let ready = forked(|| {
        let readiness = daemonize().expect("one thread");
        let null = std::fs::read_link("/proc/self/fd/1").expect("procfs");
        // SAFETY: no pointers.
        let leads = unsafe { libc::getsid(0) == libc::getpid() };
        let seen = format!("{} {leads}", null.display());
        (&writer).write_all(seen.as_bytes()).expect("reader lives");
        readiness.notify().expect("the parent waits");
        3 // the daemon's own end is not waited for
    });
    assert_eq!(ready, 0);
    drop(writer);
    let mut seen = String::new();
    io::Read::read_to_string(&mut reader, &mut seen).expect("the daemon writes and ends");
    assert_eq!(seen, "/dev/null true");
    let failed = |code| {
        forked(|| {
            drop(daemonize().expect("one thread"));
            code
        })
    };
    assert_eq!((failed(7), failed(0)), (7, 1));
}

#[test]
fn the_title_shows_and_the_environment_survives() {
    let name = "process::tests::the_title_shows_and_the_environment_survives";
    if let Some(out) = in_child(name, &[("WEIR_RT_KEPT", "value")]) {
        assert!(out.status.success(), "{out:?}");
        return;
    }
    assert_eq!(errno(ProcessTitle::claim()), Some(libc::EBUSY), "two threads");
    let code = forked(|| {
        let mut title = ProcessTitle::claim().expect("one thread");
        let cmdline = || std::fs::read_to_string("/proc/self/cmdline").expect("procfs");
        title.set("weir: short");
        assert_eq!(cmdline().trim_end_matches('\0'), "weir: short");
        // Longer than the arguments: the kernel goes on in what was the environment.
        let long = "weir: master process ".repeat(12);
        title.set(&long);
        assert!(cmdline().trim_end_matches('\0') == &long[..long.len().min(title.room())]);
        assert_eq!(std::env::var("WEIR_RT_KEPT").as_deref(), Ok("value"));
        assert_eq!(errno(ProcessTitle::claim()), Some(libc::EBUSY), "taken");
        0
    });
    assert_eq!(code, 0);
}
