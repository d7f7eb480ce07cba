//! The ring through which free buffers are handed to the kernel (IORING_REGISTER_PBUF_RING).
//!
//! Plain, not incremental: rings with IOU_PBUF_RING_INC have a record of wrong data.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::{IoUring, types::BufRingEntry};

use super::{BUFFER_SIZE, map, unmap};

/// The identifier of the buffer group (io_uring) of all receives of a worker.
pub(crate) const GROUP: u16 = 0;

/// The shared ring of buffer descriptors; a power of two of them.
pub(crate) struct BufRing {
    entries: NonNull<BufRingEntry>,
    count: u16,
    tail: u16,
    owned: bool,
}

impl BufRing {
    /// Registers an empty ring for `count` (a power of two up to 32,768) buffers with `ring`.
    ///
    /// # Errors
    /// The errno of mmap(2) or io_uring_register(2).
    pub(crate) fn register(ring: &IoUring, count: u16) -> io::Result<BufRing> {
        let entries: NonNull<BufRingEntry> = map(usize::from(count) * size_of::<BufRingEntry>())?.cast();
        let made = BufRing { entries, count, tail: 0, owned: true };
        // SAFETY: zeroed memory of `count` descriptors that outlives the registration: the ring is closed before
        // this is dropped (field order of Io), or the memory is leaked.
        unsafe { ring.submitter().register_buf_ring_with_flags(entries.as_ptr() as u64, count, GROUP, 0) }?;
        Ok(made)
    }

    /// Puts a buffer of [`BUFFER_SIZE`] into the ring; the kernel sees it after [`BufRing::publish`].
    #[inline]
    pub(crate) fn give(&mut self, bid: u16, start: NonNull<u8>) {
        let at = usize::from(self.tail & (self.count - 1));
        // SAFETY: `at` is inside the ring. The kernel does not read past the published tail, and no more than
        // `count` buffers exist, so this descriptor is ours.
        let entry = unsafe { self.entries.add(at).as_mut() };
        entry.set_addr(start.as_ptr() as u64);
        entry.set_len(BUFFER_SIZE as u32);
        entry.set_bid(bid);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Makes all buffers given so far the kernel's: one store.
    #[inline]
    pub(crate) fn publish(&mut self) {
        // SAFETY: the tail lies in the first descriptor's reserved field, aligned, shared with the kernel which only
        // reads it; an atomic view of it is what the interface asks for.
        let tail = unsafe { &*BufRingEntry::tail(self.entries.as_ptr()).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }

    pub(crate) fn leak(&mut self) {
        self.owned = false;
    }
}

impl Drop for BufRing {
    fn drop(&mut self) {
        if self.owned {
            unmap(self.entries.cast(), usize::from(self.count) * size_of::<BufRingEntry>());
        }
    }
}
