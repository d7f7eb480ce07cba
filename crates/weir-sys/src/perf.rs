//! Probes on functions of another process (uprobes), set through perf_event_open(2) alone: no BPF, no tracefs, nothing
//! that outlives the descriptors. When the process that set them ends, however it does, they are gone; the kernel takes
//! some 50 to 100 ms for each of them, one after the other.
//!
//! Needs root or CAP_PERFMON. What a hit costs the probed process is measured by [`calibrate`].

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a record is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordKind {
    /// A function was entered.
    #[default]
    Entry,
    /// A function returned.
    Return,
    /// The thread left its processor: it waits, or another one has its turn.
    Off,
    /// The thread runs again.
    On,
}

/// A probe was hit, or the thread stopped or went on running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeHit {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub time: u64,
    /// What happened: the kind of record.
    pub what: RecordKind,
    /// The number the probe was given.
    pub number: u32,
    /// At the entry, its first argument.
    pub first: u64,
    /// At the entry, its second argument.
    pub second: u64,
    /// At the return, what it returns.
    pub result: u64,
    /// The stack pointer.
    pub stack: u64,
}

/// Where in a function a probe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbePoint {
    /// At the function's entry.
    Entry,
    /// At its return.
    Return,
}

/// The probes of one process (of one thread of it: its first), and where their hits arrive.
#[derive(Debug)]
pub struct UprobeSet {
    /// The number of the uprobe PMU on this machine.
    kind: u32,
    pid: i32,
    probes: HashMap<u64, (u32, ProbePoint)>,
    files: Vec<OwnedFd>,
    ring: Option<PerfRing>,
}

impl UprobeSet {
    /// For the process `pid`; 0 is the calling thread itself.
    ///
    /// # Errors
    /// The kernel has no uprobes, or `pid` is not a process.
    pub fn new(pid: u32) -> io::Result<UprobeSet> {
        let kind = fs::read_to_string(PMU)?.trim().parse().map_err(io::Error::other)?;
        let pid = i32::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        Ok(UprobeSet { kind, pid, probes: HashMap::new(), files: Vec::new(), ring: None })
    }

    /// Sets a probe, which is silent until [`enable`](UprobeSet::enable), at `offset` in `file` (a program or library
    /// that the process has mapped), which a function begins at.
    ///
    /// # Errors
    /// EACCES or EPERM without the right to; ENOENT without the file; EINVAL where no instruction begins.
    pub fn probe(&mut self, file: &Path, offset: u64, point: ProbePoint, number: u32) -> io::Result<()> {
        let path = CString::new(file.as_os_str().as_bytes())?;
        let attributes = PerfAttributes {
            kind: self.kind,
            size: size_of::<PerfAttributes>() as u32,
            config: u64::from(point == ProbePoint::Return),
            period: 1,
            sample_type: SAMPLE_TIME | SAMPLE_ID | SAMPLE_REGS_USER,
            // One of the probes reports the thread's turns, too.
            flags: DISABLED
                | USE_CLOCKID
                | if self.files.is_empty() { CONTEXT_SWITCH | ID_ALWAYS } else { 0 },
            path: path.as_ptr() as u64,
            offset,
            regs_user: REGISTERS,
            clockid: libc::CLOCK_MONOTONIC,
            wakeup: u32::MAX,
            ..PerfAttributes::default()
        };
        let fd = attributes.open(self.pid)?;
        match (&self.ring, self.files.first()) {
            (Some(_), Some(first)) => {
                control(&fd, SET_OUTPUT, first.as_raw_fd() as u64)?;
            }
            _ => self.ring = Some(PerfRing::new(&fd, &[1024, 128, 32])?),
        }
        let mut id = 0u64;
        control(&fd, ID, (&raw mut id) as u64)?;
        self.probes.insert(id, (number, point));
        self.files.push(fd);
        Ok(())
    }

    /// Number of probes that were set.
    #[must_use]
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// Makes all probes report from now on.
    ///
    /// # Errors
    /// The process has ended.
    pub fn enable(&self) -> io::Result<()> {
        self.files.iter().try_for_each(|file| control(file, ENABLE, 0))
    }

