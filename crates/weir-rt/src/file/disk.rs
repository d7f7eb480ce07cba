//! What a file system has shown of how long its writes take: whether a small one may be made on the loop.
//!
//! One table for the process. It is written where something changes (a write that stalled, the first quick ones), not with
//! each write: loops only read it.

use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::with_c_path;
use crate::clock;

/// A file system, by its device, as long as the process lives.
#[derive(Debug)]
pub(crate) struct Disk {
    device: u64,
    /// It is of a kind, and mounted so, that writes go to the page cache of this machine.
    cached: bool,
    /// See [`WriteKind`].
    paces: [DiskPace; 2],
}

/// What a write does. ext4 writes to the disk what replaces another file, and waits until what was replaced is no longer on
/// its way there: of 1,000 renames over a file that was just written 984 slept, 164 for more than a millisecond, and one
/// for 45 ms; of 1,000 new files of 64 KB one slept. So each kind is judged by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteKind {
    /// It makes a file.
    New = 0,
    /// It takes the place of a file, or changes one.
    Replacing = 1,
}

/// How quick the writes of one kind are.
#[derive(Debug)]
struct DiskPace {
    /// Quick writes by threads in a row, up to [`TRUSTED`]; 0 after one that was not.
    quick: AtomicU32,
    /// Writes that were slow, weighed against those that were not.
    slow: AtomicU32,
    /// Until when threads write, in milliseconds of the monotonic clock.
    threads_until_ms: AtomicU64,
    /// How long that was after the last stall.
    penalty_ms: AtomicU64,
    /// When the last stall ended.
    stalled_ms: AtomicU64,
    stalls: AtomicU64,
}

/// What is known of the writes of one kind to one file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskState {
    /// The device, as stat(2) numbers it.
    pub device: u64,
    /// They take the places of files, or change them; else they make new ones.
    pub replacing: bool,
    /// Small ones are made on loops at this moment.
    pub on_loop: bool,
    /// How often a write that took long has ended that.
    pub stalls: u64,
    /// For how long threads make them at least, in milliseconds.
    pub threads_for_ms: u64,
}

/// What a write shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteSpeed {
    Quick,
    /// Some of these are the disk's way, many are not.
    Slow,
    /// The disk was waited for, and long.
    Stalled,
}

/// A measurement that runs.
pub(crate) struct WriteClock {
    ticks: u64,
    before: CoreUse,
}

/// How often the thread gave up its core by itself, and lost it to others.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CoreUse {
    sleeps: i64,
    losses: i64,
}

impl WriteClock {
    /// Takes two system calls in all, some 0.4 us beside the 50 of a small file: without them each loss of the core
    /// would look like a slow disk.
    pub(crate) fn begin() -> WriteClock {
        WriteClock { before: CoreUse::now(), ticks: clock::ticks() }
    }

    /// The nanoseconds, and what they show.
    pub(crate) fn end(self) -> (u64, WriteSpeed) {
        let ns = clock::scale().ticks_to_ns(clock::ticks().saturating_sub(self.ticks));
        let after = CoreUse::now();
        let slept = after.sleeps != self.before.sleeps;
        (ns, WriteSpeed::of(ns, slept, after.losses != self.before.losses))
    }
}

impl WriteSpeed {
    /// Of a write that took `ns`. One that did not sleep waited for no disk: it may have had a slow core, or none for a while.
    fn of(ns: u64, slept: bool, lost_core: bool) -> WriteSpeed {
        match (slept, lost_core) {
            (true, _) if ns >= STALL_NS => WriteSpeed::Stalled,
            (true, _) if ns >= SLOW_NS => WriteSpeed::Slow,
            (false, false) if ns >= STALL_NS => WriteSpeed::Slow,
            _ => WriteSpeed::Quick,
        }
    }
}

impl CoreUse {
    fn now() -> CoreUse {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: writable; all zero, which is a valid value, where the call fails.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init()
        };
        CoreUse { sleeps: usage.ru_nvcsw, losses: usage.ru_nivcsw }
    }
}

