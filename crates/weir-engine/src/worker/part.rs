//! What storeys above keep with each worker, protocols' connections among it.

use std::any::Any;
use std::cell::OnceCell;

use super::Worker;
use super::memory::WorkerMemory;
use crate::descriptors::ConnectionLimit;

/// A storey's part of a worker: what a protocol does with its connections when the worker says so.
pub trait WorkerPart: Any {
    /// New requests get another configuration from here on.
    fn switched(&self, _worker: &Worker) {}

    /// The worker is about to end; what is kept of its configuration is let go of.
    fn left(&self) {}

    /// Idle connections close, busy ones after what they do.
    fn stopped(&self) {}

    /// All connections end, whatever they do.
    fn end_all(&self) {}

    /// Connections end whose request, or whose waiting for the first one, began before generation `serial`.
    fn end_before(&self, _serial: u64) {}

    /// Adds to `memory` what the part holds.
    fn memory(&self, _worker: &Worker, _memory: &mut WorkerMemory) {}

    /// Closes some of the connections that wait for a request, those first that wait longest: there is no room under
    /// `limit` for one that has come. How many; `None` if none waits.
    fn close_idle(&self, _limit: &ConnectionLimit) -> Option<usize> {
        None
    }
}

/// Where a storey's part is: fixed when the server is built, so that it is found without a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerSlot {
    /// Exchanges for reuse, and what requests have found out for those after them.
    Requests,
    /// The proxy's: what is local of upstreams, and cached responses.
    Upstream,
    /// The server's: what deals connections to the worker.
    Server,
    /// Open connections of HTTP.
    Connections,
    /// Open flows of UDP.
    Flows,
    /// Open connections of QUIC.
    Quic,
}

/// The parts of one worker, each made when it is asked for first.
#[derive(Default)]
pub(super) struct WorkerParts([OnceCell<Box<dyn WorkerPart>>; 6]);

impl WorkerParts {
    /// Those that were made, in the order of their slots.
    pub(super) fn made(&self) -> impl Iterator<Item = &dyn WorkerPart> {
        self.0.iter().filter_map(OnceCell::get).map(|part| &**part)
    }
}

impl Worker {
    /// The part at `slot`, which is a `P` for all workers.
    ///
    /// # Panics
    /// Two types want the slot.
    #[inline]
    pub fn part<P: WorkerPart + Default>(&self, slot: WorkerSlot) -> &P {
        let part = self.parts.0[slot as usize].get_or_init(|| Box::<P>::default());
        (&**part as &dyn Any).downcast_ref().expect("a slot has one type")
    }
}
