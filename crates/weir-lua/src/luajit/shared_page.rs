//! What compiled code reads and writes without a call: the time, the last stamp, and whether anything has changed.

use std::cell::Cell;

use weir_rt::clock;

/// The cells of a thread, which stay where they are as long as it lives; `struct weir_glance` of the prelude. Numbers
/// of Lua's, so that none of them has to be made into an object.
#[repr(C)]
pub(crate) struct SharedPage {
    /// [`now`] when the running script was resumed.
    now: Cell<f64>,
    /// The last stamp that a use of a dictionary's entry has got.
    stamp: Cell<f64>,
    /// Grows whenever the request of a script, or what a script knows of it, may have changed.
    change: Cell<f64>,
    /// Seconds since 1970 as the running script knows them; 0 until it asks.
    wall: Cell<f64>,
    /// How much later a stamp has to be than the one that is there to be worth a write.
    gap: Cell<f64>,
}

thread_local! {
    static GLANCE: SharedPage =
        const { SharedPage { now: Cell::new(0.0), stamp: Cell::new(0.0), change: Cell::new(1.0), wall: Cell::new(0.0), gap: Cell::new(0.0) } };
}

/// The calling thread's, for the prelude of a VM, which stays on its thread.
pub(crate) extern "C" fn place() -> *const SharedPage {
    GLANCE.with(std::ptr::from_ref)
}

/// Milliseconds of the clock that dictionaries' expiry counts by, the same for all threads: a worker's since its loop
/// last waited, as nginx counts.
pub(crate) fn now() -> u64 {
    weir_rt::try_now_ms().unwrap_or_else(clock::monotonic_ms).max(1)
}

/// A script is resumed, or another one goes on after it.
pub(crate) fn begin() {
    let now = now() as f64;
    GLANCE.with(|glance| {
        glance.now.set(now);
        glance.stamp.set(glance.stamp.get().max(now * STAMPS));
        glance.wall.set(0.0);
    });
    changed();
}

/// Seconds since 1970, with milliseconds: the same until the script that asks waits or wants the time
/// [again](renew_time).
pub(crate) fn wall() -> f64 {
    match GLANCE.with(|glance| glance.wall.get()) {
        0.0 => renew_time(),
        known => known,
    }
}

/// The clock is read, for variables too: `$request_time` includes what a script has seen pass.
pub(crate) fn renew_time() -> f64 {
    let (seconds, millis) = weir_rt::renew_time();
    let wall = seconds as f64 + f64::from(millis) / 1000.0;
    GLANCE.with(|glance| glance.wall.set(wall));
    wall
}

/// The clock is read again when a script asks for the time.
pub(crate) fn forget_time() {
    GLANCE.with(|glance| glance.wall.set(0.0));
}

/// What was read of the request before may be different now.
pub(crate) fn changed() {
    GLANCE.with(|glance| glance.change.set(glance.change.get() + 1.0));
}

/// The next stamp of this thread, in the bits of a number that is not negative, which are in the same order: it grows
/// with time, and with each use within a millisecond.
pub(crate) fn stamp(now: u64) -> u64 {
    GLANCE.with(|glance| {
        let stamp = (now as f64 * STAMPS).max(glance.stamp.get() + 1.0);
        glance.stamp.set(stamp);
        stamp.to_bits()
    })
}

/// The stamp of a use by this thread, if the last one is old enough for a new one to be worth a write: a write takes the
/// cache line from all other workers, which read the entry, too.
pub(crate) fn renewed(now: u64, last: u64) -> Option<u64> {
    let stamp = stamp(now);
    let gap = GLANCE.with(|glance| glance.gap.get());
    (f64::from_bits(stamp) >= f64::from_bits(last) + gap).then_some(stamp)
}

/// This thread is one of `workers` workers; the stamps of the only one are exact.
pub(crate) fn share(workers: usize) {
    GLANCE.with(|glance| glance.gap.set(if workers > 1 { GAP * STAMPS } else { 0.0 }));
}

/// Milliseconds within which two uses of an entry are not distinguished, with several workers.
const GAP: f64 = 100.0;
/// Stamps of a millisecond; a number has room for those of 17 years.
const STAMPS: f64 = (1 << 14) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_grow() {
        let stamps = [5, 5, 4, 6, 6, 5].map(stamp);
        assert!(stamps.is_sorted_by(|one, next| one < next), "{stamps:?}");
        assert_eq!(f64::from_bits(stamp(1 << 38)), (1u64 << 52) as f64, "seventeen years in milliseconds");
    }
}
