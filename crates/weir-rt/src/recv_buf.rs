//! What a receive gives: bytes in a buffer of the worker's pool, or in a vector.

use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;

use crate::pool::ReceivedBuffer;
use crate::runtime::RuntimeCore;

/// In a [`RecvBuf`]'s number: it is a vector, and the rest of the number its capacity. Buffers are never so many.
const OPENED: u32 = 1 << 31;

/// Received bytes; the buffer goes back to the worker's pool when this is dropped. What came through a layer is a
/// vector, which goes back to the worker's spare ones.
///
/// The pool is shared by all connections of the worker: a reader that keeps an incomplete message while waiting for
/// its rest copies it elsewhere, rather than keep this.
pub struct RecvBuf {
    core: Rc<RuntimeCore>,
    start: NonNull<u8>,
    len: u32,
    id: u32,
}

impl RecvBuf {
    pub(crate) fn new(core: Rc<RuntimeCore>, received: ReceivedBuffer, start: NonNull<u8>) -> RecvBuf {
        RecvBuf { core, start, len: received.len, id: received.id }
    }

    /// Of what a layer opened.
    pub(crate) fn opened(core: Rc<RuntimeCore>, bytes: Vec<u8>) -> RecvBuf {
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        let start = NonNull::new(bytes.as_mut_ptr()).expect("a vector's pointer is not null");
        debug_assert!(bytes.capacity() < OPENED as usize);
        RecvBuf { core, start, len: bytes.len() as u32, id: OPENED | bytes.capacity() as u32 }
    }
}

impl RecvBuf {
    /// The bytes as a vector: a copy, unless they came through a layer or by a long receive
    /// ([`crate::Stream::poll_recv_long`]).
    pub fn into_vec(self) -> Vec<u8> {
        if self.id & OPENED == 0 {
            return self.to_vec();
        }
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the count of references that is read here moves out of it.
        drop(unsafe { std::ptr::read(&raw const this.core) });
        // SAFETY: the parts of the vector that `opened` took apart, which nothing else has.
        unsafe { this.take_apart() }
    }

    /// The vector of a buffer that is one.
    ///
    /// # Safety
    /// It is one ([`OPENED`]), and `self` is not used any more.
    unsafe fn take_apart(&self) -> Vec<u8> {
        let capacity = (self.id & !OPENED) as usize;
        // SAFETY: by the caller's word.
        unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.len as usize, capacity) }
    }
}

impl Deref for RecvBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is the beginning of a vector of `len` bytes that is ours alone, or of buffer `id`, of which `len` bytes were written by the receive. The
        // pool neither moves nor frees it while `core` lives, and nothing (the kernel included) may write it before it
        // is given back in `drop`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len as usize) }
    }
}

impl Drop for RecvBuf {
    fn drop(&mut self) {
        if self.id & OPENED != 0 {
            // SAFETY: it is one, and this is its end.
            let bytes = unsafe { self.take_apart() };
            return self.core.io.with(|io| io.sockets.spares.give(bytes));
        }
        self.core.io.with(|io| io.sockets.pool.give(self.id));
    }
}

impl std::fmt::Debug for RecvBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecvBuf({} bytes)", self.len)
    }
}
