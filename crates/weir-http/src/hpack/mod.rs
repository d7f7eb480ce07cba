//! Header compression for HTTP/2 (RFC 7541).
//!
//! An [`HpackDecoder`] reads whole blocks into a [`DecodedSection`]: one text, spans of it, and of every field what its name is,
//! computed when the name came first and stored in the table beside it. An [`HpackEncoder`] writes field by field after
//! whatever its caller's buffer has. Neither keeps a block: their state is the two dynamic tables.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod decode;
pub(crate) mod encode;
pub(crate) mod huffman;
pub(crate) mod name;
pub(crate) mod prefixed;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use std::fmt;

pub use crate::coder::FieldIndexing;
pub use decode::{DecodedSection, HpackDecoder, SectionField, SectionLimits};
pub use encode::HpackEncoder;
pub use name::{FieldName, NameKind};

/// Why a header block can't be read. Each ends the connection, with COMPRESSION_ERROR (RFC 9113 section 4.3) but for the
/// last: from there on the tables of both sides would differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HpackError {
    /// The block ends within a field.
    Truncated,
    /// A number is larger than any that can be meant.
    Integer,
    /// An index that neither table has.
    Index,
    /// A text that is no Huffman code.
    Huffman,
    /// A table size above ours, or after a field.
    TableSize,
    /// Far more fields, or longer ones, than allowed: reading it to its end would be useless work.
    TooLarge,
}

impl fmt::Display for HpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HpackError::Truncated => "truncated header block",
            HpackError::Integer => "too large integer in header block",
            HpackError::Index => "invalid table index in header block",
            HpackError::Huffman => "invalid huffman code in header block",
            HpackError::TableSize => "invalid table size update",
            HpackError::TooLarge => "too large header block",
        })
    }
}

impl std::error::Error for HpackError {}

/// Bytes of a dynamic table where nothing else was agreed (RFC 9113 section 6.5.2).
pub const DEFAULT_TABLE: usize = 4096;
