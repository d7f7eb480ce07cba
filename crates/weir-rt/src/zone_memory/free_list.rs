//! Lists of free blocks, lock-free, and how the last block of memory that is given up is noticed. What a block is and where is
//! the caller's: here it is a place, a number that is not 0, and a word that is its own while it is free.
//!
//! A list's head has a count of changes beside the place, so that a block which was taken and given back meanwhile is not
//! mistaken for one that stayed. That blocks are not taken any more is in the same word: a flag of its own could be missed by the thread
//! that gives the last block back, while that which sets it misses the block. `fuzz/loom` runs this file through the orders in which threads may see each other's writes.

use std::iter::successors;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The free blocks of memory that is given up as a whole.
#[derive(Debug)]
pub(super) struct FreeBlocks<const LANES: usize, const CLASSES: usize> {
    lanes: Box<[FreeLane<CLASSES>]>,
    /// How many blocks were made.
    made: AtomicU64,
}

/// In cache lines of its own (two, which x86 fetches together).
#[repr(align(128))]
#[derive(Debug)]
struct FreeLane<const CLASSES: usize>([FreeList; CLASSES]);

/// The first free block of a list; each has the place of the next one in its word.
#[derive(Debug, Default)]
struct FreeList(AtomicU64);

/// Which list a block is in while it is free.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListName {
    pub(super) lane: usize,
    pub(super) class: usize,
}

/// Of a list's head: the block's place, whether blocks are only given back, and the count.
pub(super) const PLACE: u64 = (1 << 39) - 1;
const RETIRED: u64 = 1 << 39;
const COUNTED: u64 = 1 << 40;

impl<const LANES: usize, const CLASSES: usize> FreeBlocks<LANES, CLASSES> {
    pub(super) fn new() -> FreeBlocks<LANES, CLASSES> {
        let lane = |_| FreeLane(std::array::from_fn(|_| FreeList::default()));
        let lanes = (0..LANES).map(lane).collect();
        FreeBlocks { lanes, made: AtomicU64::new(0) }
    }

    /// A block was made.
    pub(super) fn made_one(&self) {
        self.made.fetch_add(1, Relaxed);
    }

    /// A free block; `word` gives the word of the one at a place.
    #[inline]
    pub(super) fn take<'w>(&self, name: ListName, word: impl Fn(u64) -> &'w AtomicU64) -> Option<u64> {
        let list = self.list(name);
        let mut first = list.load(Acquire);
        loop {
            let place = first & PLACE;
            if place == 0 {
                return None;
            }
            // If another thread has the block by now this is anything, and the count has changed.
            let next = word(place).load(Relaxed) & PLACE;
            let wanted = next | (first.wrapping_add(COUNTED) & !PLACE);
            match list.compare_exchange_weak(first, wanted, AcqRel, Acquire) {
                Ok(_) => return Some(place),
                Err(now) => first = now,
            }
        }
    }

    /// Gives a block back; `true`: blocks are not taken any more, and this may have been the last.
    #[inline]
    pub(super) fn give(&self, name: ListName, place: u64, word: &AtomicU64) -> bool {
        let list = self.list(name);
        let mut first = list.load(Relaxed);
        loop {
            word.store(first & PLACE, Relaxed);
            let wanted = place | (first.wrapping_add(COUNTED) & !PLACE);
            match list.compare_exchange_weak(first, wanted, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => first = now,
            }
        }
        first & RETIRED != 0
    }

    /// From here on blocks are only given back.
    pub(super) fn retire(&self) {
        for list in self.lanes.iter().flat_map(|lane| &lane.0) {
            list.0.fetch_or(RETIRED, AcqRel);
        }
    }

    /// Whether all blocks are free, after [`FreeBlocks::retire`]; for one thread at a time.
    pub(super) fn all_free<'w>(&self, word: impl Fn(u64) -> &'w AtomicU64) -> bool {
        let place_in = |word: u64| Some(word & PLACE).filter(|place| *place != 0);
        let length = |list: &FreeList| {
            // Acquired: a list that says that no block is taken any more says how many were made.
            let first = place_in(list.0.load(Acquire));
            successors(first, |place| place_in(word(*place).load(Relaxed))).count() as u64
        };
        let free: u64 = self.lanes.iter().flat_map(|lane| &lane.0).map(length).sum();
        free >= self.made.load(Relaxed)
    }

    #[inline]
    fn list(&self, name: ListName) -> &AtomicU64 {
        &self.lanes[name.lane].0[name.class].0
    }
}
