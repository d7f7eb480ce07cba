//! Which events of the processor and the kernel happen where: counters (`weir_sys::counters`) that send SIGTRAP each time they have
//! counted so many, and a handler that charges what was counted since the last time to the place the thread is at.
//!
//! So a request's path has nothing for it, not even a test of a flag, and what is counted is not changed by being counted, as it would
//! be where each mark reads the counters. Events that are looked at one by one (page faults, switches) are charged exactly; of
//! those that are looked at a thousand times a second the sum is exact and the shares are estimates, as of any sampling.
//!
//! Everything the handler touches is allocated, and was written to, before the first signal comes: it causes no page fault of its own.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use super::current::SitePlace;
use super::probe::ThreadProbe;

/// Kinds of events at most.
pub const COUNTERS: usize = 7;

/// What signals of counters carry: this and the number of the counter.
pub const COUNTER_NUMBER: u64 = 0x7765_6972_0000_0000;

/// Where events happened, and how many of each counter's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedPlace {
    /// Where the engine was.
    pub place: SitePlace,
    /// True when the loop was waiting for events.
    pub parked: bool,
    /// By the number of the counter.
    pub counts: [u64; COUNTERS],
}

/// The counters of one thread: written by its handler, read by another thread.
#[derive(Debug)]
pub(super) struct PlaceCounts {
    /// Descriptors of counters; -1 of those that are not used.
    files: [AtomicI32; COUNTERS],
    /// What they said last.
    before: [AtomicU64; COUNTERS],
    /// The handler may be using a descriptor.
    busy: AtomicBool,
    slots: Box<[PlaceSlot]>,
}

/// A place in the table; in a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct PlaceSlot {
    /// 0 of one that is free.
    key: AtomicU64,
    counts: [AtomicU64; COUNTERS],
}

impl PlaceCounts {
    pub(super) fn new() -> PlaceCounts {
        let slot = |_| PlaceSlot { key: AtomicU64::new(0), counts: [const { AtomicU64::new(0) }; COUNTERS] };
        let counts = PlaceCounts {
            files: [const { AtomicI32::new(NO_FILE) }; COUNTERS],
            before: [const { AtomicU64::new(0) }; COUNTERS],
            busy: AtomicBool::new(false),
            slots: (0..SLOTS).map(slot).collect(),
        };
        counts.clear();
        counts
    }

    /// Forgets what was counted; while no counter is in use.
    fn clear(&self) {
        for slot in &self.slots {
            slot.key.store(0, Relaxed);
            slot.counts.iter().for_each(|count| count.store(0, Relaxed));
        }
        self.before.iter().for_each(|before| before.store(0, Relaxed));
    }

    /// The handler's: the counter of that number has counted enough to be looked at.
    pub(super) fn due(&self, counter: usize, place: u64, parked: bool) {
        let Some(file) = self.files.get(counter) else { return };
        // Before the descriptor is looked up: who ends the counting closes it when this is over.
        self.busy.store(true, SeqCst);
        if let Some(count) = read(file.load(SeqCst)) {
            let before = self.before[counter].swap(count, Relaxed);
            self.add(counter, place | u64::from(parked) << PARKED_BIT | USED, count.wrapping_sub(before));
        }
        self.busy.store(false, SeqCst);
    }

    /// With one writer.
    fn add(&self, counter: usize, key: u64, count: u64) {
        let first = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize;
        let mut slots = (0..SLOTS).map(|n| &self.slots[(first + n) % SLOTS]);
        let found = slots.find(|slot| matches!(slot.key.load(Relaxed), 0) || slot.key.load(Relaxed) == key);
        // Where there is no room the place is not known: the counter has it all the same.
        let Some(slot) = found else { return };
        if slot.key.load(Relaxed) == 0 {
            slot.key.store(key, Relaxed);
        }
        slot.counts[counter].store(slot.counts[counter].load(Relaxed).wrapping_add(count), Relaxed);
    }

    fn each(&self, mut each: impl FnMut(CountedPlace)) {
        for slot in &self.slots {
            let key = slot.key.load(Relaxed);
            if key != 0 {
                let counts = std::array::from_fn(|n| slot.counts[n].load(Relaxed));
                each(CountedPlace {
                    place: SitePlace::unpack(key),
                    parked: key >> PARKED_BIT & 1 == 1,
                    counts,
                });
            }
        }
    }

