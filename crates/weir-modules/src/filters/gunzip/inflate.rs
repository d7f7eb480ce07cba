//! What reads gzip (RFC 1952), one member behind the other. The header and trailer are read here: zlib-rs' decompressor,
//! which is used again, can be reset for bare deflate data only.

use zlib_rs::crc32::crc32;
use zlib_rs::{Inflate, InflateFlush, Status};

use crate::filters::compress::{Coder, Failed, Lent, Op, Progress, Reused, SCRATCH, Shelf};

/// Unpacks one response.
pub(crate) struct Inflater {
    state: Lent<State>,
    part: Part,
    /// The flags of the member's header.
    flags: u8,
    /// Bytes of a part of fixed length.
    held: [u8; 10],
    have: usize,
    /// A member is complete and no other has begun.
    whole: bool,
    crc: u32,
    size: u32,
}

/// The part of a member that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Fixed,
    ExtraLength,
    Extra(u16),
    Name,
    Comment,
    HeaderCrc,
    Data,
    Trailer,
}

impl Default for Inflater {
    fn default() -> Inflater {
        Inflater {
            state: Lent::take(()),
            part: Part::Fixed,
            flags: 0,
            held: [0; 10],
            have: 0,
            whole: false,
            crc: 0,
            size: 0,
        }
    }
}

impl Coder for Inflater {
    fn run(&mut self, input: &[u8], output: &mut [u8], op: Op) -> Result<Progress, Failed> {
        let (mut taken, mut given) = (0, 0);
        loop {
            if self.part == Part::Data {
                let progress = self.data(&input[taken..], &mut output[given..])?;
                taken += progress.taken;
                given += progress.given;
                if !progress.done {
                    break;
                }
            } else if let Some(&byte) = input.get(taken) {
                taken += 1;
                self.framing(byte)?;
            } else {
                break;
            }
        }
        let done = taken == input.len() && given < output.len();
        if done && op == Op::Finish && !self.whole {
            return Err(Failed("gzip data ends early"));
        }
        Ok(Progress { taken, given, done })
    }

    fn scratch(&mut self) -> &mut Vec<u8> {
        &mut self.state.scratch
    }
}

impl Inflater {
    /// Unpacks; `done` when the member's data end.
    fn data(&mut self, input: &[u8], output: &mut [u8]) -> Result<Progress, Failed> {
        let inflate = &mut self.state.inflate;
        let before = (inflate.total_in(), inflate.total_out());
        let status = inflate.decompress(input, output, InflateFlush::NoFlush);
        let status = status.map_err(|_| Failed("gzip data are broken"))?;
        let taken = (inflate.total_in() - before.0) as usize;
        let given = (inflate.total_out() - before.1) as usize;
        self.crc = crc32(self.crc, &output[..given]);
        self.size = self.size.wrapping_add(given as u32);
        let done = status == Status::StreamEnd;
        if done {
            self.enter(Part::Trailer);
        }
        Ok(Progress { taken, given, done })
    }

    /// Reads a byte of a header or trailer.
    fn framing(&mut self, byte: u8) -> Result<(), Failed> {
        self.whole = false;
        let part = self.part;
        match part {
            Part::Fixed if self.hold(byte, 10) => {
                let [0x1f, 0x8b, 8, flags, ..] = self.held else { return Err(NO_GZIP) };
                if flags & RESERVED != 0 {
                    return Err(NO_GZIP);
                }
                self.flags = flags;
                self.enter(Part::ExtraLength);
            }
            Part::ExtraLength if self.hold(byte, 2) => {
                self.enter(Part::Extra(u16::from_le_bytes([self.held[0], self.held[1]])));
            }
            Part::Extra(left) => self.enter(Part::Extra(left - 1)),
            Part::Name if byte == 0 => self.enter(Part::Comment),
            Part::Comment if byte == 0 => self.enter(Part::HeaderCrc),
            Part::HeaderCrc if self.hold(byte, 2) => self.enter(Part::Data),
            Part::Trailer if self.hold(byte, 8) => self.end()?,
            _ => {}
        }
        Ok(())
    }

    /// Goes to `part`, or behind it where the header has none.
    fn enter(&mut self, part: Part) {
        self.have = 0;
        self.part = part;
        let next = match part {
            Part::ExtraLength if self.flags & EXTRA == 0 => Part::Name,
            Part::Extra(0) => Part::Name,
            Part::Name if self.flags & NAME == 0 => Part::Comment,
            Part::Comment if self.flags & COMMENT == 0 => Part::HeaderCrc,
            Part::HeaderCrc if self.flags & HEADER_CRC == 0 => Part::Data,
            _ => return,
        };
        self.enter(next);
    }

