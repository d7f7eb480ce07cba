//! When a thread of this process leaves its processor and runs again: each switch, as the kernel records it for
//! perf_event_open(2). No BPF, no tracefs. And each time the thread comes back to its own code after a switch it gets
//! SIGTRAP, at the place in which it slept; unlike other signals this one ends no sleep.
//!
//! Needs CAP_PERFMON, or `kernel.perf_event_paranoid` of 1 or less; and Linux 5.18, before which a thread that blocks SIGTRAP
//! would die of it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use crate::perf::{
    CONTEXT_SWITCH, DISABLED, ENABLE, ID_ALWAYS, PerfAttributes, PerfRing, RECORD_LOST, RECORD_SWITCH,
    SAMPLE_TIME, SWITCH_OUT, USE_CLOCKID, control,
};

/// What a switch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchKind {
    /// The thread sleeps.
    Sleeps,
    /// It could go on; another one has its processor.
    Preempted,
    /// It runs again.
    Runs,
}

/// A switch of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadSwitch {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub time: u64,
    /// What it is.
    pub kind: SwitchKind,
}

/// The switches of one thread, until dropped.
#[derive(Debug)]
pub struct SwitchRecorder {
    file: OwnedFd,
    ring: PerfRing,
}

impl SwitchRecorder {
    /// Of the thread `tid`, silent until [`enable`](SwitchRecorder::enable). Before that the process must have a handler of SIGTRAP,
    /// which gets `number` in its `si_perf_data`.
    ///
    /// # Errors
    /// EACCES or EPERM without the right to; `Unsupported` or ENOSYS of kernels that can't.
    pub fn new(tid: i32, number: u64) -> io::Result<SwitchRecorder> {
        require_delivery()?;
        let attributes = PerfAttributes {
            kind: SOFTWARE,
            size: size_of::<PerfAttributes>() as u32,
            config: CONTEXT_SWITCHES,
            period: 1,
            sample_type: SAMPLE_TIME,
            flags: DISABLED | USE_CLOCKID | CONTEXT_SWITCH | ID_ALWAYS | REMOVE_ON_EXEC | SIGTRAP,
            clockid: libc::CLOCK_MONOTONIC,
            wakeup: u32::MAX,
            sig_data: number,
            ..PerfAttributes::default()
        };
        let file = attributes.open(tid)?;
        let ring = PerfRing::new(&file, &[256, 64, 16])?;
        Ok(SwitchRecorder { file, ring })
    }

    /// Records from now on.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn enable(&self) -> io::Result<()> {
        control(&self.file, ENABLE, 0)
    }

    /// Appends what has come since the last time, in order, and says how many records were lost because they were not fetched in time.
    pub fn read(&mut self, switches: &mut Vec<ThreadSwitch>) -> u64 {
        let mut lost = 0;
        self.ring.drain(|header, words| match (header as u32, words) {
            (RECORD_SWITCH, [time, ..]) => switches.push(ThreadSwitch { time: *time, kind: kind(header) }),
            (RECORD_LOST, [_, count, ..]) => lost += count,
            _ => {}
        });
        lost
    }
}

/// That this kernel holds back a SIGTRAP of an event that is blocked.
pub(crate) fn require_delivery() -> io::Result<()> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    match delivers(&release) {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::Unsupported, "Linux 5.18 is needed")),
    }
}

/// Whether a kernel of that release holds back a SIGTRAP of an event that is blocked.
fn delivers(release: &str) -> bool {
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (5, 18)
}

fn kind(header: u64) -> SwitchKind {
    match (header & SWITCH_OUT != 0, header & SWITCH_OUT_PREEMPT != 0) {
        (false, _) => SwitchKind::Runs,
        (true, false) => SwitchKind::Sleeps,
        (true, true) => SwitchKind::Preempted,
    }
}

/// The type of events that the kernel counts itself, and the one of switches.
pub(crate) const SOFTWARE: u32 = 1;
const CONTEXT_SWITCHES: u64 = 3;
/// Required with the next one.
pub(crate) const REMOVE_ON_EXEC: u64 = 1 << 36;
pub(crate) const SIGTRAP: u64 = 1 << 37;
/// In the header's `misc`, its third 16 bits.
const SWITCH_OUT_PREEMPT: u64 = 1 << (32 + 14);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_known_by_their_release() {
        let able = ["5.18.0", "6.1.0-21-amd64", "6.18.44-x", "10.0"].map(delivers);
        assert_eq!((able, ["5.17.9", "4.19.0", "", "x"].map(delivers)), ([true; 4], [false; 4]));
    }

    #[test]
    fn headers_say_which_switch_it_was() {
        let header = |misc: u64| u64::from(RECORD_SWITCH) | misc << 32 | 16 << 48;
        let kinds = [0, 0x2000, 0x6000].map(|misc| kind(header(misc)));
        assert_eq!(kinds, [SwitchKind::Runs, SwitchKind::Sleeps, SwitchKind::Preempted]);
    }
}
