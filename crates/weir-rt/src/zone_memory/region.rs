//! A region of the process that writes it: an allocator over its memory, lock-free, with lists of free blocks by size.
//!
//! Each block begins with two words: whose it is, and its class or, while it is free, the next free one of its [list](FreeBlocks).
//! Where a region is full the heap has the block: it serves all the same, and ends with its process.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::free_list::{FreeBlocks, ListName, PLACE};
use super::{ROOTS, ZoneFile};

/// A region; when it goes, its memory goes with the last block in it.
#[derive(Debug)]
pub struct ZoneRegion {
    control: &'static RegionControl,
}

/// Where blocks are taken from: a lane of a region, or the heap. Users of different lanes do not disturb each other.
#[derive(Clone, Copy, Debug)]
pub struct ZonePlace {
    control: Option<&'static RegionControl>,
    lane: usize,
}

/// What the process knows of a region. It is never freed, since blocks that threads give back late refer to it: 24 KB
/// for each zone that a reload has changed or removed.
#[derive(Debug)]
struct RegionControl {
    base: NonNull<u8>,
    length: u64,
    /// Where memory begins that no block has been made of.
    next: AtomicU64,
    /// How many blocks the heap has, since the region is full.
    missed: AtomicU64,
    free: FreeBlocks<LANES, CLASSES>,
    /// `None`: the memory is gone.
    memory: Mutex<Option<RegionMemory>>,
}

/// What is given back last.
#[derive(Debug)]
struct RegionMemory {
    file: Arc<ZoneFile>,
    number: usize,
    at: u64,
}

/// The words that each block begins with.
#[repr(C, align(16))]
struct BlockHead {
    /// Null: the heap.
    control: AtomicPtr<RegionControl>,
    /// Of a block in use its class and lane, of a free one the next, of one of the heap its whole size.
    word: AtomicU64,
}

/// Number of lanes.
pub(super) const LANES: usize = 16;
const HEAD: usize = size_of::<BlockHead>();
/// Classes: every 16 bytes up to 1 KB, then four for each doubling.
const CLASSES: usize = 64 + 4 * 30;
const FINE: usize = 1024;
/// Places of blocks are in units of so many bytes.
const UNIT: u64 = 16;
/// Blocks from this size on give their pages back while they are free.
const LARGE: usize = 128 << 10;

// SAFETY: the memory is reached through atomic words and blocks that have one owner each.
unsafe impl Send for RegionControl {}
// SAFETY: the same.
unsafe impl Sync for RegionControl {}

impl ZoneRegion {
    pub(super) fn map(file: Arc<ZoneFile>, number: usize, at: u64, length: u64) -> io::Result<ZoneRegion> {
        let bytes = usize::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        let offset = libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
        if bytes < ROOTS * 8 || length / UNIT > PLACE {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
        // SAFETY: a fresh mapping of a part of the file, no existing memory involved.
        let p =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, file.file.as_raw_fd(), offset) };
        let base = NonNull::new(p.cast()).filter(|_| p != libc::MAP_FAILED);
        let base = base.ok_or_else(io::Error::last_os_error)?;
        let control = RegionControl {
            base,
            length,
            next: AtomicU64::new((ROOTS * 8) as u64),
            missed: AtomicU64::new(0),
            free: FreeBlocks::new(),
            memory: Mutex::new(Some(RegionMemory { file, number, at })),
        };
        Ok(ZoneRegion { control: Box::leak(Box::new(control)) })
    }

    /// Where it is in this process's memory.
    pub fn address(&self) -> u64 {
        self.control.base.addr().get() as u64
    }

    /// A lane of it; they are counted modulo their number.
    pub fn place(&self, lane: usize) -> ZonePlace {
        ZonePlace { control: Some(self.control), lane: lane % LANES }
    }

    /// Sets a word by which the next process finds what is in it.
    ///
    /// # Panics
    /// There are 256 of them.
    pub fn set_root(&self, number: usize, word: u64) {
        assert!(number < ROOTS, "roots are numbered by constants");
        // SAFETY: inside of the region, aligned, and only reached here while the process lives.
        unsafe { self.control.base.cast::<AtomicU64>().add(number).as_ref() }.store(word, Release);
    }

    /// How many blocks did not find room in it: these end with the process.
    pub fn missed(&self) -> u64 {
        self.control.missed.load(Relaxed)
    }
}

impl Drop for ZoneRegion {
    fn drop(&mut self) {
        if let Some(RegionMemory { file, number, .. }) = &*self.control.memory() {
            file.forget(*number);
        }
        self.control.free.retire();
        self.control.release();
    }
}

impl ZonePlace {
    /// The heap: what is there ends with the process.
    pub const HEAP: ZonePlace = ZonePlace { control: None, lane: 0 };

    /// Whether what is there outlives the process.
    pub fn survives(self) -> bool {
        self.control.is_some()
    }

