//! Numbers from a seed: the same seed, the same numbers.

/// A sequence of drawn numbers (SplitMix64): small, and good enough for choices.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Draw {
        Draw(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    /// A sequence of its own, which does not depend on what is drawn from this one later; `what` is its name among several.
    pub fn apart(&self, what: u64) -> Draw {
        let mut other = Draw(self.0 ^ what.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        other.number();
        other
    }

    /// The next 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 where `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        match end {
            0 => 0,
            end => ((u128::from(self.number()) * u128::from(end)) >> 64) as u64,
        }
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True `times` of `of` times.
    pub fn chance(&mut self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }

    /// One of `these`, of which there is at least one.
    pub fn one_of<'t, T>(&mut self, these: &'t [T]) -> &'t T {
        &these[self.below(these.len() as u64) as usize]
    }
}

/// FNV-1a, 64 bits: for hashes of what happened, not for tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHash(pub u64);

impl Default for TraceHash {
    fn default() -> TraceHash {
        TraceHash(0xcbf2_9ce4_8422_2325)
    }
}

impl TraceHash {
    /// The hash after `bytes`.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    /// The hash after a number.
    pub fn add_number(&mut self, number: u64) {
        self.add(&number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_numbers_and_others_draw_others() {
        let numbers =
            |seed| (0..100).scan(Draw::new(seed), |draw, _| Some(draw.number())).collect::<Vec<_>>();
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        let mut draw = Draw::new(1);
        let (mut apart, mut again) = (draw.apart(3), draw.apart(3));
        draw.number();
        assert_eq!(apart.number(), again.number());
    }

    #[test]
    fn numbers_keep_their_bounds_and_reach_them() {
        let mut draw = Draw::new(2);
        let drawn: Vec<u64> = (0..2000).map(|_| draw.between(3, 6)).collect();
        assert!((3..=6).all(|n| drawn.contains(&n)) && drawn.iter().all(|n| (3..=6).contains(n)));
        assert_eq!((draw.below(0), draw.between(5, 5)), (0, 5));
        let times = (0..10_000).filter(|_| draw.chance(1, 4)).count();
        assert!((2200..2800).contains(&times), "{times}");
    }
}
