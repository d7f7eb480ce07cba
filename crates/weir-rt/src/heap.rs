//! A worker's own store of freed memory, before the system's allocator.
//!
//! glibc keeps seven freed blocks of a size for a thread; what is beyond goes through lists that are sorted, merged and
//! split, at 200 instructions for a block taken and given back. With 64 requests that wait at once nearly all of theirs
//! go that way: 7,300 of the 48,000 instructions of a script that asks Redis. Here a worker keeps as many blocks of a
//! size as requests free, up to [`KEPT`] bytes, and taking one or giving one back is a dozen instructions.
//!
//! Only threads with a [`Runtime`](crate::Runtime) have a store, as long as that lives ([`HeapKeeping`]); all others reach the
//! system's allocator, and blocks may go from one to the other: each is a block of the system's, as large as its class.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;

use crate::held::HeldMemory;

/// The allocator: `#[global_allocator] static HEAP: Heap = Heap;`. Without that line nothing is stored.
#[derive(Clone, Copy, Debug)]
pub struct Heap;

/// As long as it lives, its thread keeps what it frees. There may be several.
pub(crate) struct HeapKeeping(PhantomData<*mut ()>);

/// Freed blocks of one size, each of which begins with the place of the next.
struct FreedBlocks {
    first: Cell<*mut u8>,
    /// How many more blocks may be stored; 0 while the thread has no [`HeapKeeping`].
    room: Cell<u16>,
}

struct FreedStore {
    classes: [FreedBlocks; CLASSES],
    /// How many [`HeapKeeping`] there are.
    keepers: Cell<u32>,
}

thread_local! {
    // Of constants and without a destructor, so that reaching it is an addition and never allocates.
    static STORE: FreedStore = const {
        FreedStore {
            classes: [const { FreedBlocks { first: Cell::new(ptr::null_mut()), room: Cell::new(0) } }; CLASSES],
            keepers: Cell::new(0),
        }
    };
}

