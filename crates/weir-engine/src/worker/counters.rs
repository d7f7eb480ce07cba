//! What a worker counts, and is counted of it, for status pages and other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one worker: written by it alone, read by anyone (relaxed load and store, no read-modify-write). In cache
/// lines of its own (two, which x86 fetches together): allocators put those of several workers side by side.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    /// Connections accepted.
    pub accepted: Counter,
    /// Connections open now.
    pub active: Counter,
    /// Connections that wait for a request.
    pub waiting: Counter,
    /// Requests whose head was read.
    pub requests: Counter,
    /// Requests being answered.
    pub writing: Counter,
    /// Log lines that could not be written.
    pub log_lost: Counter,
    /// HTTP/2 connections that were ended for what their client did too much of, by [`weir_http::h2::H2Abuse`].
    pub http2_abuse: [Counter; weir_http::h2::H2Abuse::COUNT],
    /// What whoever deals connections to the workers counts of this one.
    pub dealing: DealingCounters,
}

/// Connections between the workers, counted for one of them by the thread that deals them, on cache lines that no
/// request of the worker writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct DealingCounters {
    /// New connections that were dealt to the worker.
    pub dealt: Counter,
    /// Connections in its queue now: accepted, and not taken yet.
    pub queued: Counter,
    /// Connections that were taken out of its queue for another worker, because it was late or full.
    pub handed_on: Counter,
    /// Connections that it took over from other workers: out of their queues, or parked by them.
    pub taken_over: Counter,
    /// Connections that were the worker's and wait now for a request outside of it, where any worker may take them.
    pub parked: Counter,
    /// Turns that were found late because its thread had lost its core.
    pub lost_core: Counter,
    /// Turns that were found late for another reason: it computed or was blocked.
    pub stuck: Counter,
    /// Connections that were asked to end so that shares become even.
    pub evened_out: Counter,
}

/// What workers have counted together, each read without asking it: the numbers may belong to moments a little apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub accepted: u64,
    /// Requests whose head was read.
    pub requests: u64,
    /// Connections open now.
    pub active: u64,
    /// Requests being answered.
    pub writing: u64,
    /// Connections that wait for a request.
    pub waiting: u64,
}

impl Counts {
    /// The sums.
    pub fn of(workers: &[Arc<Counters>]) -> Counts {
        let sum = |of: fn(&Counters) -> &Counter| workers.iter().map(|counters| of(counters).get()).sum();
        let parked = sum(|counters| &counters.dealing.parked);
        Counts {
            accepted: sum(|counters| &counters.accepted),
            requests: sum(|counters| &counters.requests),
            active: sum(|counters| &counters.active) + parked,
            writing: sum(|counters| &counters.writing),
            waiting: sum(|counters| &counters.waiting) + parked,
        }
    }

    /// The connections that neither wait for a request nor are being answered.
    pub fn reading(&self) -> u64 {
        self.active.saturating_sub(self.writing + self.waiting)
    }
}

/// A number with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
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

    /// The number.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::Counters;

    /// No two workers' counters are in one cache line, wherever the allocator puts them.
    #[test]
    fn counters_share_no_cache_line() {
        assert_eq!((align_of::<Counters>(), size_of::<Counters>() % 128), (128, 0));
    }
}
