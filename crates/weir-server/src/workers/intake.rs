//! A worker's queue of connections that were dealt to it and that it has not taken yet. Not on any request's path: a
//! lock for a few instructions at each connection.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_rt::net::SockAddr;

use crate::conn::parked::ParkedConnection;
use weir_engine::worker::WorkerCounters;

/// A connection on its way to a worker.
pub(crate) enum DealtConnection {
    /// A new one.
    New {
        fd: OwnedFd,
        /// The client's address.
        peer: SockAddr,
        /// Which of the server's sockets it came by.
        cookie: u64,
    },
    /// One that was parked.
    Again(Box<ParkedConnection>),
}

/// The queue of one worker.
pub(crate) struct ConnectionIntake {
    queue: Mutex<VecDeque<DealtConnection>>,
    /// Among them is the length of the queue, changed under its lock.
    counters: Arc<WorkerCounters>,
}

impl ConnectionIntake {
    pub(crate) fn new(counters: Arc<WorkerCounters>) -> ConnectionIntake {
        ConnectionIntake { queue: Mutex::default(), counters }
    }

    /// Adds a connection; `true`: the queue was empty, so that the worker has to be woken.
    pub(crate) fn push(&self, dealt: DealtConnection) -> bool {
        let mut queue = self.queue();
        queue.push_back(dealt);
        self.counters.dealing.queued.add(1);
        queue.len() == 1
    }

    /// The one that has waited longest.
    pub(crate) fn pop(&self) -> Option<DealtConnection> {
        let mut queue = self.queue();
        let dealt = queue.pop_front()?;
        self.counters.dealing.queued.sub(1);
        Some(dealt)
    }

    /// The new one that has waited longest, if one waits.
    pub(crate) fn pop_new(&self) -> Option<DealtConnection> {
        let mut queue = self.queue();
        let at = queue.iter().position(|dealt| matches!(dealt, DealtConnection::New { .. }))?;
        let dealt = queue.remove(at)?;
        self.counters.dealing.queued.sub(1);
        Some(dealt)
    }

    /// Whether a connection waits that came by the socket of this cookie, or may have.
    pub(crate) fn may_have(&self, cookie: u64) -> bool {
        self.queue().iter().any(|dealt| match dealt {
            DealtConnection::New { cookie: other, .. } => *other == cookie,
            DealtConnection::Again(_) => true,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.counters.dealing.queued.get() == 0
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<DealtConnection>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
