//! The heads of responses as header blocks of HTTP/2.
//!
//! A response like one before it on the same connection has the same block, as long as no field has entered the peer's table
//! and the second has not passed: blocks are cached and copied ([`SentBlocks`]), a tenth of the instructions of writing
//! one.

use weir_http::hpack::HpackEncoder;

use crate::exchange::Exchange;
use crate::transport::heads;
use crate::transport::section::compose;

/// The blocks that a connection has sent last.
#[derive(Default)]
pub(super) struct SentBlocks([SentBlock; BLOCKS]);

/// A block, and what it holds for.
#[derive(Default)]
struct SentBlock {
    /// What [`heads::number`] says of its head; 0: no number.
    number: u32,
    /// See [`HpackEncoder::changes`](weir_http::hpack::HpackEncoder::changes).
    changes: u32,
    /// The second of its date, in seconds since 1970.
    second: u64,
    len: u8,
    bytes: [u8; BLOCK],
}

impl SentBlock {
    fn is(&self, number: u32, changes: u32, second: u64) -> bool {
        (self.number, self.changes, self.second) == (number, changes, second)
    }
}

impl SentBlocks {
    /// Whether the head of this number is in it, with the date of now and for `coder` as it is.
    #[inline]
    pub(super) fn has(&self, number: u32, coder: &HpackEncoder) -> bool {
        let (second, _) = weir_rt::unix_time();
        self.0[number as usize % BLOCKS].is(number, coder.changes(), second)
    }
}

/// Writes the head of `x.response`, as it is in `blocks` if it is there.
pub(super) fn head(x: &Exchange, blocks: &mut SentBlocks, coder: &mut HpackEncoder, out: &mut Vec<u8>) {
    let number = heads::number(x);
    if number == 0 {
        return compose(x, coder, out);
    }
    let (second, _) = weir_rt::unix_time();
    let block = &mut blocks.0[number as usize % BLOCKS];
    let changes = coder.changes();
    if block.is(number, changes, second) {
        return out.extend_from_slice(&block.bytes[..usize::from(block.len)]);
    }
    let start = out.len();
    compose(x, coder, out);
    let composed = &out[start..];
    if coder.changes() == changes && composed.len() <= BLOCK {
        (block.number, block.changes, block.second) = (number, changes, second);
        block.len = composed.len() as u8;
        block.bytes[..composed.len()].copy_from_slice(composed);
    }
}

/// Blocks cached by a connection, 56 bytes each.
const BLOCKS: usize = 4;
/// Usual ones have ten to twenty bytes.
const BLOCK: usize = 32;