    /// Whether with `byte` all `length` bytes of the part are there.
    fn hold(&mut self, byte: u8, length: usize) -> bool {
        self.held[self.have] = byte;
        self.have += 1;
        self.have == length
    }

    fn end(&mut self) -> Result<(), Failed> {
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| self.held[at + byte]));
        if (number(0), number(4)) != (self.crc, self.size) {
            return Err(Failed("gzip data have another checksum"));
        }
        (self.whole, self.crc, self.size) = (true, 0, 0);
        self.state.inflate.reset(false);
        self.enter(Part::Fixed);
        Ok(())
    }
}

struct State {
    inflate: Inflate,
    scratch: Vec<u8>,
}

impl Reused for State {
    type Key = ();

    fn new((): ()) -> State {
        State { inflate: Inflate::new(false, 15), scratch: vec![0; SCRATCH] }
    }

    fn key(&self) {}

    fn is_reusable(&self) -> bool {
        true
    }

    fn reset(&mut self) {
        self.inflate.reset(false);
    }

    fn shelf() -> &'static std::thread::LocalKey<Shelf<State>> {
        thread_local! {
            static FREE: Shelf<State> = const { Shelf::new(Vec::new()) };
        }
        &FREE
    }
}

const NO_GZIP: Failed = Failed("no gzip header");

const HEADER_CRC: u8 = 2;
const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
const RESERVED: u8 = 0xe0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zlib_rs::{DeflateConfig, compress_bound, compress_slice};

    use super::*;

    fn pack(text: &[u8]) -> Vec<u8> {
        let mut out = vec![0; compress_bound(text.len()) + 18];
        let config = DeflateConfig { window_bits: 31, ..DeflateConfig::new(6) };
        compress_slice(&mut out, text, config).0.to_vec()
    }

    /// What becomes of `packed` in pieces of `size` bytes, through an output of `room` bytes.
    fn unpack(packed: &[u8], size: usize, room: usize) -> Result<Vec<u8>, Failed> {
        let mut inflater = Inflater::default();
        let mut unpacked = Vec::new();
        let mut output = vec![0; room];
        let last: &[u8] = b"";
        for (piece, op) in packed.chunks(size).map(|piece| (piece, Op::Run)).chain([(last, Op::Finish)]) {
            let mut at = 0;
            loop {
                let progress = inflater.run(&piece[at..], &mut output, op)?;
                unpacked.extend_from_slice(&output[..progress.given]);
                at += progress.taken;
                if progress.done {
                    break;
                }
            }
        }
        Ok(unpacked)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn members_unpack_however_they_are_cut(
            texts in proptest::collection::vec(proptest::collection::vec(0_u8..4, 0..3000), 1..4),
            size in 1_usize..5000,
            room in 1_usize..5000,
        ) {
            let packed: Vec<u8> = texts.iter().flat_map(|text| pack(text)).collect();
            prop_assert_eq!(unpack(&packed, size, room), Ok(texts.concat()));
        }

        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..300), size in 1_usize..50) {
            let mut with_header = vec![0x1f, 0x8b, 8, bytes.first().copied().unwrap_or(0) & 0x1f];
            with_header.extend_from_slice(&bytes);
            let _ = unpack(&with_header, size, 100);
            let _ = unpack(&bytes, size, 100);
        }
    }

    #[test]
    fn all_fields_of_a_header_are_passed_over() {
        let plain = pack(b"a text");
        let mut full = plain[..10].to_vec();
        full[3] = HEADER_CRC | EXTRA | NAME | COMMENT;
        full.extend_from_slice(b"\x03\x00abcname\0comment\0\x12\x34");
        full.extend_from_slice(&plain[10..]);
        for size in [1, 7, 1000] {
            assert_eq!(unpack(&full, size, 100), Ok(b"a text".to_vec()));
        }
    }

    #[test]
    fn broken_data_fail() {
        let packed = pack(b"a text that is long enough to be cut");
        let failure = |bytes: &[u8]| unpack(bytes, 5, 100).expect_err("broken").0;
        for end in 0..packed.len() {
            assert_eq!(failure(&packed[..end]), "gzip data ends early", "{end}");
        }
        let with = |at: usize, byte: u8| {
            let mut bytes = packed.clone();
            bytes[at] ^= byte;
            bytes
        };
        assert_eq!(failure(&with(0, 1)), NO_GZIP.0);
        assert_eq!(failure(&with(3, 0x20)), NO_GZIP.0);
        assert_eq!(failure(&with(10, 0x06)), "gzip data are broken");
        assert_eq!(failure(&with(packed.len() - 8, 1)), "gzip data have another checksum");
        assert_eq!(failure(&[&packed[..], b"0123456789"].concat()), NO_GZIP.0);
    }
}