    /// Appends what has arrived to `hits`, in order, and says how many hits were lost because they were not fetched in
    /// time.
    pub fn read(&mut self, hits: &mut Vec<ProbeHit>) -> u64 {
        let Some(ring) = &mut self.ring else { return 0 };
        let mut lost = 0;
        let probes = &self.probes;
        ring.drain(|header, words| match (header as u32, words) {
            (RECORD_SAMPLE, [time, id, abi, registers @ ..]) if *abi != 0 => {
                if let Some(&(number, point)) = probes.get(id) {
                    let [first, second, result, stack] = named(registers);
                    let what = match point {
                        ProbePoint::Return => RecordKind::Return,
                        ProbePoint::Entry => RecordKind::Entry,
                    };
                    hits.push(ProbeHit { time: *time, what, number, first, second, result, stack });
                }
            }
            (RECORD_SWITCH, [time, ..]) => {
                let what = if header & SWITCH_OUT != 0 { RecordKind::Off } else { RecordKind::On };
                hits.push(ProbeHit { time: *time, what, ..ProbeHit::default() });
            }
            (RECORD_LOST, [_, count, ..]) => lost += count,
            _ => {}
        });
        lost
    }
}

/// `struct perf_event_attr` (include/uapi/linux/perf_event.h, version 7; kernels that know less accept zeros).
#[repr(C)]
#[derive(Default)]
pub(crate) struct PerfAttributes {
    pub(crate) kind: u32,
    pub(crate) size: u32,
    pub(crate) config: u64,
    pub(crate) period: u64,
    pub(crate) sample_type: u64,
    pub(crate) read_format: u64,
    pub(crate) flags: u64,
    pub(crate) wakeup: u32,
    pub(crate) breakpoint: u32,
    /// `uprobe_path`
    pub(crate) path: u64,
    /// `probe_offset`
    pub(crate) offset: u64,
    pub(crate) branch: u64,
    pub(crate) regs_user: u64,
    pub(crate) stack_user: u32,
    pub(crate) clockid: i32,
    pub(crate) regs_intr: u64,
    pub(crate) aux_watermark: u32,
    pub(crate) max_stack: u16,
    pub(crate) reserved: u16,
    pub(crate) aux_sample: u32,
    pub(crate) reserved_too: u32,
    pub(crate) sig_data: u64,
}

impl PerfAttributes {
    /// Opens the event for the thread `tid`, wherever that runs.
    pub(crate) fn open(&self, tid: i32) -> io::Result<OwnedFd> {
        // SAFETY: the kernel reads `size` bytes of `self` and the path it points to, if there is one; both outlive the call.
        // The rest are integers.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, std::ptr::from_ref(self), tid, -1, -1, CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made this descriptor, and nothing else refers to it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    }
}

pub(crate) fn control(file: &OwnedFd, request: u64, argument: u64) -> io::Result<()> {
    // SAFETY: each request used here takes an integer or the address of a u64 of the caller's frame.
    let failed = unsafe { libc::ioctl(file.as_raw_fd(), request as _, argument) };
    if failed < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The memory that the kernel writes records to: a page about it, and a ring of pages.
#[derive(Debug)]
pub(crate) struct PerfRing {
    base: NonNull<u8>,
    /// Bytes of the ring itself, a power of two.
    size: usize,
}

// SAFETY: the mapping belongs to the ring alone, and all access to it goes through `&mut self`.
unsafe impl Send for PerfRing {}

impl PerfRing {
    /// Maps the ring of a descriptor, of so many pages, or of fewer where a user without CAP_IPC_LOCK may not have more.
    pub(crate) fn new(file: &OwnedFd, pages: &[usize]) -> io::Result<PerfRing> {
        let mut error = io::Error::from_raw_os_error(libc::EPERM);
        for pages in pages {
            let (size, rights) = (pages * PAGE, libc::PROT_READ | libc::PROT_WRITE);
            // SAFETY: a fresh mapping at an address that the kernel chooses touches nothing of ours.
            let base = unsafe {
                libc::mmap(std::ptr::null_mut(), size + PAGE, rights, libc::MAP_SHARED, file.as_raw_fd(), 0)
            };
            match NonNull::new(base.cast()).filter(|_| base != libc::MAP_FAILED) {
                Some(base) => return Ok(PerfRing { base, size }),
                None => error = io::Error::last_os_error(),
            }
        }
        Err(error)
    }

    /// Gives every complete record to `each`: its header and its words after that.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(u64, &[u64])) {
        let head = self.word(DATA_HEAD).load(Ordering::Acquire);
        let mut tail = self.word(DATA_TAIL).load(Ordering::Relaxed);
        let mut words = [0u64; 16];
        while tail < head {
            let header = self.data(tail);
            let bytes = header >> 48;
            if bytes < 8 {
                break;
            }
            let count = ((bytes / 8 - 1) as usize).min(words.len());
            for (at, word) in words[..count].iter_mut().enumerate() {
                *word = self.data(tail + 8 * (at as u64 + 1));
            }
            each(header, &words[..count]);
            tail += bytes;
        }
        self.word(DATA_TAIL).store(head, Ordering::Release);
    }

    /// A word of the ring; `at` counts from its first use on.
    fn data(&self, at: u64) -> u64 {
        let offset = PAGE + (at as usize & (self.size - 1) & !7);
        // SAFETY: `offset` is within the mapping and a multiple of 8. The kernel writes there only after what the
        // tail says was read.
        unsafe { self.base.add(offset).cast::<u64>().read_volatile() }
    }

    /// `data_head` and `data_tail` in the first page, which the kernel shares.
    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page is mapped as long as `self` is, and the offset is a multiple of 8 in it.
        unsafe { self.base.add(offset).cast::<AtomicU64>().as_ref() }
    }
}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `new` made, with its length; nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size + PAGE) };
    }
}