impl Disk {
    /// The file system of the directory `path`; `None` where it can't be looked at. Waits for the disk, or for another
    /// machine.
    pub(crate) fn of(path: &Path) -> Option<&'static Disk> {
        let device = super::stat(path).ok()?.dev;
        if let Some(known) = find(&lock(), device) {
            return Some(known);
        }
        // Not under the lock: this may take its time.
        let cached = is_cached(path).ok()?;
        let mut disks = lock();
        if let Some(known) = find(&disks, device) {
            return Some(known);
        }
        if disks.len() >= MOST {
            return None;
        }
        let disk: &'static Disk = Box::leak(Box::new(Disk::new(device, cached)));
        disks.push(disk);
        Some(disk)
    }

    pub(crate) fn new(device: u64, cached: bool) -> Disk {
        Disk { device, cached, paces: [DiskPace::new(), DiskPace::new()] }
    }

    /// Whether writes go to the page cache of this machine.
    pub(crate) fn is_cached(&self) -> bool {
        self.cached
    }

    /// Whether a small write may be made on the loop at `now_ms`.
    pub(crate) fn is_quick(&self, kind: WriteKind, now_ms: u64) -> bool {
        let pace = self.pace(kind);
        self.cached && pace.quick.load(Relaxed) >= TRUSTED && now_ms >= pace.threads_until_ms.load(Relaxed)
    }

    /// A loop has made a write, which ended at `now_ms`.
    pub(crate) fn wrote_on_loop(&self, kind: WriteKind, speed: WriteSpeed, now_ms: u64) {
        let pace = self.pace(kind);
        let slow = pace.slow.load(Relaxed);
        match speed {
            WriteSpeed::Stalled => pace.stall(now_ms),
            WriteSpeed::Slow if slow + SLOW_WEIGHT >= SLOW_LIMIT => pace.stall(now_ms),
            WriteSpeed::Slow => pace.slow.store(slow + SLOW_WEIGHT, Relaxed),
            WriteSpeed::Quick if slow > 0 => pace.slow.store(slow - 1, Relaxed),
            WriteSpeed::Quick => {}
        }
    }

    /// A thread has made a write; `small`: as loops make them.
    pub(crate) fn wrote_on_thread(&self, kind: WriteKind, speed: WriteSpeed, small: bool, now_ms: u64) {
        let pace = self.pace(kind);
        let quick = pace.quick.load(Relaxed);
        match speed {
            WriteSpeed::Stalled if self.is_quick(kind, now_ms) => pace.stall(now_ms),
            WriteSpeed::Stalled => pace.quick.store(0, Relaxed),
            WriteSpeed::Slow if small => pace.quick.store(0, Relaxed),
            WriteSpeed::Quick if small && quick < TRUSTED => pace.quick.store(quick + 1, Relaxed),
            WriteSpeed::Slow | WriteSpeed::Quick => {}
        }
    }

    fn pace(&self, kind: WriteKind) -> &DiskPace {
        &self.paces[kind as usize]
    }

    fn state(&self, kind: WriteKind, now_ms: u64) -> DiskState {
        let pace = self.pace(kind);
        DiskState {
            device: self.device,
            replacing: kind == WriteKind::Replacing,
            on_loop: self.is_quick(kind, now_ms),
            stalls: pace.stalls.load(Relaxed),
            threads_for_ms: pace.threads_until_ms.load(Relaxed).saturating_sub(now_ms),
        }
    }
}

impl DiskPace {
    const fn new() -> DiskPace {
        DiskPace {
            quick: AtomicU32::new(0),
            slow: AtomicU32::new(0),
            threads_until_ms: AtomicU64::new(0),
            penalty_ms: AtomicU64::new(0),
            stalled_ms: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
        }
    }

    /// Threads write for a while: longer, if the last time is not long ago.
    fn stall(&self, now_ms: u64) {
        let last = self.stalled_ms.swap(now_ms, Relaxed);
        let before = self.penalty_ms.load(Relaxed);
        let long_ago = now_ms.saturating_sub(last) > before * FORGOTTEN;
        let penalty = if long_ago { FIRST_PENALTY_MS } else { (before * GROWTH).min(LONGEST_PENALTY_MS) };
        self.penalty_ms.store(penalty, Relaxed);
        self.threads_until_ms.store(now_ms + penalty, Relaxed);
        self.quick.store(0, Relaxed);
        self.slow.store(0, Relaxed);
        self.stalls.fetch_add(1, Relaxed);
    }
}

/// The file systems to which files were written, in the order in which they were met: two entries each, see
/// [`DiskState::replacing`].
pub fn disk_states() -> Vec<DiskState> {
    let now_ms = clock::monotonic_ms();
    let both =
        |disk: &&'static Disk| [WriteKind::New, WriteKind::Replacing].map(|kind| disk.state(kind, now_ms));
    lock().iter().flat_map(both).collect()
}

