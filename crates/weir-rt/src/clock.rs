//! Clocks: the cheap stamp of the marks ([`ticks`]), wall and monotonic time, the zone offset, thread CPU time.
//!
//! A stamp is the processor's counter where the kernel itself trusts it (9.5 ns against 25 ns for the vDSO call,
//! measured in a guest), else nanoseconds of CLOCK_MONOTONIC. Only differences of stamps mean anything, and only
//! through a [`TickScale`], which is measured at start and kept right by [`TickScale::recalibrate`].

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Where the kernel names the clock source it trusts.
#[cfg(target_arch = "x86_64")]
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

const UNDECIDED: u8 = 0;
const COUNTER: u8 = 1;
const MONOTONIC: u8 = 2;

static SOURCE: AtomicU8 = AtomicU8::new(UNDECIDED);

/// A stamp in the unit of [`TickScale`]. Subtract with `saturating_sub` or `wrapping_sub`: between two cores the
/// counter may differ by a few ticks either way.
#[inline]
pub fn ticks() -> u64 {
    match SOURCE.load(Relaxed) {
        COUNTER => counter(),
        MONOTONIC => monotonic_ns(),
        _ => {
            decide();
            ticks()
        }
    }
}

/// [`ticks`] where it is a few instructions without a call: `None` where the processor's counter is not to be trusted.
#[inline]
pub fn quick_ticks() -> Option<u64> {
    if SOURCE.load(Relaxed) == COUNTER { Some(counter()) } else { None }
}

/// Whether [`ticks`] reads the processor's counter (else the vDSO clock).
pub fn ticks_are_counter() -> bool {
    ticks();
    SOURCE.load(Relaxed) == COUNTER
}

/// Milliseconds of CLOCK_MONOTONIC.
pub fn monotonic_ms() -> u64 {
    let t = read(libc::CLOCK_MONOTONIC);
    t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    nanoseconds(read(libc::CLOCK_MONOTONIC))
}

/// Wall clock: seconds since 1970 and the nanoseconds within the second.
pub(crate) fn wall() -> (i64, i64) {
    let t = read(libc::CLOCK_REALTIME);
    (t.tv_sec, t.tv_nsec)
}

/// Wall clock: whole seconds since 1970 and the milliseconds within the second. A clock set before 1970 reads 0.
pub fn unix_time() -> (u64, u32) {
    let t = read(libc::CLOCK_REALTIME);
    match u64::try_from(t.tv_sec) {
        Ok(s) => (s, (t.tv_nsec / 1_000_000) as u32),
        Err(_) => (0, 0),
    }
}

/// Wall clock: nanoseconds since 1970. A clock set before 1970 reads 0.
pub fn unix_ns() -> u64 {
    let t = read(libc::CLOCK_REALTIME);
    u64::try_from(t.tv_sec).map_or(0, |s| s * 1_000_000_000 + t.tv_nsec as u64)
}

/// A moment in both clocks: it converts what was stamped in [`ticks`] to the time of day.
#[derive(Clone, Copy, Debug)]
pub struct ClockMoment {
    /// The count of [`ticks`] at that moment.
    pub ticks: u64,
    /// Nanoseconds since 1970.
    pub unix_ns: u64,
}

impl ClockMoment {
    /// The current moment, read from both clocks.
    pub fn now() -> ClockMoment {
        ClockMoment { ticks: ticks(), unix_ns: unix_ns() }
    }

    /// A time in ticks as nanoseconds since 1970.
    pub fn unix_ns(&self, at: u64) -> u64 {
        match self.ticks.checked_sub(at) {
            Some(ago) => self.unix_ns.saturating_sub(scale().ticks_to_ns(ago)),
            None => self.unix_ns + scale().ticks_to_ns(at - self.ticks),
        }
    }
}

/// CPU time of the calling thread in nanoseconds. A real system call (0.5 µs): not for spans.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(read(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// Seconds the local zone is ahead of UTC at `unix_s`; 0 if the time cannot be expressed. The first call may read
/// the zone file, so make it before a chroot; later ones take a lock of the C library: cache the result.
pub fn local_offset(unix_s: u64) -> i32 {
    let Ok(t) = libc::time_t::try_from(unix_s) else { return 0 };
    let mut tm = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: `t` and `tm` are valid for the call; localtime_r writes the whole of `tm` when it returns non-null.
    let filled = unsafe { !libc::localtime_r(&t, tm.as_mut_ptr()).is_null() };
    if !filled {
        return 0;
    }
    // SAFETY: filled by the successful call above.
    unsafe { tm.assume_init() }.tm_gmtoff as i32
}

