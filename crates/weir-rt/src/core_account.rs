//! Of a turn that took long, how much the loop's thread did not run: asleep in a call, or ready and without a core.
//!
//! The kernel knows both, at the price of two system calls (1.5 µs). They are made at the end of turns that took long,
//! and, to know what was before, at the beginning of a turn or of what a request runs in it when that is a millisecond
//! ago. What is read then is understood only when it is needed.

use std::cell::{Cell, OnceCell, RefCell};
use std::fs::File;
use std::os::fd::AsRawFd;

use crate::clock;
use crate::stats::LoopStats;
use crate::thread_watch::thread_id;

/// Time of a turn in which the thread did not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffCore {
    /// It slept in a call that blocks, in nanoseconds.
    pub asleep_ns: u64,
    /// It could have run and had no core: another thread had it, or another virtual machine. In nanoseconds.
    pub no_core_ns: u64,
}

impl OffCore {
    fn plus(self, other: OffCore) -> OffCore {
        OffCore {
            asleep_ns: self.asleep_ns + other.asleep_ns,
            no_core_ns: self.no_core_ns + other.no_core_ns,
        }
    }
}

/// A thread's account of its cores; only that thread uses it.
pub(crate) struct CoreAccount {
    /// `/proc/self/task/TID/schedstat`; `None` where there is none: then nothing is said.
    file: OnceCell<Option<File>>,
    /// When it was read last, in ticks.
    read_at: Cell<u64>,
    /// Ticks after which it is read again at the beginning of a turn, or of what runs in it.
    due: u64,
    before: RefCell<RawReading>,
    /// Of this turn, as far as it was asked for.
    turn: Cell<OffCore>,
}

/// What the kernel and the loop said at one moment.
#[derive(Clone, Copy, Default)]
struct RawReading {
    at: u64,
    cpu: CpuTime,
    text: SchedText,
    parked_ns: u64,
    turns: u64,
}

#[derive(Clone, Copy, Default)]
struct CpuTime {
    seconds: i64,
    ns: i64,
}

/// The text of a `schedstat` file: run time, time without a core, number of times on one.
#[derive(Clone, Copy)]
struct SchedText {
    bytes: [u8; TEXT],
    len: usize,
}

impl Default for SchedText {
    fn default() -> SchedText {
        SchedText { bytes: [0; TEXT], len: 0 }
    }
}

impl CoreAccount {
    pub(crate) fn new() -> CoreAccount {
        CoreAccount {
            file: OnceCell::new(),
            read_at: Cell::new(0),
            due: clock::scale().ns_to_ticks(LONG_TURN_NS),
            before: RefCell::default(),
            turn: Cell::default(),
        }
    }

    /// Whether the last reading is too long ago for what begins at `now`, in ticks.
    #[inline]
    fn is_due(&self, now: u64) -> bool {
        now.wrapping_sub(self.read_at.get()) > self.due
    }

    /// A turn begins at `now`, in ticks.
    #[inline]
    pub(crate) fn turn_began(&self, now: u64, stats: &LoopStats) {
        if self.is_due(now) {
            self.refresh(now, stats);
        }
    }

    #[cold]
    #[inline(never)]
    fn refresh(&self, now: u64, stats: &LoopStats) {
        self.read_at.set(now);
        *self.before.borrow_mut() = self.read(now, stats);
    }

    /// What runs in a turn for a request begins at `now`, in ticks: what was lost before in the turn is not its own.
    #[inline]
    pub(crate) fn run_began(&self, now: u64, stats: &LoopStats) {
        if self.is_due(now) {
            self.lost_before(now, stats);
        }
    }

    #[cold]
    #[inline(never)]
    fn lost_before(&self, now: u64, stats: &LoopStats) {
        self.read_at.set(now);
        self.lost(stats);
    }