    /// No counter is used any more; none will be read after this.
    fn stop(&self) {
        self.files.iter().for_each(|file| file.store(NO_FILE, SeqCst));
        while self.busy.load(SeqCst) {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl ThreadProbe {
    /// Has the handler charge what the counters of these descriptors count to places, from nothing on; each sends its number with
    /// [`COUNTER_NUMBER`], and is at 0 and not enabled yet. Those of a recording before must have been [stopped](ThreadProbe::stop_counting).
    pub fn count(&self, files: [Option<RawFd>; COUNTERS]) {
        let counted = self.counted.get_or_init(PlaceCounts::new);
        counted.clear();
        for (cell, file) in counted.files.iter().zip(files) {
            cell.store(file.unwrap_or(NO_FILE), SeqCst);
        }
    }

    /// What was counted so far, in no order.
    pub fn counted(&self, each: impl FnMut(CountedPlace)) {
        if let Some(counted) = self.counted.get() {
            counted.each(each);
        }
    }

    /// When this returns the descriptors are not used any more, and may be closed. For another thread than the counted one.
    pub fn stop_counting(&self) {
        if let Some(counted) = self.counted.get() {
            counted.stop();
        }
    }

    /// The thread itself ends: the next one that gets this probe has other counters.
    pub(super) fn forget_counters(&self) {
        if let Some(counted) = self.counted.get() {
            counted.files.iter().for_each(|file| file.store(NO_FILE, SeqCst));
        }
    }
}

/// What the counter of that descriptor says: the first of its three words. Async-signal-safe.
fn read(file: RawFd) -> Option<u64> {
    if file == NO_FILE {
        return None;
    }
    let mut words = [0u64; 3];
    // SAFETY: room for three words; the descriptor is open as long as `busy` says that it is used.
    let got = unsafe { libc::read(file, words.as_mut_ptr().cast(), size_of_val(&words)) };
    (got > 0).then_some(words[0])
}

/// Makes SIGTRAP ours, so that counters may send it; it stays so.
///
/// # Errors
/// As [`prepare_switches`](super::prepare_switches), which does it.
pub fn prepare_counters() -> io::Result<()> {
    super::prepare_switches()
}

const NO_FILE: RawFd = -1;
/// Places: sites with the location they were in. A power of two, as the hash above has ten bits.
const SLOTS: usize = 1 << 10;
const PARKED_BIT: u32 = 32;
const USED: u64 = 1 << 33;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(counts: &PlaceCounts) -> Vec<CountedPlace> {
        let mut all = Vec::new();
        counts.each(|place| all.push(place));
        all.sort_by_key(|counted| (counted.place, counted.parked));
        all
    }

    fn counted(site: u16, parked: bool, counts: [u64; COUNTERS]) -> CountedPlace {
        CountedPlace { place: SitePlace { site, route: 9 }, parked, counts }
    }

    #[test]
    fn what_is_counted_belongs_to_its_place() {
        let counts = PlaceCounts::new();
        let key = |site: u16, parked: bool| {
            SitePlace { site, route: 9 }.pack() | u64::from(parked) << PARKED_BIT | USED
        };
        for (counter, site, parked, count) in
            [(0, 1, false, 5), (6, 1, false, 1), (0, 1, true, 7), (0, 1, false, 4)]
        {
            counts.add(counter, key(site, parked), count);
        }
        let expected = [counted(1, false, [9, 0, 0, 0, 0, 0, 1]), counted(1, true, [7, 0, 0, 0, 0, 0, 0])];
        assert_eq!(all(&counts), expected);
        counts.clear();
        assert!(all(&counts).is_empty());
    }

    #[test]
    fn what_finds_no_room_is_charged_to_no_other_place() {
        let counts = PlaceCounts::new();
        let many = SLOTS as u64 + 500;
        (0..many).for_each(|n| counts.add(1, n | USED, 3));
        let all = all(&counts);
        assert_eq!(
            (all.len(), all.iter().map(|place| place.counts[1]).sum::<u64>()),
            (SLOTS, 3 * SLOTS as u64)
        );
        assert!(all.iter().all(|place| place.counts[1] == 3));
    }

    #[test]
    fn a_counter_that_is_not_there_is_not_read() {
        let counts = PlaceCounts::new();
        for counter in [0, COUNTERS, usize::MAX] {
            counts.due(counter, 7, false);
        }
        counts.stop();
        assert!(all(&counts).is_empty());
    }
}