/// Converts differences of [`ticks`] to nanoseconds and back. One per process: [`scale`].
pub struct TickScale {
    /// Nanoseconds per tick, 32.32 fixed point.
    factor: AtomicU64,
    anchors: Mutex<ClockAnchors>,
}

/// The two ends the measurement may start from: the older one is used, the newer takes over after [`WINDOW_NS`].
struct ClockAnchors {
    older: ClockSample,
    newer: ClockSample,
    /// The last measurement was thrown away for being far from the factor in use.
    doubt: bool,
}

/// Both clocks at (nearly) one instant.
#[derive(Clone, Copy)]
struct ClockSample {
    ticks: u64,
    ns: u64,
}

/// The factor is measured over 32 to 64 s: a reading is good to some 50 ns, so that is 2 parts in 10^9, and a
/// slewed clock is still followed.
const WINDOW_NS: u64 = 32_000_000_000;
/// How long the first measurement takes: within some 25 parts per million.
const FIRST_NS: u64 = 2_000_000;

impl TickScale {
    /// Measures for two milliseconds (not at all where [`ticks`] are nanoseconds).
    pub fn calibrate() -> TickScale {
        let start = ClockSample::take();
        let mut end = start;
        while end.ns - start.ns < FIRST_NS && ticks_are_counter() {
            std::hint::spin_loop();
            end = ClockSample::take();
        }
        let factor = factor_between(start, end).unwrap_or(1 << 32);
        TickScale {
            factor: AtomicU64::new(factor),
            anchors: Mutex::new(ClockAnchors { older: start, newer: start, doubt: false }),
        }
    }

    /// Nanoseconds in a difference of stamps; saturates.
    #[inline]
    pub fn ticks_to_ns(&self, ticks: u64) -> u64 {
        let ns = (u128::from(ticks) * u128::from(self.factor.load(Relaxed))) >> 32;
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// The difference of stamps that makes `ns` nanoseconds (for thresholds); saturates.
    pub fn ns_to_ticks(&self, ns: u64) -> u64 {
        let ticks = (u128::from(ns) << 32) / u128::from(self.factor.load(Relaxed).max(1));
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Measures again, over the last 32 to 64 s. Meant for a housekeeping thread, about once a second.
    pub fn recalibrate(&self) {
        if ticks_are_counter() {
            self.measured(ClockSample::take());
        }
    }

    /// A result more than 1% off (the machine slept, or moved to another host) starts the measurement afresh, and
    /// is believed if the next one says so too.
    fn measured(&self, now: ClockSample) {
        let mut anchors = self.anchors.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.factor.load(Relaxed);
        match factor_between(anchors.older, now) {
            Some(new) if new.abs_diff(old) <= old / 100 || anchors.doubt => {
                self.factor.store(new, Relaxed);
                anchors.doubt = false;
                if now.ns - anchors.newer.ns >= WINDOW_NS {
                    anchors.older = anchors.newer;
                    anchors.newer = now;
                }
            }
            _ => *anchors = ClockAnchors { older: now, newer: now, doubt: true },
        }
    }
}

/// The process-wide scale, calibrated by its first caller, which waits two milliseconds for it: ask for it at start.
pub fn scale() -> &'static TickScale {
    static SCALE: OnceLock<TickScale> = OnceLock::new();
    SCALE.get_or_init(TickScale::calibrate)
}

impl ClockSample {
    /// The closest of five pairs: a preemption between the two readings spoils one pair, hardly all.
    fn take() -> ClockSample {
        let pair = || {
            let before = ticks();
            let ns = monotonic_ns();
            let width = ticks().saturating_sub(before);
            (width, ClockSample { ticks: before + width / 2, ns })
        };
        let mut best = pair();
        for _ in 0..4 {
            let next = pair();
            if next.0 < best.0 {
                best = next;
            }
        }
        best.1
    }
}

/// Nanoseconds per tick in 32.32; `None` if one of the clocks did not move forward or the result is no number of
/// that form.
fn factor_between(a: ClockSample, b: ClockSample) -> Option<u64> {
    let ticks = b.ticks.checked_sub(a.ticks)?;
    let ns = b.ns.checked_sub(a.ns).filter(|&ns| ns > 0)?;
    let factor = (u128::from(ns) << 32).checked_div(u128::from(ticks))?;
    u64::try_from(factor).ok().filter(|&f| f > 0)
}

#[cold]
fn decide() {
    SOURCE.store(if counter_is_trusted() { COUNTER } else { MONOTONIC }, Relaxed);
}

#[cfg(target_arch = "x86_64")]
fn counter_is_trusted() -> bool {
    std::fs::read_to_string(CLOCK_SOURCE).is_ok_and(|name| name.trim() == "tsc")
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: rdtsc exists on every x86_64, and is not trapped where the kernel's clock source is tsc (its vDSO
    // executes the same instruction); it touches no memory.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter_is_trusted() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    monotonic_ns()
}

#[inline]
fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is valid for writes; the clocks asked for here exist on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t
}

