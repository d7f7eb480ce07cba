//! How a worker's requests to one peer went: counts and times, written by that worker alone, read by any thread.
//!
//! Stores are relaxed and add to what this worker itself has loaded: no read-modify-write is on a request's path, and a
//! reader sees figures that are a moment old.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use weir_trace::Cause;

use crate::peer::PeerOutcome;

/// A worker's account of a peer; in cache lines of its own (two, which x86 fetches together).
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct PeerFigures {
    /// Connections in use, of a peer for which the method does not compare that number.
    in_flight: AtomicU32,
    requests: AtomicU64,
    failed: AtomicU64,
    /// What went wrong, whatever is held against the peer: in memory of its own, as it is written seldom.
    faults: OnceLock<Box<FaultFigures>>,
    /// Requests by the time to the head of their response, see [`bucket`].
    times: [AtomicU32; BUCKETS],
}

/// A worker's count of what went wrong with a peer.
#[derive(Debug, Default)]
struct FaultFigures {
    faults: AtomicU64,
    refused: AtomicU64,
    reset: AtomicU64,
    repeated: AtomicU64,
}

impl Default for PeerFigures {
    fn default() -> PeerFigures {
        PeerFigures {
            in_flight: AtomicU32::new(0),
            requests: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            faults: OnceLock::new(),
            times: [const { AtomicU32::new(0) }; BUCKETS],
        }
    }
}

impl PeerFigures {
    /// A try begins.
    pub(crate) fn begin(&self) {
        self.in_flight.store(self.in_flight.load(Relaxed) + 1, Relaxed);
    }

    /// A try that [began](PeerFigures::begin) has ended.
    pub(crate) fn end(&self) {
        self.in_flight.store(self.in_flight.load(Relaxed) - 1, Relaxed);
    }

