//! Brotli (RFC 7932) by its C library: a streaming [`BrotliEncoder`], and [`decompress`] for data of known size.

use std::ptr::{self, NonNull};

use brotlic_sys as c;

/// What shall be done with the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrotliOperation {
    /// More input follows.
    Process,
    /// A reader of the output must be able to decode all input. Until it is done no other input may come.
    Flush,
    /// The input is complete: the stream ends after it.
    Finish,
}

/// What a call of [`BrotliEncoder::run`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderProgress {
    /// Bytes used of the input.
    pub taken: usize,
    /// Number of bytes written to the output.
    pub given: usize,
    /// True when more output waits to be written.
    pub more: bool,
    /// True when all input was used and nothing waits to be written; with [`BrotliOperation::Finish`]: the stream is
    /// whole.
    pub done: bool,
}

/// The library refused: it lacks memory, or was given input while a flush was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderRefused;

/// A compressor of one stream; it can't be used for another.
pub struct BrotliEncoder(NonNull<c::BrotliEncoderState>);

impl BrotliEncoder {
    /// `quality` is 0 to 11, `window` the logarithm of the window's bytes, 10 to 24; `hint` the bytes to come, 0 if
    /// that is not known. `from` is how many bytes of the stream's content another encoder of the same quality and
    /// window has made, and flushed: this one goes on after it, and refers to nothing before.
    ///
    /// # Errors
    /// [`EncoderRefused`] without memory and for values out of range.
    pub fn new(quality: u8, window: u8, hint: u32, from: u64) -> Result<BrotliEncoder, EncoderRefused> {
        if quality > 11 || !(10..=24).contains(&window) {
            return Err(EncoderRefused);
        }
        // SAFETY: no functions and no handle ask for the library's own allocator.
        let state = unsafe { c::BrotliEncoderCreateInstance(None, None, ptr::null_mut()) };
        let encoder = BrotliEncoder(NonNull::new(state).ok_or(EncoderRefused)?);
        for (parameter, value) in [
            (c::BrotliEncoderParameter_BROTLI_PARAM_QUALITY, u32::from(quality)),
            (c::BrotliEncoderParameter_BROTLI_PARAM_LGWIN, u32::from(window)),
            (c::BrotliEncoderParameter_BROTLI_PARAM_SIZE_HINT, hint),
            (c::BrotliEncoderParameter_BROTLI_PARAM_STREAM_OFFSET, from.min(FARTHEST) as u32),
        ] {
            // SAFETY: the state is live and ours; the call copies a number.
            if unsafe { c::BrotliEncoderSetParameter(encoder.0.as_ptr(), parameter, value) } == 0 {
                return Err(EncoderRefused);
            }
        }
        Ok(encoder)
    }

    /// Takes what it can of `input`, writes what it has to `output`.
    ///
    /// # Errors
    /// [`EncoderRefused`]; the stream can't be continued then.
    pub fn run(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        op: BrotliOperation,
    ) -> Result<EncoderProgress, EncoderRefused> {
        let (mut next_in, mut left) = (input.as_ptr(), input.len());
        let (mut next_out, mut room) = (output.as_mut_ptr(), output.len());
        let operation = match op {
            BrotliOperation::Process => c::BrotliEncoderOperation_BROTLI_OPERATION_PROCESS,
            BrotliOperation::Flush => c::BrotliEncoderOperation_BROTLI_OPERATION_FLUSH,
            BrotliOperation::Finish => c::BrotliEncoderOperation_BROTLI_OPERATION_FINISH,
        };
        let state = self.0.as_ptr();
        // SAFETY: the state is live and ours alone; pointers and lengths describe two live slices, of which the library
        // reads one, writes the other and keeps neither; it may be given no place for its total.
        let fine = unsafe {
            c::BrotliEncoderCompressStream(
                state,
                operation,
                &mut left,
                &mut next_in,
                &mut room,
                &mut next_out,
                ptr::null_mut(),
            )
        };
        if fine == 0 {
            return Err(EncoderRefused);
        }
        // SAFETY: the state is live; the call reads it.
        let more = unsafe { c::BrotliEncoderHasMoreOutput(state) != 0 };
        let done = match op {
            // SAFETY: the state is live, and the call only reads it.
            BrotliOperation::Finish => unsafe { c::BrotliEncoderIsFinished(state) != 0 },
            _ => left == 0 && !more,
        };
        Ok(EncoderProgress { taken: input.len() - left, given: output.len() - room, more, done })
    }
}

impl Drop for BrotliEncoder {
    fn drop(&mut self) {
        // SAFETY: it was made by the library, and is freed once.
        unsafe { c::BrotliEncoderDestroyInstance(self.0.as_ptr()) }
    }
}

/// The content of a whole brotli stream; `None` if it is broken, goes on or has more than `most` bytes.
#[must_use]
pub fn decompress(packed: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; most];
    let mut len = most;
    // SAFETY: both pointers go with the length of their live slice; the library writes `len` bytes at most and sets it to
    // those it wrote.
    let result =
        unsafe { c::BrotliDecoderDecompress(packed.len(), packed.as_ptr(), &mut len, out.as_mut_ptr()) };
    out.truncate(len);
    (result == c::BrotliDecoderResult_BROTLI_DECODER_RESULT_SUCCESS).then_some(out)
}

/// The greatest offset that the library takes; beyond the window all are alike.
const FARTHEST: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_packed_unpacks_to_the_same(
            text in proptest::collection::vec(0_u8..4, 0..9000),
            quality in 0_u8..=11,
            window in 10_u8..=24,
            room in 1_usize..5000,
        ) {
            let mut encoder = BrotliEncoder::new(quality, window, 0, 0).expect("in range");
            let (mut at, mut packed, mut output) = (0, Vec::new(), vec![0; room]);
            loop {
                let ran = encoder.run(&text[at..], &mut output, BrotliOperation::Finish).expect("memory");
                packed.extend_from_slice(&output[..ran.given]);
                at += ran.taken;
                if ran.done {
                    break;
                }
            }
            prop_assert_eq!(decompress(&packed, text.len()), Some(text.clone()));
            prop_assert_eq!(decompress(&packed[..packed.len() - 1], text.len()), None);
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(text) = decompress(&bytes, 1000) {
                prop_assert!(text.len() <= 1000);
            }
        }
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        for (quality, window) in [(12, 19), (6, 9), (6, 25)] {
            assert!(BrotliEncoder::new(quality, window, 0, 0).is_err(), "{quality} {window}");
        }
        assert_eq!(decompress(b"not brotli, surely", 100), None);
    }
}
