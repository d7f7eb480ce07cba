//! The compressor of zstd, the C library's. It has 1.3 MB at level 1 and 3.8 at 6: a worker keeps few at work
//! ([`CoderPlaces`]), and a response that gets another one goes on with another frame.

use std::thread::LocalKey;

use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective as End;
use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

use crate::filters::compress::{
    CoderFailure, CoderPlace, CoderPlaces, CoderSession, DeflateOp, DeflateProgress,
};

/// Compresses one response.
pub(crate) type ZstdCompressor = CoderPlace<ZstdFrame>;

/// A body known to be short needs a smaller window.
pub(crate) fn presser(level: u8, length: Option<u64>) -> ZstdCompressor {
    let mut window = WINDOW;
    while window > LEAST_WINDOW && length.is_some_and(|length| length <= 1 << (window - 1)) {
        window -= 1;
    }
    CoderPlace::new(ZstdSettings { level, window })
}

/// What a context is made with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ZstdSettings {
    level: u8,
    /// A logarithm.
    window: u8,
}

/// A frame of a stream.
pub(crate) struct ZstdFrame {
    settings: ZstdSettings,
    context: CCtx<'static>,
}

impl CoderSession for ZstdFrame {
    type Key = ZstdSettings;
    const PAUSE: DeflateOp = DeflateOp::Finish;

    fn begin(settings: ZstdSettings, _from: u64) -> Result<ZstdFrame, CoderFailure> {
        let mut context = CCtx::try_create().ok_or(CoderFailure("ZSTD_createCCtx() failed"))?;
        for parameter in [
            CParameter::CompressionLevel(i32::from(settings.level)),
            CParameter::WindowLog(u32::from(settings.window)),
        ] {
            context.set_parameter(parameter).expect("levels to 22 and windows from 10 are valid");
        }
        Ok(ZstdFrame { settings, context })
    }

    fn run(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        op: DeflateOp,
    ) -> Result<DeflateProgress, CoderFailure> {
        let end = match op {
            DeflateOp::Run => End::ZSTD_e_continue,
            DeflateOp::Flush => End::ZSTD_e_flush,
            DeflateOp::Finish => End::ZSTD_e_end,
        };
        let mut from = InBuffer::around(input);
        let mut to = OutBuffer::around(output);
        let left = self
            .context
            .compress_stream2(&mut to, &mut from, end)
            .map_err(|_| CoderFailure("ZSTD_compressStream2() failed"))?;
        let taken = from.pos();
        Ok(DeflateProgress { taken, given: to.pos(), done: taken == input.len() && left == 0 })
    }

    fn recycle(mut self) -> Option<(ZstdSettings, ZstdFrame)> {
        let fresh =
            self.context.sizeof() <= MOST_KEPT && self.context.reset(ResetDirective::SessionOnly).is_ok();
        fresh.then_some((self.settings, self))
    }

    fn places() -> &'static LocalKey<CoderPlaces<ZstdFrame>> {
        thread_local! {
            static PLACES: CoderPlaces<ZstdFrame> = const { CoderPlaces::new() };
        }
        &PLACES
    }
}

/// Logarithm of the window: that of level 1. Higher levels would look back up to 128 MB, more than clients must take
/// (8 MB, RFC 9659) and a response may cost.
const WINDOW: u8 = 19;
const LEAST_WINDOW: u8 = 10;
/// Contexts of more bytes, those of high levels, are not reused for other responses.
const MOST_KEPT: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::filters::compress::BodyCoder;
    use crate::filters::compress::testing::pack;

    fn unpack(packed: &[u8]) -> Vec<u8> {
        zstd::stream::decode_all(packed).expect("whole frames")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn what_is_packed_and_flushed_unpacks_to_the_same(
            pieces in proptest::collection::vec(proptest::collection::vec(0_u8..4, 0..3000), 0..8),
            level in 1_u8..=22,
            room in 1_usize..5000,
        ) {
            let whole = pieces.concat();
            for length in [None, Some(whole.len() as u64)] {
                prop_assert_eq!(unpack(&pack(&mut presser(level, length), &pieces, room)), whole.clone());
            }
        }
    }

    #[test]
    fn a_compressor_used_again_is_as_new() {
        let text: Vec<u8> = (0..40_000_u32).flat_map(|n| (n / 7 * 31).to_le_bytes()).collect();
        let mut output = [0; 100];
        for level in [1, 6, 19] {
            let first = pack(&mut presser(level, None), std::slice::from_ref(&text), 4096);
            // One whose client left.
            let mut broken_off = presser(level, None);
            broken_off.run(&text, &mut output, DeflateOp::Flush).expect("memory");
            drop(broken_off);
            assert_eq!(pack(&mut presser(level, None), std::slice::from_ref(&text), 4096), first, "{level}");
            assert_eq!(unpack(&first), text);
        }
    }
}
