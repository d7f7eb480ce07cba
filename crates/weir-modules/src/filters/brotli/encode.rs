//! The compressor of brotli, the C library's. It can't be reset, and has up to 4 MB of tables at level 6 and 36 MB at 9:
//! a worker keeps few at work ([`CoderPlaces`]).

use std::thread::LocalKey;

use weir_sys::brotli::{self, BrotliEncoder, EncoderProgress, EncoderRefused};

use crate::filters::compress::{
    CoderFailure, CoderPlace, CoderPlaces, CoderSession, DeflateOp, DeflateProgress,
};

/// Compresses one response.
pub(crate) type BrotliCompressor = CoderPlace<BrotliStream>;

/// `window` is a logarithm; a body known to be short needs less.
pub(crate) fn squeezer(level: u8, window: u8, length: Option<u64>) -> BrotliCompressor {
    let mut window = window;
    while window > LEAST_WINDOW && length.is_some_and(|length| length + GAP <= 1 << (window - 1)) {
        window -= 1;
    }
    let hint = length.map_or(0, |length| length.min(LONGEST_HINT) as u32);
    CoderPlace::new(BrotliSettings { level, window, hint })
}

/// What an encoder is made with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BrotliSettings {
    level: u8,
    /// A logarithm.
    window: u8,
    /// Bytes to come, 0 if that is not known.
    hint: u32,
}

/// A stretch of a stream.
pub(crate) struct BrotliStream {
    coder: FlushingCoder,
    /// Input that waits to be compressed at once; at the levels that want that.
    gathered: Option<GatheredInput>,
}

/// Input that makes one block of the levels 0 and 1. They refer to nothing before the piece they are given, and write
/// codes of its own for each: a file's pieces of 32 KB by themselves come out 14% longer than the file.
#[derive(Default)]
struct GatheredInput {
    bytes: Vec<u8>,
    /// How many of them are compressed.
    sent: usize,
    /// They are being compressed: nothing is added until all are.
    draining: bool,
}

/// The library's encoder, flushed every [`SPAN`] bytes.
struct FlushingCoder {
    encoder: BrotliEncoder,
    /// A flush is not yet written out: until then the library takes no input.
    flushing: bool,
    /// Something is not: after a seam the library flushes by itself, so that it may take no input either.
    pending: bool,
    /// Bytes taken since the last flush.
    unflushed: usize,
}

impl CoderSession for BrotliStream {
    type Key = BrotliSettings;
    const PAUSE: DeflateOp = DeflateOp::Flush;

    fn begin(
        BrotliSettings { level, window, hint }: BrotliSettings,
        from: u64,
    ) -> Result<BrotliStream, CoderFailure> {
        let encoder = BrotliEncoder::new(level, window, hint, from);
        let encoder =
            encoder.map_err(|EncoderRefused| CoderFailure("BrotliEncoderCreateInstance() failed"))?;
        let coder = FlushingCoder { encoder, flushing: false, pending: false, unflushed: 0 };
        let gathered = (level <= LAST_BLOCKWISE).then(|| GatheredInput {
            bytes: Vec::with_capacity((hint as usize).min(SPAN)),
            ..GatheredInput::default()
        });
        Ok(BrotliStream { coder, gathered })
    }

    fn run(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        op: DeflateOp,
    ) -> Result<DeflateProgress, CoderFailure> {
        match &mut self.gathered {
            Some(gathered) => gathered.run(&mut self.coder, input, output, op),
            None => self.coder.run(input, output, op),
        }
    }

    fn places() -> &'static LocalKey<CoderPlaces<BrotliStream>> {
        thread_local! {
            static PLACES: CoderPlaces<BrotliStream> = const { CoderPlaces::new() };
        }
        &PLACES
    }
}

impl GatheredInput {
    /// As [`CoderSession::run`]; `coder` gets [`SPAN`] bytes at a time, less before a flush and at the end.
    fn run(
        &mut self,
        coder: &mut FlushingCoder,
        input: &[u8],
        output: &mut [u8],
        op: DeflateOp,
    ) -> Result<DeflateProgress, CoderFailure> {
        let taken = self.gather(input);
        let whole = taken == input.len();
        if !self.draining && whole && op == DeflateOp::Run {
            return Ok(DeflateProgress { taken, given: 0, done: true });
        }
        self.draining = true;
        let op = if whole { op } else { DeflateOp::Run };
        let DeflateProgress { taken: sent, given, done } = coder.run(&self.bytes[self.sent..], output, op)?;
        self.sent += sent;
        if done && self.sent == self.bytes.len() {
            self.bytes.clear();
            (self.sent, self.draining) = (0, false);
        }
        Ok(DeflateProgress { taken, given, done: whole && done })
    }

    /// Takes what there is room for, nothing while it is being compressed.
    fn gather(&mut self, input: &[u8]) -> usize {
        if self.draining {
            return 0;
        }
        let taken = input.len().min(SPAN - self.bytes.len());
        self.bytes.extend_from_slice(&input[..taken]);
        taken
    }
}

