//! Counters of one thread, of the processor and of the kernel, by perf_event_open(2): cycles, instructions, misses, page faults,
//! context switches. No BPF, no tracefs.
//!
//! Each time that a counter has counted so many events, the thread gets SIGTRAP where it is. So whoever handles the signal
//! reads the counter, and knows which events belong to what the thread does.
//!
//! Needs Linux 5.18, before which a thread that blocks SIGTRAP would die of it. A thread's own events in user mode may be counted
//! with `kernel.perf_event_paranoid` of 2 or less; those in the kernel, context switches among them, with 1 or less or
//! CAP_PERFMON.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use crate::perf::{DISABLED, ENABLE, PerfAttributes, control};
use crate::switches::{REMOVE_ON_EXEC, SIGTRAP, SOFTWARE, require_delivery};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum CounterKind {
    /// Nanoseconds on a processor; the kernel counts them.
    CpuTime,
    /// Cycles of the processor.
    Cycles,
    /// Instructions that it completed.
    Instructions,
    /// Branches that it predicted wrongly.
    BranchMisses,
    /// Accesses to memory that no cache had.
    CacheMisses,
    /// Pages that were not there, or not writable, when they were used.
    PageFaults,
    /// Times that the thread left its processor.
    ContextSwitches,
}

impl CounterKind {
    /// All of them, each at its number.
    pub const ALL: [CounterKind; 7] = [
        CounterKind::CpuTime,
        CounterKind::Cycles,
        CounterKind::Instructions,
        CounterKind::BranchMisses,
        CounterKind::CacheMisses,
        CounterKind::PageFaults,
        CounterKind::ContextSwitches,
    ];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        [
            "CPU time",
            "cycles",
            "instructions",
            "branch misses",
            "cache misses",
            "page faults",
            "context switches",
        ][self as usize]
    }

    /// The type and the number of the event.
    fn event(self) -> (u32, u64) {
        match self {
            CounterKind::CpuTime => (SOFTWARE, 1),
            CounterKind::PageFaults => (SOFTWARE, 2),
            CounterKind::ContextSwitches => (SOFTWARE, 3),
            CounterKind::Cycles => (HARDWARE, 0),
            CounterKind::Instructions => (HARDWARE, 1),
            CounterKind::CacheMisses => (HARDWARE, 3),
            CounterKind::BranchMisses => (HARDWARE, 5),
        }
    }

    /// How often it is looked at: at each event of those that are rare, or so many times a second.
    fn frequency(self) -> Option<u64> {
        let rare = matches!(self, CounterKind::PageFaults | CounterKind::ContextSwitches);
        if rare { None } else { Some(PER_SECOND) }
    }
}

/// What of a thread is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedModes {
    /// All that it does.
    All,
    /// What it does outside of the kernel.
    User,
}

/// A counter of one thread, until dropped.
#[derive(Debug)]
pub struct ThreadCounter {
    file: OwnedFd,
    modes: CountedModes,
}

/// What a counter says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterReading {
    /// Events while it counted.
    pub count: u64,
    /// Nanoseconds in which it should have counted.
    pub enabled_ns: u64,
    /// Of those, nanoseconds in which it did: a processor counts few kinds at once, and others take turns.
    pub running_ns: u64,
}

