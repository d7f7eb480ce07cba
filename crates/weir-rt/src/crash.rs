//! The last moments of a process that crashes: a thread of its own gets to write down what was going on.
//!
//! In the handler of a fatal signal hardly anything may be called. So the handler only rings a bell and waits; a thread
//! that has waited for that, and is in no handler, does the rest, as far as memory is still what it should be. Should it
//! not come to an end, the process dies all the same, a second later, of its signal.

use std::ffi::c_int;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use crate::crash_state::{BELL, NOBODY, SIGNAL, STATE, WATCHED, WRITTEN, last_words};
use crate::process;
use crate::sampler::guard;

/// Waits for the report of a crash. One at a time.
#[derive(Debug)]
pub struct CrashWatch {
    bell: PipeReader,
    /// Rung by the handler, by its number.
    _rung: PipeWriter,
}

/// Waits for crashes from now on: [`FATAL`] signals are handled first.
///
/// # Errors
/// `EBUSY`: it is watched already. The errno of pipe(2) or sigaction(2).
pub fn watch() -> io::Result<CrashWatch> {
    let (bell, rung) = io::pipe()?;
    if STATE.compare_exchange(NOBODY, WATCHED, AcqRel, Relaxed).is_err() {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    BELL.store(rung.as_raw_fd(), Release);
    let watch = CrashWatch { bell, _rung: rung };
    // Walks of stacks fault now and then: that is checked first, whichever handler was installed first, and leads here
    // if it was not a walk.
    guard::install()?;
    for signal in FATAL.into_iter().filter(|signal| !guard::FAULTS.contains(signal)) {
        // SAFETY: integers and pointers, for which zero is a value.
        let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
        new.sa_sigaction = crashed as *const () as usize;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        guard::action(signal, Some(&new))?;
    }
    Ok(watch)
}

impl CrashWatch {
    /// Keeps fatal signals that are sent to the process out of the calling thread, which has to see the others die.
    ///
    /// # Errors
    /// The errno of pthread_sigmask(3).
    pub fn is_here(&self) -> io::Result<()> {
        crate::signal::block(&FATAL)
    }

    /// The signal the process is about to die of; `None` if it is not for `limit`.
    ///
    /// # Errors
    /// The errno of poll(2).
    pub fn wait(&mut self, limit: Duration) -> io::Result<Option<c_int>> {
        if !process::readable([self.bell.as_fd()], Some(limit))?[0] {
            return Ok(None);
        }
        self.bell.read_exact(&mut [0])?;
        Ok(Some(SIGNAL.load(Acquire)))
    }

    /// Everything is written down: the process may die.
    pub fn done(&self) {
        STATE.store(WRITTEN, Release);
    }
}

impl Drop for CrashWatch {
    fn drop(&mut self) {
        // Handlers stay; without a watcher they let the process die at once.
        STATE.store(NOBODY, Release);
    }
}

extern "C" fn crashed(signal: c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    last_words(signal);
    guard::die_of(signal);
}

/// What processes die of that have a mistake in them.
pub const FATAL: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::process::tests::in_child;

    #[test]
    fn somebody_hears_of_the_crash_before_it_happens() {
        let name = "crash::tests::somebody_hears_of_the_crash_before_it_happens";
        for how in ["fault", "sent", "abort"] {
            if let Some(out) = in_child(name, &[("WEIR_RT_TEST_HOW", how)]) {
                let signal = if how == "abort" { libc::SIGABRT } else { libc::SIGSEGV };
                assert_eq!(out.status.signal(), Some(signal), "{how}: {out:?}");
                let said = String::from_utf8_lossy(&out.stdout);
                assert!(said.contains(&format!("heard of {signal}")), "{how}: {out:?}");
                continue;
            }
            let mut watch = watch().expect("a pipe");
            assert!(super::watch().is_err(), "one at a time");
            assert_eq!(watch.wait(Duration::ZERO).expect("poll works"), None);
            std::thread::spawn(move || {
                watch.is_here().expect("its own mask");
                let signal = watch.wait(Duration::from_secs(60)).expect("poll works");
                println!("heard of {}", signal.expect("a crash"));
                watch.done();
                loop {
                    std::thread::park();
                }
            });
            match std::env::var("WEIR_RT_TEST_HOW").as_deref() {
                Ok("fault") => {
                    // SAFETY: it is not, on purpose.
                    std::hint::black_box(unsafe {
                        std::hint::black_box(std::ptr::dangling::<u64>()).read_volatile()
                    });
                }
                Ok("abort") => std::process::abort(),
                // SAFETY: no pointers.
                _ => unsafe {
                    libc::raise(libc::SIGSEGV);
                },
            }
            std::process::exit(0);
        }
    }

    #[test]
    fn who_does_not_answer_is_not_waited_for() {
        let name = "crash::tests::who_does_not_answer_is_not_waited_for";
        if let Some(out) = in_child(name, &[]) {
            assert_eq!(out.status.signal(), Some(libc::SIGABRT), "{out:?}");
            return;
        }
        let _watch = watch().expect("a pipe");
        std::process::abort();
    }
}