    /// What the thread lost since the last reading, which was less than a millisecond before this turn began, or in it.
    pub(crate) fn lost(&self, stats: &LoopStats) -> OffCore {
        if self.file().is_none() {
            return OffCore::default();
        }
        let now = clock::ticks();
        let after = self.read(now, stats);
        let before = self.before.replace(after);
        self.read_at.set(now);
        let lost = if before.at == 0 { OffCore::default() } else { between(&before, &after) };
        self.turn.set(self.turn.get().plus(lost));
        lost
    }

    /// What the thread lost in the turn that ends.
    pub(crate) fn turn_ended(&self, stats: &LoopStats) -> OffCore {
        self.lost(stats);
        self.turn.take()
    }

    fn file(&self) -> Option<&File> {
        let open = || File::open(format!("/proc/self/task/{}/schedstat", thread_id())).ok();
        self.file.get_or_init(open).as_ref()
    }

    fn read(&self, at: u64, stats: &LoopStats) -> RawReading {
        let mut text = SchedText::default();
        if let Some(file) = self.file() {
            // SAFETY: the buffer has room for TEXT bytes, and is written for the call only.
            let read = unsafe { libc::pread(file.as_raw_fd(), text.bytes.as_mut_ptr().cast(), TEXT, 0) };
            text.len = usize::try_from(read).unwrap_or(0);
        }
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: room for one timespec. Straight to the kernel, which alone knows this clock.
        unsafe {
            libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        }
        let cpu = CpuTime { seconds: time.tv_sec, ns: time.tv_nsec };
        RawReading { at, cpu, text, parked_ns: stats.parked_ns.get(), turns: stats.turns.get() }
    }
}

/// What was lost between two readings, with what the loop waited for events in between taken away.
fn between(before: &RawReading, after: &RawReading) -> OffCore {
    let (Some(earlier), Some(later)) = (before.text.numbers(), after.text.numbers()) else {
        return OffCore::default();
    };
    let wall = clock::scale().ticks_to_ns(after.at.saturating_sub(before.at));
    // A wait takes some time on the core, too; of one that was longer the thread slept the rest.
    let waits = after.turns.saturating_sub(before.turns) * WAIT_CPU_NS;
    let parked = after.parked_ns.saturating_sub(before.parked_ns).saturating_sub(waits);
    let cpu = after.cpu.ns_since(before.cpu);
    split(
        wall.saturating_sub(cpu).saturating_sub(parked),
        later.delay_ns.saturating_sub(earlier.delay_ns),
        later.times != earlier.times,
    )
}

/// `off_ns` off the core, of which the kernel had the thread wait `delay_ns` in a run queue. A thread that was not
/// switched did not sleep: then the machine itself did not run.
fn split(off_ns: u64, delay_ns: u64, switched: bool) -> OffCore {
    if off_ns < NOISE_NS {
        return OffCore::default();
    }
    let no_core_ns = if switched { delay_ns.min(off_ns) } else { off_ns };
    let asleep_ns = off_ns - no_core_ns;
    OffCore { asleep_ns: if asleep_ns < NOISE_NS { 0 } else { asleep_ns }, no_core_ns }
}

impl CpuTime {
    fn ns_since(self, before: CpuTime) -> u64 {
        let ns = (self.seconds - before.seconds) * 1_000_000_000 + self.ns - before.ns;
        ns.try_into().unwrap_or(0)
    }
}

struct SchedNumbers {
    delay_ns: u64,
    times: u64,
}

impl SchedText {
    fn numbers(&self) -> Option<SchedNumbers> {
        let text = std::str::from_utf8(self.bytes.get(..self.len)?).ok()?;
        let mut numbers = text.split_ascii_whitespace().skip(1);
        Some(SchedNumbers { delay_ns: numbers.next()?.parse().ok()?, times: numbers.next()?.parse().ok()? })
    }
}

