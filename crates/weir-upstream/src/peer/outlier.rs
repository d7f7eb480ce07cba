//! `outlier`: a server whose responses take much longer than those of the upstream's others is left out for a while,
//! though it fails at nothing.
//!
//! Of each server the mean time to the head of its responses is taken over as many as `answers=` says, by all workers
//! together (plain stores: what two of them store at once is one sample less). A mean that is `factor` times the median of
//! the others', and at least `min=`, takes it out for `time=`; never more than half of the upstream's servers are out.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use weir_conf::{LineCx, Result, parse_fixed, parse_number, parse_time_ms, parse_time_s};

/// When a server is left out for its slowness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutlierLimits {
    /// Hundredths of the others' median.
    factor: u64,
    /// Microseconds: a peer that is faster is no outlier.
    min: u64,
    /// Responses of which a mean is made.
    answers: u32,
    /// Seconds for which it is left out.
    pub time: u64,
}

impl OutlierLimits {
    /// `outlier factor [min=time] [answers=number] [time=time]`
    pub(crate) fn parse(line: &LineCx<'_>) -> Result<OutlierLimits> {
        let factor = parse_fixed(line.bytes(0), 2).filter(|factor| *factor > 100);
        let factor = factor.ok_or_else(|| line.invalid_value(0))?;
        let mut outlier = OutlierLimits { factor, min: 100_000, answers: 20, time: 10 };
        for at in 1..line.args().len() {
            outlier.parameter(line.arg(at)).ok_or_else(|| line.invalid_parameter(at))?;
        }
        Ok(outlier)
    }

    fn parameter(&mut self, text: &str) -> Option<()> {
        let (name, value) = text.split_once('=')?;
        match name {
            "min" => self.min = parse_time_ms(value.as_bytes())?.checked_mul(1000)?,
            "answers" => {
                let answers = parse_number(value.as_bytes()).and_then(|n| u32::try_from(n).ok());
                self.answers = answers.filter(|answers| *answers > 0)?;
            }
            "time" => self.time = parse_time_s(value.as_bytes()).filter(|time| *time > 0)?,
            _ => return None,
        }
        Some(())
    }

    /// Whether a mean of this many microseconds is an outlier among the means of others.
    pub(crate) fn is_one(&self, mean: u64, others: &mut [u64]) -> bool {
        if others.is_empty() {
            return false;
        }
        others.sort_unstable();
        let median = others[(others.len() - 1) / 2];
        mean >= self.min && mean > median.saturating_mul(self.factor) / 100
    }
}

/// How long a server's responses take.
#[derive(Debug, Default)]
pub struct PeerSlowness {
    /// Microseconds of the responses that have yet to make a mean, and how many they are.
    sum: AtomicU64,
    count: AtomicU32,
    /// The last mean, in microseconds; 0: none yet.
    pub(crate) mean: AtomicU64,
    /// The second of the system's time up to which it is left out.
    until: AtomicU64,
}

impl PeerSlowness {
    /// Whether it is left out at second `now`.
    #[inline]
    pub(crate) fn is_out(&self, now: u64) -> bool {
        self.until.load(Relaxed) > now
    }

    /// Adds a response's time; the mean, where one is made by it.
    pub(crate) fn add(&self, outlier: &OutlierLimits, us: u64) -> Option<u64> {
        let (sum, count) = (self.sum.load(Relaxed) + us, self.count.load(Relaxed) + 1);
        let mean = (count >= outlier.answers).then(|| sum / u64::from(count));
        self.sum.store(if mean.is_some() { 0 } else { sum }, Relaxed);
        self.count.store(if mean.is_some() { 0 } else { count }, Relaxed);
        if let Some(mean) = mean {
            self.mean.store(mean.max(1), Relaxed);
        }
        mean
    }

    /// What is known of it is forgotten, and it is left out up to second `until`.
    pub(crate) fn leave_out(&self, until: u64) {
        for figure in [&self.sum, &self.mean] {
            figure.store(0, Relaxed);
        }
        self.count.store(0, Relaxed);
        self.until.store(until, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTLIER: OutlierLimits = OutlierLimits { factor: 300, min: 1000, answers: 4, time: 10 };

    #[test]
    fn an_outlier_is_far_from_the_median_and_slow() {
        assert!(OUTLIER.is_one(3001, &mut [1000]));
        assert!(!OUTLIER.is_one(3000, &mut [1000]));
        assert!(!OUTLIER.is_one(999, &mut [1]), "it is fast");
        assert!(!OUTLIER.is_one(9999, &mut []), "there is nobody to compare it to");
        // Of two the faster counts: one that is slow itself hides no other.
        assert!(OUTLIER.is_one(9000, &mut [9000, 1000]));
        assert!(!OUTLIER.is_one(9000, &mut [9000, 1000, 9000]));
    }

    #[test]
    fn a_mean_is_made_of_as_many_answers_as_it_says() {
        let slowness = PeerSlowness::default();
        let means: Vec<_> = (1..=8).map(|n| slowness.add(&OUTLIER, n * 100)).collect();
        assert_eq!((means[3], means[7]), (Some(250), Some(650)));
        assert_eq!(means.iter().flatten().count(), 2);
        slowness.leave_out(50);
        assert!(slowness.is_out(49) && !slowness.is_out(50) && slowness.mean.load(Relaxed) == 0);
    }
}
