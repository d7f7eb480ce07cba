//! Writes blocks (RFC 1951, section 3.2.3): with codes of their own, the fixed ones, or as they are, whatever is shortest.

use super::codes::{LENGTH, LIMIT, codes, lengths};
use super::matches::{LENGTHS, MatchFinder, MatchSequence, SHORTEST};

/// Whether blocks follow (`BFINAL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockOrder {
    /// Others follow.
    Inner,
    /// It ends the stream.
    Final,
}

/// Writes one block at a time, as there is room for it.
pub(super) struct BlockWriter {
    part: BlockPart,
    last: bool,
    /// An empty block follows that ends with a whole byte.
    sync: bool,
    /// Bytes that are written, and those of them that were handed out.
    out: Box<[u8; OUT + SLACK]>,
    len: usize,
    handed: usize,
    /// Bits of the byte that is not full yet, first bit lowest.
    bits: u64,
    count: u32,
    /// The code of each literal, and of the end.
    literals: [u32; 288],
    /// The code of each length from [`SHORTEST`] on, with its extra bits.
    lengths: [u32; 256],
    /// The code of each distance, and from bit [`EXTRA`] on how many extra bits follow it.
    distances: [u32; 32],
}

/// What is to be written next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockPart {
    Nothing,
    /// Literals and matches from here on.
    Sequences(BlockPlace),
    /// Bytes as they are: the first of them, and the end of those that were announced.
    Stored(usize, usize),
    /// What follows a block.
    End,
}

/// How far a block is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockPlace {
    /// The number of the next match.
    next: usize,
    /// The next byte.
    at: usize,
    /// Literals before that match, or the block's end, that are not written.
    literals: usize,
}

impl BlockPlace {
    /// Before the match `next`, with its literals.
    #[inline]
    fn new(sequences: &[MatchSequence], bytes: &[u8], next: usize, at: usize) -> BlockPlace {
        let literals =
            sequences.get(next).map_or(bytes.len() - at, |sequence| usize::from(sequence.literals));
        BlockPlace { next, at, literals }
    }
}

impl Default for BlockWriter {
    fn default() -> BlockWriter {
        BlockWriter {
            part: BlockPart::Nothing,
            last: false,
            sync: false,
            out: Box::new([0; OUT + SLACK]),
            len: 0,
            handed: 0,
            bits: 0,
            count: 0,
            literals: [0; 288],
            lengths: [0; 256],
            distances: [0; 32],
        }
    }
}

impl BlockWriter {
    pub(super) fn reset(&mut self) {
        (self.part, self.last, self.sync) = (BlockPart::Nothing, false, false);
        (self.len, self.handed, self.bits, self.count) = (0, 0, 0, 0);
    }

    /// All was handed out.
    pub(super) fn is_idle(&self) -> bool {
        self.part == BlockPart::Nothing && self.len == self.handed
    }

    /// Begins a block of what `matcher` has; one without bytes only if it is the final one.
    pub(super) fn begin(&mut self, matcher: &mut MatchFinder, order: BlockOrder) {
        self.last = order == BlockOrder::Final;
        if matcher.bytes().is_empty() && !self.last {
            self.part = BlockPart::End;
            return;
        }
        matcher.end();
        matcher.literals[END] = 1;
        let extra = extra_bits(matcher);
        let (mut literals, mut distances) = ([0; 288], [0; 32]);
        lengths(&matcher.literals[..286], LIMIT, &mut literals[..286]);
        lengths(&matcher.distances[..30], LIMIT, &mut distances[..30]);
        let header = BlockHeader::new(&literals, &distances);
        let own = header.bits() + cost(matcher, &literals, &distances) + extra;
        let fixed = cost(matcher, &FIXED, &[5; 32]) + extra;
        let bytes = matcher.bytes().len() as u64;
        let stored = (bytes + 5 * bytes.div_ceil(MOST as u64)) * 8;
        match () {
            () if bytes > 0 && stored < own.min(fixed) => self.part = BlockPart::Stored(0, 0),
            () if fixed <= own => {
                self.put(u64::from(self.last) | 1 << 1, 3);
                self.take_codes(&FIXED, &[5; 32], matcher);
            }
            () => {
                self.put(u64::from(self.last) | 2 << 1, 3);
                header.write(self);
                self.take_codes(&literals, &distances, matcher);
            }
        }
    }

