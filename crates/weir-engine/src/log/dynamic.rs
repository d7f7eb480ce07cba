//! A level of the error log that holds for a while in place of the configured ones, on one worker.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use weir_rt::clock;

use super::LogLevel;

/// A level and when it ends.
#[derive(Clone, Copy)]
struct DynamicLevel {
    level: LogLevel,
    /// By the monotonic clock, nanoseconds.
    until: u64,
}

thread_local! {
    static LEVEL: Cell<Option<DynamicLevel>> = const { Cell::new(None) };
}

/// A thread of the process has had one: so that others cost messages a look at a byte that is never written again.
static USED: AtomicBool = AtomicBool::new(false);

/// From here on messages of this thread are logged from `level` on, whatever the configuration says, for `seconds`; 0: as the
/// configuration says again.
pub fn set_dynamic_level(level: LogLevel, seconds: u64) {
    if seconds == 0 {
        return LEVEL.set(None);
    }
    let until = clock::monotonic_ns().saturating_add(seconds.saturating_mul(NANOSECONDS));
    LEVEL.set(Some(DynamicLevel { level, until }));
    USED.store(true, Relaxed);
}

/// The level that holds on this thread in place of the configured ones, and for how many seconds more, at least 1; `None`: none
/// does.
pub fn dynamic_level() -> Option<(LogLevel, u64)> {
    if !USED.load(Relaxed) {
        return None;
    }
    let DynamicLevel { level, until } = LEVEL.get()?;
    let left = until.saturating_sub(clock::monotonic_ns());
    if left == 0 {
        LEVEL.set(None);
        return None;
    }
    Some((level, left.div_ceil(NANOSECONDS)))
}

/// The level that holds where `configured` is configured.
#[inline]
pub(super) fn in_force(configured: LogLevel) -> LogLevel {
    match USED.load(Relaxed) {
        false => configured,
        true => dynamic_level().map_or(configured, |(level, _)| level),
    }
}

const NANOSECONDS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_on_its_thread_and_until_it_is_taken_back() {
        assert_eq!(in_force(LogLevel::Warn), LogLevel::Warn);
        set_dynamic_level(LogLevel::Debug, 60);
        assert_eq!(in_force(LogLevel::Warn), LogLevel::Debug);
        assert_eq!(dynamic_level(), Some((LogLevel::Debug, 60)));
        let other = std::thread::spawn(|| in_force(LogLevel::Warn)).join().expect("no panic");
        assert_eq!(other, LogLevel::Warn, "of another thread");
        set_dynamic_level(LogLevel::Crit, 1);
        assert_eq!(in_force(LogLevel::Warn), LogLevel::Crit, "the last one counts");
        set_dynamic_level(LogLevel::Debug, 0);
        assert_eq!((in_force(LogLevel::Warn), dynamic_level()), (LogLevel::Warn, None));
    }
}
