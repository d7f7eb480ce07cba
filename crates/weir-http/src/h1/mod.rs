//! HTTP/1 (RFC 9112): message heads, chunked framing and the writing of heads, on byte slices only.
//!
//! Parsing is stateless: [`RequestHead::parse`] reads a buffer from its start each time, and [`may_be_complete`]
//! says whether that is worth while when more bytes came. Nothing here knows sockets or clocks.
//!
//! What is strict and what is not follows nginx where RFC 9112 leaves a choice: a line may end in LF alone
//! (section 2.2), empty lines before a request line are skipped, extra spaces between the parts of a request line
//! are taken; a bare CR, folded lines, NUL, space before a colon, and any doubt about the length of a body are
//! refused (sections 2.2, 5, 6).

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use crate::header::IgnoredFields;

mod body;
mod encode;
mod error;
mod fields;
mod line;
mod log;
mod request;
mod response;
mod scan;
mod store_turns;
#[cfg(test)]
mod tests;

pub use body::{
    BadChunk, ChunkStrictness, ChunkedDecoder, DecodedChunk, TrailerFields, TrailerLimits, TrailerMisfit,
    chunk_head, last_chunk,
};
pub(crate) use encode::hexadecimal;
pub use encode::{content_length, end, field, known_field, number, status_line, thousandths};
pub use error::BadRequest;
pub use fields::ConnectionTokens;
pub use request::{AbsoluteTarget, KnownFieldSet, RequestHead};
pub use response::{BadResponse, BodyLength, ResponseHead};
pub use store_turns::StoreTurns;

/// Bounds on a head, in bytes and lines; the defaults are nginx's (`large_client_header_buffers 4 8k`,
/// `max_headers 1000`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Longest line in bytes, its end included: 414 above it for the request line, 494 for a field.
    pub max_line: usize,
    /// Longest head in bytes, from the request line to the empty line, both included: 494 above it.
    pub max_head: usize,
    /// Maximum number of field lines: 494 above it. Never more than 65,535.
    pub max_fields: usize,
    /// Fields that `max_fields` does not count.
    pub ignored: IgnoredFields,
}

impl HeadLimits {
    /// These bounds, with all fields counted.
    pub const fn new(max_line: usize, max_head: usize, max_fields: usize) -> HeadLimits {
        HeadLimits { max_line, max_head, max_fields, ignored: IgnoredFields::None }
    }
}

impl Default for HeadLimits {
    fn default() -> HeadLimits {
        HeadLimits::new(8 * 1024, 32 * 1024, 1000)
    }
}

/// How much of a head a buffer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadParse {
    /// The whole head is there.
    Complete,
    /// A head that is good so far; more bytes are needed.
    Incomplete {
        /// The first line is still being read; else the field section.
        in_line: bool,
    },
}

/// Whether parsing `buf` again can bring news, when the bytes before `from` have been parsed and found incomplete.
///
/// Always true below 4 KB, so that errors get their response as soon as they are there, however the bytes were cut, as
/// nginx does. Above it when the new bytes end the first line or may end the head, and when the buffer has doubled
/// (so that limits are met): a head that arrives byte by byte costs a bounded number of long parses.
pub fn may_be_complete(buf: &[u8], from: usize) -> bool {
    /// Below this a parse costs less than the system call that brought the bytes.
    const SHORT: usize = 4096;
    let Some((old, new)) = buf.split_at_checked(from) else { return true };
    if from == 0 || buf.len() <= SHORT || buf.len() >= from.saturating_add(1).next_power_of_two() {
        return true;
    }
    let Some(first) = memchr::memchr(b'\n', new) else { return false };
    let from = (old.len() + first).saturating_sub(2);
    memchr::memchr(b'\n', old).is_none()
        || buf.get(from..).is_some_and(|tail| {
            memchr::memmem::find(tail, b"\n\n").is_some() || memchr::memmem::find(tail, b"\n\r\n").is_some()
        })
}
