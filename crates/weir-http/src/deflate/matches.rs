//! Finds what was there before: bytes become literals and matches.

use super::DeflateSettings;

/// Literals as they are in the input, and a match after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatchSequence {
    /// Number of literals; less than both windows have bytes.
    pub(super) literals: u16,
    /// The match's length, less [`SHORTEST`].
    pub(super) length: u8,
    /// The symbol of its distance.
    pub(super) symbol: u8,
    /// Its distance.
    pub(super) distance: u16,
}

/// The input that is not written yet, the window before it, and what is known of both.
pub(super) struct MatchFinder {
    /// Two windows; the earlier one is given up when both are full.
    bytes: Box<[u8]>,
    /// Bytes of input in it.
    end: usize,
    /// Up to here it was searched.
    at: usize,
    /// Where the bytes of the block begin.
    start: usize,
    /// After the last match: what follows are literals.
    loose: usize,
    sequences: Vec<MatchSequence>,
    /// How often each literal and length is in the block, by symbol of RFC 1951.
    pub(super) literals: [u32; 288],
    /// How often each distance does, by symbol.
    pub(super) distances: [u32; 32],
    /// Where bytes of a hash were last; 0 is nowhere.
    heads: Box<[u16]>,
    /// Where bytes of the same hash were before those at a place, by place in a window; none for level 1.
    before: Box<[u16]>,
    /// How far the hash of four bytes is shifted.
    shift: u32,
    /// Bytes of a window.
    window: usize,
    effort: MatchEffort,
    /// Most matches of a block.
    most: usize,
}

/// Why [`MatchFinder::parse`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParseStop {
    /// A block is there.
    Full,
    /// More input is needed.
    Starved,
}

/// How hard is looked for matches.
#[derive(Clone, Copy)]
struct MatchEffort {
    /// This many places are compared; none: the last place only, and of what a match covers no more than two are made
    /// known.
    chain: u32,
    /// A match of this length is good enough.
    nice: usize,
    /// After one of this length the next byte is not tried.
    lazy: usize,
}

/// By level.
const EFFORTS: [MatchEffort; 10] = [
    MatchEffort { chain: 0, nice: 0, lazy: 0 },
    MatchEffort { chain: 0, nice: 0, lazy: 0 },
    MatchEffort { chain: 3, nice: 16, lazy: 0 },
    MatchEffort { chain: 4, nice: 32, lazy: 4 },
    MatchEffort { chain: 6, nice: 32, lazy: 8 },
    MatchEffort { chain: 10, nice: 64, lazy: 16 },
    MatchEffort { chain: 20, nice: 128, lazy: 32 },
    MatchEffort { chain: 40, nice: 160, lazy: 64 },
    MatchEffort { chain: 160, nice: 258, lazy: 128 },
    MatchEffort { chain: 600, nice: 258, lazy: 258 },
];

impl MatchFinder {
    pub(super) fn new(settings: DeflateSettings) -> MatchFinder {
        let window = 1 << settings.window;
        let effort = EFFORTS[usize::from(settings.level)];
        let bits = settings.memory + 7;
        let most = 1 << (settings.memory + 5);
        MatchFinder {
            bytes: vec![0; 2 * window].into(),
            end: 0,
            at: 0,
            start: 0,
            loose: 0,
            sequences: Vec::with_capacity(most),
            literals: [0; 288],
            distances: [0; 32],
            heads: vec![0; 1 << bits].into(),
            before: vec![0; if effort.chain == 0 { 0 } else { window }].into(),
            shift: 32 - u32::from(bits),
            window,
            effort,
            most,
        }
    }

    pub(super) fn reset(&mut self) {
        (self.end, self.at) = (0, 0);
        self.clear();
        self.heads.fill(0);
    }

    /// The matches that were found.
    pub(super) fn sequences(&self) -> &[MatchSequence] {
        &self.sequences
    }

