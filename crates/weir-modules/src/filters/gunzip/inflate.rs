//! Reads gzip (RFC 1952), one member after the other. The header and trailer are read here: zlib-rs' decompressor,
//! which is used again, can be reset for bare deflate data only.

use crc32fast::Hasher;
use zlib_rs::{Inflate, InflateFlush, Status};

use crate::filters::compress::{
    BodyCoder, CoderFailure, DeflateOp, DeflateProgress, FreeShelf, LentState, ReusedState, SCRATCH,
};

/// Unpacks one response.
pub(crate) struct GunzipCoder {
    state: LentState<InflateState>,
    part: MemberPart,
    /// The flags of the member's header.
    flags: u8,
    /// Bytes of a part of fixed length.
    held: [u8; 10],
    have: usize,
    /// A member is complete and no other has begun.
    whole: bool,
    crc: Hasher,
    size: u32,
}

/// The part of a member that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberPart {
    Fixed,
    ExtraLength,
    Extra(u16),
    Name,
    Comment,
    HeaderCrc,
    Data,
    Trailer,
}

impl Default for GunzipCoder {
    fn default() -> GunzipCoder {
        GunzipCoder {
            state: LentState::take(()),
            part: MemberPart::Fixed,
            flags: 0,
            held: [0; 10],
            have: 0,
            whole: false,
            crc: Hasher::new(),
            size: 0,
        }
    }
}

impl BodyCoder for GunzipCoder {
    fn run(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        op: DeflateOp,
    ) -> Result<DeflateProgress, CoderFailure> {
        let (mut taken, mut given) = (0, 0);
        loop {
            if self.part == MemberPart::Data {
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
        if done && op == DeflateOp::Finish && !self.whole {
            return Err(CoderFailure("gzip data ends early"));
        }
        Ok(DeflateProgress { taken, given, done })
    }

    fn scratch(&mut self) -> &mut Vec<u8> {
        &mut self.state.scratch
    }
}

impl GunzipCoder {
    /// Unpacks; `done` when the member's data end.
    fn data(&mut self, input: &[u8], output: &mut [u8]) -> Result<DeflateProgress, CoderFailure> {
        let inflate = &mut self.state.inflate;
        let before = (inflate.total_in(), inflate.total_out());
        let status = inflate.decompress(input, output, InflateFlush::NoFlush);
        let status = status.map_err(|_| CoderFailure("gzip data are broken"))?;
        let taken = (inflate.total_in() - before.0) as usize;
        let given = (inflate.total_out() - before.1) as usize;
        self.crc.update(&output[..given]);
        self.size = self.size.wrapping_add(given as u32);
        let done = status == Status::StreamEnd;
        if done {
            self.enter(MemberPart::Trailer);
        }
        Ok(DeflateProgress { taken, given, done })
    }

    /// Reads a byte of a header or trailer.
    fn framing(&mut self, byte: u8) -> Result<(), CoderFailure> {
        self.whole = false;
        let part = self.part;
        match part {
            MemberPart::Fixed if self.hold(byte, 10) => {
                let [0x1f, 0x8b, 8, flags, ..] = self.held else { return Err(NO_GZIP) };
                if flags & RESERVED != 0 {
                    return Err(NO_GZIP);
                }
                self.flags = flags;
                self.enter(MemberPart::ExtraLength);
            }
            MemberPart::ExtraLength if self.hold(byte, 2) => {
                self.enter(MemberPart::Extra(u16::from_le_bytes([self.held[0], self.held[1]])));
            }
            MemberPart::Extra(left) => self.enter(MemberPart::Extra(left - 1)),
            MemberPart::Name if byte == 0 => self.enter(MemberPart::Comment),
            MemberPart::Comment if byte == 0 => self.enter(MemberPart::HeaderCrc),
            MemberPart::HeaderCrc if self.hold(byte, 2) => self.enter(MemberPart::Data),
            MemberPart::Trailer if self.hold(byte, 8) => self.end()?,
            _ => {}
        }
        Ok(())
    }

    /// Goes to `part`, or after it where the header has none.
    fn enter(&mut self, part: MemberPart) {
        self.have = 0;
        self.part = part;
        let next = match part {
            MemberPart::ExtraLength if self.flags & EXTRA == 0 => MemberPart::Name,
            MemberPart::Extra(0) => MemberPart::Name,
            MemberPart::Name if self.flags & NAME == 0 => MemberPart::Comment,
            MemberPart::Comment if self.flags & COMMENT == 0 => MemberPart::HeaderCrc,
            MemberPart::HeaderCrc if self.flags & HEADER_CRC == 0 => MemberPart::Data,
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

    fn end(&mut self) -> Result<(), CoderFailure> {
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| self.held[at + byte]));
        if (number(0), number(4)) != (self.crc.clone().finalize(), self.size) {
            return Err(CoderFailure("gzip data have another checksum"));
        }
        (self.whole, self.crc, self.size) = (true, Hasher::new(), 0);
        self.state.inflate.reset(false);
        self.enter(MemberPart::Fixed);
        Ok(())
    }
}

struct InflateState {
    inflate: Inflate,
    scratch: Vec<u8>,
}

impl ReusedState for InflateState {
    type Key = ();

    fn new((): ()) -> InflateState {
        InflateState { inflate: Inflate::new(false, 15), scratch: vec![0; SCRATCH] }
    }

    fn key(&self) {}

    fn is_reusable(&self) -> bool {
        true
    }

    fn reset(&mut self) {
        self.inflate.reset(false);
    }

    fn shelf() -> &'static std::thread::LocalKey<FreeShelf<InflateState>> {
        thread_local! {
            static FREE: FreeShelf<InflateState> = const { FreeShelf::new(Vec::new()) };
        }
        &FREE
    }
}

const NO_GZIP: CoderFailure = CoderFailure("no gzip header");

const HEADER_CRC: u8 = 2;
const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
const RESERVED: u8 = 0xe0;

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use zlib_rs::{DeflateConfig, compress_bound, compress_slice};

    use super::*;

    pub(in crate::filters::gunzip) fn pack(text: &[u8]) -> Vec<u8> {
        let mut out = vec![0; compress_bound(text.len()) + 18];
        let config = DeflateConfig { window_bits: 31, ..DeflateConfig::new(6) };
        compress_slice(&mut out, text, config).0.to_vec()
    }

    /// What becomes of `packed` in pieces of `size` bytes, through an output of `room` bytes.
    fn unpack(packed: &[u8], size: usize, room: usize) -> Result<Vec<u8>, CoderFailure> {
        let mut inflater = GunzipCoder::default();
        let mut unpacked = Vec::new();
        let mut output = vec![0; room];
        let last: &[u8] = b"";
        for (piece, op) in
            packed.chunks(size).map(|piece| (piece, DeflateOp::Run)).chain([(last, DeflateOp::Finish)])
        {
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
