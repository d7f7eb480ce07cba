//! `queue`: requests that find no server free wait for one, for a while and not too many.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Waker};

/// The line of an upstream, of all workers together.
#[derive(Debug)]
pub struct RequestQueue {
    /// How many may wait.
    pub number: u32,
    /// Milliseconds that each waits at most.
    pub timeout: u64,
    waiting: AtomicU32,
}

impl RequestQueue {
    /// An empty queue for `number` requests, each of which waits for `timeout` milliseconds at most (`queue`).
    pub fn new(number: u32, timeout: u64) -> RequestQueue {
        RequestQueue { number, timeout, waiting: AtomicU32::new(0) }
    }

    /// A place in the line, unless it is full.
    pub(crate) fn enter(&self) -> Option<QueuePlace<'_>> {
        if self.waiting.fetch_add(1, Relaxed) >= self.number {
            self.waiting.fetch_sub(1, Relaxed);
            return None;
        }
        Some(QueuePlace(self))
    }
}

pub(crate) struct QueuePlace<'q>(&'q RequestQueue);

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

/// Those of one worker that wait, first come first served.
#[derive(Default)]
pub(crate) struct QueueLine(RefCell<VecDeque<Waker>>);

impl QueueLine {
    /// A server may be free: the first looks.
    #[inline]
    pub(crate) fn next(&self) {
        if let Some(waker) = self.0.borrow_mut().pop_front() {
            waker.wake();
        }
    }

    pub(crate) fn join(&self, cx: &Context<'_>) {
        let mut line = self.0.borrow_mut();
        if !line.iter().any(|waker| waker.will_wake(cx.waker())) {
            line.push_back(cx.waker().clone());
        }
    }
}
