//! What upstreams keep with each worker.

use std::cell::Cell;

use weir_rt::HeldMemory;

use crate::cache::hot;
use crate::worker_side::local_upstream::WorkerUpstreams;
use weir_engine::worker::memory::{MemoryKind, WorkerMemory};
use weir_engine::worker::{Worker, WorkerPart, WorkerSlot};

/// What one worker keeps of upstreams and caches.
#[derive(Default)]
pub struct UpstreamWorker {
    /// Choosers and idle connections of upstreams.
    pub upstreams: WorkerUpstreams,
    /// Responses of caches that are in memory.
    pub(crate) caches: hot::HotCaches,
    /// Upgraded connections.
    pub(crate) tunnels: Cell<HeldMemory>,
}

impl WorkerPart for UpstreamWorker {
    fn switched(&self, _worker: &Worker) {
        self.upstreams.switched();
        self.caches.switched();
    }

    fn memory(&self, worker: &Worker, memory: &mut WorkerMemory) {
        self.upstreams.memory(worker, memory);
        memory.add(MemoryKind::CachedResponses, self.caches.held());
        memory.add(MemoryKind::Tunnel, self.tunnels.get());
    }
}

/// The upstream part of `worker`.
#[inline]
pub fn of_worker(worker: &Worker) -> &UpstreamWorker {
    worker.part(WorkerSlot::Upstream)
}