    /// Tries that began and have not ended.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// A response's head came `micros` microseconds after its request had a peer.
    pub(crate) fn answered(&self, micros: u64) {
        let bucket = &self.times[bucket(micros)];
        bucket.store(bucket.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// A try has ended.
    pub(crate) fn done(&self, outcome: PeerOutcome) {
        let count = |to: &AtomicU64| to.store(to.load(Relaxed) + 1, Relaxed);
        count(&self.requests);
        if outcome == PeerOutcome::Failed {
            count(&self.failed);
        }
    }

    /// A try ended without a response that could be used, for this reason.
    #[cold]
    pub(crate) fn faulted(&self, cause: Cause) {
        let faults = self.faults.get_or_init(Box::default);
        add(&faults.faults, 1);
        match cause {
            Cause::ConnectRefused => add(&faults.refused, 1),
            Cause::ClosedBeforeResponse | Cause::ResetBeforeResponse | Cause::KeepaliveRace => {
                add(&faults.reset, 1);
            }
            _ => {}
        }
    }

    /// A request is sent to the peer again: the connection, which was kept alive, ended without a response.
    #[cold]
    pub(crate) fn repeated(&self) {
        let faults = self.faults.get_or_init(Box::default);
        add(&faults.reset, 1);
        add(&faults.repeated, 1);
    }

    /// Takes over what `other` counted. No other thread writes to either.
    pub(crate) fn add(&self, other: &PeerFigures) {
        self.requests.store(self.requests.load(Relaxed) + other.requests.load(Relaxed), Relaxed);
        self.failed.store(self.failed.load(Relaxed) + other.failed.load(Relaxed), Relaxed);
        if let Some(theirs) = other.faults.get() {
            let mine = self.faults.get_or_init(Box::default);
            add(&mine.faults, theirs.faults.load(Relaxed));
            add(&mine.refused, theirs.refused.load(Relaxed));
            add(&mine.reset, theirs.reset.load(Relaxed));
            add(&mine.repeated, theirs.repeated.load(Relaxed));
        }
        for (here, there) in self.times.iter().zip(&other.times) {
            here.store(here.load(Relaxed).wrapping_add(there.load(Relaxed)), Relaxed);
        }
    }
}

fn add(to: &AtomicU64, count: u64) {
    to.store(to.load(Relaxed) + count, Relaxed);
}

/// What several workers counted.
#[derive(Clone, Debug)]
pub struct PeerTotals {
    /// Number of tries that have ended.
    pub requests: u64,
    /// Those of them that counted against the peer.
    pub failed: u64,
    /// Times that it gave no response that could be used, whatever counted against it.
    pub faults: u64,
    /// Connections that it refused.
    pub refused: u64,
    /// Connections that it closed or reset while a request was on its way, kept alive or new.
    pub reset: u64,
    /// Requests that were sent to it again for that, without a fault that anybody saw.
    pub repeated: u64,
    times: [u64; BUCKETS],
}

impl Default for PeerTotals {
    fn default() -> PeerTotals {
        PeerTotals {
            requests: 0,
            failed: 0,
            faults: 0,
            refused: 0,
            reset: 0,
            repeated: 0,
            times: [0; BUCKETS],
        }
    }
}

impl PeerTotals {
    pub(crate) fn add(&mut self, figures: &PeerFigures) {
        self.requests += figures.requests.load(Relaxed);
        self.failed += figures.failed.load(Relaxed);
        if let Some(faults) = figures.faults.get() {
            self.faults += faults.faults.load(Relaxed);
            self.refused += faults.refused.load(Relaxed);
            self.reset += faults.reset.load(Relaxed);
            self.repeated += faults.repeated.load(Relaxed);
        }
        for (sum, count) in self.times.iter_mut().zip(&figures.times) {
            *sum += u64::from(count.load(Relaxed));
        }
    }

    /// What was counted after `before` of the same peer.
    #[must_use]
    pub fn since(&self, before: &PeerTotals) -> PeerTotals {
        PeerTotals {
            requests: self.requests.saturating_sub(before.requests),
            failed: self.failed.saturating_sub(before.failed),
            faults: self.faults.saturating_sub(before.faults),
            refused: self.refused.saturating_sub(before.refused),
            reset: self.reset.saturating_sub(before.reset),
            repeated: self.repeated.saturating_sub(before.repeated),
            times: std::array::from_fn(|at| self.times[at].saturating_sub(before.times[at])),
        }
    }

    /// Adds the figures of `other`, another peer's.
    pub fn merge(&mut self, other: &PeerTotals) {
        self.requests += other.requests;
        self.failed += other.failed;
        self.faults += other.faults;
        self.refused += other.refused;
        self.reset += other.reset;
        self.repeated += other.repeated;
        self.times.iter_mut().zip(other.times).for_each(|(sum, count)| *sum += count);
    }

    /// Number of responses whose time is known.
    #[must_use]
    pub fn responses(&self) -> u64 {
        self.times.iter().sum()
    }

    /// The time to the head of a response, in microseconds, that the share `q` (0 to 1) of all stayed below; at most a
    /// fifth too long. `None`: there was no response.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let count: u64 = self.times.iter().sum();
        let rank = ((count as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.times.iter().position(|times| {
            seen += times;
            seen >= rank
        });
        found.filter(|_| count > 0).map(end)
    }
}

/// Four buckets an octave, the first for up to 3 microseconds, the last for all from 2^27 (two minutes) on.
const BUCKETS: usize = 104;

fn bucket(micros: u64) -> usize {
    let octave = micros.max(4).ilog2();
    let quarter = micros.max(4) >> (octave - 2) & 3;
    let place = (octave as usize - 2) * 4 + quarter as usize;
    place.min(BUCKETS - 1)
}

/// The first value after a bucket.
fn end(bucket: usize) -> u64 {
    let (octave, quarter) = (bucket / 4 + 2, bucket % 4);
    (quarter as u64 + 5) << (octave - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_below_the_end_of_its_bucket_and_not_far() {
        for micros in (0..2_000).chain([65_535, 65_536, 1 << 24, (1 << 27) - 1]) {
            let end = end(bucket(micros));
            assert!(end > micros && end <= micros.max(4) * 5 / 4 + 1, "{micros}: {end}");
            assert!(bucket(micros) <= bucket(micros + 1));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_of_all_workers() {
        let (mine, yours) = (PeerFigures::default(), PeerFigures::default());
        (0..90).for_each(|_| mine.answered(100));
        (0..10).for_each(|_| yours.answered(10_000));
        mine.done(PeerOutcome::Fine);
        yours.done(PeerOutcome::Failed);
        let mut totals = PeerTotals::default();
        assert_eq!(totals.quantile(0.5), None);
        totals.add(&mine);
        totals.add(&yours);
        assert_eq!((totals.requests, totals.failed), (2, 1));
        assert!(totals.quantile(0.5).is_some_and(|time| (100..=128).contains(&time)));
        assert!(totals.quantile(0.99).is_some_and(|time| (10_000..=12_500).contains(&time)));
        yours.faulted(Cause::ConnectRefused);
        yours.faulted(Cause::ReadTimeout);
        yours.repeated();
        mine.faulted(Cause::ResetBeforeResponse);
        let mut faulty = PeerTotals::default();
        [&mine, &yours].into_iter().for_each(|one| faulty.add(one));
        let lately = faulty.since(&totals);
        assert_eq!(
            (lately.requests, lately.faults, lately.refused, lately.reset, lately.repeated),
            (0, 3, 1, 2, 1)
        );
        assert_eq!((lately.responses(), lately.quantile(0.5)), (0, None));
        mine.add(&yours);
        let mut merged = PeerTotals::default();
        merged.add(&mine);
        assert_eq!((merged.faults, merged.refused, merged.reset, merged.repeated), (3, 1, 2, 1));
        assert_eq!(mine.requests.load(Relaxed), 2);
    }
}
