//! The gzip format (RFC 1952) around the compressor of [`weir_http::deflate`].

use crc32fast::Hasher;
use weir_http::deflate::{DeflateEncoder, DeflateSettings};

use crate::filters::compress::{
    BodyCoder, CoderFailure, DeflateOp, DeflateProgress, FreeShelf, LentState, ReusedState, SCRATCH,
};

/// Compresses one response.
pub(crate) struct GzipCoder {
    state: LentState<DeflateState>,
    part: WrittenPart,
    crc: Hasher,
    size: u32,
}

/// What is being written, and how many of its bytes are.
enum WrittenPart {
    Header(usize),
    Data,
    Trailer(usize),
}

impl GzipCoder {
    /// A body known to be short needs less memory than `settings` allow.
    pub(crate) fn new(settings: DeflateSettings, length: Option<u64>) -> GzipCoder {
        let DeflateSettings { mut window, mut memory, .. } = settings;
        while window > 9 && length.is_some_and(|length| length <= 1 << (window - 1)) {
            window -= 1;
            memory = memory.saturating_sub(1).max(1);
        }
        let state = LentState::take(DeflateSettings { window, memory, ..settings });
        GzipCoder { state, part: WrittenPart::Header(0), crc: Hasher::new(), size: 0 }
    }

    fn trailer(&self) -> [u8; 8] {
        let mut trailer = [0; 8];
        trailer[..4].copy_from_slice(&self.crc.clone().finalize().to_le_bytes());
        trailer[4..].copy_from_slice(&self.size.to_le_bytes());
        trailer
    }
}

impl BodyCoder for GzipCoder {
    fn run(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        op: DeflateOp,
    ) -> Result<DeflateProgress, CoderFailure> {
        let (mut taken, mut given) = (0, 0);
        if let WrittenPart::Header(from) = self.part {
            let header = header(self.state.encoder.settings().level);
            given = copy(&header[from..], output);
            self.part = WrittenPart::Header(from + given);
            if from + given < header.len() {
                return Ok(DeflateProgress { taken, given, done: false });
            }
            self.part = WrittenPart::Data;
        }
        if let WrittenPart::Data = self.part {
            let progress = self.state.encoder.run(input, &mut output[given..], op);
            taken = progress.taken;
            self.crc.update(&input[..taken]);
            self.size = self.size.wrapping_add(taken as u32);
            given += progress.given;
            if op != DeflateOp::Finish || !progress.done {
                return Ok(DeflateProgress { taken, given, done: progress.done });
            }
            self.part = WrittenPart::Trailer(0);
        }
        let mut done = true;
        if let WrittenPart::Trailer(from) = self.part {
            let count = copy(&self.trailer()[from..], &mut output[given..]);
            self.part = WrittenPart::Trailer(from + count);
            (given, done) = (given + count, from + count == 8);
        }
        Ok(DeflateProgress { taken, given, done })
    }

    fn scratch(&mut self) -> &mut Vec<u8> {
        &mut self.state.scratch
    }
}

/// Copies what there is room for; how many bytes.
fn copy(bytes: &[u8], output: &mut [u8]) -> usize {
    let count = bytes.len().min(output.len());
    output[..count].copy_from_slice(&bytes[..count]);
    count
}

struct DeflateState {
    encoder: DeflateEncoder,
    scratch: Vec<u8>,
}

impl ReusedState for DeflateState {
    type Key = DeflateSettings;

    fn new(settings: DeflateSettings) -> DeflateState {
        DeflateState { encoder: DeflateEncoder::new(settings), scratch: vec![0; SCRATCH] }
    }

    fn key(&self) -> DeflateSettings {
        self.encoder.settings()
    }

    fn is_reusable(&self) -> bool {
        true
    }

    fn reset(&mut self) {
        self.encoder.reset();
    }

    fn shelf() -> &'static std::thread::LocalKey<FreeShelf<DeflateState>> {
        thread_local! {
            static FREE: FreeShelf<DeflateState> = const { FreeShelf::new(Vec::new()) };
        }
        &FREE
    }
}

/// Deflate data, no fields, no time, made on Unix; XFL says that the compressor was at its fastest or its best (RFC 1952
/// section 2.3.1), as zlib's does.
fn header(level: u8) -> [u8; 10] {
    let extra = match level {
        1 => 4,
        9 => 2,
        _ => 0,
    };
    [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, extra, 3]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zlib_rs::{InflateConfig, ReturnCode, decompress_slice};

    use super::*;
    use crate::filters::compress::testing::pack;

    fn unpack(packed: &[u8]) -> Vec<u8> {
        let mut out = vec![0; 1 << 20];
        let (unpacked, code) = decompress_slice(&mut out, packed, InflateConfig { window_bits: 31 });
        assert_eq!(code, ReturnCode::Ok);
        unpacked.to_vec()
    }

    fn deflater(level: u8, length: Option<u64>) -> GzipCoder {
        GzipCoder::new(DeflateSettings { level, window: 14, memory: 7 }, length)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_packed_unpacks_to_the_same(
            pieces in proptest::collection::vec(proptest::collection::vec(0_u8..4, 0..3000), 0..8),
            level in 1_u8..=9,
            room in 1_usize..5000,
        ) {
            let whole = pieces.concat();
            for length in [None, Some(whole.len() as u64)] {
                prop_assert_eq!(unpack(&pack(&mut deflater(level, length), &pieces, room)), whole.clone());
            }
        }
    }

    #[test]
    fn a_compressor_used_again_is_as_new() {
        let text: Vec<u8> = (0..40_000_u32).flat_map(|n| (n / 7 * 31).to_le_bytes()).collect();
        let mut output = [0; 100];
        for level in [1, 6] {
            let first = pack(&mut deflater(level, None), std::slice::from_ref(&text), 4096);
            // One whose client left.
            let mut broken_off = deflater(level, None);
            broken_off.run(&text, &mut output, DeflateOp::Run).expect("it can't fail");
            drop(broken_off);
            assert_eq!(pack(&mut deflater(level, None), std::slice::from_ref(&text), 4096), first);
        }
    }
}
