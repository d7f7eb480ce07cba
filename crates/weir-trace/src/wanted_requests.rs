//! Which of the coming requests a caller wants, and how many more: what watches for trees and for averages have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::record::RequestRecord;

/// So many requests that match. Clones share the number that is left, so that all workers may have one.
#[derive(Clone)]
pub(crate) struct WantedRequests {
    left: Arc<AtomicUsize>,
    /// Ticks: those that began before are not wanted.
    since: u64,
    matches: Arc<dyn Fn(&RequestRecord) -> bool + Send + Sync>,
}

impl WantedRequests {
    /// `count` requests for which `matches` is true.
    pub(crate) fn new(
        count: usize,
        matches: impl Fn(&RequestRecord) -> bool + Send + Sync + 'static,
    ) -> WantedRequests {
        WantedRequests { left: Arc::new(AtomicUsize::new(count)), since: 0, matches: Arc::new(matches) }
    }

    /// Without requests that began before `since`, in ticks.
    pub(crate) fn since(self, since: u64) -> WantedRequests {
        WantedRequests { since, ..self }
    }

    /// Wants no more, on every worker.
    pub(crate) fn cancel(&self) {
        self.left.store(0, Relaxed);
    }

    /// How many are still wanted, of all workers together.
    pub(crate) fn left(&self) -> usize {
        self.left.load(Relaxed)
    }

    /// True for a clone of the same wish.
    pub(crate) fn is(&self, other: &WantedRequests) -> bool {
        Arc::ptr_eq(&self.left, &other.left)
    }

    /// True if this request is wanted; then one less is left.
    pub(crate) fn takes(&self, record: &RequestRecord) -> bool {
        self.left() > 0
            && record.start >= self.since
            && (self.matches)(record)
            && self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}
