//! The compressor's output is read by a decompressor of the textbook: bit by bit, from the RFC alone.

use proptest::prelude::*;

use super::*;

/// Undoes [`DeflateEncoder`] (RFC 1951, section 3.2.3); panics where the data are no whole stream.
fn inflate(data: &[u8]) -> Vec<u8> {
    let mut bits = Bits { data, at: 0 };
    let mut out = Vec::new();
    loop {
        let last = bits.take(1) == 1;
        match bits.take(2) {
            0 => {
                bits.at = bits.at.next_multiple_of(8);
                let (len, not) = (bits.take(16), bits.take(16));
                assert_eq!(len ^ not, 0xffff);
                out.extend((0..len).map(|_| bits.take(8) as u8));
            }
            1 => block(
                &mut bits,
                &mut out,
                &[[8; 144].as_slice(), &[9; 112], &[7; 24], &[8; 8]].concat(),
                &[5; 30],
            ),
            2 => {
                let (literals, distances) = bits.lengths();
                block(&mut bits, &mut out, &literals, &distances);
            }
            _ => panic!("no such block"),
        }
        if last {
            assert_eq!(bits.at.div_ceil(8), data.len());
            return out;
        }
    }
}

fn block(bits: &mut Bits<'_>, out: &mut Vec<u8>, literals: &[u8], distances: &[u8]) {
    loop {
        let symbol = bits.symbol(literals);
        match symbol {
            0..256 => out.push(symbol as u8),
            256 => return,
            _ => {
                let (_, extra, first) = matches::LENGTHS
                    .into_iter()
                    .find(|(known, ..)| usize::from(*known) == symbol)
                    .expect("a symbol of a length");
                let len = usize::from(first) + bits.take(u32::from(extra));
                let symbol = bits.symbol(distances);
                assert!(symbol < 30);
                let extra = (symbol as u32 / 2).saturating_sub(1);
                let base = if symbol < 2 { symbol } else { (2 + symbol % 2) << extra };
                let distance = base + 1 + bits.take(extra);
                assert!(distance <= out.len());
                (0..len).for_each(|_| out.push(out[out.len() - distance]));
            }
        }
    }
}

struct Bits<'a> {
    data: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: u32) -> usize {
        (0..count).fold(0, |value, bit| {
            let byte = self.data[self.at / 8];
            let one = usize::from(byte >> (self.at % 8) & 1);
            self.at += 1;
            value | one << bit
        })
    }

    /// A symbol of the code with these lengths (section 3.2.2).
    fn symbol(&mut self, lengths: &[u8]) -> usize {
        let (mut code, mut first) = (0, 0);
        for length in 1..=15 {
            code |= self.take(1);
            let of_it = lengths.iter().enumerate().filter(|(_, other)| usize::from(**other) == length);
            let symbols: Vec<usize> = of_it.map(|(symbol, _)| symbol).collect();
            if code < first + symbols.len() {
                return symbols[code - first];
            }
            (first, code) = ((first + symbols.len()) << 1, code << 1);
        }
        panic!("no symbol has this code");
    }

    /// The lengths of a block's codes (section 3.2.7).
    fn lengths(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (literals, distances, told) = (self.take(5) + 257, self.take(5) + 1, self.take(4) + 4);
        let mut code = [0; 19];
        let order = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
        order[..told].iter().for_each(|symbol| code[*symbol] = self.take(3) as u8);
        let mut all: Vec<u8> = Vec::new();
        while all.len() < literals + distances {
            let (length, count) = match self.symbol(&code) {
                16 => (*all.last().expect("a length to repeat"), 3 + self.take(2)),
                17 => (0, 3 + self.take(3)),
                18 => (0, 11 + self.take(7)),
                length => (length as u8, 1),
            };
            all.resize(all.len() + count, length);
        }
        assert_eq!(all.len(), literals + distances);
        let distances = all.split_off(literals);
        (all, distances)
    }
}

/// What comes of `pieces`, flushed after each if `flush`, through an output of `room` bytes.
fn deflate(encoder: &mut DeflateEncoder, pieces: &[&[u8]], flush: bool, room: usize) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut output = vec![0; room];
    for (at, piece) in pieces.iter().enumerate() {
        let op = match () {
            () if at + 1 == pieces.len() => DeflateOp::Finish,
            () if flush => DeflateOp::Flush,
            () => DeflateOp::Run,
        };
        let mut taken = 0;
        loop {
            let progress = encoder.run(&piece[taken..], &mut output, op);
            taken += progress.taken;
            packed.extend_from_slice(&output[..progress.given]);
            if progress.done {
                break;
            }
            assert!(progress.taken + progress.given > 0, "it goes on");
        }
    }
    packed
}

fn whole(settings: DeflateSettings, text: &[u8]) -> Vec<u8> {
    deflate(&mut DeflateEncoder::new(settings), &[text], false, 1000)
}