fn find(disks: &[&'static Disk], device: u64) -> Option<&'static Disk> {
    disks.iter().copied().find(|disk| disk.device == device)
}

/// Whether writes to the file system of `path` go to this machine's page cache. Those of other machines and of programs
/// (NFS, CIFS, FUSE, 9p) wait for them; what is mounted with `sync` waits for its disk.
fn is_cached(path: &Path) -> io::Result<bool> {
    let (mut kind, mut mount) =
        (MaybeUninit::<libc::statfs>::uninit(), MaybeUninit::<libc::statvfs>::uninit());
    // SAFETY: the pointers are valid for the call.
    with_c_path(path, |p| unsafe { libc::statfs(p, kind.as_mut_ptr()) })?;
    // SAFETY: as above. The C library's structure for the call before has no place for the flags.
    with_c_path(path, |p| unsafe { libc::statvfs(p, mount.as_mut_ptr()) })?;
    // SAFETY: the calls above have filled them in, or we are not here.
    let (kind, mount) = unsafe { (kind.assume_init().f_type, mount.assume_init().f_flag) };
    Ok(CACHED.contains(&(kind as u32)) && mount & libc::ST_SYNCHRONOUS == 0)
}

fn lock() -> std::sync::MutexGuard<'static, Vec<&'static Disk>> {
    // Nothing in it panics.
    DISKS.lock().unwrap_or_else(PoisonError::into_inner)
}

static DISKS: Mutex<Vec<&'static Disk>> = Mutex::new(Vec::new());
/// File systems that are remembered: they are not forgotten, and mounts come and go.
const MOST: usize = 64;

/// Quick writes of threads in a row after which loops write.
const TRUSTED: u32 = 32;
/// A write that slept, and took this long, is a stall: 64 KB take 50 to 300 us on ext4, and do not sleep.
const STALL_NS: u64 = 1_000_000;
/// One that slept, and took this long, is slow ...
const SLOW_NS: u64 = 250_000;
/// ... and weighs as much as so many that are not;
const SLOW_WEIGHT: u32 = 4;
/// so many ahead are a stall, too.
const SLOW_LIMIT: u32 = 16;
/// How long threads write after the first stall ...
const FIRST_PENALTY_MS: u64 = 1_000;
/// ... so many times as long after the next one ...
const GROWTH: u64 = 4;
/// ... and at most.
const LONGEST_PENALTY_MS: u64 = 60_000;
/// After so many times the last one it is the first one again.
const FORGOTTEN: u64 = 20;

/// ext2 to ext4, XFS, btrfs, F2FS, bcachefs, ZFS, tmpfs, ramfs, overlayfs: by the numbers of statfs(2). What is under
/// an overlay shows only by how long its writes take.
const CACHED: [u32; 9] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0xca45_1a4e,
    0x2fc1_2fc1,
    0x0102_1994,
    0x8584_58f6,
    0x794c_7630,
];

#[cfg(test)]
mod tests {
    use super::WriteKind::{New, Replacing};
    use super::WriteSpeed::{Quick, Slow, Stalled};
    use super::*;

    fn trusted() -> Disk {
        let disk = Disk::new(1, true);
        (0..TRUSTED).for_each(|_| disk.wrote_on_thread(New, Quick, true, 0));
        disk
    }

    #[test]
    fn threads_show_first_that_a_disk_is_quick() {
        let disk = Disk::new(1, true);
        for _ in 0..TRUSTED {
            assert!(!disk.is_quick(New, 0));
            disk.wrote_on_thread(New, Quick, true, 0);
        }
        assert!(disk.is_quick(New, 0));
        assert!(!disk.is_quick(Replacing, 0), "a kind of its own");
        let uncached = Disk::new(1, false);
        (0..100).for_each(|_| uncached.wrote_on_thread(New, Quick, true, 0));
        assert!(!uncached.is_quick(New, 0), "NFS is not, whatever it shows");
        let mixed = Disk::new(1, true);
        for _ in 0..10 {
            (1..TRUSTED).for_each(|_| mixed.wrote_on_thread(New, Quick, true, 0));
            mixed.wrote_on_thread(New, Slow, true, 0);
        }
        assert!(!mixed.is_quick(New, 0), "not in a row");
        let large = Disk::new(1, true);
        (0..100).for_each(|_| large.wrote_on_thread(New, Quick, false, 0));
        assert!(!large.is_quick(New, 0), "large writes show nothing of small ones");
    }

    #[test]
    fn one_stall_ends_it_for_a_growing_time() {
        let disk = trusted();
        let (mut now, mut expected) = (1_000_000, FIRST_PENALTY_MS);
        for n in 0..20 {
            disk.wrote_on_loop(New, Stalled, now);
            let state = disk.state(New, now);
            assert_eq!((state.on_loop, state.stalls, state.threads_for_ms), (false, n + 1, expected));
            // Threads write quickly meanwhile: it takes the time all the same.
            (0..TRUSTED).for_each(|_| disk.wrote_on_thread(New, Quick, true, now));
            assert!(!disk.is_quick(New, now + expected - 1));
            assert!(disk.is_quick(New, now + expected));
            now += expected;
            expected = (expected * GROWTH).min(LONGEST_PENALTY_MS);
        }
        assert_eq!(expected, LONGEST_PENALTY_MS);
        now += LONGEST_PENALTY_MS * FORGOTTEN + 1;
        disk.wrote_on_loop(New, Stalled, now);
        assert_eq!(disk.state(New, now).threads_for_ms, FIRST_PENALTY_MS, "the old ones are forgotten");
        assert_eq!(disk.state(Replacing, now).stalls, 0);
    }

    #[test]
    fn after_a_stall_threads_must_show_again_that_it_is_quick() {
        let disk = trusted();
        disk.wrote_on_loop(New, Stalled, 1);
        assert!(!disk.is_quick(New, 1 + FIRST_PENALTY_MS));
        (1..TRUSTED).for_each(|_| disk.wrote_on_thread(New, Quick, true, 1));
        disk.wrote_on_thread(New, Stalled, true, 2);
        (1..TRUSTED).for_each(|_| disk.wrote_on_thread(New, Quick, true, 3));
        assert!(!disk.is_quick(New, u64::MAX));
        disk.wrote_on_thread(New, Quick, true, 3);
        assert!(disk.is_quick(New, u64::MAX));
        assert_eq!(disk.state(New, 0).stalls, 1, "that of a thread holds up nobody");
    }

    #[test]
    fn a_thread_that_stalls_ends_it_too() {
        let disk = trusted();
        disk.wrote_on_thread(New, Slow, false, 4);
        assert!(disk.is_quick(New, 5), "a large write is slow where a small one is not");
        disk.wrote_on_thread(Replacing, Stalled, false, 5);
        assert!(disk.is_quick(New, 6), "of the other kind");
        disk.wrote_on_thread(New, Stalled, false, 6);
        assert_eq!((disk.is_quick(New, 7), disk.state(New, 7).stalls), (false, 1));
    }

    #[test]
    fn many_slow_writes_end_it_and_few_do_not() {
        let disk = trusted();
        for n in 0..10_000 {
            disk.wrote_on_loop(New, if n % 10 == 0 { Slow } else { Quick }, 9);
        }
        assert!(disk.is_quick(New, 9));
        (0..SLOW_LIMIT / SLOW_WEIGHT).for_each(|_| disk.wrote_on_loop(New, Slow, 9));
        assert!(!disk.is_quick(New, 10));
    }

    #[test]
    fn the_file_systems_of_a_machine_are_told_apart() {
        assert!(Disk::of(Path::new("/no/such/directory")).is_none());
        let shm = Disk::of(Path::new("/dev/shm")).expect("on every Linux");
        let again = Disk::of(Path::new("/dev/shm")).expect("on every Linux");
        assert!(std::ptr::eq(shm, again));
        let proc = Disk::of(Path::new("/proc")).expect("on every Linux");
        assert!(shm.cached && !proc.cached);
        let known = disk_states().into_iter().filter(|state| state.device == shm.device);
        assert_eq!(known.map(|state| state.replacing).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn only_sleep_is_the_disk_s_doing() {
        let (long, short) = (3 * STALL_NS, STALL_NS / 2);
        for (ns, slept, lost_core, speed) in [
            (long, true, false, Stalled),
            (long, true, true, Stalled),
            (short, true, false, Slow),
            (SLOW_NS / 2, true, false, Quick),
            (long, false, false, Slow),
            (long, false, true, Quick),
            (short, false, false, Quick),
        ] {
            assert_eq!(WriteSpeed::of(ns, slept, lost_core), speed, "{ns} {slept} {lost_core}");
        }
        let clock = WriteClock::begin();
        std::thread::sleep(std::time::Duration::from_millis(3));
        let (ns, speed) = clock.end();
        assert!(ns >= 3_000_000 && speed == Stalled, "{ns} {speed:?}");
    }
}
