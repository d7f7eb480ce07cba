//! How prices of the kernel's work are learnt from turns of the loop that were measured as a whole: those are corrected most
//! that the turn had most of.

use crate::clock;
use crate::kernel_work::{KINDS, KernelWork};

/// Prices, and what is needed to correct them.
pub(crate) struct LearntPrices {
    /// Nanoseconds.
    prices: [f64; KINDS],
    /// Measured in this turn, in nanoseconds.
    turn_ns: u64,
    /// What a turn is expected to take, fading, in nanoseconds.
    usual: f64,
    /// Events that end a wait, as a mean of those measured lately.
    batch: f64,
    /// By what factor the prices are wrong in sum.
    correction: f64,
    turns: u32,
    random: u32,
    /// What a stretch of nothing takes by the clock, in nanoseconds.
    clock_ns: u64,
}

impl LearntPrices {
    pub(crate) fn new() -> LearntPrices {
        let mut learnt = LearntPrices {
            prices: FIRST_NS,
            turn_ns: 0,
            usual: 0.0,
            batch: 1.0,
            correction: 1.0,
            turns: 0,
            random: 0x9E37_79B9,
            clock_ns: 0,
        };
        learnt.time_clock();
        learnt
    }

    /// A turn that is measured begins.
    pub(crate) fn begin(&mut self) {
        self.turn_ns = 0;
        self.time_clock();
    }

    /// A stretch of it took so long, in nanoseconds.
    pub(crate) fn took(&mut self, ns: u64) {
        self.turn_ns += ns.saturating_sub(self.clock_ns);
    }

    /// The prices to charge, in nanoseconds: each event has its part of the wait.
    pub(crate) fn in_force(&self) -> [f64; KINDS] {
        let mut prices = self.prices.map(|price| price * self.correction);
        prices[KernelWork::Event as usize] += prices[KernelWork::Wait as usize] / self.batch;
        prices
    }

    /// What a stretch of nothing takes, as it is found where others were at work: the second of two.
    fn time_clock(&mut self) {
        let (_, began) = (clock::thread_cpu_ns(), clock::thread_cpu_ns());
        let ns = clock::thread_cpu_ns().saturating_sub(began);
        self.clock_ns =
            if self.clock_ns == 0 { ns } else { (7 * self.clock_ns + ns.min(4 * self.clock_ns)) / 8 };
    }

    /// The turn that was measured had so much of each.
    pub(crate) fn learn(&mut self, counts: &[u32; KINDS]) {
        let had = counts.map(f64::from);
        let expected: f64 = had.iter().zip(self.prices).map(|(had, price)| had * price).sum();
        // No clock, or a turn that was all in a request's own time.
        if self.turn_ns == 0 || expected <= 0.0 {
            return;
        }
        self.turns = self.turns.saturating_add(1);
        let (waits, events) = (had[KernelWork::Wait as usize], had[KernelWork::Event as usize]);
        if waits > 0.0 && events > 0.0 {
            self.batch += (events / waits - self.batch) / FADING.min(f64::from(self.turns));
        }
        // A turn in which the processor's cache was somebody else's, or the clock stood: not believed as a whole.
        let measured = (self.turn_ns as f64).clamp(expected / FAR, expected * FAR);
        self.usual += (expected - self.usual) / FADING.min(f64::from(self.turns));
        // The sum comes right whatever the turns are like: large ones count for more.
        let wrong = measured - self.correction * expected;
        self.correction =
            (self.correction + wrong / (self.usual.max(expected / FADING) * FADING)).clamp(0.25, 4.0);
        let weights: [f64; KINDS] = std::array::from_fn(|at| self.prices[at] * self.prices[at] * had[at]);
        let norm: f64 = weights.iter().zip(had).map(|(weight, had)| weight * had).sum();
        let error = measured / self.correction - expected;
        for at in 0..KINDS {
            let price = self.prices[at] + STEP * error * weights[at] / norm;
            self.prices[at] = price.clamp(FIRST_NS[at] / FURTHEST, FIRST_NS[at] * FURTHEST);
        }
    }

    /// Turns until the next one is measured, `apart` on average when prices are known: no rhythm of the load is followed.
    pub(crate) fn pause(&mut self, apart: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let apart = if self.turns < HASTY { (apart / 16).max(1) } else { apart };
        1 + self.random % (2 * apart - 1)
    }
}