    /// A block of `size` bytes, aligned to 16, with anything in it.
    #[inline]
    pub(super) fn take(self, size: usize) -> NonNull<u8> {
        let Some(control) = self.control else { return heap_block(size) };
        let class = class_of(size + HEAD);
        match control.take(class, self.lane) {
            Some(block) => block,
            None => {
                control.missed.fetch_add(1, Relaxed);
                heap_block(size)
            }
        }
    }
}

/// Gives a block back.
///
/// # Safety
/// It was [taken](ZonePlace::take), and nothing refers to it any more.
#[inline]
pub(super) unsafe fn give(block: NonNull<u8>) {
    // SAFETY: each block has its head before it, which is only reached by atomic operations.
    let head = unsafe { block.sub(HEAD).cast::<BlockHead>().as_ref() };
    let control = head.control.load(Relaxed);
    // SAFETY: null, or what the process knows of a region, which is never freed.
    match unsafe { control.as_ref() } {
        Some(control) => control.give(block, head),
        None => {
            let layout = heap_layout(head.word.load(Relaxed) as usize);
            // SAFETY: made by `heap_block` with this layout, and given up by the caller.
            unsafe { dealloc(block.sub(HEAD).as_ptr(), layout) }
        }
    }
}

#[inline]
fn heap_block(size: usize) -> NonNull<u8> {
    let whole = size + HEAD;
    let layout = heap_layout(whole);
    // SAFETY: the size is not zero.
    let Some(start) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
    let head = BlockHead { control: AtomicPtr::default(), word: AtomicU64::new(whole as u64) };
    // SAFETY: a fresh block with room for the head and what comes after it.
    unsafe {
        start.cast::<BlockHead>().write(head);
        start.add(HEAD)
    }
}

#[inline]
fn heap_layout(whole: usize) -> Layout {
    Layout::from_size_align(whole, align_of::<BlockHead>()).expect("a block is smaller than the memory")
}

impl RegionControl {
    #[inline]
    fn take(&'static self, class: usize, lane: usize) -> Option<NonNull<u8>> {
        let name = ListName { lane, class };
        let Some(place) = self.free.take(name, |place| self.word(place)) else { return self.carve(name) };
        self.word(place).store(tag(name), Relaxed);
        // SAFETY: inside of the block.
        Some(unsafe { self.base.add((place * UNIT) as usize + HEAD) })
    }

    /// Makes a block of memory that none was made of; `None`: there is too little.
    #[cold]
    fn carve(&'static self, name: ListName) -> Option<NonNull<u8>> {
        let size = size_of_class(name.class) as u64;
        let fits = |next: u64| next.checked_add(size).filter(|end| *end <= self.length);
        let at = self.next.fetch_update(Relaxed, Relaxed, fits).ok()?;
        self.free.made_one();
        let head = self.head(at);
        head.control.store(std::ptr::from_ref(self).cast_mut(), Relaxed);
        head.word.store(tag(name), Relaxed);
        // SAFETY: the block is inside of the region.
        Some(unsafe { self.base.add(at as usize + HEAD) })
    }

    #[inline]
    fn give(&self, block: NonNull<u8>, head: &BlockHead) {
        let word = head.word.load(Relaxed) as usize;
        let (class, lane) = (word % CLASSES, word / CLASSES % LANES);
        if size_of_class(class) >= LARGE {
            give_pages(block, size_of_class(class) - HEAD);
        }
        let place = (block.addr().get() - self.base.addr().get() - HEAD) as u64 / UNIT;
        if self.free.give(ListName { lane, class }, place, &head.word) {
            self.release();
        }
    }

    /// Gives the memory back if its region is gone and all blocks are free.
    #[cold]
    fn release(&self) {
        let mut memory = self.memory();
        if memory.is_none() || !self.free.all_free(|place| self.word(place)) {
            return;
        }
        if let Some(RegionMemory { file, at, .. }) = memory.take() {
            // SAFETY: exactly the mapping that `map` made. Its region is gone, so no block is taken any more, and all
            // are free: none is referred to.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.length as usize) };
            file.free(at, self.length);
        }
    }

    fn memory(&self) -> MutexGuard<'_, Option<RegionMemory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The word of the block at a place.
    #[inline]
    fn word(&self, place: u64) -> &AtomicU64 {
        &self.head(place * UNIT).word
    }

    /// The head of the block at `at`.
    #[inline]
    fn head(&self, at: u64) -> &BlockHead {
        // SAFETY: places of blocks are inside of the region, and multiples of 16; heads are reached by atomic
        // operations alone.
        unsafe { self.base.add(at as usize).cast::<BlockHead>().as_ref() }
    }
}

/// What says of a block in use whose it is.
fn tag(name: ListName) -> u64 {
    (name.lane * CLASSES + name.class) as u64
}

/// The smallest class of blocks with that many bytes, their heads included.
#[inline]
fn class_of(size: usize) -> usize {
    if size <= FINE {
        return size.div_ceil(16) - 1;
    }
    let above = (size - 1).ilog2();
    let quarter = (size - 1) >> (above - 2) & 3;
    64 + ((above - 10) * 4) as usize + quarter
}

