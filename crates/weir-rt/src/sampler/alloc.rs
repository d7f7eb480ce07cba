//! Samples by allocated bytes, not by time: an allocator of a guest language reports here.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::handler::TimerSignalInfo;
use crate::thread_watch::thread_id;

/// Turns sampling on or off, for all threads.
pub fn sample_allocations(on: bool) {
    ON.store(on, Relaxed);
}

/// The calling thread has allocated `bytes`. While sampling is on, of every [`EVERY`] bytes one sample is taken of where
/// that was; otherwise it is one load.
#[inline]
pub fn allocated(bytes: usize) {
    if ON.load(Relaxed) {
        count(bytes);
    }
}

#[cold]
fn count(bytes: usize) {
    let sum = SUM.get() + bytes;
    SUM.set(if sum >= EVERY { 0 } else { sum });
    if sum >= EVERY {
        sample(sum);
    }
}

/// Has the handler run here, as if a timer had gone off.
fn sample(bytes: usize) {
    // SAFETY: integers and pointers, for which zero is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    (info.si_signo, info.si_code) = (libc::SIGPROF, libc::SI_QUEUE);
    // SAFETY: the kernel's record of 128 bytes is larger than the part written.
    unsafe { (*(&raw mut info).cast::<TimerSignalInfo>()).value = bytes };
    // SAFETY: the record is valid for the call, and of a form that a process may send to itself. Should the kernel have
    // no room for it, a sample is missing.
    unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            libc::getpid(),
            thread_id(),
            libc::SIGPROF,
            &raw const info,
        );
    }
}

static ON: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Bytes since the last sample.
    static SUM: Cell<usize> = const { Cell::new(0) };
}

/// Bytes that a sample represents, about: at a gigabyte a second 4,000 samples.
const EVERY: usize = 256 << 10;
