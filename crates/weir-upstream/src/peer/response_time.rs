//! How soon a peer responds, and how long its uploads take: moving averages that all workers feed.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::peer::Peer;

/// What is measured, and how it is averaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeMeasure {
    /// True when the time to the last byte of a response is measured, false when that to its head.
    pub last_byte: bool,
    /// True when a response slower than the average counts at once and in full.
    pub peak: bool,
    /// True when requests with long bodies go by how long they would take on the server's [`UploadLine`].
    pub upload: bool,
    /// Nanoseconds after which a sample counts for a third.
    pub decay: u64,
}

/// An average of times in which older ones count less.
#[derive(Debug, Default)]
pub struct MovingAverage {
    /// Nanoseconds.
    value: AtomicU64,
    /// When it was that, in nanoseconds of a clock that all workers share; 0: there was no sample.
    at: AtomicU64,
}

impl MovingAverage {
    /// Adds the sample of a failure, which counts at least for twice what was known.
    pub(crate) fn add_failure(&self, timed: &TimeMeasure, sample: u64, now: u64) {
        let known = self.read(timed, now);
        self.blend(timed, sample.max(known.unwrap_or(0).saturating_mul(2)), now, known);
    }

    /// Adds a sample.
    pub(crate) fn add(&self, timed: &TimeMeasure, sample: u64, now: u64) {
        self.blend(timed, sample, now, self.read(timed, now));
    }

    fn blend(&self, timed: &TimeMeasure, sample: u64, now: u64, known: Option<u64>) {
        let value = match known {
            Some(known) if sample < known || !timed.peak => {
                let keep = timed.keep(now.saturating_sub(self.at.load(Relaxed)));
                // The older value has sunk already; it is blended as it was.
                let stood = self.value.load(Relaxed) as f64;
                (stood * keep + sample as f64 * (1.0 - keep)) as u64
            }
            _ => sample,
        };
        self.value.store(value, Relaxed);
        self.at.store(now.max(1), Relaxed);
    }

    /// What it is at `now`; `None`: there was no sample.
    fn read(&self, timed: &TimeMeasure, now: u64) -> Option<u64> {
        let at = self.at.load(Relaxed);
        let sunk = |age: u64| (self.value.load(Relaxed) as f64 * timed.keep(age)) as u64;
        (at > 0).then(|| sunk(now.saturating_sub(at)))
    }
}

/// What is known of the way to a server.
#[derive(Debug, Default)]
pub struct UploadLine {
    /// Nanoseconds until a connection is established.
    connect: MovingAverage,
    /// Nanoseconds in which a mebibyte of a request's body gets there.
    mebibyte: MovingAverage,
}

impl UploadLine {
    /// A connection took this many nanoseconds.
    pub(crate) fn connected(&self, timed: &TimeMeasure, ns: u64) {
        self.connect.add(timed, ns, weir_rt::clock::monotonic_ns());
    }

    /// A request of this many bytes had its response after this many nanoseconds.
    pub(crate) fn sent(&self, timed: &TimeMeasure, bytes: u64, ns: u64) {
        if bytes >= LONG {
            let ns = u128::from(ns) * u128::from(MEBIBYTE) / u128::from(bytes);
            let ns = u64::try_from(ns).unwrap_or(u64::MAX);
            self.mebibyte.add(timed, ns, weir_rt::clock::monotonic_ns());
        }
    }

    /// How long a body of `len` bytes would take; `None`: none has gone this way.
    fn upload(&self, timed: &TimeMeasure, now: u64, len: u64) -> Option<u64> {
        let each = u128::from(self.mebibyte.read(timed, now)?) * u128::from(len) / u128::from(MEBIBYTE);
        let connect = self.connect.read(timed, now).unwrap_or(0);
        Some(u64::try_from(each).unwrap_or(u64::MAX).saturating_add(connect))
    }
}

impl TimeMeasure {
    /// How much of an average is left after `age` nanoseconds.
    fn keep(&self, age: u64) -> f64 {
        (-(age as f64) / self.decay.max(1) as f64).exp()
    }

    /// How long `peer` takes at `now`, as far as is known: for an upload of this many bytes, or for a response.
    pub(crate) fn time(&self, peer: &Peer, now: u64, upload: Option<u64>) -> Option<u64> {
        match upload {
            Some(len) => peer.state.line.upload(self, now, len),
            None => peer.state.time.read(self, now),
        }
    }

    /// Whether `first` is at least as good as `second` at `now`.
    pub(crate) fn prefers(&self, first: &Peer, second: &Peer, now: u64) -> bool {
        let time = |peer: &Peer| self.time(peer, now, None);
        let best = time(first).into_iter().chain(time(second)).min().unwrap_or(0);
        cost(first, time(first).unwrap_or(best)) <= cost(second, time(second).unwrap_or(best))
    }
}

/// Bytes from which on a request's body is an upload.
pub(crate) const LONG: u64 = 64 * 1024;

pub(crate) const MEBIBYTE: u64 = 1 << 20;

/// What one more request costs a peer that takes so long for one: as often as it has requests, for its share.
pub(crate) fn cost(peer: &Peer, time: u64) -> f64 {
    let conns = f64::from(peer.state.conns.load(Relaxed)) + 1.0;
    time.max(1) as f64 * conns / peer.share() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const PLAIN: TimeMeasure =
        TimeMeasure { last_byte: false, peak: false, upload: false, decay: 10 * SECOND };
    const PEAK: TimeMeasure = TimeMeasure { peak: true, ..PLAIN };

    #[test]
    fn samples_count_for_less_the_older_they_are() {
        let average = MovingAverage::default();
        assert_eq!(average.read(&PLAIN, 5), None);
        average.add(&PLAIN, 1_000_000, SECOND);
        assert_eq!(average.read(&PLAIN, SECOND), Some(1_000_000));
        assert!(average.read(&PLAIN, 11 * SECOND).is_some_and(|value| (360_000..370_000).contains(&value)));
        average.add(&PLAIN, 2_000_000, 11 * SECOND);
        let blended = average.read(&PLAIN, 11 * SECOND).expect("samples");
        assert!((1_600_000..1_650_000).contains(&blended), "{blended}");
    }

    #[test]
    fn a_peak_counts_at_once_and_a_failure_is_slow() {
        let (plain, peak) = (MovingAverage::default(), MovingAverage::default());
        for at in 1..100 {
            plain.add(&PLAIN, 1_000, at * 1000);
            peak.add(&PEAK, 1_000, at * 1000);
        }
        plain.add(&PLAIN, 1_000_000, 100_000);
        peak.add(&PEAK, 1_000_000, 100_000);
        assert!(plain.read(&PLAIN, 100_000).is_some_and(|value| value < 2_000));
        assert_eq!(peak.read(&PEAK, 100_000), Some(1_000_000));
        peak.add_failure(&PEAK, 10, 100_001);
        assert!(peak.read(&PEAK, 100_001).is_some_and(|value| value >= 1_999_000));
    }
}