    /// The bytes of the block.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.at]
    }

    /// The block ends here: the literals after its last match are counted.
    pub(super) fn end(&mut self) {
        count(&mut self.literals, &self.bytes[self.loose..self.at]);
        self.loose = self.at;
    }

    /// It is written: the next block begins.
    pub(super) fn clear(&mut self) {
        (self.start, self.loose) = (self.at, self.at);
        self.sequences.clear();
        self.literals.fill(0);
        self.distances.fill(0);
    }

    /// Copies what there is room for; how many bytes.
    pub(super) fn take(&mut self, input: &[u8]) -> usize {
        if self.end == self.bytes.len() && self.start >= self.window {
            self.slide();
        }
        let count = input.len().min(self.bytes.len() - self.end);
        self.bytes[self.end..self.end + count].copy_from_slice(&input[..count]);
        self.end += count;
        count
    }

    /// Gives up the earlier window.
    fn slide(&mut self) {
        let window = self.window;
        self.bytes.copy_within(window.., 0);
        (self.end, self.at, self.start) = (self.end - window, self.at - window, self.start - window);
        self.loose -= window;
        // A window of 32768 is the largest.
        let window = window as u16;
        self.heads.iter_mut().for_each(|place| *place = place.saturating_sub(window));
        self.before.iter_mut().for_each(|place| *place = place.saturating_sub(window));
    }

    /// Looks for matches in the input: all of it, or as long as a whole match may be there.
    pub(super) fn parse(&mut self, all: bool) -> ParseStop {
        let until = if all { self.end } else { self.end.saturating_sub(LONGEST) };
        let searched = until.min(self.end.saturating_sub(WORD));
        if self.effort.chain == 0 {
            self.parse_fast(searched);
        } else {
            self.parse_lazy(searched);
        }
        let full = self.sequences.len() == self.most;
        if !full {
            // The last bytes are too few to look for.
            self.at = self.at.max(until);
        }
        // The bytes of a block must stay there until it is written, and the earlier window be given up.
        let long = self.end == self.bytes.len() && self.start < self.window && self.at >= self.window;
        if full || (long && self.at >= until && self.at > self.start) {
            ParseStop::Full
        } else {
            ParseStop::Starved
        }
    }

    fn parse_fast(&mut self, searched: usize) {
        let bytes = &self.bytes[..self.end];
        let (heads, shift, window) = (&mut self.heads[..], self.shift, self.window);
        let (mut at, mut loose, mut misses) = (self.at, self.loose, 0);
        let mut found = FoundMatch {
            sequences: &mut self.sequences,
            literals: &mut self.literals,
            distances: &mut self.distances,
        };
        while at < searched {
            let here = word(bytes, at);
            let head = &mut heads[(here.wrapping_mul(FACTOR) >> shift) as usize];
            let place = usize::from(std::mem::replace(head, at as u16));
            if word(bytes, place) == here && place != 0 && at - place < window {
                let len = same(bytes, place, at, WORD);
                found.add(&bytes[loose..at], len, at - place);
                // Of what it covers two places are made known, else too little is found: 1 to 2 % of the output.
                for known in [at + 1, at + len - 2] {
                    heads[(word(bytes, known).wrapping_mul(FACTOR) >> shift) as usize] = known as u16;
                }
                at += len;
                (loose, misses) = (at, 0);
                if found.sequences.len() == self.most {
                    break;
                }
                continue;
            }
            // Where nothing is found for long, not every byte is looked at. Steps that grow at each miss take three
            // quarters of the time, and pages and scripts become 17 % longer by them.
            misses += 1;
            at += 1 + misses / PATIENCE;
        }
        (self.at, self.loose) = (at.min(self.end), loose);
    }

    fn parse_lazy(&mut self, searched: usize) {
        while self.at < searched && self.sequences.len() < self.most {
            let mut found = self.longest(self.at, 3, self.effort.chain);
            if found.0 == 0 {
                self.at += 1;
                continue;
            }
            // A longer match may begin at the next byte.
            let mut known = self.at + 1;
            while found.0 < self.effort.lazy && known < searched {
                let next = self.longest(known, found.0, self.effort.chain / 4);
                known += 1;
                if next.0 == 0 {
                    break;
                }
                self.at += 1;
                found = next;
            }
            let (at, end) = (self.at, self.at + found.0);
            let MatchFinder { bytes, sequences, literals, distances, .. } = self;
            FoundMatch { sequences, literals, distances }.add(&bytes[self.loose..at], found.0, found.1);
            self.cover(known, end);
            self.loose = end;
        }
    }

    /// Makes the places `from..to`, which a match covers, known, and goes after it.
    fn cover(&mut self, from: usize, to: usize) {
        let until = to.min(self.end.saturating_sub(WORD)).max(from);
        let before = &mut self.before[..self.window];
        let mask = before.len() - 1;
        for (at, four) in (from..until).zip(self.bytes[from..].windows(WORD)) {
            let head = &mut self.heads[(word(four, 0).wrapping_mul(FACTOR) >> self.shift) as usize];
            before[at & mask] = std::mem::replace(head, at as u16);
        }
        self.at = to;
    }

    /// Makes the place `at` known; the longest match there of more than `least` bytes and its distance, 0 without a
    /// match.
    #[inline]
    fn longest(&mut self, at: usize, least: usize, chain: u32) -> (usize, usize) {
        let bytes = &self.bytes[..self.end];
        let here = word(bytes, at);
        let head = &mut self.heads[(here.wrapping_mul(FACTOR) >> self.shift) as usize];
        let first = std::mem::replace(head, at as u16);
        let before = &mut self.before[..self.window];
        let mask = before.len() - 1;
        before[at & mask] = first;
        let low = (at + 1).saturating_sub(self.window).max(1);
        let (mut place, mut chain) = (usize::from(first), chain.max(1));
        let (mut len, mut distance) = (least, 0);
        let most = LONGEST.min(bytes.len() - at);
        if len >= most {
            return (0, 0);
        }
        let (mut tails, mut tail) = (&bytes[len - 3..], word(bytes, at + len - 3));
        while place >= low {
            // What is longer ends alike: that is looked at first.
            if word(tails, place) == tail && word(bytes, place) == here {
                let found = same(bytes, place, at, 4);
                if found > len {
                    (len, distance) = (found, at - place);
                    if len >= self.effort.nice || len >= most {
                        break;
                    }
                    (tails, tail) = (&bytes[len - 3..], word(bytes, at + len - 3));
                }
            }
            chain -= 1;
            if chain == 0 {
                break;
            }
            place = usize::from(before[place & mask]);
        }
        if distance == 0 { (0, 0) } else { (len, distance) }
    }
}