    /// What was written shall be readable: after the block follows an empty one.
    pub(super) fn sync(&mut self) {
        self.sync = true;
    }

    fn take_codes(&mut self, literals: &[u8; 288], distances: &[u8; 32], matcher: &MatchFinder) {
        codes(literals, &mut self.literals);
        codes(distances, &mut self.distances);
        for (symbol, code) in self.distances.iter_mut().enumerate() {
            *code |= (symbol as u32 / 2).saturating_sub(1) << EXTRA;
        }
        for (at, code) in self.lengths.iter_mut().enumerate() {
            let (symbol, extra, first) = LENGTHS[at];
            let base = self.literals[usize::from(symbol)];
            let rest = (at + SHORTEST) as u32 - u32::from(first);
            let length = base >> LENGTH;
            *code = (base & BITS) | rest << length | (length + u32::from(extra)) << LENGTH;
        }
        self.part = BlockPart::Sequences(BlockPlace::new(matcher.sequences(), matcher.bytes(), 0, 0));
    }

    /// Moves what is written to `output`, and writes on while there is room; how many bytes.
    pub(super) fn hand_out(&mut self, matcher: &mut MatchFinder, output: &mut [u8]) -> usize {
        let mut given = 0;
        loop {
            let count = (self.len - self.handed).min(output.len() - given);
            output[given..given + count].copy_from_slice(&self.out[self.handed..self.handed + count]);
            (self.handed, given) = (self.handed + count, given + count);
            if self.handed < self.len {
                return given;
            }
            (self.len, self.handed) = (0, 0);
            match self.part {
                BlockPart::Nothing => return given,
                BlockPart::Sequences(from) => self.sequences(matcher.sequences(), matcher.bytes(), from),
                BlockPart::Stored(at, announced) => self.stored(matcher.bytes(), at, announced),
                BlockPart::End => {
                    matcher.clear();
                    self.end();
                }
            }
        }
    }

    fn sequences(&mut self, sequences: &[MatchSequence], bytes: &[u8], from: BlockPlace) {
        let mut bits = BitWriter { bits: self.bits, count: self.count, out: &mut self.out, len: self.len };
        let mut place = from;
        let whole = loop {
            // None takes two bytes.
            let count = place.literals.min(OUT.saturating_sub(bits.len) / 2);
            let literals = &bytes[place.at..place.at + count];
            for three in literals.chunks(3) {
                three.iter().for_each(|byte| bits.code(self.literals[usize::from(*byte)]));
                bits.flush();
            }
            (place.at, place.literals) = (place.at + count, place.literals - count);
            if place.literals > 0 || bits.len >= OUT {
                break false;
            }
            let Some(sequence) = sequences.get(place.next) else { break true };
            bits.code(self.lengths[usize::from(sequence.length)]);
            let code = self.distances[usize::from(sequence.symbol & 31)];
            bits.code(code & DISTANCE);
            let extra = code >> EXTRA;
            bits.put(u64::from(sequence.distance - 1) & ((1 << extra) - 1), extra);
            bits.flush();
            let at = place.at + usize::from(sequence.length) + SHORTEST;
            place = BlockPlace::new(sequences, bytes, place.next + 1, at);
        };
        (self.bits, self.count, self.len) = (bits.bits, bits.count, bits.len);
        self.part = BlockPart::Sequences(place);
        if whole {
            let end = self.literals[END];
            self.put(u64::from(end & BITS), end >> LENGTH);
            self.part = BlockPart::End;
        }
    }