impl CounterReading {
    /// `count` of its events as they would be had it counted all the time.
    #[must_use]
    pub fn scaled(&self, count: u64) -> u64 {
        if self.running_ns == 0 || self.running_ns >= self.enabled_ns {
            return count;
        }
        let scaled = u128::from(count) * u128::from(self.enabled_ns) / u128::from(self.running_ns);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

impl ThreadCounter {
    /// Counts `kind` of the thread `tid` of this process (0: the calling one), silent until [`enable`](ThreadCounter::enable); in the kernel, too, if that is
    /// allowed. Before that the process must have a handler of SIGTRAP, which gets `number` in its `si_perf_data`.
    ///
    /// # Errors
    /// As perf_event_open(2); [`refusal`] says what they mean. `Unsupported` of kernels that can't.
    pub fn new(tid: i32, kind: CounterKind, number: u64) -> io::Result<ThreadCounter> {
        require_delivery()?;
        let mut attributes = attributes(kind, number);
        match attributes.open(tid) {
            Ok(file) => return Ok(ThreadCounter { file, modes: CountedModes::All }),
            // Switches are the kernel's: outside of it there is none to count.
            Err(error) if kind == CounterKind::ContextSwitches || !is_denied(&error) => return Err(error),
            Err(_) => attributes.flags |= EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR,
        }
        Ok(ThreadCounter { file: attributes.open(tid)?, modes: CountedModes::User })
    }

    /// Whether the kernel's part is counted.
    #[must_use]
    pub fn modes(&self) -> CountedModes {
        self.modes
    }

    /// Counts from now on.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn enable(&self) -> io::Result<()> {
        control(&self.file, ENABLE, 0)
    }

    /// Counts no more, and causes no more signals but one that is on its way.
    ///
    /// # Errors
    /// None that is known.
    pub fn disable(&self) -> io::Result<()> {
        control(&self.file, DISABLE, 0)
    }

    /// What it has counted.
    ///
    /// # Errors
    /// None that is known.
    pub fn read(&self) -> io::Result<CounterReading> {
        let mut words = [0u64; 3];
        // SAFETY: room for three words, which the read format below has; the descriptor is ours.
        let got =
            unsafe { libc::read(self.file.as_raw_fd(), words.as_mut_ptr().cast(), size_of_val(&words)) };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        let [count, enabled_ns, running_ns] = words;
        Ok(CounterReading { count, enabled_ns, running_ns })
    }

    /// The descriptor, for a handler that reads the count: the first of three words.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

fn attributes(kind: CounterKind, number: u64) -> PerfAttributes {
    let (event, config) = kind.event();
    let frequency = kind.frequency();
    PerfAttributes {
        kind: event,
        size: size_of::<PerfAttributes>() as u32,
        config,
        period: frequency.unwrap_or(1),
        read_format: TIME_ENABLED | TIME_RUNNING,
        flags: DISABLED | REMOVE_ON_EXEC | SIGTRAP | if frequency.is_some() { BY_FREQUENCY } else { 0 },
        sig_data: number,
        ..PerfAttributes::default()
    }
}

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// What decides whether counters may be used here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterLimits {
    /// `kernel.perf_event_paranoid`; `None` of a kernel without events.
    pub paranoid: Option<i32>,
    /// A filter of system calls is in force.
    pub is_filtered: bool,
    /// This is a virtual machine.
    pub is_virtual: bool,
}

impl CounterLimits {
    /// Those of this machine, for a thread whose system calls a filter checks if `is_filtered`.
    #[must_use]
    pub fn here(is_filtered: bool) -> CounterLimits {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpus = text("/proc/cpuinfo");
        let flags = cpus.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        CounterLimits {
            paranoid: text("/proc/sys/kernel/perf_event_paranoid").trim().parse().ok(),
            is_filtered,
            is_virtual: flags.split(' ').any(|flag| flag == "hypervisor")
                || Path::new("/sys/hypervisor/type").exists(),
        }
    }

    /// Why `kind` can't be counted where opening it failed so, and what to do.
    #[must_use]
    pub fn refusal(&self, kind: CounterKind, error: &io::Error) -> String {
        // Without privileges this level lets a thread count its own events, in user mode; the level before the kernel's, too.
        let needed = if kind == CounterKind::ContextSwitches { 1 } else { 2 };
        match error.raw_os_error() {
            // The level itself is EACCES.
            Some(libc::EPERM) if self.is_filtered => FILTERED.to_owned(),
            Some(libc::EPERM | libc::EACCES) => match self.paranoid {
                Some(level) if level > needed => format!(
                    "kernel.perf_event_paranoid is {level}: set it to {needed} or less, or give the workers CAP_PERFMON"
                ),
                _ => format!("the kernel does not allow perf_event_open ({error}): a security module, perhaps"),
            },
            Some(libc::ENOSYS) if self.is_filtered && self.paranoid.is_some() => FILTERED.to_owned(),
            Some(libc::ENOSYS) => "the kernel was built without CONFIG_PERF_EVENTS".to_owned(),
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO) if self.is_virtual => {
                "this virtual machine has no such counter: its host must pass it on (KVM: -cpu host,pmu=on; clouds: \
                 metal or whole-socket instances)"
                    .to_owned()
            }
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO) => {
                "this processor has no such counter, or the kernel no driver for it".to_owned()
            }
            Some(libc::EBUSY) => "another tool has the processor's counters to itself".to_owned(),
            Some(libc::EMFILE) => "no file descriptors are left: raise worker_rlimit_nofile".to_owned(),
            _ => error.to_string(),
        }
    }
}