/// Where matches go.
struct FoundMatch<'m> {
    sequences: &'m mut Vec<MatchSequence>,
    literals: &'m mut [u32; 288],
    distances: &'m mut [u32; 32],
}

impl FoundMatch<'_> {
    /// A match after these literals.
    #[inline]
    fn add(&mut self, after: &[u8], len: usize, distance: usize) {
        count(self.literals, after);
        let (length, symbol) = ((len - SHORTEST) as u8, distance_symbol(distance));
        self.literals[usize::from(LENGTHS[usize::from(length)].0)] += 1;
        self.distances[symbol & 31] += 1;
        let literals = after.len() as u16;
        self.sequences.push(MatchSequence {
            literals,
            length,
            symbol: symbol as u8,
            distance: distance as u16,
        });
    }
}

#[inline]
fn count(literals: &mut [u32; 288], bytes: &[u8]) {
    bytes.iter().for_each(|byte| literals[usize::from(*byte)] += 1);
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

/// How many bytes at `at` are those at `place`, of which `known` are. A call, which keeps the search around it in registers.
#[inline(never)]
fn same(bytes: &[u8], place: usize, at: usize, known: usize) -> usize {
    let here = &bytes[at..bytes.len().min(at + LONGEST)];
    let there = &bytes[place..place + here.len()];
    let mut len = known;
    while let (Some(a), Some(b)) = (here[len..].first_chunk(), there[len..].first_chunk()) {
        let differ = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differ != 0 {
            return len + (differ.trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    while here.get(len).is_some_and(|byte| there[len] == *byte) {
        len += 1;
    }
    len
}

/// The symbol of a distance (RFC 1951, section 3.2.5).
#[inline]
pub(super) fn distance_symbol(distance: usize) -> usize {
    let distance = distance as u32 - 1;
    if distance < 4 {
        return distance as usize;
    }
    let bits = 31 - distance.leading_zeros();
    (2 * bits + (distance >> (bits - 1) & 1)) as usize
}

/// Symbol, extra bits and first length of each length from [`SHORTEST`] on (RFC 1951, section 3.2.5).
pub(super) const LENGTHS: [(u16, u8, u16); 256] = {
    let mut lengths = [(285, 0, 258); 256];
    let (mut symbol, mut at) = (257, 0);
    while symbol < 285 {
        let extra = if symbol < 265 { 0 } else { (symbol - 261) / 4 };
        let first = at;
        while at < first + (1 << extra) && at < 255 {
            lengths[at] = (symbol, extra as u8, (first + SHORTEST) as u16);
            at += 1;
        }
        symbol += 1;
    }
    lengths
};

/// Bytes of the shortest match that can be written.
pub(super) const SHORTEST: usize = 3;
/// And of the longest.
const LONGEST: usize = 258;
/// Bytes that are hashed and compared at once.
const WORD: usize = 4;
/// After as many bytes without a match level 1 looks at one byte less of those that follow.
const PATIENCE: usize = 8;
/// Spreads four bytes over the hash: 2^32 divided by the golden ratio.
const FACTOR: u32 = 0x9e37_79b1;
