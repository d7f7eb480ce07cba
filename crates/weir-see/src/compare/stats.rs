//! Means, their difference, and how sure that is.
//!
//! Two averages that were saved are compared as Welch does: two samples of independent requests, of variances that may
//! differ. Rounds that alternate between two sides are compared in pairs, as Student does: what changes between rounds
//! (another program, the clock of the processor) is in both of a pair, so it drops out, and requests of one round need not
//! be independent of one another.

/// A sample: how many, their mean and their variance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SampleMoments {
    pub(crate) count: f64,
    pub(crate) mean: f64,
    /// Of single values, with n - 1.
    pub(crate) variance: f64,
}

impl SampleMoments {
    /// This one and another quantity of the same requests, of which no request had both.
    pub(crate) fn joined(self, other: SampleMoments) -> SampleMoments {
        let mean = self.mean + other.mean;
        let square =
            |one: SampleMoments| one.variance * (one.count - 1.0).max(0.0) / one.count + one.mean.powi(2);
        if self.count < 2.0 {
            return SampleMoments { mean, ..self };
        }
        let variance = square(self) + square(other) - mean.powi(2);
        SampleMoments { mean, variance: (variance * self.count / (self.count - 1.0)).max(0.0), ..self }
    }
}

/// A difference (the second minus the first) and half the width of its 95% interval; infinite where the samples do not
/// say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DifferenceEstimate {
    pub(crate) difference: f64,
    pub(crate) half: f64,
}

impl DifferenceEstimate {
    /// Whether the interval leaves 0 out.
    pub(crate) fn is_seen(self) -> bool {
        self.difference.abs() > self.half
    }

    pub(crate) fn low(self) -> f64 {
        self.difference - self.half
    }

    pub(crate) fn high(self) -> f64 {
        self.difference + self.half
    }
}

/// Welch's interval of two independent samples.
pub(crate) fn welch(a: SampleMoments, b: SampleMoments) -> DifferenceEstimate {
    let difference = b.mean - a.mean;
    if a.count < 2.0 || b.count < 2.0 {
        return DifferenceEstimate { difference, half: f64::INFINITY };
    }
    let (va, vb) = (a.variance / a.count, b.variance / b.count);
    let squares = va.powi(2) / (a.count - 1.0) + vb.powi(2) / (b.count - 1.0);
    // Of two samples without any variance the difference is exact.
    let half = if squares > 0.0 { student((va + vb).powi(2) / squares) * (va + vb).sqrt() } else { 0.0 };
    DifferenceEstimate { difference, half }
}

/// Student's interval of the mean of differences, one a round.
pub(crate) fn paired(differences: &[f64]) -> DifferenceEstimate {
    let n = differences.len() as f64;
    let mean = differences.iter().sum::<f64>() / n.max(1.0);
    if differences.len() < 2 {
        return DifferenceEstimate { difference: mean, half: f64::INFINITY };
    }
    let variance = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (n - 1.0);
    DifferenceEstimate { difference: mean, half: student(n - 1.0) * (variance / n).sqrt() }
}

