//! A log that goes to a program: `|command`, as H2O and Apache have it, for `rotatelogs` and the like.
//!
//! The shell runs the command with the log as its standard input, as the user who starts the server: before privileges are
//! dropped. It ends, if it is such a program, when the last process that has the log is gone. Its lines are written like
//! those of a file: a program that reads too slowly holds the log thread up, and lines beyond its queue are counted as
//! lost; one that ended is started again with the next line, once in [`APART`] at the most, by the process that writes and so
//! without the privileges that it has dropped; lines in between are lost and reported as with a disk that fails.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_rt::FileHandle;
use weir_rt::clock::monotonic_ms;

/// A program that was started, and the pipe that leads to it.
pub(super) struct ProgramPipe {
    pub(super) handle: Arc<FileHandle>,
    child: Option<Child>,
}

impl ProgramPipe {
    /// Starts `target`, a command after a bar, in a shell.
    ///
    /// # Errors
    /// Out of processes or descriptors, or no shell.
    pub(super) fn start(target: &str) -> io::Result<ProgramPipe> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", target.trim_start_matches('|')]).stdin(Stdio::piped());
        weir_rt::process::set_free(&mut shell);
        let mut child = shell.spawn()?;
        let pipe = child.stdin.take().ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(ProgramPipe { handle: Arc::new(FileHandle::from(OwnedFd::from(pipe))), child: Some(child) })
    }
}

impl Drop for ProgramPipe {
    /// The program is waited for, so that no zombie is left of it; not here, since it ends when others have closed the log.
    fn drop(&mut self) {
        self.child.take().into_iter().for_each(weir_rt::process::wait_elsewhere);
    }
}

/// When a log's program was started again: one that ends at once is not started all the time.
#[derive(Default)]
pub(super) struct ProgramRestarts {
    /// From when on it may be, in milliseconds of the monotonic clock.
    from: AtomicU64,
}

impl ProgramRestarts {
    /// Whether it may be started again now, which then counts as done.
    pub(super) fn allow(&self) -> bool {
        let (now, from) = (monotonic_ms(), self.from.load(Relaxed));
        now >= from && self.from.compare_exchange(from, now + APART, Relaxed, Relaxed).is_ok()
    }
}

/// Milliseconds between two starts of a program.
const APART: u64 = 1000;
