//! What a VM is yet to hear.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::worker_thread::Value;

/// Something that happened.
pub(super) struct Event {
    /// The library whose event it is.
    pub(super) channel: Vec<u8>,
    pub(super) source: Vec<u8>,
    pub(super) name: Vec<u8>,
    pub(super) data: Value,
    /// The worker that says it.
    pub(super) sender: Option<u8>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Mailbox(Mutex<Inside>);

#[derive(Default)]
struct Inside {
    events: VecDeque<Arc<Event>>,
    taken: u64,
    waker: Option<Waker>,
    closed: bool,
}

impl Mailbox {
    pub(super) fn put(&self, event: Arc<Event>) {
        let waker = {
            let mut inside = self.inside();
            if inside.closed {
                return;
            }
            inside.events.push_back(event);
            inside.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn take(&self) -> Option<Arc<Event>> {
        let mut inside = self.inside();
        let event = inside.events.pop_front();
        inside.taken += u64::from(event.is_some());
        event
    }

    /// How many were taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.inside().taken
    }

    /// Ready when there is something, with how many were taken before; `None` when nothing will come any more.
    pub(super) fn poll(&self, waker: &Waker) -> Poll<Option<u64>> {
        let mut inside = self.inside();
        match (inside.events.is_empty(), inside.closed) {
            (false, _) => Poll::Ready(Some(inside.taken)),
            (true, true) => Poll::Ready(None),
            (true, false) => {
                inside.waker = Some(waker.clone());
                Poll::Pending
            }
        }
    }

    /// Nothing more comes.
    pub(super) fn close(&self) {
        let waker = {
            let mut inside = self.inside();
            inside.closed = true;
            inside.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Nothing is changed in two steps, so what a panicking thread left behind is whole.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