const FILTERED: &str = "a seccomp filter forbids perf_event_open, as containers' do: allow that call, or CAP_PERFMON where the \
                        profile goes by it";
/// Looks a second at counters that count much: 1 ms apart, in step with nothing.
const PER_SECOND: u64 = 997;
/// The type of events that the processor counts.
const HARDWARE: u32 = 0;
const TIME_ENABLED: u64 = 1;
const TIME_RUNNING: u64 = 2;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// `period` is so many times a second.
const BY_FREQUENCY: u64 = 1 << 10;
const DISABLE: u64 = 0x2401;

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(paranoid: Option<i32>, is_filtered: bool, is_virtual: bool) -> CounterLimits {
        CounterLimits { paranoid, is_filtered, is_virtual }
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        use CounterKind::{ContextSwitches, Cycles, PageFaults};
        let (bare, machine) = (limits(Some(2), false, false), limits(Some(2), false, true));
        for (limits, kind, errno, says) in [
            (
                limits(Some(3), false, false),
                PageFaults,
                libc::EACCES,
                "kernel.perf_event_paranoid is 3: set it to 2",
            ),
            (
                limits(Some(4), true, true),
                Cycles,
                libc::EACCES,
                "kernel.perf_event_paranoid is 4: set it to 2",
            ),
            (limits(Some(2), true, false), ContextSwitches, libc::EPERM, "a seccomp filter forbids"),
            (bare, ContextSwitches, libc::EACCES, "kernel.perf_event_paranoid is 2: set it to 1"),
            (limits(Some(2), true, false), PageFaults, libc::EPERM, "a seccomp filter forbids"),
            (limits(Some(1), true, false), ContextSwitches, libc::ENOSYS, "a seccomp filter forbids"),
            (bare, PageFaults, libc::EPERM, "a security module"),
            (limits(None, false, false), PageFaults, libc::ENOSYS, "CONFIG_PERF_EVENTS"),
            (machine, Cycles, libc::ENOENT, "this virtual machine has no such counter"),
            (machine, Cycles, libc::EOPNOTSUPP, "pmu=on"),
            (bare, Cycles, libc::ENOENT, "this processor has no such counter"),
            (bare, Cycles, libc::EBUSY, "another tool"),
            (bare, Cycles, libc::EMFILE, "worker_rlimit_nofile"),
            (bare, Cycles, libc::E2BIG, "Argument list too long"),
        ] {
            let text = limits.refusal(kind, &io::Error::from_raw_os_error(errno));
            assert!(text.contains(says), "{limits:?} {kind:?} {errno}: {text}");
        }
    }

    #[test]
    fn counters_that_took_turns_are_scaled() {
        let reading = |enabled_ns, running_ns| CounterReading { count: 0, enabled_ns, running_ns };
        assert_eq!(reading(100, 25).scaled(1_000), 4_000);
        assert_eq!(
            (reading(100, 100).scaled(7), reading(0, 0).scaled(7), reading(9, 0).scaled(7)),
            (7, 7, 7)
        );
        assert_eq!(reading(u64::MAX, 1).scaled(u64::MAX), u64::MAX);
    }

    #[test]
    fn the_kernel_counts_what_this_thread_does_or_says_why_not() {
        for kind in CounterKind::ALL {
            match ThreadCounter::new(0, kind, 0) {
                Ok(counter) => {
                    assert!(
                        counter.fd() >= 0 && counter.read().expect("ours").count == 0,
                        "{kind:?}: not enabled"
                    );
                }
                Err(error) => assert!(!CounterLimits::here(false).refusal(kind, &error).is_empty()),
            }
        }
    }
}
