//! A worker's queue of connections that were dealt to it and that it has not taken yet. Not on any request's path: a
//! lock for a few instructions at each connection.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::worker::Counters;

/// A connection on its way to a worker.
pub(crate) struct Dealt {
    pub(crate) fd: OwnedFd,
    /// Which of the server's sockets it came by.
    pub(crate) cookie: u64,
}

/// The queue of one worker.
pub(crate) struct Intake {
    queue: Mutex<VecDeque<Dealt>>,
    /// Of which the length of the queue is told, changed under its lock.
    counters: Arc<Counters>,
}

impl Intake {
    pub(crate) fn new(counters: Arc<Counters>) -> Intake {
        Intake { queue: Mutex::default(), counters }
    }

    /// Adds a connection; `true`: the queue was empty, so that the worker has to be told.
    pub(crate) fn push(&self, dealt: Dealt) -> bool {
        let mut queue = self.queue();
        queue.push_back(dealt);
        self.counters.dealing.queued.add(1);
        queue.len() == 1
    }

    /// The one that has waited longest.
    pub(crate) fn pop(&self) -> Option<Dealt> {
        let mut queue = self.queue();
        let dealt = queue.pop_front()?;
        self.counters.dealing.queued.sub(1);
        Some(dealt)
    }

    /// Whether a connection waits that came by the socket of this cookie.
    pub(crate) fn has(&self, cookie: u64) -> bool {
        self.queue().iter().any(|dealt| dealt.cookie == cookie)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.counters.dealing.queued.get() == 0
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Dealt>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
