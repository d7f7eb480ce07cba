//! Trees retained after their request, and the watches that asked for them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use crate::event::TraceEvent;
use crate::keep_reason::KeepReason;
use crate::record::RequestRecord;
use crate::trace::Trace;
use crate::tree::TraceTree;
use crate::wanted_requests::WantedRequests;

/// A request whose tree was retained: its record and its events.
#[derive(Clone, Debug)]
pub struct KeptRequest {
    why: KeepReason,
    record: RequestRecord,
    events: Vec<TraceEvent>,
    folded: Option<TraceTree>,
}

impl KeptRequest {
    /// A copy of what is known of a request that is over, retained for `why`.
    #[must_use]
    pub fn new(why: KeepReason, record: &RequestRecord, trace: &Trace) -> KeptRequest {
        let mut kept = KeptRequest { why, record: *record, events: Vec::new(), folded: None };
        kept.set(why, record, trace);
        kept
    }

    /// Overwrites, reusing the memory of the previous one.
    pub(crate) fn set(&mut self, why: KeepReason, record: &RequestRecord, trace: &Trace) {
        self.why = why;
        self.record = *record;
        self.events.clear();
        self.events.extend_from_slice(trace.events());
        self.folded = trace.is_folded().then(|| trace.tree());
    }

    /// Bytes of memory that it takes.
    pub(crate) fn held_bytes(&self) -> usize {
        let tree = self.folded.as_ref().map_or(0, TraceTree::held_bytes);
        size_of::<KeptRequest>() + self.events.capacity() * size_of::<TraceEvent>() + tree
    }

    /// The first reason it was retained for.
    #[must_use]
    pub fn why(&self) -> KeepReason {
        self.why
    }

    /// The record of the request.
    #[must_use]
    pub fn record(&self) -> &RequestRecord {
        &self.record
    }

    /// The boundaries in order; of a very long request only the first.
    #[must_use]
    pub fn events(&self) -> &[TraceEvent] {
        &self.events
    }

    /// True if the request had more events than are listed; the tree has them all.
    #[must_use]
    pub fn is_folded(&self) -> bool {
        self.folded.is_some()
    }

    /// The request's trace as a tree.
    #[must_use]
    pub fn tree(&self) -> TraceTree {
        self.folded.clone().unwrap_or_else(|| TraceTree::from_events(&self.events))
    }
}

/// A wish for the trees of the next requests that match: what `weir trace` sends. Clones share the number that is
/// left, so the same wish can be given to every worker.
#[derive(Clone)]
pub struct TraceWatch {
    wanted: WantedRequests,
    deliver: Arc<dyn Fn(KeptRequest) + Send + Sync>,
}

impl TraceWatch {
    /// The next `count` requests for which `matches` holds go to `deliver`, which runs on the worker and must not
    /// block. While a watch is there every request is recorded, whatever the level.
    pub fn new(
        count: usize,
        matches: impl Fn(&RequestRecord) -> bool + Send + Sync + 'static,
        deliver: impl Fn(KeptRequest) + Send + Sync + 'static,
    ) -> TraceWatch {
        TraceWatch { wanted: WantedRequests::new(count, matches), deliver: Arc::new(deliver) }
    }

    /// As [`TraceWatch::new`] for the next `count` requests, but they go to a queue. When the receiver is dropped, the
    /// watch ends at its next match.
    pub fn channel(
        count: usize,
        matches: impl Fn(&RequestRecord) -> bool + Send + Sync + 'static,
    ) -> (TraceWatch, Receiver<KeptRequest>) {
        let (sender, receiver) = channel();
        let wanted = WantedRequests::new(count, matches);
        let ended = wanted.clone();
        let deliver = move |kept| {
            if sender.send(kept).is_err() {
                ended.cancel();
            }
        };
        (TraceWatch { wanted, deliver: Arc::new(deliver) }, receiver)
    }

    /// Without requests that began before `since`, in ticks: they have not recorded what this caller asks for.
    #[must_use]
    pub fn since(self, since: u64) -> TraceWatch {
        TraceWatch { wanted: self.wanted.since(since), ..self }
    }

    /// Ends the watch on every worker.
    pub fn cancel(&self) {
        self.wanted.cancel();
    }

    /// How many are still wanted.
    #[must_use]
    pub fn left(&self) -> usize {
        self.wanted.left()
    }

    /// True if this request is wanted; then one less is left.
    pub(crate) fn takes(&self, record: &RequestRecord) -> bool {
        self.wanted.takes(record)
    }

    pub(crate) fn give(&self, kept: KeptRequest) {
        (self.deliver)(kept);
    }
}

impl std::fmt::Debug for TraceWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("left", &self.left()).finish_non_exhaustive()
    }
}
