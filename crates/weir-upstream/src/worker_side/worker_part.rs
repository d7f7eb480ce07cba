//! What upstreams keep with each worker.

use crate::cache::hot;
use crate::worker_side::local_upstream::WorkerUpstreams;
use weir_engine::worker::{Worker, WorkerPart, WorkerSlot};

/// What one worker keeps of upstreams and caches.
#[derive(Default)]
pub struct UpstreamWorker {
    /// Choosers and idle connections of upstreams.
    pub upstreams: WorkerUpstreams,
    /// Responses of caches that are in memory.
    pub(crate) caches: hot::HotCaches,
}

impl WorkerPart for UpstreamWorker {
    fn switched(&self, _worker: &Worker) {
        self.upstreams.switched();
        self.caches.switched();
    }
}

/// The upstream part of `worker`.
#[inline]
pub fn of_worker(worker: &Worker) -> &UpstreamWorker {
    worker.part(WorkerSlot::Upstream)
}