impl FlushingCoder {
    fn run(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        op: DeflateOp,
    ) -> Result<DeflateProgress, CoderFailure> {
        let mut run = |input: &[u8], output: &mut [u8], op| {
            self.encoder
                .run(input, output, op)
                .map_err(|EncoderRefused| CoderFailure("BrotliEncoderCompressStream() failed"))
        };
        let mut before = 0;
        if self.flushing || self.pending {
            let op =
                if self.flushing { brotli::BrotliOperation::Flush } else { brotli::BrotliOperation::Process };
            let EncoderProgress { given, more, done, .. } = run(b"", output, op)?;
            if more || !done {
                return Ok(DeflateProgress { taken: 0, given, done: false });
            }
            if self.flushing {
                (self.flushing, self.unflushed) = (false, 0);
            }
            before = given;
        }
        let op = match op {
            DeflateOp::Run if self.unflushed + input.len() < SPAN => brotli::BrotliOperation::Process,
            DeflateOp::Run | DeflateOp::Flush => brotli::BrotliOperation::Flush,
            DeflateOp::Finish => brotli::BrotliOperation::Finish,
        };
        let EncoderProgress { taken, given, more, done } = run(input, &mut output[before..], op)?;
        self.pending = more;
        self.unflushed += taken;
        if op == brotli::BrotliOperation::Flush {
            (self.flushing, self.unflushed) = (!done, if done { 0 } else { self.unflushed });
        }
        Ok(DeflateProgress { taken, given: before + given, done })
    }
}

/// Logarithm of the least window.
pub(crate) const LEAST_WINDOW: u8 = 10;
/// A window is by this many bytes less than its power of two (RFC 7932, section 9.1).
const GAP: u64 = 16;
/// From a megabyte on the library takes tables that are two to four times as large, for one part in a hundred less.
const LONGEST_HINT: u64 = (1 << 20) - 1;
/// This many bytes are flushed at the latest: else the library keeps up to the window's size for its next block, which
/// a response would have to hold when its compressor is put away. Costs two parts in a thousand.
const SPAN: usize = 128 * 1024;
/// Up to this level the library compresses each piece of input by itself.
const LAST_BLOCKWISE: u8 = 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::filters::compress::BodyCoder;
    use crate::filters::compress::testing::pack;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn what_is_packed_and_flushed_unpacks_to_the_same(
            pieces in proptest::collection::vec(proptest::collection::vec(0_u8..4, 0..3000), 0..8),
            level in 0_u8..=11,
            window in 10_u8..=19,
            room in 1_usize..5000,
        ) {
            let whole = pieces.concat();
            for length in [None, Some(whole.len() as u64)] {
                let packed = pack(&mut squeezer(level, window, length), &pieces, room);
                prop_assert_eq!(brotli::decompress(&packed, whole.len()), Some(whole.clone()));
            }
        }
    }

    /// Levels 0 and 1 see a body as a whole, however small the pieces that it comes in.
    #[test]
    fn small_pieces_are_compressed_as_one() {
        let text: Vec<u8> = (0..4000_u32)
            .flat_map(|n| format!("{{\"id\":{},\"kind\":\"entry\"}},", n * n % 7919).into_bytes())
            .collect();
        for level in 0..=1 {
            let lengths = [1000, text.len()].map(|size| {
                let mut coder = squeezer(level, 19, Some(text.len() as u64));
                let mut packed = Vec::new();
                for piece in text.chunks(size) {
                    run_through(&mut coder, piece, DeflateOp::Run, &mut packed);
                }
                run_through(&mut coder, b"", DeflateOp::Finish, &mut packed);
                assert_eq!(brotli::decompress(&packed, text.len()).as_ref(), Some(&text), "level {level}");
                packed.len()
            });
            assert_eq!(lengths[0], lengths[1], "level {level}");
        }
    }

    fn run_through(coder: &mut BrotliCompressor, input: &[u8], op: DeflateOp, packed: &mut Vec<u8>) {
        let (mut at, mut output) = (0, [0; 700]);
        loop {
            let progress = coder.run(&input[at..], &mut output, op).expect("memory");
            packed.extend_from_slice(&output[..progress.given]);
            at += progress.taken;
            if progress.done {
                return;
            }
        }
    }

    /// What comes while a flush has no room to be written is not lost, and no fault.
    #[test]
    fn input_may_follow_a_flush_that_is_under_way() {
        let noise: Vec<u8> = (0..50_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for level in [0, 1, 6, 11] {
            let mut stream = squeezer(level, 19, None);
            let mut output = [0; 100];
            let mut at = 0;
            let mut packed = Vec::new();
            while at < noise.len() {
                let progress = stream.run(&noise[at..], &mut output, DeflateOp::Flush).expect("memory");
                packed.extend_from_slice(&output[..progress.given]);
                at += progress.taken;
            }
            packed.extend(pack(&mut stream, std::slice::from_ref(&noise), 100));
            assert_eq!(brotli::decompress(&packed, 100_000), Some(noise.repeat(2)), "{level}");
        }
    }

    /// After a seam the library writes its first two bytes out by itself, which may need more room than there is.
    #[test]
    fn input_may_follow_the_flush_of_a_seam() {
        let text = b"0123456789".repeat(30);
        for (level, room) in
            [0, 1, 2, 6, 9].into_iter().flat_map(|level| [1, 2, 3, 7].map(|room| (level, room)))
        {
            let (mut packed, mut from, mut output) = (Vec::new(), 0, vec![0; room]);
            for op in [DeflateOp::Flush, DeflateOp::Finish] {
                let settings = BrotliSettings { level, window: 16, hint: 0 };
                let mut stream = BrotliStream::begin(settings, from).expect("memory");
                let mut at = 0;
                loop {
                    // A byte at a time, and the wish after the last one.
                    let end = (at + 1).min(text.len());
                    let now = if end == text.len() { op } else { DeflateOp::Run };
                    let progress = stream.run(&text[at..end], &mut output, now).expect("takes input");
                    packed.extend_from_slice(&output[..progress.given]);
                    at += progress.taken;
                    if now == op && at == text.len() && progress.done {
                        break;
                    }
                }
                from = text.len() as u64;
            }
            assert_eq!(
                brotli::decompress(&packed, 2 * text.len()),
                Some(text.repeat(2)),
                "level {level}, room {room}"
            );
        }
    }
}
