//! Receive buffers: a pool of 4 KB blocks per worker, and heap blocks for the moments when the pool is not enough.
//!
//! A buffer is named by a number: below the pool's size it is a pool block, above it a heap block. Buffers received
//! and not yet taken are chained through a side table, so that a socket's queue costs it twelve bytes and no
//! allocation, and an idle socket holds none.

use std::cell::UnsafeCell;
use std::io;
use std::ptr::NonNull;

use bufring::BufRing;

use crate::held::HeldMemory;

pub(crate) mod bufring;

/// Bytes of one pool buffer. One page: a request head fits, and a queue of four is what a socket may hold.
pub(crate) const BUFFER_SIZE: usize = 4096;
const NONE: u32 = u32::MAX;
/// A buffer with something in it, between the driver and [`RecvBuf`](crate::recv_buf::RecvBuf).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedBuffer {
    pub(crate) id: u32,
    pub(crate) len: u32,
}

/// A socket's received, untaken buffers.
pub(crate) struct BufferQueue {
    head: u32,
    tail: u32,
    len: u32,
}

impl BufferQueue {
    pub(crate) const fn new() -> BufferQueue {
        BufferQueue { head: NONE, tail: NONE, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Where free pool buffers are stored.
pub(crate) enum FreeBuffers {
    /// In the kernel's hands (io_uring): it picks one when bytes arrive.
    Ring(BufRing),
    /// In ours (epoll).
    List(Vec<u16>),
}

#[derive(Clone, Copy)]
struct BufferLink {
    next: u32,
    len: u32,
}

/// In an `UnsafeCell`, since it is written through the pointer that [`BufferPool::start`] makes from a shared reference.
struct HeapBlock(UnsafeCell<[u8; BUFFER_SIZE]>);

/// The buffers of one worker.
pub(crate) struct BufferPool {
    blocks: PoolBlocks,
    store: FreeBuffers,
    /// Free pool buffers, as far as completions have reported.
    free: u32,
    links: Vec<BufferLink>,
    heap: Vec<Option<Box<HeapBlock>>>,
    heap_free: Vec<u32>,
}

impl BufferPool {
    /// `store` must be empty; all blocks are put into it.
    pub(crate) fn new(blocks: PoolBlocks, store: FreeBuffers) -> BufferPool {
        let count = u32::from(blocks.count);
        let links = vec![BufferLink { next: NONE, len: 0 }; count as usize];
        let mut pool = BufferPool { blocks, store, free: 0, links, heap: Vec::new(), heap_free: Vec::new() };
        for id in (0..count).rev() {
            pool.give(id);
        }
        pool
    }

    /// All buffers, and the bytes that they and the tables of them take. The kernel gives a block of the pool memory when
    /// it is used first.
    pub(crate) fn held(&self) -> HeldMemory {
        let heap = self.heap.iter().flatten().count();
        let count = usize::from(self.blocks.count) + heap;
        let tables = self.links.capacity() * size_of::<BufferLink>()
            + self.heap.capacity() * size_of::<Option<Box<HeapBlock>>>()
            + self.heap_free.capacity() * size_of::<u32>();
        HeldMemory::new(count, count * BUFFER_SIZE + tables)
    }

    /// Gives a buffer back.
    #[inline]
    pub(crate) fn give(&mut self, id: u32) {
        if id >= u32::from(self.blocks.count) {
            self.heap[(id - u32::from(self.blocks.count)) as usize] = None;
            self.heap_free.push(id);
            return;
        }
        self.free += 1;
        match &mut self.store {
            FreeBuffers::Ring(ring) => ring.give(id as u16, self.blocks.start(id)),
            FreeBuffers::List(list) => list.push(id as u16),
        }
    }

    /// Takes a free pool buffer (epoll; the kernel picks for io_uring).
    pub(crate) fn take(&mut self) -> Option<u32> {
        let FreeBuffers::List(list) = &mut self.store else { return None };
        let id = list.pop()?;
        self.free -= 1;
        Some(u32::from(id))
    }

    /// The kernel has taken `bid` from the ring.
    pub(crate) fn taken(&mut self, bid: u16) -> u32 {
        self.free -= 1;
        u32::from(bid)
    }

    /// A buffer outside the pool: what starved or lagging sockets receive into, at the price of an allocation.
    pub(crate) fn take_heap(&mut self) -> u32 {
        let block = Box::new(HeapBlock(UnsafeCell::new([0; BUFFER_SIZE])));
        let id = self.heap_free.pop().unwrap_or_else(|| {
            self.heap.push(None);
            self.links.push(BufferLink { next: NONE, len: 0 });
            self.links.len() as u32 - 1
        });
        self.heap[(id - u32::from(self.blocks.count)) as usize] = Some(block);
        id
    }

    /// Copies a pool buffer to the heap and gives the original back.
    pub(crate) fn spill(&mut self, received: ReceivedBuffer) -> ReceivedBuffer {
        let id = self.take_heap();
        // SAFETY: both are blocks of BUFFER_SIZE, distinct, ours alone; `len` is at most that.
        unsafe { self.start(id).copy_from_nonoverlapping(self.start(received.id), received.len as usize) };
        self.give(received.id);
        ReceivedBuffer { id, len: received.len }
    }

    /// Appends what a buffer holds to `bytes`.
    pub(crate) fn copy_to(&self, received: ReceivedBuffer, bytes: &mut Vec<u8>) {
        // SAFETY: `len` bytes of this buffer were written by its receive, and it is ours alone.
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts(self.start(received.id).as_ptr(), received.len as usize)
        });
    }

    /// Free pool buffers, and all of them.
    pub(crate) fn free_of(&self) -> (u32, u32) {
        (self.free, self.blocks.count.into())
    }

    /// Free pool buffers.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Less than a quarter of the pool is free: no socket should hold unread buffers now.
    pub(crate) fn is_low(&self) -> bool {
        self.free < u32::from(self.blocks.count) / 4
    }

    /// The first byte of a buffer in use.
    #[inline]
    pub(crate) fn start(&self, id: u32) -> NonNull<u8> {
        match id.checked_sub(u32::from(self.blocks.count)) {
            None => self.blocks.start(id),
            Some(i) => {
                let block = self.heap[i as usize].as_ref().expect("a heap buffer in use has its block");
                NonNull::new(block.0.get()).expect("a box is not null").cast()
            }
        }
    }

    /// Appends to a socket's queue.
    pub(crate) fn push(&mut self, queue: &mut BufferQueue, received: ReceivedBuffer) {
        self.links[received.id as usize] = BufferLink { next: NONE, len: received.len };
        match queue.tail {
            NONE => queue.head = received.id,
            tail => self.links[tail as usize].next = received.id,
        }
        queue.tail = received.id;
        queue.len += 1;
    }

    /// Takes the oldest of a socket's queue.
    #[inline]
    pub(crate) fn pop(&mut self, queue: &mut BufferQueue) -> Option<ReceivedBuffer> {
        if queue.head == NONE {
            return None;
        }
        let id = queue.head;
        let BufferLink { next, len } = self.links[id as usize];
        queue.head = next;
        if next == NONE {
            queue.tail = NONE;
        }
        queue.len -= 1;
        Some(ReceivedBuffer { id, len })
    }

    /// Moves a socket's queue beyond its first `keep` buffers to the heap.
    pub(crate) fn spill_queue(&mut self, queue: &mut BufferQueue, keep: usize) {
        let pooled = u32::from(self.blocks.count);
        for n in 0..queue.len() {
            let Some(mut received) = self.pop(queue) else { return };
            if n >= keep && received.id < pooled {
                received = self.spill(received);
            }
            self.push(queue, received);
        }
    }

    /// Gives back all that a socket has queued.
    pub(crate) fn clear(&mut self, queue: &mut BufferQueue) {
        while let Some(received) = self.pop(queue) {
            self.give(received.id);
        }
    }

    /// Returns to the kernel the buffers given back since the last call (io_uring).
    #[inline]
    pub(crate) fn publish(&mut self) {
        if let FreeBuffers::Ring(ring) = &mut self.store {
            ring.publish();
        }
    }

    /// Leaves the memory mapped for ever: for the case that the kernel may still write to it.
    pub(crate) fn leak(&mut self) {
        self.blocks.owned = false;
        if let FreeBuffers::Ring(ring) = &mut self.store {
            ring.leak();
        }
    }
}

/// The pool's memory: `count` blocks of [`BUFFER_SIZE`], mapped, so untouched blocks cost no memory.
pub(crate) struct PoolBlocks {
    base: NonNull<u8>,
    count: u16,
    owned: bool,
}

impl PoolBlocks {
    /// # Errors
    /// The errno of mmap(2).
    pub(crate) fn new(count: u16) -> io::Result<PoolBlocks> {
        let base = map(usize::from(count) * BUFFER_SIZE)?;
        Ok(PoolBlocks { base, count, owned: true })
    }

