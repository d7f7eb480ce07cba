//! How far a crash is: shared by the thread that watches for one ([`crate::crash`]) and the signal handlers.

use std::ffi::c_int;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU32};

/// Lets the thread that watches do its work, before the calling one dies of `signal`. Async-signal-safe.
pub(crate) fn last_words(signal: c_int) {
    if STATE.compare_exchange(WATCHED, CRASHED, AcqRel, Relaxed).is_ok() {
        SIGNAL.store(signal, Release);
        // SAFETY: a byte that lives as long as the call; a bell that is gone is an error, and there is no one to report
        // it to.
        unsafe { libc::write(BELL.load(Acquire), b"!".as_ptr().cast(), 1) };
    }
    for _ in 0..PATIENCE {
        if STATE.load(Acquire) != CRASHED {
            return;
        }
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        // SAFETY: `pause` is readable; the remaining time is not asked for.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    }
}

pub(crate) static STATE: AtomicU32 = AtomicU32::new(NOBODY);
pub(crate) static SIGNAL: AtomicI32 = AtomicI32::new(0);
pub(crate) static BELL: AtomicI32 = AtomicI32::new(-1);
pub(crate) const NOBODY: u32 = 0;
pub(crate) const WATCHED: u32 = 1;
const CRASHED: u32 = 2;
pub(crate) const WRITTEN: u32 = 3;
/// Milliseconds that a crash waits for its record.
const PATIENCE: u32 = 1000;
