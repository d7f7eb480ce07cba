//! The compressor of brotli, the C library's. It can't be reset: each response has its own.

use weir_sys::brotli::{self, Encoder, Ran, Refused};

use crate::compress::{Coder, Failed, Op, Progress, SCRATCH};

/// Compresses one response.
pub(crate) struct Squeezer {
    /// What [`Encoder::new`] gave; without memory the first call tells so.
    encoder: Result<Encoder, Refused>,
    /// A flush is not yet written out: until then the library takes no input.
    flushing: bool,
    scratch: Vec<u8>,
}

impl Squeezer {
    /// `window` is a logarithm; a body known to be short needs less.
    pub(crate) fn new(level: u8, window: u8, length: Option<u64>) -> Squeezer {
        let mut window = window;
        while window > LEAST_WINDOW && length.is_some_and(|length| length + GAP <= 1 << (window - 1)) {
            window -= 1;
        }
        let hint = length.map_or(0, |length| length.min(u64::from(u32::MAX)) as u32);
        Squeezer { encoder: Encoder::new(level, window, hint), flushing: false, scratch: vec![0; SCRATCH] }
    }
}

impl Coder for Squeezer {
    fn run(&mut self, input: &[u8], output: &mut [u8], op: Op) -> Result<Progress, Failed> {
        let encoder = self.encoder.as_mut().map_err(|_| Failed("BrotliEncoderCreateInstance() failed"))?;
        let mut run = |input: &[u8], output: &mut [u8], op| {
            encoder.run(input, output, op).map_err(|Refused| Failed("BrotliEncoderCompressStream() failed"))
        };
        let mut before = 0;
        if self.flushing {
            let Ran { given, done, .. } = run(b"", output, brotli::Op::Flush)?;
            if !done {
                return Ok(Progress { taken: 0, given, done: false });
            }
            (self.flushing, before) = (false, given);
        }
        let op = match op {
            Op::Run => brotli::Op::Process,
            Op::Flush => brotli::Op::Flush,
            Op::Finish => brotli::Op::Finish,
        };
        let Ran { taken, given, done } = run(input, &mut output[before..], op)?;
        self.flushing = op == brotli::Op::Flush && !done;
        Ok(Progress { taken, given: before + given, done })
    }

    fn scratch(&mut self) -> &mut Vec<u8> {
        &mut self.scratch
    }
}

/// Logarithm of the least window.
pub(crate) const LEAST_WINDOW: u8 = 10;
/// A window is by so many bytes less than its power of two (RFC 7932, section 9.1).
const GAP: u64 = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::compress::testing::pack;

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
                let packed = pack(&mut Squeezer::new(level, window, length), &pieces, room);
                prop_assert_eq!(brotli::decompress(&packed, whole.len()), Some(whole.clone()));
            }
        }
    }

    /// What comes while a flush has no room to be written is not lost, and no fault.
    #[test]
    fn input_may_follow_a_flush_that_is_under_way() {
        let noise: Vec<u8> = (0..50_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for level in [0, 1, 6, 11] {
            let mut squeezer = Squeezer::new(level, 19, None);
            let mut output = [0; 100];
            let mut at = 0;
            let mut packed = Vec::new();
            while at < noise.len() {
                let progress = squeezer.run(&noise[at..], &mut output, Op::Flush).expect("memory");
                packed.extend_from_slice(&output[..progress.given]);
                at += progress.taken;
            }
            assert!(squeezer.flushing, "{level}");
            packed.extend(pack(&mut squeezer, std::slice::from_ref(&noise), 100));
            assert_eq!(brotli::decompress(&packed, 100_000), Some(noise.repeat(2)), "{level}");
        }
    }
}
