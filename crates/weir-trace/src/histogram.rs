//! Log-linear counts: 16 buckets in every octave, so a value read back is within 1/16 of what was recorded.

/// Counts of values (ticks, mostly) with their sum and maximum; a copy of a live one, or a sum of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// As long as the highest bucket in use needs.
    buckets: Vec<u64>,
    count: u64,
    sum: u64,
    max: u64,
}

impl Histogram {
    /// A histogram without values.
    #[must_use]
    pub fn new() -> Histogram {
        Histogram::default()
    }

    /// Counts one value, in the caller's unit (mostly ticks).
    pub fn record(&mut self, value: u64) {
        self.add(bucket(value), 1);
        self.sum = self.sum.wrapping_add(value);
        self.max = self.max.max(value);
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (bucket, &count) in other.buckets.iter().enumerate() {
            self.add(bucket, count);
        }
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// What was counted since `earlier`, an older copy of the same histogram. The maximum stays that of all, unless nothing
    /// was.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut lately = Histogram::new();
        for (bucket, &count) in self.buckets.iter().enumerate() {
            let before = earlier.buckets.get(bucket).copied().unwrap_or(0);
            lately.add(bucket, count.saturating_sub(before));
        }
        let max = if lately.count > 0 { self.max } else { 0 };
        lately.set_sum_and_max(self.sum.wrapping_sub(earlier.sum), max);
        lately
    }

    /// How many values were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum, exactly (modulo 2^64).
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The largest value, exactly; 0 when empty.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean of all values; 0 when empty.
    #[must_use]
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// The value below or at which the share `q` (0 to 1) of all values lies, at most 1/16 above the true one and
    /// never below it; 0 when empty.
    #[must_use]
    pub fn quantile(&self, q: f64) -> u64 {
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return bounds(bucket).1.min(self.max);
            }
        }
        self.max
    }

    /// The buckets in use, in order: the largest value each may hold, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets.iter().enumerate().filter(|&(_, &count)| count > 0).map(|(b, &n)| (bounds(b).1, n))
    }

    /// Adds `count` values to a bucket without their sum.
    pub(crate) fn add(&mut self, bucket: usize, count: u64) {
        if count == 0 {
            return;
        }
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += count;
        self.count += count;
    }

    pub(crate) fn set_sum_and_max(&mut self, sum: u64, max: u64) {
        self.sum = sum;
        self.max = max;
    }
}

/// Which bucket a value belongs to: exact below 16, then 16 to an octave.
pub(crate) const fn bucket(value: u64) -> usize {
    let (octave, sub) = place(value);
    octave * SUBS + sub
}

/// The octave of a value (0 below 16, 1 from 16 to 31) and its bucket in there.
#[inline]
pub(crate) const fn place(value: u64) -> (usize, usize) {
    // Values below 16 are in the exact octave, whose buckets are as wide as those of the next: their shift is the same.
    let log = (value | SUBS as u64).ilog2();
    let sub = (value >> (log - 4)) as usize;
    ((log - 4) as usize + (sub >> 4), sub & (SUBS - 1))
}

/// [`bucket`] of a value that `i32` can hold, by the exponent and the first bits of the fraction of its floating-point
/// number: what compilers make vector operations of.
#[inline]
pub(crate) const fn small_bucket(value: u32) -> u32 {
    // Lower bits are cleared so that the conversion rounds nothing up: those that count are the first five.
    let rounded = (value & !(value >> 8)) as i32 as f32;
    let bucket = (rounded.to_bits() >> (f32::MANTISSA_DIGITS - 1 - 4)).wrapping_sub((127 + 3) * SUBS as u32);
    if value < SUBS as u32 { value } else { bucket }
}

/// The smallest and the largest value of a bucket.
pub(crate) const fn bounds(bucket: usize) -> (u64, u64) {
    let (octave, sub) = (bucket / SUBS, bucket % SUBS);
    if octave == 0 {
        return (sub as u64, sub as u64);
    }
    let low = ((SUBS + sub) as u64) << (octave - 1);
    (low, low + ((1 << (octave - 1)) - 1))
}

/// Buckets in an octave.
pub(crate) const SUBS: usize = 16;
/// Octaves of 64-bit values: the exact one below 16, then those that begin at 2^4 to 2^63.
pub(crate) const OCTAVES: usize = 61;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_have_the_same_bucket() {
        let near =
            |bits: u32| (0..64).flat_map(move |n| [(1u32 << bits) + n, (1u32 << bits).wrapping_sub(n)]);
        let values = (0..1 << 16).chain((0..31).flat_map(near)).chain((0..31).map(|bits| !0 >> (bits + 1)));
        for value in values.filter(|&value| value <= i32::MAX as u32) {
            assert_eq!(small_bucket(value) as usize, bucket(value.into()), "{value}");
        }
    }
    use proptest::prelude::*;

    /// Values of all magnitudes alike.
    fn value() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0u32..64).prop_map(|(bits, shift)| bits >> shift)
    }

    #[test]
    fn buckets_meet_without_gap_or_overlap() {
        let mut next = 0;
        for b in 0..SUBS * OCTAVES {
            let (low, high) = bounds(b);
            assert_eq!(low, next);
            assert_eq!((bucket(low), bucket(high)), (b, b));
            next = high.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last bucket ends at the last value");
    }

    #[test]
    fn an_empty_one_answers() {
        let empty = Histogram::new();
        assert_eq!((empty.count(), empty.mean(), empty.quantile(0.99), empty.max()), (0, 0, 0, 0));
    }

    proptest! {
        #[test]
        fn a_bucket_is_at_most_a_sixteenth_wide(value in value()) {
            let (low, high) = bounds(bucket(value));
            prop_assert!(low <= value && value <= high);
            prop_assert!(high - low <= low / 16);
        }

        #[test]
        fn quantiles_are_within_a_sixteenth(mut values in prop::collection::vec(value(), 1..200), q in 0.0..=1.0f64) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|&v| histogram.record(v));
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1];
            let read = histogram.quantile(q);
            prop_assert!(read >= exact && read - exact <= exact / 16, "{} for {}", read, exact);
        }

        #[test]
        fn what_came_since_is_what_came_later(a in prop::collection::vec(value(), 0..50), b in prop::collection::vec(value(), 0..50)) {
            let (mut all, mut later) = (Histogram::new(), Histogram::new());
            a.iter().for_each(|&v| all.record(v));
            let earlier = all.clone();
            b.iter().for_each(|&v| { all.record(v); later.record(v); });
            let since = all.since(&earlier);
            prop_assert_eq!((since.count(), since.sum()), (later.count(), later.sum()));
            prop_assert!(since.count() > 0 || since.quantile(1.0) == 0);
            prop_assert!(since.buckets().eq(later.buckets()));
        }

        #[test]
        fn merging_is_recording_both(a in prop::collection::vec(value(), 0..50), b in prop::collection::vec(value(), 0..50)) {
            let (mut one, mut two, mut both) = (Histogram::new(), Histogram::new(), Histogram::new());
            a.iter().for_each(|&v| { one.record(v); both.record(v); });
            b.iter().for_each(|&v| { two.record(v); both.record(v); });
            one.merge(&two);
            prop_assert_eq!(one, both);
        }
    }
}