    #[inline]
    fn start(&self, id: u32) -> NonNull<u8> {
        debug_assert!(id < u32::from(self.count));
        // SAFETY: `id` is below `count` (ids come from this pool alone), so the offset is inside the mapping.
        unsafe { self.base.add(id as usize * BUFFER_SIZE) }
    }
}

impl Drop for PoolBlocks {
    fn drop(&mut self) {
        if self.owned {
            unmap(self.base, usize::from(self.count) * BUFFER_SIZE);
        }
    }
}

/// Anonymous zeroed memory.
pub(crate) fn map(len: usize) -> io::Result<NonNull<u8>> {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh private mapping, no existing memory involved.
    let p = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
    match NonNull::new(p.cast()) {
        Some(base) if p != libc::MAP_FAILED => Ok(base),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives memory of [`map`] back; nothing may refer to it any more.
pub(crate) fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: exactly a mapping made by `map`, and by the caller's word the last use of it.
    unsafe { libc::munmap(base.as_ptr().cast(), len) };
}

#[cfg(test)]
mod tests {
    use super::{BufferPool, BufferQueue, FreeBuffers, PoolBlocks, ReceivedBuffer};

    fn pool(count: u16) -> BufferPool {
        BufferPool::new(PoolBlocks::new(count).expect("memory"), FreeBuffers::List(Vec::new()))
    }

    #[test]
    fn a_queue_keeps_order_across_pool_and_heap() {
        let (mut pool, mut queue) = (pool(4), BufferQueue::new());
        for len in 1..=4 {
            let id = pool.take().expect("free");
            // SAFETY: a buffer just taken, one byte of 4096.
            unsafe { pool.start(id).write(len as u8) };
            let mut received = ReceivedBuffer { id, len };
            if len % 2 == 0 {
                received = pool.spill(received);
            }
            pool.push(&mut queue, received);
        }
        assert_eq!((queue.len(), pool.free()), (4, 2));
        for len in 1..=4 {
            let received = pool.pop(&mut queue).expect("queued");
            // SAFETY: written above.
            assert_eq!((received.len, unsafe { pool.start(received.id).read() }), (len, len as u8));
            pool.give(received.id);
        }
        assert!(queue.is_empty() && pool.pop(&mut queue).is_none());
        assert_eq!(pool.free(), 4);
    }

    #[test]
    fn an_exhausted_pool_says_so_and_recovers() {
        let mut pool = pool(2);
        let (a, b) = (pool.take().expect("first"), pool.take().expect("second"));
        assert!(pool.take().is_none() && pool.is_low() || pool.free() == 0);
        let heap = pool.take_heap();
        pool.give(heap);
        assert_eq!(pool.take_heap(), heap, "heap numbers are reused");
        pool.give(a);
        pool.give(b);
        assert_eq!(pool.free(), 2);
    }
}
