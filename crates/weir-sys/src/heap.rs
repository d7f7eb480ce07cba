//! An allocator that counts, for tests of what allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The system's allocator with a count: `#[global_allocator] static HEAP: Counting = Counting::new();` in a test.
pub struct CountingHeap {
    calls: AtomicU64,
    sizes: [AtomicUsize; SIZES],
}

/// Sizes remembered.
const SIZES: usize = 16;

impl CountingHeap {
    /// An allocator that has counted nothing yet.
    pub const fn new() -> CountingHeap {
        CountingHeap { calls: AtomicU64::new(0), sizes: [const { AtomicUsize::new(0) }; SIZES] }
    }

    /// Allocations and reallocations of all threads so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// The sizes of the last ones in bytes, in no particular order: for the message of a test.
    pub fn sizes(&self) -> [usize; SIZES] {
        std::array::from_fn(|n| self.sizes[n].load(Relaxed))
    }

    fn count(&self, size: usize) {
        let call = self.calls.fetch_add(1, Relaxed);
        self.sizes[call as usize % SIZES].store(size, Relaxed);
    }
}

impl Default for CountingHeap {
    fn default() -> CountingHeap {
        CountingHeap::new()
    }
}

// SAFETY: all is passed on to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for CountingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count(layout.size());
        // SAFETY: by the caller's word.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.count(layout.size());
        // SAFETY: by the caller's word.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.count(size);
        // SAFETY: by the caller's word.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: by the caller's word.
        unsafe { System.dealloc(old, layout) }
    }
}
