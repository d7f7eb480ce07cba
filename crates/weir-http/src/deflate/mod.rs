//! A compressor of deflate data (RFC 1951) that comes and leaves piece by piece, for responses: little memory, whose
//! bound follows from the settings alone, and speed before the last percent of size.
//!
//! Input is gathered in a buffer of two windows, [`matches`](mod@matches) turns it into literals and matches, and [`block`] writes
//! these, a few thousand at a time, with codes of their own ([`codes`]). Level 1 looks at one earlier place, higher ones
//! at chains of them, and look one byte further before they settle.
#![cfg_attr(not(test), deny(clippy::unwrap_used))]

mod block;
mod codes;
mod matches;
#[cfg(test)]
mod tests;

use block::{BlockOrder, BlockWriter};
use matches::{MatchFinder, ParseStop};

/// What shall be done with the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeflateOp {
    /// More input follows.
    Run,
    /// The receiver must be able to unpack all of it.
    Flush,
    /// The input is complete: the stream ends after it.
    Finish,
}

/// What a call of [`DeflateEncoder::run`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeflateProgress {
    /// Bytes used of the input.
    pub taken: usize,
    /// Bytes of output written.
    pub given: usize,
    /// True when all input was used, and all that [`DeflateOp`] asks for was written.
    pub done: bool,
}

/// How much work and memory compressing may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeflateSettings {
    /// 1, the fastest, to 9, the smallest.
    pub level: u8,
    /// Logarithm of the bytes it looks back: 9 to 15.
    pub window: u8,
    /// 1 to 9, as zlib's `memLevel`: the size of the table of places (2^(memory + 7)) and of a block (2^(memory + 5)
    /// matches).
    pub memory: u8,
}

/// Compresses one stream.
pub struct DeflateEncoder {
    settings: DeflateSettings,
    matcher: MatchFinder,
    writer: BlockWriter,
    /// All input was written, with what a flush adds.
    flushed: bool,
    /// The last block was begun.
    last: bool,
}

impl DeflateEncoder {
    /// For one stream; settings beyond their bounds are moved to them.
    pub fn new(settings: DeflateSettings) -> DeflateEncoder {
        let settings = DeflateSettings {
            level: settings.level.clamp(1, 9),
            window: settings.window.clamp(9, 15),
            memory: settings.memory.clamp(1, 9),
        };
        DeflateEncoder {
            settings,
            matcher: MatchFinder::new(settings),
            writer: BlockWriter::default(),
            flushed: true,
            last: false,
        }
    }

    /// The settings it was made with.
    pub fn settings(&self) -> DeflateSettings {
        self.settings
    }

    /// As new, whatever it was in the middle of.
    pub fn reset(&mut self) {
        self.matcher.reset();
        self.writer.reset();
        (self.flushed, self.last) = (true, false);
    }

    /// Takes what it can of `input`, writes what it has to `output`. After [`DeflateOp::Finish`] nothing is taken any
    /// more.
    pub fn run(&mut self, input: &[u8], output: &mut [u8], op: DeflateOp) -> DeflateProgress {
        let (mut taken, mut given) = (0, 0);
        loop {
            given += self.writer.hand_out(&mut self.matcher, &mut output[given..]);
            if !self.writer.is_idle() {
                return DeflateProgress { taken, given, done: false };
            }
            if self.last {
                return DeflateProgress { taken, given, done: taken == input.len() };
            }
            let count = self.matcher.take(&input[taken..]);
            self.flushed &= count == 0;
            taken += count;
            let rest = taken < input.len();
            match self.matcher.parse(op != DeflateOp::Run && !rest) {
                ParseStop::Full => self.writer.begin(&mut self.matcher, BlockOrder::Inner),
                ParseStop::Starved if rest => {}
                ParseStop::Starved if op == DeflateOp::Finish => {
                    self.last = true;
                    self.writer.begin(&mut self.matcher, BlockOrder::Final);
                }
                ParseStop::Starved if op == DeflateOp::Flush && !self.flushed => {
                    self.flushed = true;
                    self.writer.begin(&mut self.matcher, BlockOrder::Inner);
                    self.writer.sync();
                }
                ParseStop::Starved => return DeflateProgress { taken, given, done: true },
            }
        }
    }
}
