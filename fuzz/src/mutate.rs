//! A structured mutator without coverage feedback: seeds are bent by a few stacked edits, with the tokens of the
//! grammar among the material. It finds what a table test forgot; libFuzzer (see README.md) finds the rest.

/// No input grows beyond this, in bytes: larger ones only take longer.
const MAX_LEN: usize = 4096;

/// SplitMix64 (Steele, Lea, Flood, 2014): small, fast, and any seed is good.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 for a bound of 0. The bias of the remainder does not matter here.
    fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as usize }
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }

    /// A random stretch of `len` bytes, mostly short.
    fn stretch(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.below(len + 1);
        let most = if self.below(4) == 0 { len } else { 8 };
        start..(start + self.below(most + 1)).min(len)
    }
}

/// Makes inputs from the seeds and tokens of one target.
#[derive(Debug, Clone)]
pub struct Mutator<'a> {
    random: Random,
    seeds: &'a [&'a [u8]],
    tokens: &'a [&'a [u8]],
    input: Vec<u8>,
}

/// Bytes at which parsers change their mind.
const EDGES: &[u8] = b"\0\r\n\t \"%/.:;,=-+*?#\\{}0919afAFgG\x1f\x20\x7f\x80\xff";

impl<'a> Mutator<'a> {
    /// Without seeds it starts from nothing.
    pub fn new(random: Random, seeds: &'a [&'a [u8]], tokens: &'a [&'a [u8]]) -> Self {
        Mutator { random, seeds, tokens, input: Vec::new() }
    }

    /// The next input: a fresh seed or, half of the time, the input before, with one to eight edits.
    pub fn next_input(&mut self) -> &[u8] {
        if self.random.below(2) == 0 || self.input.is_empty() {
            self.input.clear();
            self.input.extend_from_slice(self.random.pick(self.seeds).copied().unwrap_or_default());
        }
        for _ in 0..=self.random.below(8) {
            self.edit();
        }
        self.input.truncate(MAX_LEN);
        &self.input
    }

    fn edit(&mut self) {
        let len = self.input.len();
        let at = self.random.below(len);
        let range = self.random.stretch(len);
        match self.random.below(9) {
            0 => {
                let bit = 1 << self.random.below(8);
                self.change(at, |byte| byte ^ bit);
            }
            1 => {
                let edge = self.random.pick(EDGES).copied().unwrap_or_default();
                self.change(at, |_| edge);
            }
            2 => {
                let edge = self.random.pick(EDGES).copied().unwrap_or_default();
                self.input.insert(at, edge);
            }
            3 => drop(self.input.drain(range)),
            4 => self.input.truncate(range.start),
            5 => self.repeat(range),
            6 => self.splice(range),
            7 => self.put_token(range),
            _ => self.put_token(at..at),
        }
    }

    fn put_token(&mut self, range: std::ops::Range<usize>) {
        let token = self.random.pick(self.tokens).copied().unwrap_or_default();
        drop(self.input.splice(range, token.iter().copied()));
    }

    fn change(&mut self, at: usize, to: impl Fn(u8) -> u8) {
        if let Some(byte) = self.input.get_mut(at) {
            *byte = to(*byte);
        }
    }

    /// A stretch once more, or up to sixteen times: counters and lists overflow on repetition.
    fn repeat(&mut self, range: std::ops::Range<usize>) {
        let stretch = self.input.get(range.clone()).unwrap_or_default();
        let times = 1 + self.random.below(16).saturating_sub(8) * 2;
        let repeated = stretch.repeat(times.min(MAX_LEN / stretch.len().max(1)));
        drop(self.input.splice(range.end..range.end, repeated));
    }

    /// A stretch of a seed in place of a stretch of the input.
    fn splice(&mut self, range: std::ops::Range<usize>) {
        let seed = self.random.pick(self.seeds).copied().unwrap_or_default();
        let from = self.random.stretch(seed.len());
        drop(self.input.splice(range, seed.get(from).unwrap_or_default().iter().copied()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_inputs() {
        let inputs = |seed| {
            let mut mutator = Mutator::new(Random::new(seed), &[b"GET / HTTP/1.1", b"x"], &[b"\r\n"]);
            (0..200).map(|_| mutator.next_input().to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(7), inputs(7));
        assert_ne!(inputs(7), inputs(8));
    }

    #[test]
    fn inputs_stay_bounded_and_differ() {
        let seeds: [&[u8]; 1] = [&[b'a'; 64]];
        let mut mutator = Mutator::new(Random::new(1), &seeds, &[b"token"]);
        let mut inputs: Vec<_> = (0..2000).map(|_| mutator.next_input().to_vec()).collect();
        assert!(inputs.iter().all(|input| input.len() <= MAX_LEN));
        inputs.sort();
        inputs.dedup();
        assert!(inputs.len() > 1500, "{}", inputs.len());
    }

    #[test]
    fn nothing_to_start_from_is_fine() {
        let mut mutator = Mutator::new(Random::new(1), &[], &[]);
        (0..1000).for_each(|_| assert!(mutator.next_input().len() <= MAX_LEN));
    }
}
