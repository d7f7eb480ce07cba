//! What storeys above keep with each worker.

use std::any::Any;
use std::cell::OnceCell;

use super::Worker;

/// A storey's part of a worker.
pub trait WorkerPart: Any {
    /// New requests get another configuration from here on.
    fn switched(&self) {}
}

/// Where a storey's part is: fixed when the server is built, so that it is found without a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerSlot {
    /// The proxy's: what is local of upstreams, and cached responses.
    Upstream,
    /// The server's: what deals connections to the worker.
    Server,
}

/// The parts of one worker, each made when it is asked for first.
#[derive(Default)]
pub(super) struct WorkerParts([OnceCell<Box<dyn WorkerPart>>; 2]);

impl WorkerParts {
    pub(super) fn switched(&self) {
        self.0.iter().filter_map(OnceCell::get).for_each(|part| part.switched());
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