/// Bytes of a few kinds, from all alike to noise.
fn texts() -> impl Strategy<Value = Vec<u8>> {
    let part = (0_usize..3000, 0_u32..6, any::<u32>()).prop_map(|(len, kind, seed)| {
        let noise = (0..len as u32).map(move |n| (n ^ seed).wrapping_mul(2_654_435_761).rotate_left(n % 31));
        noise.map(|n| (n % [1, 2, 5, 30, 120, 256][kind as usize]) as u8).collect::<Vec<u8>>()
    });
    proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn what_is_packed_unpacks_to_the_same(
        text in texts(),
        repeated in 1_usize..4,
        cuts in proptest::collection::vec(0_usize..4000, 0..6),
        level in 1_u8..=9,
        window in 9_u8..=15,
        memory in 1_u8..=9,
        flush: bool,
        room in 1_usize..4000,
    ) {
        let text = text.repeat(repeated);
        let mut pieces = Vec::new();
        let mut rest = &text[..];
        for cut in cuts {
            let (piece, behind) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = behind;
        }
        pieces.push(rest);
        let mut encoder = DeflateEncoder::new(DeflateSettings { level, window, memory });
        let packed = deflate(&mut encoder, &pieces, flush, room);
        prop_assert!(inflate(&packed) == text);
        encoder.reset();
        prop_assert!(deflate(&mut encoder, &pieces, flush, room) == packed, "used again it is as new");
    }
}

#[test]
fn what_was_flushed_can_be_read() {
    let mut encoder = DeflateEncoder::new(DeflateSettings { level: 6, window: 14, memory: 7 });
    let mut output = [0; 1000];
    let first = encoder.run(b"some text", &mut output, DeflateOp::Flush);
    assert!(first.done);
    assert!(output[..first.given].ends_with(&[0, 0, 0xff, 0xff]));
    // Nothing more is to be flushed.
    assert_eq!(
        encoder.run(b"", &mut output, DeflateOp::Flush),
        DeflateProgress { taken: 0, given: 0, done: true }
    );
}

#[test]
fn noise_grows_by_little_and_what_repeats_shrinks_by_much() {
    let noise: Vec<u8> =
        (0..200_000_u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 37) as u8).collect();
    let mut state = 1_u64;
    let noise: Vec<u8> = noise
        .iter()
        .map(|byte| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            byte ^ (state >> 56) as u8
        })
        .collect();
    for level in 1..=9 {
        let settings = DeflateSettings { level, window: 14, memory: 7 };
        let packed = whole(settings, &noise);
        assert!(packed.len() < noise.len() + 200, "level {level}: {}", packed.len());
        assert!(inflate(&packed) == noise);
        let packed = whole(settings, &b"abcdefgh".repeat(25_000));
        assert!(packed.len() < 1_500, "level {level}: {}", packed.len());
        assert!(inflate(&packed) == b"abcdefgh".repeat(25_000));
    }
}

/// 60 KB of lines of markup: a tag around three of 600 words, by a generator.
fn markup() -> String {
    let mut state = 7_u64;
    let mut draw = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let words: Vec<String> =
        (0..600).map(|_| (0..3 + draw(6)).map(|_| char::from(b'a' + draw(26) as u8)).collect()).collect();
    let mut text = String::new();
    while text.len() < 60_000 {
        let tag = ["p", "li", "td", "a href=", "code", "span"][draw(6) as usize];
        let [one, two, three] = [(); 3].map(|()| &words[draw(600) as usize]);
        text.push_str(&format!("<{tag}>{one} {two}, {three}</{tag}>\n"));
    }
    text
}

#[test]
fn the_fastest_level_packs_text_as_tightly_as_zlibs() {
    let text = markup();
    assert_eq!(text.len(), 60_026, "the text that zlib was given");
    let packed = whole(DeflateSettings { level: 1, window: 15, memory: 7 }, text.as_bytes());
    assert!(inflate(&packed) == text.as_bytes());
    // zlib 1.2.13 at level 1, with a window of 2^15 bytes and memLevel 8.
    const ZLIB: usize = 22_210;
    assert!(packed.len() * 100 <= ZLIB * 103, "{} bytes", packed.len());
}

#[test]
fn codes_stay_within_fifteen_bits() {
    // Counts as Fibonacci's numbers make the deepest of all codes.
    let mut counts = [0_u32; 286];
    let (mut a, mut b) = (1, 1);
    for count in &mut counts[..25] {
        *count = a;
        (a, b) = (b, a + b);
    }
    let mut lengths = [0; 286];
    for limit in [5, 7, 15] {
        codes::lengths(&counts, limit, &mut lengths);
        let taken: u32 =
            lengths.iter().filter(|length| **length > 0).map(|length| 1 << (limit as u8 - length)).sum();
        assert_eq!(taken, 1 << limit, "the code is complete");
        assert!(lengths.iter().all(|length| usize::from(*length) <= limit));
    }
}
