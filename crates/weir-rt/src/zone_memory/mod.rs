//! Memory for what workers share, which outlives their process: a file without a name that the master makes before the
//! fork, with a region for each zone. The process that follows one that was killed reads what is in its regions.
//!
//! The process that serves has a region as memory with an allocator ([`ZoneRegion`], [`ZonePlace`]), and what is in it refers to
//! each other by plain addresses: reading and writing cost what they do on the heap. The next process maps nothing at these
//! addresses. It reads the region as bytes ([`RegionImage`]) that may be anything, translates the addresses, and copies
//! what it finds sound.

mod block;
mod free_list;
mod image;
mod region;
mod vector;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use block::{ZoneArc, ZoneBox, ZoneSlice};
pub use image::RegionImage;
pub use region::{ZonePlace, ZoneRegion};
pub use vector::ZoneVec;

use crate::process;

/// The file. Pages count when they are written.
#[derive(Debug)]
pub struct ZoneFile {
    file: File,
    directory: Mutex<RegionDirectory>,
}

/// What the process that writes has made in it.
#[derive(Debug)]
struct RegionDirectory {
    entries: usize,
    /// Where the next region begins.
    end: u64,
}

/// Where a region is.
#[derive(Clone, Copy, Debug)]
struct RegionEntry {
    /// In the file, in bytes.
    at: u64,
    length: u64,
    /// What its user calls its size.
    size: u64,
    /// Where it was in the memory of the process that wrote it.
    base: u64,
}

/// Words at a region's beginning for its user: where what is in it begins.
const ROOTS: usize = 256;

/// Number of regions that one process may make; they are counted also when they are gone.
const ENTRIES: usize = 1024;
/// Bytes of an entry: its state, four words, the length of its name, and that.
const ENTRY: usize = 256;
const NAME: usize = 48;
/// Where the file says that all zones are in it, after the entries.
const WHOLE_AT: u64 = (ENTRIES * ENTRY) as u64;
const BEGINNING: u64 = WHOLE_AT + PAGE;
const PAGE: u64 = 4096;
/// States of an entry; anything else is no entry.
const LIVE: u64 = 0x7765_6972_7a6f_6e65;
const GONE: u64 = 0;

impl ZoneFile {
    /// An empty one; `name` is what the system shows of the file.
    ///
    /// # Errors
    /// The errno of memfd_create(2) or ftruncate(2).
    pub fn new(name: &str) -> io::Result<Arc<ZoneFile>> {
        let file = process::memory_file(name)?;
        file.set_len(BEGINNING)?;
        let directory = Mutex::new(RegionDirectory { entries: 0, end: BEGINNING });
        Ok(Arc::new(ZoneFile { file, directory }))
    }

    /// A new region with at least `length` bytes, whose user calls it `name` and its size `size`.
    ///
    /// # Errors
    /// The errno of ftruncate(2), mmap(2) or pwrite(2); `InvalidInput`: the name is too long; `QuotaExceeded`: this process
    /// has made too many.
    pub fn region(self: &Arc<Self>, name: &str, size: u64, length: u64) -> io::Result<ZoneRegion> {
        if name.len() > ENTRY - NAME {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut directory = self.directory();
        if directory.entries == ENTRIES {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let length = length.checked_next_multiple_of(PAGE).ok_or(io::ErrorKind::InvalidInput)?;
        let end = directory.end.checked_add(length).ok_or(io::ErrorKind::InvalidInput)?;
        self.file.set_len(end)?;
        let (number, at) = (directory.entries, directory.end);
        let region = ZoneRegion::map(self.clone(), number, at, length)?;
        let entry = RegionEntry { at, length, size, base: region.address() };
        self.write_entry(number, entry, name)?;
        (directory.entries, directory.end) = (number + 1, end);
        Ok(region)
    }

    /// The last region of that name and size that the process which has ended had; `None`: it had none that can be read.
    ///
    /// # Errors
    /// The errno of pread(2), fstat(2) or mmap(2).
    pub fn image(&self, name: &str, size: u64) -> io::Result<Option<RegionImage>> {
        let mut entries = vec![0; WHOLE_AT as usize];
        self.file.read_exact_at(&mut entries, 0)?;
        let end = self.file.metadata()?.len();
        let found = entries.chunks_exact(ENTRY).rev().find_map(|bytes| {
            let entry = RegionEntry::decode(bytes, name)?;
            let inside = entry.at.checked_add(entry.length).is_some_and(|last| last <= end);
            (entry.size == size && inside && entry.at.is_multiple_of(PAGE)).then_some(entry)
        });
        found.map(|entry| RegionImage::map(&self.file, entry)).transpose()
    }

    /// All zones of the process are in it, with what they had before.
    pub fn complete(&self) {
        // It can't fail within the file's length; if it did, the next process would begin where this one did.
        let _ = self.file.write_all_at(&LIVE.to_ne_bytes(), WHOLE_AT);
    }

    /// Whether its process has come so far.
    pub fn is_complete(&self) -> bool {
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word, WHOLE_AT).is_ok() && u64::from_ne_bytes(word) == LIVE
    }

    fn write_entry(&self, number: usize, entry: RegionEntry, name: &str) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(ENTRY);
        let words = [entry.at, entry.length, entry.size, entry.base, name.len() as u64];
        words.iter().for_each(|word| bytes.extend_from_slice(&word.to_ne_bytes()));
        bytes.extend_from_slice(name.as_bytes());
        let at = (number * ENTRY) as u64;
        self.file.write_all_at(&bytes, at + 8)?;
        // Last: a process that ends before leaves no entry.
        self.file.write_all_at(&LIVE.to_ne_bytes(), at)
    }

    /// No process finds the region of that number any more.
    fn forget(&self, number: usize) {
        // It can't fail within the file's length; if it did, the next process would find a zone that was given up.
        let _ = self.file.write_all_at(&GONE.to_ne_bytes(), (number * ENTRY) as u64);
    }

    /// Gives the memory of a region back, which nothing refers to.
    fn free(&self, at: u64, length: u64) {
        let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (at, length) = (at as libc::off_t, length as libc::off_t);
        // SAFETY: no pointers. If it fails the memory stays until the process ends.
        unsafe { libc::fallocate(self.file.as_raw_fd(), flags, at, length) };
    }

    fn directory(&self) -> MutexGuard<'_, RegionDirectory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegionEntry {
    /// What an entry says, if it is one of that name.
    fn decode(bytes: &[u8], name: &str) -> Option<RegionEntry> {
        let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at * 8..)?.first_chunk().copied()?));
        let named = word(5)? == name.len() as u64 && bytes.get(NAME..)?.starts_with(name.as_bytes());
        let entry = RegionEntry { at: word(1)?, length: word(2)?, size: word(3)?, base: word(4)? };
        (word(0)? == LIVE && named).then_some(entry)
    }
}