/// First and second argument, result, stack pointer.
#[cfg(target_arch = "x86_64")]
fn named(registers: &[u64]) -> [u64; 4] {
    // In the order of their numbers: ax, si, di, sp.
    let &[ax, si, di, sp, ..] = registers else { return [0; 4] };
    [di, si, ax, sp]
}

/// The arguments of a probe, by the registers of this processor.
#[cfg(not(target_arch = "x86_64"))]
fn named(registers: &[u64]) -> [u64; 4] {
    // aarch64: x0, x1, sp.
    let &[x0, x1, sp, ..] = registers else { return [0; 4] };
    [x0, x1, x0, sp]
}

/// Which registers a sample holds (arch/*/include/uapi/asm/perf_regs.h).
#[cfg(target_arch = "x86_64")]
const REGISTERS: u64 = 1 | 1 << 4 | 1 << 5 | 1 << 7;
#[cfg(not(target_arch = "x86_64"))]
const REGISTERS: u64 = 1 | 1 << 1 | 1 << 31;

/// What the kernel adds to the time between two hits of one thread, by what the first and the second one are. Its
/// nanoseconds are part of every such interval and none of the program's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCosts {
    /// From an entry on to the next entry, where the first instruction is one the kernel carries out itself (push, nop).
    pub entry_entry: u64,
    /// From such an entry to a return.
    pub entry_return: u64,
    /// From an entry whose first instruction is stepped, to the next one.
    pub stepped_entry: u64,
    /// From such an entry to a return.
    pub stepped_return: u64,
    /// From a return to a return.
    pub return_return: u64,
    /// From a return to an entry.
    pub return_entry: u64,
}

/// Measures [`ProbeCosts`] on two functions of this program that do nothing, one calling the other. Takes milliseconds.
///
/// # Errors
/// As [`UprobeSet::probe`].
#[cfg(target_arch = "x86_64")]
pub fn calibrate() -> io::Result<ProbeCosts> {
    let [entry_entry, entry_return, return_return, return_entry] = idle::intervals(idle::PUSHED)?;
    let [stepped_entry, stepped_return, ..] = idle::intervals(idle::STEPPED)?;
    Ok(ProbeCosts { entry_entry, entry_return, stepped_entry, stepped_return, return_return, return_entry })
}

/// The cost of a probe is not known for this processor: nothing is subtracted.
///
/// # Errors
/// None.
#[cfg(not(target_arch = "x86_64"))]
pub fn calibrate() -> io::Result<ProbeCosts> {
    Ok(ProbeCosts::default())
}

/// Functions that do nothing.
#[cfg(target_arch = "x86_64")]
mod idle {
    use std::arch::naked_asm;
    use std::path::Path;
    use std::{fs, io};

    use super::{ProbePoint, RecordKind, UprobeSet};

    /// One that calls the other, and that one.
    pub(super) type ProbePair = [extern "C" fn(); 2];
    pub(super) const PUSHED: ProbePair = [outer_pushed, inner_pushed];
    pub(super) const STEPPED: ProbePair = [outer_stepped, inner_stepped];

    #[unsafe(naked)]
    extern "C" fn inner_pushed() {
        naked_asm!("push rbp", "pop rbp", "ret");
    }

    #[unsafe(naked)]
    extern "C" fn outer_pushed() {
        naked_asm!("push rbp", "call {inner}", "pop rbp", "ret", inner = sym inner_pushed);
    }

    #[unsafe(naked)]
    extern "C" fn inner_stepped() {
        naked_asm!("sub rsp, 8", "add rsp, 8", "ret");
    }

    #[unsafe(naked)]
    extern "C" fn outer_stepped() {
        naked_asm!("sub rsp, 8", "call {inner}", "add rsp, 8", "ret", inner = sym inner_stepped);
    }

