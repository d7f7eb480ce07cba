//! A timer on a thread's own CPU time that interrupts the thread: for what runs on it and would not come back by itself.

use std::cell::Cell;
use std::io;
use std::ptr::null_mut;
use std::time::Duration;

use libc::c_int;

use crate::sampler::timers::{self, SampleTimer};
use crate::thread_watch::thread_id;

/// What is called on the thread that is interrupted, with the CPU time it has used so far, in nanoseconds.
pub(crate) type AlarmCall = fn(u64);

thread_local! {
    static RING: Cell<Option<AlarmCall>> = const { Cell::new(None) };
}

/// Calls a function on the thread that has started it after every period of CPU time that this thread uses; a thread
/// that sleeps is left alone. The signal is SIGVTALRM, which debuggers let pass. Dropped: the timer is gone.
#[derive(Debug)]
pub struct Alarm {
    _timer: SampleTimer,
}

impl Alarm {
    /// Calls `ring` every `period`; where the kernel's tick is longer, every tick. A thread has one such function: the
    /// last counts.
    ///
    /// # Safety
    /// `ring` is async-signal-safe: it interrupts the thread anywhere, takes no lock and allocates nothing.
    ///
    /// # Errors
    /// The errno of sigaction(2), of the mask, or of timer_create(2).
    pub unsafe fn start(period: Duration, ring: AlarmCall) -> io::Result<Alarm> {
        // SAFETY: integers and pointers, for which zero is a value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = rung as *const () as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        // SAFETY: the handler is async-signal-safe if `ring` is, which is this function's contract.
        if unsafe { libc::sigaction(libc::SIGVTALRM, &raw const action, null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        RING.set(Some(ring));
        timers::unblock(libc::SIGVTALRM)?;
        let timer = SampleTimer::new(timers::cpu_clock()?, thread_id(), libc::SIGVTALRM, 0)?;
        timer.set(u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1))?;
        Ok(Alarm { _timer: timer })
    }
}

extern "C" fn rung(_: c_int) {
    let Some(ring) = RING.get() else { return };
    // SAFETY: the address of the thread's errno is valid as long as the thread lives.
    let errno = unsafe { *libc::__errno_location() };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable; the call is async-signal-safe.
    if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } == 0 {
        ring(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
    }
    // SAFETY: the address of the thread's errno is valid as long as the thread lives; the handler runs on that thread.
    unsafe { *libc::__errno_location() = errno };
}

/// The lowest address of the calling thread's stack.
///
/// # Errors
/// The errno of asking for it.
pub fn stack_floor() -> io::Result<usize> {
    crate::sampler::stack_of_thread().map(|stack| stack.start as usize)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    static RUNG: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn a_thread_that_computes_is_interrupted() {
        // SAFETY: one store.
        let alarm = unsafe { Alarm::start(Duration::from_millis(1), |time| RUNG.store(time, Relaxed)) };
        let _alarm = alarm.expect("a timer");
        while RUNG.load(Relaxed) == 0 {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_stack_ends_below_what_stands_on_it() {
        let here = 0u8;
        assert!(stack_floor().expect("a stack") < (&raw const here) as usize);
    }
}