    fn stored(&mut self, bytes: &[u8], at: usize, announced: usize) {
        if at < announced {
            let count = (announced - at).min(OUT);
            self.out[..count].copy_from_slice(&bytes[at..at + count]);
            self.len = count;
            self.part = BlockPart::Stored(at + count, announced);
        } else if at < bytes.len() {
            let count = (bytes.len() - at).min(MOST);
            let last = self.last && at + count == bytes.len();
            self.put(u64::from(last), 3);
            self.announce(count);
            self.part = BlockPart::Stored(at, at + count);
        } else {
            self.part = BlockPart::End;
        }
    }

    /// Ends the byte, and says how many bytes follow as they are.
    fn announce(&mut self, count: usize) {
        self.fill();
        self.put((count | (!count & 0xffff) << 16) as u64, 32);
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.sync) {
            self.put(0, 3);
            self.announce(0);
        }
        if self.last {
            self.fill();
        }
        self.part = BlockPart::Nothing;
    }

    fn fill(&mut self) {
        self.put(0, self.count.wrapping_neg() & 7);
    }

    /// Writes at most 48 bits.
    fn put(&mut self, bits: u64, count: u32) {
        self.bits |= bits << self.count;
        self.count += count;
        while self.count >= 8 {
            self.out[self.len] = self.bits as u8;
            self.len += 1;
            self.bits >>= 8;
            self.count -= 8;
        }
    }
}

/// Bits on their way out, first bit lowest.
struct BitWriter<'o> {
    bits: u64,
    count: u32,
    out: &'o mut [u8; OUT + SLACK],
    len: usize,
}

impl BitWriter<'_> {
    /// Adds bits; between two calls of [`flush`](BitWriter::flush) at most 57.
    #[inline(always)]
    fn put(&mut self, bits: u64, count: u32) {
        self.bits |= bits << self.count;
        self.count += count;
    }

    #[inline(always)]
    fn code(&mut self, code: u32) {
        self.put(u64::from(code & BITS), code >> LENGTH);
    }

    /// Writes the bytes that are full: at most 7 bits stay.
    #[inline(always)]
    fn flush(&mut self) {
        self.out[self.len..self.len + 8].copy_from_slice(&self.bits.to_le_bytes());
        self.len += (self.count / 8) as usize;
        self.bits >>= self.count & !7;
        self.count &= 7;
    }
}

/// Bits that lengths and distances have besides their codes.
fn extra_bits(matcher: &MatchFinder) -> u64 {
    let lengths = (265..285).map(|symbol| (symbol as u64 - 261) / 4 * u64::from(matcher.literals[symbol]));
    let distances = (4..30).map(|symbol| (symbol as u64 / 2 - 1) * u64::from(matcher.distances[symbol]));
    lengths.chain(distances).sum()
}

fn cost(matcher: &MatchFinder, literals: &[u8; 288], distances: &[u8; 32]) -> u64 {
    let bits = |counts: &[u32], lengths: &[u8]| -> u64 {
        counts.iter().zip(lengths).map(|(&count, &length)| u64::from(count) * u64::from(length)).sum()
    };
    3 + bits(&matcher.literals, literals) + bits(&matcher.distances, distances)
}

/// How the codes of a block are written (section 3.2.7).
struct BlockHeader {
    /// How many of the literals and lengths are written.
    literals: usize,
    distances: usize,
    /// Symbols, and after each the value of its extra bits.
    symbols: [(u8, u8); 286 + 30],
    len: usize,
    lengths: [u8; 19],
    codes: [u32; 19],
    /// How many lengths of these codes are written.
    told: usize,
}

