//! What a worker's memory is held for, by kind: summed when it is asked for, from what its parts have then.

use weir_rt::{HeldMemory, LoopMemory};

use super::{Worker, WorkerPart};
use crate::explained_kinds::explained_kinds;

explained_kinds! {
    /// What memory is held for.
    MemoryKind: MemoryBasis =>
    /// How its bytes are known.
    basis;
    Http1 Counted "http1" "Connections of HTTP/1 without TLS, idle ones and those with a request."
    Http1Tls Estimated "http1_tls" "Connections of HTTP/1 over TLS."
    Http2 Counted "http2" "Connections of HTTP/2 without TLS."
    Http2Tls Estimated "http2_tls" "Connections of HTTP/2 over TLS."
    Handshake Estimated "handshake" "Connections whose TLS handshake is not complete."
    Parked Counted "parked" "Idle connections that any worker may take."
    Request Estimated "request" "Requests being processed, besides their connections."
    Tunnel Estimated "tunnel" "Upgraded connections (WebSocket), besides their connection of the client."
    Flow Estimated "flow" "Flows of UDP, besides their session."
    Quic Estimated "quic" "Connections of QUIC, besides their requests."
    UpstreamIdle Counted "upstream_idle" "Connections to servers that are kept alive by a worker."
    UpstreamIdleTls Estimated "upstream_idle_tls" "Connections to servers over TLS that are kept alive by a worker."
    UpstreamHttp2 Estimated "upstream_http2" "Connections to servers that speak HTTP/2, busy ones too."
    UpstreamShared Counted "upstream_shared" "Connections to servers that any worker may take."
    Timers Counted "timers" "Timers, those of connections too, in the wheel with all its places."
    ReceiveBuffers Counted "receive_buffers" "Buffers to receive into; one that was never used is not in RAM."
    SpareVectors Counted "spare_vectors" "Emptied buffers to send from."
    FreedBlocks Counted "freed_blocks" "Freed blocks that wait for their next use."
    UnusedPlaces Counted "unused_places" "Free places in the tables of sockets, tasks and connections."
    Exchanges Estimated "exchanges" "Requests that are over, whose memory the next ones use."
    LogBuffers Counted "log_buffers" "Lines of access logs that are not written yet, and emptied buffers for more."
    OpenFiles Estimated "open_files" "Entries of open_file_cache."
    KeptRequests Counted "kept_requests" "Trees of retained requests."
    RequestRecords Counted "request_records" "Records of the last requests."
    CachedResponses Estimated "cached_responses" "Responses of caches in a worker's memory."
}

/// How the bytes of a kind are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBasis {
    /// From lengths and capacities. What the allocator adds to a block is not in it.
    Counted,
    /// In part from a size that was measured or guessed once, of what does not say how large it is.
    Estimated,
}

impl MemoryBasis {
    /// The word for it in labels and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            MemoryBasis::Counted => "counted",
            MemoryBasis::Estimated => "estimated",
        }
    }
}

/// What a worker holds of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerMemory([HeldMemory; MemoryKind::ALL.len()]);

impl Default for WorkerMemory {
    fn default() -> WorkerMemory {
        WorkerMemory([HeldMemory::default(); MemoryKind::ALL.len()])
    }
}

impl WorkerMemory {
    /// What `worker` holds at this moment. On its thread; it takes at most some tens of microseconds however many
    /// connections there are ([`WorkerMemory::add_sampled`]).
    pub fn of(worker: &Worker) -> WorkerMemory {
        let mut memory = WorkerMemory::default();
        memory.add_loop(&LoopMemory::now());
        memory.add(MemoryKind::LogBuffers, worker.logs.held());
        memory.add(MemoryKind::OpenFiles, worker.files.held());
        let recorder = worker.recorder.borrow();
        let (things, bytes) = recorder.held_requests();
        memory.add(MemoryKind::KeptRequests, HeldMemory::new(things, bytes));
        let (things, bytes) = recorder.held_records();
        memory.add(MemoryKind::RequestRecords, HeldMemory::new(things, bytes));
        worker.parts.made().for_each(|part| WorkerPart::memory(part, worker, &mut memory));
        memory
    }

    fn add_loop(&mut self, held: &LoopMemory) {
        self.add(MemoryKind::Timers, held.timers);
        self.add(MemoryKind::ReceiveBuffers, held.receive_buffers);
        self.add(MemoryKind::SpareVectors, held.spare_vectors);
        self.add(MemoryKind::FreedBlocks, held.freed_blocks);
        self.add(MemoryKind::UnusedPlaces, held.unused_places);
    }

    /// Adds `held` to what there is of `kind`.
    pub fn add(&mut self, kind: MemoryKind, held: HeldMemory) {
        self.0[kind as usize] += held;
    }

    /// Adds `all`, of which there are `count`, with what `look` says of each: its kind and its bytes. Of more than
    /// [`LOOKS`] every second is looked at, or every third, and so on, each for all that are passed over.
    pub fn add_sampled<T>(
        &mut self,
        count: usize,
        all: impl Iterator<Item = T>,
        look: impl Fn(T) -> Option<(MemoryKind, usize)>,
    ) {
        let step = count.div_ceil(LOOKS).max(1);
        for (kind, bytes) in all.step_by(step).filter_map(look) {
            self.add(kind, HeldMemory::new(step, step * bytes));
        }
    }

    /// What there is of `kind`.
    pub fn get(&self, kind: MemoryKind) -> HeldMemory {
        self.0[kind as usize]
    }

    /// Adds what another worker holds.
    pub fn merge(&mut self, other: &WorkerMemory) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// How many things of a table are looked at, so that a worker with a hundred thousand connections is held up for as long
/// as one with a thousand: 40 us.
const LOOKS: usize = 1024;

/// What a count of references takes beside the value that it counts.
pub const COUNTED: usize = 2 * size_of::<usize>();

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn kinds_have_names_of_their_own_and_whole_sentences() {
        let names: BTreeSet<&str> = MemoryKind::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(names.len(), MemoryKind::ALL.len());
        for (number, kind) in MemoryKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, number);
            assert!(kind.says().ends_with('.'), "{kind:?}");
        }
    }

    #[test]
    fn of_many_some_stand_for_all() {
        for count in [0, 1, LOOKS - 1, LOOKS, LOOKS + 1, 10 * LOOKS, 10 * LOOKS + 7] {
            let mut memory = WorkerMemory::default();
            memory.add_sampled(count, 0..count, |_| Some((MemoryKind::Http1, 100)));
            let HeldMemory { things, bytes } = memory.get(MemoryKind::Http1);
            let error = things.abs_diff(count as u64);
            assert!(error as usize <= count.div_ceil(LOOKS), "{things} of {count}");
            assert_eq!(bytes, 100 * things);
            assert!(count > LOOKS || error == 0);
        }
    }
}
