//! How a worker's requests to one peer went: counts and times, written by that worker alone, read by any thread.
//!
//! Stores are relaxed and add to what this worker itself has loaded: no read-modify-write is on a request's path, and a
//! reader sees figures that are a moment old.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::peer::PeerOutcome;

/// A worker's account of a peer; in cache lines of its own (two, which x86 fetches together).
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct PeerFigures {
    /// Connections in use, of a peer for which the method does not compare that number.
    in_flight: AtomicU32,
    requests: AtomicU64,
    failed: AtomicU64,
    /// Requests by the time to the head of their response, see [`bucket`].
    times: [AtomicU32; BUCKETS],
}

impl Default for PeerFigures {
    fn default() -> PeerFigures {
        PeerFigures {
            in_flight: AtomicU32::new(0),
            requests: AtomicU64::new(0),
            failed: AtomicU64::new(0),
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

    /// Takes over what `other` counted. No other thread writes to either.
    pub(crate) fn add(&self, other: &PeerFigures) {
        self.requests.store(self.requests.load(Relaxed) + other.requests.load(Relaxed), Relaxed);
        self.failed.store(self.failed.load(Relaxed) + other.failed.load(Relaxed), Relaxed);
        for (here, there) in self.times.iter().zip(&other.times) {
            here.store(here.load(Relaxed).wrapping_add(there.load(Relaxed)), Relaxed);
        }
    }
}

/// What several workers counted.
#[derive(Clone, Debug)]
pub struct PeerTotals {
    /// Number of tries that have ended.
    pub requests: u64,
    /// Those of them that counted against the peer.
    pub failed: u64,
    times: [u64; BUCKETS],
}

impl Default for PeerTotals {
    fn default() -> PeerTotals {
        PeerTotals { requests: 0, failed: 0, times: [0; BUCKETS] }
    }
}

impl PeerTotals {
    pub(crate) fn add(&mut self, figures: &PeerFigures) {
        self.requests += figures.requests.load(Relaxed);
        self.failed += figures.failed.load(Relaxed);
        for (sum, count) in self.times.iter_mut().zip(&figures.times) {
            *sum += u64::from(count.load(Relaxed));
        }
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
        mine.add(&yours);
        assert_eq!(mine.requests.load(Relaxed), 2);
    }
}
