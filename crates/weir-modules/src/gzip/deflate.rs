//! The compressor of gzip: zlib-rs, which makes what zlib-ng makes.

use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Status};

use crate::compress::{Coder, Failed, Lent, Op, Progress, Reused, SCRATCH, Shelf};

/// Compresses one response.
pub(crate) struct Deflater(Lent<State>);

impl Deflater {
    /// `window` and `memory` are zlib's `windowBits` and `memLevel`; a body known to be short needs less of both.
    pub(crate) fn new(level: u8, window: u8, memory: u8, length: Option<u64>) -> Deflater {
        let (mut window, mut memory) = (window, memory);
        while window > 9 && length.is_some_and(|length| length + LOOKAHEAD < 1 << (window - 1)) {
            window -= 1;
            memory = memory.saturating_sub(1).max(1);
        }
        Deflater(Lent::take(Settings { level, window, memory }))
    }
}

impl Coder for Deflater {
    fn run(&mut self, input: &[u8], output: &mut [u8], op: Op) -> Result<Progress, Failed> {
        let deflate = &mut self.0.deflate;
        let flush = match op {
            Op::Run => DeflateFlush::NoFlush,
            Op::Flush => DeflateFlush::SyncFlush,
            Op::Finish => DeflateFlush::Finish,
        };
        let before = (deflate.total_in(), deflate.total_out());
        let status = deflate.compress(input, output, flush).map_err(|_| Failed("deflate() failed"))?;
        let taken = (deflate.total_in() - before.0) as usize;
        let given = (deflate.total_out() - before.1) as usize;
        let done = match op {
            Op::Finish => status == Status::StreamEnd,
            _ => taken == input.len() && given < output.len(),
        };
        self.0.ended |= status == Status::StreamEnd;
        Ok(Progress { taken, given, done })
    }

    fn scratch(&mut self) -> &mut Vec<u8> {
        &mut self.0.scratch
    }
}

/// zlib's settings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    level: u8,
    window: u8,
    memory: u8,
}

struct State {
    settings: Settings,
    deflate: Deflate,
    /// Its last stream is whole. In the middle of one `Deflate::reset` leaves a block of level 1 open, and the next stream
    /// would be broken (zlib-rs 0.6.8).
    ended: bool,
    scratch: Vec<u8>,
}

impl Reused for State {
    type Key = Settings;

    fn new(settings: Settings) -> State {
        let config = DeflateConfig {
            window_bits: i32::from(settings.window) + GZIP,
            mem_level: i32::from(settings.memory),
            ..DeflateConfig::new(i32::from(settings.level))
        };
        State { settings, ended: false, deflate: Deflate::new_with_config(config), scratch: vec![0; SCRATCH] }
    }

    fn key(&self) -> Settings {
        self.settings
    }

    fn is_reusable(&self) -> bool {
        self.ended
    }

    fn reset(&mut self) {
        self.deflate.reset();
        self.ended = false;
    }

    fn shelf() -> &'static std::thread::LocalKey<Shelf<State>> {
        thread_local! {
            static FREE: Shelf<State> = const { Shelf::new(Vec::new()) };
        }
        &FREE
    }
}

/// Added to the window's bits, it asks for a gzip header and trailer.
const GZIP: i32 = 16;
/// What deflate looks ahead, which lies in the window too.
const LOOKAHEAD: u64 = 262;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zlib_rs::{InflateConfig, ReturnCode, decompress_slice};

    use super::*;
    use crate::compress::testing::pack;

    fn unpack(packed: &[u8]) -> Vec<u8> {
        let mut out = vec![0; 1 << 20];
        let (unpacked, code) = decompress_slice(&mut out, packed, InflateConfig { window_bits: 15 + GZIP });
        assert_eq!(code, ReturnCode::Ok);
        unpacked.to_vec()
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
                let mut deflater = Deflater::new(level, 14, 6, length);
                prop_assert_eq!(unpack(&pack(&mut deflater, &pieces, room)), whole.clone());
            }
        }
    }

    #[test]
    fn one_that_was_not_ended_is_not_used_again() {
        let noise: Vec<u8> = (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut output = vec![0; SCRATCH];
        for level in [1, 6] {
            let mut broken_off = Deflater::new(level, 14, 6, None);
            for _ in 0..3 {
                broken_off.run(&noise, &mut output, Op::Run).expect("valid settings");
            }
            drop(broken_off);
            assert_eq!(
                unpack(&pack(&mut Deflater::new(level, 14, 6, None), std::slice::from_ref(&noise), 4096)),
                noise
            );
        }
    }

    #[test]
    fn a_compressor_used_again_is_as_new() {
        let text: Vec<u8> = (0..40_000_u32).flat_map(|n| (n / 7 * 31).to_le_bytes()).collect();
        let first = pack(&mut Deflater::new(6, 14, 6, None), std::slice::from_ref(&text), 4096);
        pack(&mut Deflater::new(6, 14, 6, None), &[b"other".to_vec(), text[5..900].to_vec()], 100);
        drop(Deflater::new(6, 14, 6, None));
        assert_eq!(pack(&mut Deflater::new(6, 14, 6, None), std::slice::from_ref(&text), 4096), first);
    }
}