// SAFETY: every block is the system's, of its class' size where it has a class: a block of a class is as good as any
// other
// of it. Blocks of a store are linked through their first bytes, are referred to by nothing else, and each is given out
// once.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class_of(layout) {
            // SAFETY: by the caller's word; the class' size is not zero.
            Some(class) => unsafe { take(class).unwrap_or_else(|| System.alloc(layout_of(class))) },
            // SAFETY: by the caller's word.
            None => unsafe { System.alloc(layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(class) = class_of(layout) else {
            // SAFETY: by the caller's word.
            return unsafe { System.alloc_zeroed(layout) };
        };
        match take(class) {
            Some(block) => {
                // SAFETY: the block has at least this many bytes.
                unsafe { block.write_bytes(0, layout.size()) };
                block
            }
            // SAFETY: the class' size is not zero.
            None => unsafe { System.alloc_zeroed(layout_of(class)) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class_of(layout) {
            // SAFETY: the block was made with the layout of its class, and is given up.
            Some(class) => unsafe { give(class, block) },
            // SAFETY: by the caller's word.
            None => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that `size` and the alignment make a layout.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (class_of(layout), class_of(wanted)) {
            (Some(before), Some(now)) if before == now => block,
            (None, None) => {
                // SAFETY: by the caller's word.
                unsafe { System.realloc(block, layout, size) }
            }
            _ => {
                // SAFETY: two blocks, of which each has at least this many bytes; the old one is given up by the
                // caller.
                unsafe {
                    let new = self.alloc(wanted);
                    if !new.is_null() {
                        ptr::copy_nonoverlapping(block, new, size.min(layout.size()));
                        self.dealloc(block, layout);
                    }
                    new
                }
            }
        }
    }
}

impl HeapKeeping {
    /// From now on this thread keeps what it frees.
    pub(crate) fn begin() -> HeapKeeping {
        STORE.with(|store| {
            store.keepers.set(store.keepers.get() + 1);
            // Where the address sanitizer looks for blocks used after they were freed, each has to be its.
            if store.keepers.get() == 1 && option_env!("WEIR_LUA_ASAN").is_none() {
                for (class, blocks) in store.classes.iter().enumerate() {
                    blocks.room.set(most(class));
                }
            }
        });
        HeapKeeping(PhantomData)
    }
}

impl Drop for HeapKeeping {
    /// The last one gives everything back.
    fn drop(&mut self) {
        STORE.with(|store| {
            store.keepers.set(store.keepers.get() - 1);
            if store.keepers.get() > 0 {
                return;
            }
            for (class, blocks) in store.classes.iter().enumerate() {
                blocks.room.set(0);
                let mut block = blocks.first.replace(ptr::null_mut());
                while !block.is_null() {
                    // SAFETY: a block of the store, which has the place of the next one in it, and nothing else refers
                    // to it.
                    block = unsafe {
                        let next = block.cast::<*mut u8>().read();
                        System.dealloc(block, layout_of(class));
                        next
                    };
                }
            }
        });
    }
}

/// The freed blocks that this thread stores.
pub(crate) fn stored() -> HeldMemory {
    STORE.with(|store| {
        let mut held = HeldMemory::default();
        if store.keepers.get() == 0 {
            return held;
        }
        for (class, blocks) in store.classes.iter().enumerate() {
            let count = most(class).saturating_sub(blocks.room.get());
            held += HeldMemory::new(usize::from(count), usize::from(count) * size_of_class(class));
        }
        held
    })
}

/// A stored block of the class; its content is undefined.
#[inline]
fn take(class: usize) -> Option<*mut u8> {
    STORE.with(|store| {
        let blocks = &store.classes[class];
        let block = blocks.first.get();
        if block.is_null() {
            return None;
        }
        // SAFETY: a block of the store has the place of the next one in it.
        blocks.first.set(unsafe { block.cast::<*mut u8>().read() });
        blocks.room.set(blocks.room.get() + 1);
        Some(block)
    })
}

/// Keeps the block, or gives it back to the system.
///
/// # Safety
/// It was made with [`layout_of`] its class, and nothing uses it any more.
#[inline]
unsafe fn give(class: usize, block: *mut u8) {
    STORE.with(|store| {
        let blocks = &store.classes[class];
        let room = blocks.room.get();
        if room == 0 {
            // SAFETY: by the caller's word.
            return unsafe { System.dealloc(block, layout_of(class)) };
        }
        // SAFETY: every class has room for a pointer, and its blocks are aligned for one.
        unsafe { block.cast::<*mut u8>().write(blocks.first.get()) };
        blocks.first.set(block);
        blocks.room.set(room - 1);
    });
}

/// The class of a block that is asked for like this; `None` for what is large, or aligned as the system's blocks are not.
#[inline]
fn class_of(layout: Layout) -> Option<usize> {
    let size = layout.size();
    if layout.align() > ALIGN || size > LARGEST {
        None
    } else if size <= FINE {
        Some(size.div_ceil(8) / 2)
    } else {
        Some(FINE / 16 + (size - FINE).div_ceil(STEP))
    }
}

/// What a block of the class is made with: the most that is asked for of it.
#[inline]
const fn layout_of(class: usize) -> Layout {
    match Layout::from_size_align(size_of_class(class), ALIGN) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    }
}

#[inline]
const fn size_of_class(class: usize) -> usize {
    // glibc's blocks: a multiple of 16, less 8 that it needs itself, and none smaller than 24 bytes. What is smaller than
    // it is aligned would be asked of `posix_memalign`, which takes three times as long.
    match class {
        0 => 24,
        _ if class <= FINE / 16 => class * 16 + 8,
        _ => FINE + (class - FINE / 16) * STEP,
    }
}

/// How many blocks of the class are stored.
const fn most(class: usize) -> u16 {
    let fit = KEPT / size_of_class(class);
    (if fit < 256 { fit } else { 256 }) as u16
}

/// How the system's blocks are aligned.
const ALIGN: usize = 16;
/// Up to here there is a class for each size of the system's blocks, 16 bytes apart ...
const FINE: usize = 64 * 16 + 8;
/// ... after it, so far apart, up to here.
const STEP: usize = 128;
const LARGEST: usize = FINE + 24 * STEP;
const CLASSES: usize = FINE / 16 + 24 + 1;
/// Bytes of one class that are stored: of what a request of a script takes, that of a few hundred that wait at once.
const KEPT: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kept() -> usize {
        STORE.with(|store| {
            let lens = store.classes.iter().map(|blocks| {
                let (mut count, mut block) = (0, blocks.first.get());
                while !block.is_null() {
                    // SAFETY: a freed block of the list begins with the place of the next, and this thread alone
                    // changes the list.
                    (count, block) = (count + 1, unsafe { block.cast::<*mut u8>().read() });
                }
                count
            });
            lens.sum()
        })
    }

    #[test]
    fn every_size_has_a_class_that_it_fits() {
        for size in 1..=LARGEST {
            let layout = Layout::from_size_align(size, 8).expect("small");
            let class = class_of(layout).expect("not large");
            assert!(class < CLASSES && size <= size_of_class(class), "{size}");
            // The two smallest have blocks of one size, the least that glibc has.
            assert!(class <= 1 || size > size_of_class(class - 1), "{size} is not of the smallest class");
        }
        assert_eq!(class_of(Layout::from_size_align(LARGEST + 1, 8).expect("small")), None);
        assert_eq!(class_of(Layout::from_size_align(64, 64).expect("small")), None);
        assert_eq!(size_of_class(CLASSES - 1), LARGEST);
    }

    #[test]
    fn blocks_are_kept_while_somebody_keeps_and_up_to_a_number() {
        let layout = Layout::from_size_align(100, 8).expect("small");
        let many = usize::from(most(class_of(layout).expect("small"))) + 3;
        let round = || {
            // SAFETY: each block is given back once, with its layout.
            unsafe {
                let blocks: Vec<_> = (0..many).map(|_| Heap.alloc(layout)).collect();
                blocks.into_iter().for_each(|block| Heap.dealloc(block, layout));
            }
            kept()
        };
        assert_eq!(round(), 0, "nobody keeps");
        let one = HeapKeeping::begin();
        assert_eq!(round(), many - 3);
        let each = size_of_class(class_of(layout).expect("small"));
        assert_eq!(stored(), HeldMemory::new(many - 3, (many - 3) * each));
        assert_eq!(round(), many - 3);
        let other = HeapKeeping::begin();
        drop(one);
        assert_eq!(kept(), many - 3);
        drop(other);
        assert_eq!((kept(), round()), (0, 0));
    }

    #[test]
    fn zeroed_blocks_are_so_also_when_they_were_used() {
        let _keeping = HeapKeeping::begin();
        let layout = Layout::from_size_align(72, 8).expect("small");
        // SAFETY: the blocks are given back with their layout, and have its bytes.
        unsafe {
            let block = Heap.alloc(layout);
            block.write_bytes(0xff, 72);
            Heap.dealloc(block, layout);
            let again = Heap.alloc_zeroed(layout);
            assert_eq!(again, block);
            assert_eq!(std::slice::from_raw_parts(again, 72), [0; 72]);
            Heap.dealloc(again, layout);
        }
    }

    /// A block and what it was filled with.
    struct Filled(*mut u8, Layout, u8);

    impl Filled {
        fn check(&self) {
            // SAFETY: the block has the bytes of its layout, which were written.
            let bytes = unsafe { std::slice::from_raw_parts(self.0, self.1.size()) };
            assert!(bytes.iter().all(|byte| *byte == self.2), "a block is not its owner's alone");
        }
    }

    proptest! {
        #[test]
        fn blocks_are_their_owners_alone(
            steps in prop::collection::vec((0u8..4, 1usize..6000, 0usize..40), 1..200),
            keeps in prop::bool::ANY,
        ) {
            let _keeping = keeps.then(HeapKeeping::begin);
            let mut blocks: Vec<Filled> = Vec::new();
            for (number, (what, size, at)) in steps.into_iter().enumerate() {
                let fill = number as u8;
                let layout = Layout::from_size_align(size, 16).expect("small");
                // SAFETY: blocks are reallocated and given back with their layouts, once.
                unsafe {
                    match (what, blocks.is_empty()) {
                        (0 | 1, _) | (_, true) => {
                            let block = if what == 0 { Heap.alloc(layout) } else { Heap.alloc_zeroed(layout) };
                            block.write_bytes(fill, size);
                            blocks.push(Filled(block, layout, fill));
                        }
                        (2, false) => {
                            let at = at % blocks.len();
                            let Filled(block, before, was) = blocks.swap_remove(at);
                            let new = Heap.realloc(block, before, size);
                            Filled(new, Layout::from_size_align(size.min(before.size()), 16).expect("small"), was).check();
                            new.write_bytes(fill, size);
                            blocks.push(Filled(new, layout, fill));
                        }
                        _ => {
                            let at = at % blocks.len();
                            let gone = blocks.swap_remove(at);
                            gone.check();
                            Heap.dealloc(gone.0, gone.1);
                        }
                    }
                }
            }
            for block in blocks {
                block.check();
                // SAFETY: the block came from `Heap.alloc` with this layout, and is freed once: those freed before have
                // left the list.
                unsafe { Heap.dealloc(block.0, block.1) };
            }
        }
    }
}