/// Turns from this length on are asked for, in nanoseconds.
pub(crate) const LONG_TURN_NS: u64 = 1_000_000;
/// What a wait for events takes of the core, about, in nanoseconds.
const WAIT_CPU_NS: u64 = 5_000;
/// Less than this is no loss but the distance of two clocks, in nanoseconds.
const NOISE_NS: u64 = 10_000;
/// Three numbers of at most 20 digits.
const TEXT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn stats() -> LoopStats {
        LoopStats::default()
    }

    #[test]
    fn what_is_off_the_core_is_split() {
        let off = |asleep_ns, no_core_ns| OffCore { asleep_ns, no_core_ns };
        assert_eq!(split(9_999, 5_000, true), off(0, 0));
        assert_eq!(split(20_000_000, 0, true), off(20_000_000, 0));
        assert_eq!(split(2_400_000, 2_395_000, true), off(0, 2_395_000), "the rest is noise");
        assert_eq!(
            split(2_400_000, 9_000_000, true),
            off(0, 2_400_000),
            "the run queue of before is not of this turn"
        );
        assert_eq!(split(30_000_000, 10_000_000, true), off(20_000_000, 10_000_000));
        assert_eq!(split(2_400_000, 0, false), off(0, 2_400_000), "not switched: the machine stood still");
    }

    #[test]
    fn a_thread_that_sleeps_is_found_asleep_and_one_that_runs_is_not() {
        let (account, stats) = (CoreAccount::new(), stats());
        account.turn_began(clock::ticks(), &stats);
        std::thread::sleep(Duration::from_millis(20));
        let slept = account.lost(&stats);
        assert!(slept.asleep_ns >= 15_000_000, "{slept:?}");
        let (cpu, begun) = (clock::thread_cpu_ns(), Instant::now());
        while clock::thread_cpu_ns() - cpu < 20_000_000 {
            std::hint::spin_loop();
        }
        let lost = account.lost(&stats);
        let wall = begun.elapsed().as_nanos() as u64;
        // On a busy machine the loop above lost its core; it never slept.
        let on = wall - lost.no_core_ns - lost.asleep_ns;
        assert!(on.abs_diff(20_000_000) < 2_000_000, "{lost:?} of {wall}");
        let all = account.turn_ended(&stats);
        assert!(
            all.asleep_ns >= slept.asleep_ns && account.turn_ended(&stats).asleep_ns < 1_000_000,
            "{all:?}"
        );
    }

    #[test]
    fn what_is_lost_before_a_request_runs_is_the_turn_s_alone() {
        let (account, stats) = (CoreAccount::new(), stats());
        account.turn_began(clock::ticks(), &stats);
        std::thread::sleep(Duration::from_millis(20));
        account.run_began(clock::ticks(), &stats);
        let of_request = account.lost(&stats);
        assert!(of_request.asleep_ns < 5_000_000, "{of_request:?}");
        let of_turn = account.turn_ended(&stats);
        assert!(of_turn.asleep_ns >= 15_000_000, "{of_turn:?}");
    }

    #[test]
    fn waits_for_events_are_no_loss() {
        let (account, stats) = (CoreAccount::new(), stats());
        account.turn_began(clock::ticks(), &stats);
        let begun = clock::ticks();
        std::thread::sleep(Duration::from_millis(20));
        stats.parked_ns.add(clock::scale().ticks_to_ns(clock::ticks() - begun));
        stats.turns.add(1);
        let lost = account.lost(&stats);
        assert!(lost.asleep_ns < 5_000_000, "{lost:?}");
    }

    #[test]
    fn what_is_not_understood_is_no_number() {
        let text = |text: &str| {
            let mut bytes = [0; TEXT];
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            SchedText { bytes, len: text.len() }.numbers().map(|n| (n.delay_ns, n.times))
        };
        assert_eq!(text("1189220676 121723038 67\n"), Some((121_723_038, 67)));
        assert_eq!((text(""), text("1 x 2"), text("1 2")), (None, None, None));
    }
}