/// Measured turns after which prices are no guess any more.
const HASTY: u32 = 64;
/// A measured turn corrects the prices by this part of what they were wrong.
const STEP: f64 = 0.1;
/// Measured turns that the sum's correction is made of, about.
const FADING: f64 = 64.0;
/// A turn is believed up to so many times what was expected.
const FAR: f64 = 8.0;
/// A price is at most so many times the first one, and at least that part of it.
const FURTHEST: f64 = 32.0;
/// Nanoseconds, as measured on a virtual machine over the loopback interface, by [`KernelWork`].
const FIRST_NS: [f64; KINDS] = [100.0, 700.0, 0.1, 3_000.0, 0.15, 9_000.0, 500.0, 0.3, 900.0];

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD: [f64; KINDS] = [150.0, 400.0, 0.05, 5_000.0, 0.3, 20_000.0, 900.0, 0.5, 2_350.0];

    /// Turns with `had` of each take what they take in [`WORLD`].
    fn live(learnt: &mut LearntPrices, turns: u32, had: impl Fn(u32) -> [u32; KINDS]) {
        for turn in 0..turns {
            let had = had(turn);
            learnt.turn_ns = had.iter().zip(WORLD).map(|(had, ns)| f64::from(*had) * ns).sum::<f64>() as u64;
            learnt.learn(&had);
        }
    }

    fn priced(learnt: &LearntPrices, had: [u32; KINDS]) -> f64 {
        had.iter().zip(learnt.prices).map(|(had, price)| f64::from(*had) * price * learnt.correction).sum()
    }

    fn takes(had: [u32; KINDS]) -> f64 {
        had.iter().zip(WORLD).map(|(had, price)| f64::from(*had) * price).sum()
    }

    #[test]
    fn one_kind_of_turn_is_learnt_as_a_whole() {
        let mut learnt = LearntPrices::new();
        let had = [8, 8, 800, 8, 2_000, 0, 0, 0, 1];
        live(&mut learnt, 300, |_| had);
        let ratio = priced(&learnt, had) / takes(had);
        assert!((0.98..1.02).contains(&ratio), "{ratio}");
    }

    #[test]
    fn different_turns_tell_the_kinds_apart() {
        let mut learnt = LearntPrices::new();
        let kinds = [
            [1, 1, 100, 1, 300, 0, 0, 0, 1],
            [20, 20, 2_000, 20, 6_000, 0, 0, 0, 1],
            [6, 2, 200, 4, 1 << 20, 0, 0, 0, 1],
            [7, 4, 300, 3, 900, 3, 0, 0, 1],
            [40, 40, 160_000, 0, 0, 0, 0, 0, 1],
            [5, 5, 500, 5, 80_000, 0, 10, 80_000, 1],
        ];
        live(&mut learnt, 6_000, |turn| kinds[turn as usize % kinds.len()]);
        for had in kinds {
            let ratio = priced(&learnt, had) / takes(had);
            assert!((0.8..1.25).contains(&ratio), "{had:?}: {ratio}");
        }
    }

    #[test]
    fn no_clock_leaves_the_first_prices() {
        let mut learnt = LearntPrices::new();
        for _ in 0..100 {
            learnt.turn_ns = 0;
            learnt.learn(&[1; KINDS]);
        }
        assert_eq!((learnt.prices, learnt.correction, learnt.turns), (FIRST_NS, 1.0, 0));
    }

    #[test]
    fn one_turn_that_was_far_too_long_changes_little() {
        let mut learnt = LearntPrices::new();
        let had = [8, 8, 800, 8, 2_000, 0, 0, 0, 1];
        live(&mut learnt, 300, |_| had);
        let before = priced(&learnt, had);
        learnt.turn_ns = 3_000_000_000;
        learnt.learn(&had);
        assert!(priced(&learnt, had) < 1.8 * before);
        live(&mut learnt, 300, |_| had);
        let ratio = priced(&learnt, had) / takes(had);
        assert!((0.95..1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn an_event_has_its_part_of_the_wait() {
        let mut learnt = LearntPrices::new();
        let had = [8, 8, 800, 8, 2_000, 0, 0, 0, 1];
        live(&mut learnt, 2_000, |_| had);
        let charged: f64 = had[..8].iter().zip(learnt.in_force()).map(|(had, ns)| f64::from(*had) * ns).sum();
        let ratio = charged / takes(had);
        assert!((0.97..1.03).contains(&ratio), "{ratio}");
    }
}
