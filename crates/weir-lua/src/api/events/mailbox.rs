//! Events that a VM has not handled yet.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use weir_engine::wire::{IpcReader, IpcWriter};

use crate::api::worker_thread::LuaValue;

/// Something that happened.
#[derive(Debug, PartialEq)]
pub(crate) struct WorkerEvent {
    /// The library whose event it is.
    pub(super) channel: Vec<u8>,
    pub(super) source: Vec<u8>,
    pub(super) name: Vec<u8>,
    pub(super) data: LuaValue,
    /// The worker that says it.
    pub(super) sender: Option<u8>,
}

impl WorkerEvent {
    /// Writes it for another process.
    ///
    /// # Errors
    /// As [`LuaValue::encode`].
    pub(crate) fn encode(&self, out: &mut IpcWriter) -> Result<(), String> {
        [&self.channel, &self.source, &self.name].iter().for_each(|text| out.bytes(text));
        out.list(self.sender.iter(), |out, sender| out.number((*sender).into()));
        self.data.encode(out)
    }

    /// Reads what [`WorkerEvent::encode`] has written; `None` if it is not that.
    pub(crate) fn decode(from: &mut IpcReader<'_>) -> Option<WorkerEvent> {
        let mut text = || Some(from.bytes()?.to_vec());
        let (channel, source, name) = (text()?, text()?, text()?);
        let sender = from.list(|from| u8::try_from(from.number()?).ok())?.pop();
        Some(WorkerEvent { channel, source, name, data: LuaValue::decode(from)?, sender })
    }
}

/// The receivers of events.
pub(crate) trait EventListener: Send + Sync {
    /// Takes an event, without waiting.
    fn put(&self, event: Arc<WorkerEvent>);
}

/// See the module.
#[derive(Default)]
pub(super) struct EventMailbox(Mutex<MailboxQueue>);

#[derive(Default)]
struct MailboxQueue {
    events: VecDeque<Arc<WorkerEvent>>,
    taken: u64,
    waker: Option<Waker>,
    closed: bool,
}

impl EventListener for EventMailbox {
    fn put(&self, event: Arc<WorkerEvent>) {
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
}

impl EventMailbox {
    pub(super) fn take(&self) -> Option<Arc<WorkerEvent>> {
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

    /// Nothing is changed in two steps, so the state a panicking thread leaves is consistent.
    fn inside(&self) -> MutexGuard<'_, MailboxQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
