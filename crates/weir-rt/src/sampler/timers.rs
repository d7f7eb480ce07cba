//! Timers of the kernel that send a signal to one thread: on its CPU time, and on real time.

use std::io;
use std::ptr::{null_mut, without_provenance_mut};

/// One timer; deleted when dropped. Not tied to the thread that made it.
#[derive(Debug)]
pub(crate) struct SampleTimer(libc::timer_t);

// SAFETY: a timer's id is a number of the process, whichever thread uses it.
unsafe impl Send for SampleTimer {}

impl SampleTimer {
    /// A stopped timer on `clock` that sends `signal` to thread `tid` of this process, with `value`.
    pub(crate) fn new(
        clock: libc::clockid_t,
        tid: libc::pid_t,
        signal: libc::c_int,
        value: usize,
    ) -> io::Result<SampleTimer> {
        // SAFETY: integers and pointers, for which zero is a value.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = tid;
        event.sigev_value.sival_ptr = without_provenance_mut(value);
        let mut timer: libc::timer_t = null_mut();
        // SAFETY: `event` is readable and `timer` writable for the call.
        match unsafe { libc::timer_create(clock, &mut event, &mut timer) } {
            0 => Ok(SampleTimer(timer)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Fires every `period_ns` from now on; 0 stops it.
    pub(crate) fn set(&self, period_ns: u64) -> io::Result<()> {
        let time = libc::timespec {
            tv_sec: (period_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (period_ns % 1_000_000_000) as libc::c_long,
        };
        let both = libc::itimerspec { it_interval: time, it_value: time };
        // SAFETY: the timer exists until dropped; `both` is readable for the call.
        match unsafe { libc::timer_settime(self.0, 0, &both, null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for SampleTimer {
    fn drop(&mut self) {
        // SAFETY: the timer exists and is not used again.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// The calling thread's CPU-time clock, by a number that other threads can use too.
pub(crate) fn cpu_clock() -> io::Result<libc::clockid_t> {
    let mut clock = 0;
    // SAFETY: the calling thread lives; `clock` is writable.
    match unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) } {
        0 => Ok(clock),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Lets `signal` through to the calling thread: a mask is inherited from the process that started the program.
pub(crate) fn unblock(signal: libc::c_int) -> io::Result<()> {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set it is given; the number is a signal's, or EINVAL says so.
    let errno = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), null_mut())
    };
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}
