//! A second process from this one, and how it ended.

use std::ffi::c_int;
use std::io::{self, Write};

use super::thread_count;
use crate::calls::{check, retry};

/// Which of the two processes goes on after [`fork`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkSide {
    /// The one that called; the other's number.
    Parent(u32),
    /// The new one. It has everything the parent had: memory, descriptors, blocked signals; no signal is pending. What
    /// it must not do at its end, such as to remove the parent's files, it leaves out by ending with
    /// [`std::process::exit`].
    Child,
}

/// Makes a copy of this process.
///
/// # Errors
/// `EBUSY` if there are other threads, which the copy would not have, but their locks; `EAGAIN`, `ENOMEM` of fork(2).
pub fn fork() -> io::Result<ForkSide> {
    if thread_count() > 1 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    io::stdout().flush()?; // else both would print what is still buffered
    // SAFETY: there is one thread, so the child has whatever locks the parent holds, and none is held by another.
    let child = unsafe { libc::fork() };
    check(child)?;
    Ok(if child == 0 { ForkSide::Child } else { ForkSide::Parent(child.unsigned_abs()) })
}

/// A child that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedChild {
    /// The process id.
    pub pid: u32,
    /// How it ended: a status or a signal.
    pub how: ProcessEnd,
}

/// How a process ended: with a status, or by a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEnd {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal, and whether the kernel wrote its memory to a core file.
    Killed(i32, bool),
}

/// The next child that has ended; `None` while none has, or without children. Without waiting.
pub fn reap() -> Option<EndedChild> {
    let mut status: c_int = 0;
    // SAFETY: no pointers but `status`, valid for the call.
    let pid = retry(|| unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) });
    if pid <= 0 {
        return None; // ECHILD, or none yet
    }
    let how = match libc::WIFSIGNALED(status) {
        true => ProcessEnd::Killed(libc::WTERMSIG(status), libc::WCOREDUMP(status)),
        false => ProcessEnd::Exited(libc::WEXITSTATUS(status)),
    };
    Some(EndedChild { pid: pid.unsigned_abs(), how })
}

/// The process that started this one; 1, or a subreaper's number, after that one has ended.
pub fn parent() -> u32 {
    // SAFETY: no pointers, cannot fail.
    unsafe { libc::getppid() }.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::process::tests::{forked, in_child};
    use crate::signal;

    #[test]
    fn a_threaded_process_is_not_copied() {
        let error = fork().expect_err("the test runner and we are two");
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
    }

    fn awaited() -> EndedChild {
        let end = Instant::now() + Duration::from_secs(90);
        while Instant::now() < end {
            if let Some(ended) = reap() {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no child ended");
    }

    #[test]
    fn the_parent_learns_how_its_child_ended() {
        let name = "process::child::tests::the_parent_learns_how_its_child_ended";
        if let Some(out) = in_child(name, &[]) {
            assert!(out.status.success(), "{out:?}");
            return;
        }
        let code = forked(|| {
            assert_eq!(reap(), None, "no child");
            let before = std::process::id();
            match fork().expect("one thread") {
                ForkSide::Child => std::process::exit(if parent() == before { 3 } else { 4 }),
                ForkSide::Parent(pid) => {
                    assert_eq!(awaited(), EndedChild { pid, how: ProcessEnd::Exited(3) });
                }
            }
            match fork().expect("one thread") {
                ForkSide::Child => loop {
                    std::thread::sleep(Duration::from_secs(1));
                },
                ForkSide::Parent(pid) => {
                    signal::kill(pid as i32, signal::SIGKILL).expect("it lives");
                    assert_eq!(
                        awaited(),
                        EndedChild { pid, how: ProcessEnd::Killed(signal::SIGKILL, false) }
                    );
                }
            }
            0
        });
        assert_eq!(code, 0);
    }
}