/// The bytes of a block, its head included.
#[inline]
fn size_of_class(class: usize) -> usize {
    match class.checked_sub(64) {
        None => (class + 1) * 16,
        Some(above) => (FINE / 4 * (5 + above % 4)) << (above / 4),
    }
}

/// Gives the whole pages of a free block back to the system.
#[cold]
fn give_pages(block: NonNull<u8>, size: usize) {
    let start = block.addr().get().next_multiple_of(4096);
    let end = (block.addr().get() + size) / 4096 * 4096;
    if end > start {
        let at = std::ptr::without_provenance_mut(start);
        // SAFETY: whole pages of a block that is free. If it fails the memory stays.
        unsafe { libc::madvise(at, end - start, libc::MADV_REMOVE) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::zone_memory::{ZoneArc, ZoneBox, ZoneSlice};

    fn region(length: u64) -> (Arc<ZoneFile>, ZoneRegion) {
        let file = ZoneFile::new("test").expect("memory");
        let region = file.region("zone", 1, length).expect("memory");
        (file, region)
    }

    /// Bytes of the file that have memory.
    fn memory(file: &ZoneFile) -> u64 {
        file.file.metadata().expect("a file").blocks() * 512
    }

    #[test]
    fn a_block_has_room_for_what_it_is_asked_for() {
        for size in (1..5000).chain([1 << 16, (1 << 16) + 1, 3 << 20, (1 << 30) + 17]) {
            let class = class_of(size);
            assert!(size_of_class(class) >= size, "{size}");
            assert!(class == 0 || size_of_class(class - 1) < size, "{size}");
        }
    }

    #[test]
    fn a_block_that_was_given_back_is_used_again_in_its_lane() {
        let (_file, region) = region(1 << 20);
        let first = ZoneSlice::copy(&[1; 100], region.place(3));
        let address = first.address();
        drop(first);
        let other = ZoneSlice::copy(&[2; 100], region.place(4));
        assert_ne!(other.address(), address);
        let again = ZoneSlice::copy(&[3; 97], region.place(3));
        assert_eq!((again.address(), &again[..], &other[..]), (address, &[3; 97][..], &[2; 100][..]));
        assert_eq!(region.missed(), 0);
    }

    #[test]
    fn the_heap_has_what_a_full_region_has_not() {
        let (_file, region) = region(8192);
        let blocks: Vec<_> = (0..10).map(|n| ZoneSlice::copy(&[n; 1000], region.place(0))).collect();
        assert_eq!(region.missed(), 4);
        assert!(blocks.iter().zip(0..).all(|(block, n)| **block == [n; 1000]));
        drop(blocks);
        let again = ZoneSlice::copy(&[9; 1000], region.place(0));
        assert_eq!((region.missed(), again.len()), (4, 1000));
    }

    #[test]
    fn a_regions_memory_goes_with_its_last_block() {
        let (file, region) = region(1 << 20);
        let late = ZoneBox::new([7_u64; 8], region.place(1));
        let many: Vec<_> = (0..100).map(|n| ZoneSlice::copy(&[n; 4000], region.place(0))).collect();
        let used = memory(&file);
        assert!(used > 400_000, "{used}");
        drop(region);
        drop(many);
        assert_eq!((memory(&file), *late), (used, [7; 8]));
        drop(late);
        assert!(memory(&file) <= 8192, "the directory is left");
        assert!(file.image("zone", 1).expect("readable").is_none());
    }

    #[test]
    fn a_large_block_gives_its_pages_back() {
        let (file, region) = region(8 << 20);
        let large = ZoneSlice::copy(&vec![1; 4 << 20], region.place(0));
        assert!(memory(&file) > 4 << 20);
        drop(large);
        assert!(memory(&file) < 1 << 20);
        assert!(ZoneSlice::copy(&vec![2; 4 << 20], region.place(0)).iter().all(|byte| *byte == 2));
        assert_eq!(region.missed(), 0);
    }

    #[test]
    fn threads_have_blocks_of_their_own() {
        let (_file, region) = region(8 << 20);
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let place = region.place(0);
                scope.spawn(move || {
                    let mut held = std::collections::VecDeque::new();
                    for round in 0..20_000_usize {
                        held.push_back(ZoneSlice::copy(&[thread; 48], place));
                        if round % 3 != 0 || held.len() > 40 {
                            let block = held.pop_front().expect("one was put in");
                            assert_eq!(*block, [thread; 48]);
                        }
                    }
                });
            }
        });
        assert_eq!(region.missed(), 0);
    }

    #[test]
    fn a_shared_value_goes_with_its_last_owner() {
        let (_file, region) = region(1 << 16);
        let one = ZoneArc::new(ZoneSlice::copy(b"text", region.place(0)), region.place(0));
        let other = one.clone();
        assert!(one.into_inner().is_none());
        assert_eq!(&**other, b"text");
        let third = other.clone();
        drop(other);
        assert_eq!(third.into_inner().as_deref(), Some(&b"text"[..]));
    }
}