impl BlockHeader {
    fn new(literals: &[u8; 288], distances: &[u8; 32]) -> BlockHeader {
        let used = |lengths: &[u8]| lengths.iter().rposition(|length| *length > 0).map_or(0, |at| at + 1);
        let mut header = BlockHeader {
            literals: used(literals).max(257),
            distances: used(distances).max(1),
            symbols: [(0, 0); 286 + 30],
            len: 0,
            lengths: [0; 19],
            codes: [0; 19],
            told: 4,
        };
        header.add(literals, distances);
        let mut counts = [0; 19];
        for (symbol, _) in &header.symbols[..header.len] {
            counts[usize::from(*symbol)] += 1;
        }
        lengths(&counts, 7, &mut header.lengths);
        codes(&header.lengths, &mut header.codes);
        header.told =
            ORDER.iter().rposition(|symbol| header.lengths[*symbol] > 0).map_or(4, |at| (at + 1).max(4));
        header
    }

    /// Symbols for all lengths: runs are coded as such.
    fn add(&mut self, literals: &[u8; 288], distances: &[u8; 32]) {
        let mut all = [0_u8; 286 + 30];
        all[..self.literals].copy_from_slice(&literals[..self.literals]);
        let count = self.literals + self.distances;
        all[self.literals..count].copy_from_slice(&distances[..self.distances]);
        let mut rest = &all[..count];
        while let Some(&length) = rest.first() {
            let run = rest.iter().take_while(|other| **other == length).count();
            let taken = match (length, run) {
                (0, 11..) => self.push(18, run.min(138), 11),
                (0, 3..) => self.push(17, run, 3),
                (0, _) => self.push(0, 1, 1),
                _ => {
                    self.push(length, 1, 1);
                    let mut left = run - 1;
                    while left >= 3 {
                        left -= self.push(16, left.min(6), 3);
                    }
                    run - left
                }
            };
            rest = &rest[taken..];
        }
    }

    fn push(&mut self, symbol: u8, run: usize, least: usize) -> usize {
        self.symbols[self.len] = (symbol, (run - least) as u8);
        self.len += 1;
        run
    }

    fn bits(&self) -> u64 {
        let symbol = |(symbol, _): &(u8, u8)| {
            u64::from(self.lengths[usize::from(*symbol)]) + u64::from(extra(*symbol))
        };
        14 + 3 * self.told as u64 + self.symbols[..self.len].iter().map(symbol).sum::<u64>()
    }

    fn write(&self, writer: &mut BlockWriter) {
        let sizes = (self.literals - 257) | (self.distances - 1) << 5 | (self.told - 4) << 10;
        writer.put(sizes as u64, 14);
        for symbol in &ORDER[..self.told] {
            writer.put(u64::from(self.lengths[*symbol]), 3);
        }
        for (symbol, value) in &self.symbols[..self.len] {
            let code = self.codes[usize::from(*symbol)];
            writer.put(u64::from(code & BITS), code >> LENGTH);
            writer.put(u64::from(*value), extra(*symbol));
        }
    }
}

/// Extra bits of a symbol for code lengths.
fn extra(symbol: u8) -> u32 {
    match symbol {
        16 => 2,
        17 => 3,
        18 => 7,
        _ => 0,
    }
}

/// The order in which the lengths of the code length codes are written.
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// Lengths of the fixed codes (section 3.2.6).
const FIXED: [u8; 288] = {
    let mut lengths = [8; 288];
    let mut at = 144;
    while at < 280 {
        lengths[at] = if at < 256 { 9 } else { 7 };
        at += 1;
    }
    lengths
};

/// The symbol of a block's end.
const END: usize = 256;
/// The code in what [`codes`] makes.
const BITS: u32 = (1 << LENGTH) - 1;
/// Where the number of a distance's extra bits is.
const EXTRA: u32 = 28;
/// The code of a distance without that.
const DISTANCE: u32 = (1 << EXTRA) - 1;
/// This many bytes are written ahead.
const OUT: usize = 2048;
/// And after them the last bits of what was begun before.
const SLACK: usize = 16;
/// Most bytes of a block that has them as they are.
const MOST: usize = 0xffff;