/// The 97.5th percentile of Student's distribution. Below ten degrees of freedom it is tabled (the next lower one is
/// taken), above it is Fisher's expansion around the normal one, whose error there is below 0.001.
fn student(freedom: f64) -> f64 {
    const Z: f64 = 1.959_964;
    const FEW: [f64; 10] = [12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281];
    if freedom < 11.0 {
        return FEW[(freedom.max(1.0) as usize - 1).min(FEW.len() - 1)];
    }
    let terms = [
        Z,
        (Z.powi(3) + Z) / 4.0,
        (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0,
        (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z) / 384.0,
    ];
    terms.iter().rev().fold(0.0, |sum, term| sum / freedom + term)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Numbers that look random, the same each time (xorshift64*).
    pub(crate) struct Random(pub(crate) u64);

    impl Random {
        /// 0 to 1.
        pub(crate) fn uniform(&mut self) -> f64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
        }

        /// Skewed as response times are: never below `least`, exponential beyond it with mean `tail`.
        pub(crate) fn time(&mut self, least: f64, tail: f64) -> f64 {
            least - tail * (1.0 - self.uniform()).ln()
        }
    }

    fn moments(values: &[f64]) -> SampleMoments {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1.0);
        SampleMoments { count, mean, variance }
    }

    #[test]
    fn quantiles_of_student() {
        // Published tables.
        for (freedom, t) in
            [(1.0, 12.706), (5.0, 2.571), (11.0, 2.201), (29.0, 2.045), (100.0, 1.984), (1e9, 1.960)]
        {
            assert!((student(freedom) - t).abs() < 0.001, "{freedom}: {}", student(freedom));
        }
    }

    #[test]
    fn welch_s_interval_of_a_worked_example() {
        let a = moments(&[
            27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4,
        ]);
        let b = moments(&[
            27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 30.5, 24.4,
        ]);
        let (both, exact) =
            (welch(a, b), welch(SampleMoments { variance: 0.0, ..a }, SampleMoments { variance: 0.0, ..b }));
        // 27.887 degrees of freedom, for which Student's quantile is 2.04878; standard error 0.99312.
        assert!((both.difference - 2.8333).abs() < 0.001, "{both:?}");
        assert!((both.half - 2.0347).abs() < 0.001, "{both:?}");
        assert_eq!(exact.half, 0.0);
        assert_eq!(welch(a, SampleMoments::default()).half, f64::INFINITY);
    }

    /// Of a known difference: how many of a thousand experiments have it in their interval. 950 are expected, 929 to 971
    /// (three standard deviations) are asked for; the seed is fixed, so it is the same each time.
    fn covered(truth: f64, mut experiment: impl FnMut(&mut Random) -> DifferenceEstimate) -> usize {
        let mut random = Random(0x0123_4567_89AB_CDEF);
        let holds = |estimate: DifferenceEstimate| (estimate.low()..=estimate.high()).contains(&truth);
        (0..1000).filter(|_| holds(experiment(&mut random))).count()
    }

    #[test]
    fn welch_covers_the_true_difference() {
        let covered = covered(3.0, |random| {
            let a: Vec<f64> = (0..200).map(|_| random.time(100.0, 20.0)).collect();
            let b: Vec<f64> = (0..300).map(|_| random.time(113.0, 10.0)).collect();
            welch(moments(&a), moments(&b))
        });
        assert!((929..=971).contains(&covered), "{covered}");
    }

    #[test]
    fn pairs_cover_it_where_rounds_drift() {
        // The machine becomes a third slower and back while the difference is a hundredth.
        let mut half = 0.0;
        let covered = covered(1.0, |random| {
            let differences: Vec<f64> = (0..30)
                .map(|round| {
                    let drift = 30.0 * (f64::from(round) / 5.0).sin();
                    let mut mean = |least: f64| (0..50).map(|_| random.time(least, 5.0)).sum::<f64>() / 50.0;
                    mean(101.0 + drift) - mean(100.0 + drift)
                })
                .collect();
            let estimate = paired(&differences);
            half += estimate.half / 1000.0;
            estimate
        });
        assert!((929..=971).contains(&covered), "{covered}");
        assert!(half < 0.5, "drift is in the interval: {half}");
        assert_eq!(paired(&[1.0]).half, f64::INFINITY);
    }

    #[test]
    fn parts_that_no_request_has_both_of() {
        let (one, two) = ([4.0, 0.0, 0.0, 6.0], [0.0, 3.0, 0.0, 0.0]);
        let both = moments(&one).joined(moments(&two));
        let expected = moments(&[4.0, 3.0, 0.0, 6.0]);
        assert!((both.mean - expected.mean).abs() < 1e-9 && (both.variance - expected.variance).abs() < 1e-9);
    }
}
