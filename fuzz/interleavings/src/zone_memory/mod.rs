//! Free blocks of a region: each has one owner, whose writes the next one sees, and the last one given back is noticed.

#[allow(dead_code, unreachable_pub, missing_docs)]
#[path = "../../../../crates/weir-rt/src/zone_memory/free_list.rs"]
mod free_list;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use free_list::{FreeBlocks, ListName};
use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::thread;

use crate::Model;

pub(crate) const MODELS: &[Model] = &[
    ("free blocks: each has one owner", Some(2), each_block_has_one_owner),
    ("free blocks: one that came back is not one that stayed", Some(2), one_that_came_back),
    ("free blocks: the last of a region is noticed", Some(2), the_last_is_noticed),
    ("free blocks: memory is not given back in use", Some(3), none_is_in_use),
];

struct Region {
    free: FreeBlocks<1, 2>,
    /// By place less one.
    words: [AtomicU64; 3],
    /// What a block's owner has in it.
    contents: [UnsafeCell<u64>; 3],
    /// As the region's: one thread at a time looks, and gives the memory back once.
    given_back: Mutex<bool>,
}

/// A block that one thread has.
struct Block(u64, ListName);

const FIRST: ListName = ListName { lane: 0, class: 0 };
const SECOND: ListName = ListName { lane: 0, class: 1 };

impl Region {
    /// One whose blocks are taken, by name.
    fn new(names: &[ListName]) -> (Arc<Region>, Vec<Block>) {
        let words = std::array::from_fn(|_| AtomicU64::new(0));
        let contents = std::array::from_fn(|_| UnsafeCell::new(0));
        let region =
            Arc::new(Region { free: FreeBlocks::new(), words, contents, given_back: Mutex::new(false) });
        names.iter().for_each(|_| region.free.made_one());
        let blocks = names.iter().zip(1..).map(|(name, place)| Block(place, *name)).collect();
        (region, blocks)
    }

    fn word(&self, place: u64) -> &AtomicU64 {
        &self.words[place as usize - 1]
    }

    /// Takes a block and writes to it; loom fails where another thread may be writing.
    fn take(&self, name: ListName) -> Option<Block> {
        let place = self.free.take(name, |place| self.word(place))?;
        // SAFETY: the block is this thread's, which loom holds us to.
        self.contents[place as usize - 1].with_mut(|content| unsafe { *content += 1 });
        Some(Block(place, name))
    }

    fn give(&self, block: Block) {
        let Block(place, name) = block;
        // SAFETY: as in `take`.
        self.contents[place as usize - 1].with_mut(|content| unsafe { *content += 1 });
        if self.free.give(name, place, self.word(place)) {
            self.release();
        }
    }

    fn retire(&self) {
        self.free.retire();
        self.release();
    }

    fn release(&self) {
        let mut given_back = self.given_back.lock().expect("no panic");
        if !*given_back && self.free.all_free(|place| self.word(place)) {
            // All that was written to its blocks comes before.
            self.contents.iter().for_each(|content| content.with(|_| ()));
            *given_back = true;
        }
    }
}

/// Runs `other` beside what follows.
fn beside<T: 'static>(
    region: &Arc<Region>,
    other: impl FnOnce(&Region) -> T + 'static,
) -> thread::JoinHandle<T> {
    let region = region.clone();
    thread::spawn(move || other(&region))
}

fn each_block_has_one_owner() {
    let (region, blocks) = Region::new(&[FIRST, FIRST]);
    blocks.into_iter().for_each(|block| region.give(block));
    let turn = |region: &Region| {
        if let Some(block) = region.take(FIRST) {
            region.give(block);
        }
        drop(region.take(FIRST));
    };
    let other = beside(&region, turn);
    turn(&region);
    other.join().expect("no panic");
    assert!(region.take(FIRST).is_none(), "two were there");
}

fn one_that_came_back() {
    let (region, blocks) = Region::new(&[FIRST, FIRST]);
    blocks.into_iter().for_each(|block| region.give(block));
    let other = beside(&region, |region| {
        let first = region.take(FIRST);
        let second = region.take(FIRST);
        first.into_iter().for_each(|block| region.give(block));
        second.map(|block| block.0)
    });
    let mine = region.take(FIRST).map(|block| block.0);
    let others = other.join().expect("no panic");
    let mut left = std::iter::from_fn(|| region.take(FIRST)).map(|block| block.0);
    assert!(left.all(|place| Some(place) != mine && Some(place) != others), "a block has two owners");
}

fn the_last_is_noticed() {
    let (region, mut blocks) = Region::new(&[FIRST, SECOND]);
    let others: Vec<_> =
        blocks.drain(..).map(|block| beside(&region, move |region| region.give(block))).collect();
    region.retire();
    others.into_iter().for_each(|other| other.join().expect("no panic"));
    assert!(
        *region.given_back.lock().expect("no panic"),
        "all are free, and no thread gives the memory back"
    );
}

/// A block was made by a thread that has gone before the region has; the one that gives another block back does not know of it
/// but by the region's end.
fn none_is_in_use() {
    let (region, mut blocks) = Region::new(&[FIRST]);
    let block = blocks.remove(0);
    let giver = beside(&region, move |region| region.give(block));
    let maker = beside(&region, |region| region.free.made_one());
    maker.join().expect("no panic");
    region.retire();
    giver.join().expect("no panic");
    assert!(!*region.given_back.lock().expect("no panic"), "a block is in use");
}
