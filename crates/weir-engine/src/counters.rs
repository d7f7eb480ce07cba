//! The counters of a worker, for status pages and other threads.

mod closes;
mod end_errno;
mod handshakes;
mod refused;
mod upstream_closes;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub use closes::{
    CloseCounters, CloseProtocol, CloseReason, CloseSide, StreamCloseCounters, StreamCloseSide,
};
pub use handshakes::{FULL, HandshakeCounters, HandshakeFault, HandshakeTrait, OTHER, ShownCertificate};
use refused::RefusedSockets;
pub use upstream_closes::{UpstreamCloseProtocol, UpstreamCloseReason, UpstreamCloses, UpstreamEnd};

/// Counters of one worker: written by it alone, read by anyone (relaxed load and store, no read-modify-write). In cache
/// lines of its own (two, which x86 fetches together): allocators put those of several workers side by side.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// Connections accepted.
    pub accepted: WorkerCounter,
    /// Connections open now.
    pub active: WorkerCounter,
    /// Connections that wait for a request.
    pub waiting: WorkerCounter,
    /// Requests whose head was read.
    pub requests: WorkerCounter,
    /// Requests being processed.
    pub writing: WorkerCounter,
    /// Log lines that could not be written.
    pub log_lost: WorkerCounter,
    /// HTTP/2 connections that were ended for what their client did too much of, by [`weir_http::h2::H2Abuse`].
    pub http2_abuse: [WorkerCounter; weir_http::h2::H2Abuse::COUNT],
    /// Why connections of clients have ended.
    pub closes: CloseCounters,
    /// Streams of HTTP/2 that were ended early.
    pub streams: StreamCloseCounters,
    /// TLS handshakes; without memory where there were none.
    handshakes: OnceLock<Box<HandshakeCounters>>,
    /// Flows of UDP.
    pub flows: FlowCounters,
    /// Datagrams of QUIC.
    pub quic: QuicCounters,
    /// What the thread that deals connections to the workers counts of this one.
    pub dealing: DealingCounters,
    /// Sockets whose connections it does not want.
    pub refused: RefusedSockets,
}

impl WorkerCounters {
    /// TLS handshakes, for the worker to count.
    pub fn handshakes(&self) -> &HandshakeCounters {
        self.handshakes.get_or_init(Box::default)
    }

    /// TLS handshakes so far; `None`: there were none.
    pub fn handshakes_so_far(&self) -> Option<&HandshakeCounters> {
        self.handshakes.get().map(|counters| &**counters)
    }
}

/// Datagrams of QUIC.
#[derive(Debug, Default)]
pub struct QuicCounters {
    /// Clients for which there was no room.
    pub refused: WorkerCounter,
    /// Clients that were asked to show that they are where they say (Retry).
    pub retried: WorkerCounter,
    /// Datagrams that belonged to another socket of the address, and were handed over to it.
    pub handed_over: WorkerCounter,
    /// Datagrams that belonged to another process, and were handed over to it.
    pub forwarded: WorkerCounter,
    /// Datagrams that the system did not take.
    pub dropped: WorkerCounter,
}

/// Sessions over UDP.
#[derive(Debug, Default)]
pub struct FlowCounters {
    /// Flows that began.
    pub opened: WorkerCounter,
    /// Flows that were ended to make room for others.
    pub evicted: WorkerCounter,
    /// Datagrams of clients without a flow for which there was no room.
    pub refused: WorkerCounter,
    /// Datagrams that were not passed on: too many waited, or the system took them not.
    pub dropped: WorkerCounter,
}

/// Connections between the workers, counted for one of them by the thread that deals them, on cache lines that no
/// request of the worker writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct DealingCounters {
    /// New connections that were dealt to the worker.
    pub dealt: WorkerCounter,
    /// Connections in its queue now: accepted, and not taken yet.
    pub queued: WorkerCounter,
    /// Connections that were taken out of its queue for another worker, because it was late or full.
    pub handed_on: WorkerCounter,
    /// Connections that it took over from other workers: out of their queues, or parked by them.
    pub taken_over: WorkerCounter,
    /// Connections that were the worker's and wait now for a request outside of it, where any worker may take them.
    pub parked: WorkerCounter,
    /// Turns that were found late because its thread had lost its core.
    pub lost_core: WorkerCounter,
    /// Turns that were found late for another reason: it computed or was blocked.
    pub stuck: WorkerCounter,
    /// Connections that were asked to end so that shares become even.
    pub evened_out: WorkerCounter,
    /// Why parked connections were closed that no worker went on with.
    pub closes: CloseCounters,
}

/// What workers have counted together, each read without asking it: the numbers may belong to moments a little apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Connections accepted.
    pub accepted: u64,
    /// Requests whose head was read.
    pub requests: u64,
    /// Connections open now.
    pub active: u64,
    /// Requests being processed.
    pub writing: u64,
    /// Connections that wait for a request.
    pub waiting: u64,
}

impl WorkerCounts {
    /// The sums over `workers`. Connections that are parked between workers count as active and waiting.
    pub fn of(workers: &[Arc<WorkerCounters>]) -> WorkerCounts {
        let sum = |of: fn(&WorkerCounters) -> &WorkerCounter| {
            workers.iter().map(|counters| of(counters).get()).sum()
        };
        let parked = sum(|counters| &counters.dealing.parked);
        WorkerCounts {
            accepted: sum(|counters| &counters.accepted),
            requests: sum(|counters| &counters.requests),
            active: sum(|counters| &counters.active) + parked,
            writing: sum(|counters| &counters.writing),
            waiting: sum(|counters| &counters.waiting) + parked,
        }
    }

    /// The connections that neither wait for a request nor process a request.
    pub fn reading(&self) -> u64 {
        self.active.saturating_sub(self.writing + self.waiting)
    }
}

/// A number with one writer.
#[derive(Debug, Default)]
pub struct WorkerCounter(AtomicU64);

impl WorkerCounter {
    /// Adds `n`; only from the one writing thread.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Takes `n` off; only from the one writing thread.
    #[inline]
    pub fn sub(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(n), Ordering::Relaxed);
    }

    /// The current number; any thread may read it.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::WorkerCounters;

    /// No two workers' counters are in one cache line, wherever the allocator puts them.
    #[test]
    fn counters_share_no_cache_line() {
        assert_eq!((align_of::<WorkerCounters>(), size_of::<WorkerCounters>() % 128), (128, 0));
    }
}