    /// Nanoseconds, medians: entry to entry, entry to return, return to return, return to entry.
    pub(super) fn intervals(pair: ProbePair) -> io::Result<[u64; 4]> {
        let mut probes = UprobeSet::new(0)?;
        let program = Path::new("/proc/self/exe");
        for (number, function) in (0..).zip(pair) {
            let offset = offset(function as usize as u64)?;
            probes.probe(program, offset, ProbePoint::Entry, number)?;
            probes.probe(program, offset, ProbePoint::Return, number)?;
        }
        probes.enable()?;
        let mut hits = Vec::new();
        for _ in 0..ROUNDS {
            std::hint::black_box(pair[0])();
        }
        probes.read(&mut hits);
        let mut intervals = [const { Vec::new() }; 4];
        for pair in hits.windows(2) {
            let kind = match (pair[0].what, pair[1].what) {
                (RecordKind::Entry, RecordKind::Entry) => 0,
                (RecordKind::Entry, RecordKind::Return) => 1,
                (RecordKind::Return, RecordKind::Return) => 2,
                (RecordKind::Return, RecordKind::Entry) => 3,
                _ => continue,
            };
            intervals[kind].push(pair[1].time.saturating_sub(pair[0].time));
        }
        Ok(intervals.map(|mut all| {
            all.sort_unstable();
            all.get(all.len() / 2).copied().unwrap_or(0)
        }))
    }

    /// Where in the program's file that address is.
    fn offset(address: u64) -> io::Result<u64> {
        let maps = fs::read_to_string("/proc/self/maps")?;
        let mut lines = maps.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let offset = words.nth(1)?;
            let hex = |text| u64::from_str_radix(text, 16).ok();
            Some((hex(start)?, hex(end)?, hex(offset)?))
        });
        let found = lines.find(|(start, end, _)| (*start..*end).contains(&address));
        found.map(|(start, _, offset)| address - start + offset).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    const ROUNDS: usize = 500;
}

/// Its number is what perf_event_open(2) calls the type of an event.
const PMU: &str = "/sys/bus/event_source/devices/uprobe/type";
/// Pages of x86-64 and, as far as they are of this size, of others.
const PAGE: usize = 4096;
pub(crate) const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_ID: u64 = 1 << 6;
const SAMPLE_REGS_USER: u64 = 1 << 12;
pub(crate) const DISABLED: u64 = 1;
pub(crate) const USE_CLOCKID: u64 = 1 << 25;
const CLOEXEC: u64 = 1 << 3;
pub(crate) const ENABLE: u64 = 0x2400;
const SET_OUTPUT: u64 = 0x2405;
const ID: u64 = 0x8008_2407;
pub(crate) const ID_ALWAYS: u64 = 1 << 18;
pub(crate) const CONTEXT_SWITCH: u64 = 1 << 26;
pub(crate) const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
pub(crate) const RECORD_SWITCH: u32 = 14;
/// In the header's `misc`, its third 16 bits.
pub(crate) const SWITCH_OUT: u64 = 1 << (32 + 13);
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Whether this machine lets us.
    fn allowed() -> bool {
        match calibrate() {
            Ok(_) => true,
            Err(error) => {
                println!("skipped: no uprobes here ({error})");
                false
            }
        }
    }

    #[test]
    fn hits_come_in_order_with_both_ends_of_each_call() {
        if !allowed() {
            return;
        }
        let costs = calibrate().expect("just now");
        println!("{costs:?}");
        for cost in [costs.entry_entry, costs.entry_return, costs.return_return, costs.return_entry] {
            assert!(cost > 0, "{costs:?}");
        }
        assert!(costs.stepped_entry > 0 && costs.stepped_return > 0, "{costs:?}");
    }

    #[test]
    fn probes_go_with_who_set_them() {
        if !allowed() {
            return;
        }
        for _ in 0..4 {
            calibrate().expect("allowed");
        }
        let links = fs::read_dir("/proc/self/fd").expect("procfs").flatten();
        let links = links.filter_map(|entry| fs::read_link(entry.path()).ok());
        let count = links.filter(|link| link.to_string_lossy().contains("perf_event")).count();
        // Another test has some of its own at the same time.
        assert!(count < 16, "thirty-two descriptors would have stayed: {count}");
        assert!(UprobeSet::new(u32::MAX).is_err());
        let mut nowhere = UprobeSet::new(0).expect("allowed");
        assert!(nowhere.probe(Path::new("/no/such/file"), 0, ProbePoint::Entry, 1).is_err());
        assert_eq!((nowhere.count(), nowhere.read(&mut Vec::new())), (0, 0));
    }
}
