//! Functions that wait to be called on a thread of the program's, which learns of them by a descriptor.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A call of a function of the program's.
type WaitingCall = Box<dyn FnOnce() + Send>;

/// The calls of one server, in order.
pub(crate) struct CallQueue {
    list: Mutex<CallList>,
    /// Readable while there are calls.
    event: OwnedFd,
    /// A thread makes calls.
    turning: AtomicBool,
}

#[derive(Default)]
struct CallList {
    calls: VecDeque<WaitingCall>,
    /// Nobody will make calls any more: those that come are made at once.
    closed: bool,
}

/// Calls `call`: at once where there is no queue, else when the program's turn comes.
pub(crate) fn deliver(queue: Option<&CallQueue>, call: impl FnOnce() + Send + 'static) {
    match queue {
        None => call(),
        Some(queue) => queue.push(Box::new(call)),
    }
}

impl CallQueue {
    /// # Errors
    /// The errno of eventfd(2).
    pub(crate) fn new() -> io::Result<CallQueue> {
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nothing else owns.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(CallQueue { list: Mutex::default(), event, turning: AtomicBool::new(false) })
    }

    /// Readable while there are calls. It stays the queue's.
    pub(crate) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Makes the calls that wait now, and returns how many; `None` inside of such a call.
    pub(crate) fn turn(&self) -> Option<usize> {
        if self.turning.swap(true, Ordering::Acquire) {
            return None;
        }
        // Before the list is taken: what comes after that makes it readable again.
        self.silence();
        let calls = std::mem::take(&mut self.lock().calls);
        let count = calls.len();
        calls.into_iter().for_each(|call| call());
        self.turning.store(false, Ordering::Release);
        Some(count)
    }

    /// Whether calls are being made.
    pub(crate) fn is_turning(&self) -> bool {
        self.turning.load(Ordering::Acquire)
    }

    /// Waits until there is something to do, or something has changed.
    pub(crate) fn wait(&self) {
        let mut poll = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd. A signal may end the wait, as a change may.
        unsafe { libc::poll(&mut poll, 1, -1) };
    }

    /// Ends a wait.
    pub(crate) fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes, an eventfd owned by self. It fails only when the counter is full, and then it is readable.
        unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes the calls that are left, and from now on those that come, at once.
    pub(crate) fn close(&self) {
        let left = {
            let mut list = self.lock();
            list.closed = true;
            std::mem::take(&mut list.calls)
        };
        left.into_iter().for_each(|call| call());
    }

    fn push(&self, call: WaitingCall) {
        let mut list = self.lock();
        if list.closed {
            drop(list);
            return call();
        }
        let first = list.calls.is_empty();
        list.calls.push_back(call);
        drop(list);
        if first {
            self.wake();
        }
    }

    fn silence(&self) {
        let mut count = [0u8; 8];
        // SAFETY: eight writable bytes. It fails when it was not readable, which is as well.
        unsafe { libc::read(self.fd(), count.as_mut_ptr().cast(), count.len()) };
    }

    fn lock(&self) -> MutexGuard<'_, CallList> {
        // Nothing can panic half-way through a push or a take.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
