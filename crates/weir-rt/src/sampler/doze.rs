//! The watchdog's sleep while all loops sleep: it costs nothing then, and the first turn of any loop ends it.
//!
//! A loop pays one load of a word that is hardly ever written per turn; a loop that finds the watchdog asleep wakes it,
//! once.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// 1: the watchdog is asleep, or about to be.
static ASLEEP: AtomicU32 = AtomicU32::new(0);

/// Waits until a loop's turn begins, for `limit` at most. `quiet` says whether all loops are parked; it is asked a
/// millisecond after the loops were asked to wake us, when their older stores have long become visible (they use no
/// fence). For one thread of the process.
pub fn doze(limit: Duration, quiet: impl FnOnce() -> bool) {
    ASLEEP.store(1, Relaxed);
    std::thread::sleep(Duration::from_millis(1));
    if quiet() && ASLEEP.load(Relaxed) == 1 {
        wait(limit);
    }
    ASLEEP.store(0, Relaxed);
}

/// A turn begins: wakes the watchdog if it sleeps.
#[inline]
pub(crate) fn rouse() {
    if ASLEEP.load(Relaxed) != 0 {
        wake();
    }
}

/// Several loops may come here at once; waking an awake watchdog does nothing.
#[cold]
fn wake() {
    ASLEEP.store(0, Relaxed);
    // SAFETY: the word is static; FUTEX_WAKE reads no other argument.
    unsafe {
        libc::syscall(libc::SYS_futex, ASLEEP.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1)
    };
}

/// The kernel compares the word with 1 before it sleeps, so a wake between our last look and here is not lost. It
/// returns early for signals and for no reason; the caller looks around and comes back.
fn wait(limit: Duration) {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(limit.subsec_nanos() as i32),
    };
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is static, `time` is readable for the call.
    unsafe { libc::syscall(libc::SYS_futex, ASLEEP.as_ptr(), op, 1, &raw const time) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_turn_ends_the_sleep_and_so_does_the_limit() {
        let begin = Instant::now();
        doze(Duration::from_secs(600), || false);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| doze(Duration::from_secs(600), || true));
            while !sleeper.is_finished() {
                rouse();
                std::thread::yield_now();
            }
        });
        doze(Duration::from_millis(1), || true);
        assert!(begin.elapsed() < Duration::from_secs(300), "none of them slept to its end");
    }
}
