//! A region as the process that has ended left it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use super::{ROOTS, RegionEntry};

/// A region's bytes, found by the addresses that they had. Anything may be in them.
#[derive(Debug)]
pub struct RegionImage {
    bytes: ImageBytes,
    base: u64,
}

#[derive(Debug)]
enum ImageBytes {
    Mapped(MappedImage),
    Copied(Vec<u8>),
}

/// A mapping of a file that no process writes any more.
#[derive(Debug)]
struct MappedImage {
    first: NonNull<u8>,
    length: usize,
}

// SAFETY: memory that is only read, and mapped as long as this lives.
unsafe impl Send for MappedImage {}
// SAFETY: the same.
unsafe impl Sync for MappedImage {}

impl RegionImage {
    /// The part of `file` must be inside of it, and its process must have ended.
    pub(super) fn map(file: &File, entry: RegionEntry) -> io::Result<RegionImage> {
        let length = usize::try_from(entry.length).map_err(|_| io::ErrorKind::InvalidInput)?;
        let at = libc::off_t::try_from(entry.at).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a fresh mapping, no existing memory involved.
        let p = unsafe {
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), at)
        };
        match NonNull::new(p.cast()) {
            Some(first) if p != libc::MAP_FAILED => {
                Ok(RegionImage { bytes: ImageBytes::Mapped(MappedImage { first, length }), base: entry.base })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The `length` bytes that were at `address`; `None`: they were not all in the region.
    pub fn bytes(&self, address: u64, length: u64) -> Option<&[u8]> {
        let at = usize::try_from(address.checked_sub(self.base)?).ok()?;
        let length = usize::try_from(length).ok()?;
        self.all().get(at..)?.get(..length)
    }

    /// The word that was at `address`.
    pub fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.base)?).ok()?;
        Some(u64::from_ne_bytes(*self.all().get(at..)?.first_chunk()?))
    }

    /// What the region's user has set as its root of that number.
    pub fn root(&self, number: usize) -> Option<u64> {
        let at = Some(number).filter(|number| *number < ROOTS)? * 8;
        Some(u64::from_ne_bytes(*self.all().get(at..)?.first_chunk()?))
    }

    /// How many bytes it has.
    pub fn length(&self) -> usize {
        self.all().len()
    }

    /// A copy with other bytes at some addresses, as a process leaves it that runs wild; those outside of it are left out.
    /// For tests.
    #[must_use]
    pub fn scribbled(&self, scribbles: &[(u64, Vec<u8>)]) -> RegionImage {
        let mut bytes = self.all().to_vec();
        for (address, written) in scribbles {
            let at = address.checked_sub(self.base).and_then(|at| usize::try_from(at).ok());
            let to = at.and_then(|at| bytes.get_mut(at..)?.get_mut(..written.len()));
            to.into_iter().for_each(|to| to.copy_from_slice(written));
        }
        RegionImage { bytes: ImageBytes::Copied(bytes), base: self.base }
    }

    fn all(&self) -> &[u8] {
        match &self.bytes {
            // SAFETY: exactly the mapping, which lives as long as this; its process has ended, so nothing writes it.
            ImageBytes::Mapped(MappedImage { first, length }) => unsafe {
                std::slice::from_raw_parts(first.as_ptr(), *length)
            },
            ImageBytes::Copied(bytes) => bytes,
        }
    }
}

impl Drop for MappedImage {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made; slices of it borrow this.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.length) };
    }
}