#[inline]
fn nanoseconds(t: libc::timespec) -> u64 {
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::in_child;

    #[test]
    fn stamps_follow_the_monotonic_clock() {
        let scale = scale();
        // Stamps inside the clock's readings: never more than those say, however often we are preempted.
        let (outer, from) = (monotonic_ns(), ticks());
        while monotonic_ns() < outer + 5_000_000 {
            std::hint::spin_loop();
        }
        let inside = scale.ticks_to_ns(ticks().saturating_sub(from));
        let outside = monotonic_ns() - outer;
        assert!(inside <= outside + outside / 100 + 1000, "{inside} of {outside}");
        // And the other way round: never less.
        let (from, inner) = (ticks(), monotonic_ns());
        while monotonic_ns() < inner + 5_000_000 {
            std::hint::spin_loop();
        }
        let inside = monotonic_ns() - inner;
        let outside = scale.ticks_to_ns(ticks().saturating_sub(from));
        assert!(outside + outside / 100 + 1000 >= inside, "{outside} of {inside}");
        scale.recalibrate();
    }

    #[test]
    fn scales_there_and_back() {
        let scale = TickScale::calibrate();
        for ns in [0, 1_000, 1_000_000_000, 86_400_000_000_000] {
            let back = scale.ticks_to_ns(scale.ns_to_ticks(ns));
            assert!(back.abs_diff(ns) <= 2 + ns / 1_000_000, "{ns} became {back}");
        }
        let huge = scale.ticks_to_ns(u64::MAX);
        assert!(huge > 1 << 60, "saturates rather than wraps: {huge}");
    }

    fn at(ticks: u64, ns: u64) -> ClockSample {
        ClockSample { ticks, ns }
    }

    fn scale_of(factor: u64, start: ClockSample) -> TickScale {
        let anchors = Mutex::new(ClockAnchors { older: start, newer: start, doubt: false });
        TickScale { factor: AtomicU64::new(factor), anchors }
    }

    #[test]
    fn recalibration_uses_a_long_window_that_moves() {
        let scale = scale_of(1 << 31, at(0, 0)); // half a nanosecond per tick
        for s in 1..=200u64 {
            scale.measured(at(s * 2_000_000_100, s * 1_000_000_000));
        }
        let ns = scale.ticks_to_ns(2_000_000_100);
        assert!(ns.abs_diff(1_000_000_000) <= 1, "{ns}");
        let older = scale.anchors.lock().expect("not poisoned").older;
        assert!((136..=168).contains(&(older.ns / 1_000_000_000)), "window starts at {}", older.ns);
    }

    #[test]
    fn one_wild_measurement_is_not_believed_two_are() {
        let scale = scale_of(1 << 32, at(0, 0));
        scale.measured(at(1_000_000_000, 2_000_000_000));
        assert_eq!(scale.ticks_to_ns(1000), 1000);
        scale.measured(at(2_000_000_000, 4_000_000_000));
        assert_eq!(scale.ticks_to_ns(1000), 2000);
        // The counter was reset: started afresh without a panic.
        scale.measured(at(5, 5_000_000_000));
        scale.measured(at(1_000_000_005, 7_000_000_000));
        assert_eq!(scale.ticks_to_ns(1000), 2000);
    }

    #[test]
    fn wall_time_agrees_with_the_standard_library() {
        let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let (before, (s, ms), after) = (now().as_millis(), unix_time(), now().as_millis());
        let mine = u128::from(s) * 1000 + u128::from(ms);
        assert!(ms < 1000 && before <= mine && mine <= after);
        assert!(monotonic_ms() <= monotonic_ns() / 1_000_000);
        let cpu = thread_cpu_ns();
        assert!(thread_cpu_ns() >= cpu);
    }

    #[test]
    fn the_zone_is_the_environments() {
        let name = "clock::tests::the_zone_is_the_environments";
        if let Some(out) = in_child(name, &[("TZ", "WST-5:30")]) {
            assert!(out.status.success(), "{out:?}");
            return;
        }
        assert_eq!(local_offset(1_700_000_000), 5 * 3600 + 1800);
        assert_eq!(local_offset(u64::MAX), 0, "no such year");
    }
}
