//! Header compression for HTTP/3 (RFC 9204).
//!
//! A [`QpackDecoder`] reads whole sections into a [`DecodedSection`](crate::hpack::DecodedSection), as HPACK's does, and the
//! instructions of the peer's encoder stream in whatever pieces they come. A section may need entries of the dynamic table that
//! have not come yet: then it says how many, and the caller asks again when they are there. A [`QpackEncoder`] writes field by
//! field; of its dynamic table it uses only what the peer has acknowledged, so that no section of ours ever waits.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod decode;
mod encode;
mod fixed;
mod instruction;
mod table;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;

pub use decode::{QpackDecoder, SectionProgress};
pub use encode::QpackEncoder;

/// What can be wrong with what a peer sends of QPACK. Each ends the connection: the tables of both sides differ, or are about
/// to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpackError {
    /// A section ends within a field, or within its prefix.
    Truncated,
    /// A number in a section has more than 62 bits.
    Integer,
    /// A section refers to what neither table has, or to what its Required Insert Count leaves out.
    Index,
    /// A text in a section is no Huffman code.
    Huffman,
    /// A Required Insert Count that no encoder could mean.
    InsertCount,
    /// A Base below zero.
    Base,
    /// More streams wait for the table than may.
    BlockedStreams,
    /// The encoder sets a capacity above ours.
    Capacity,
    /// The encoder inserts an entry that is larger than the table.
    Entry,
    /// The encoder refers to what neither table has.
    InsertIndex,
    /// The encoder sends a text that is no Huffman code.
    InsertHuffman,
    /// The encoder sends a number of more than 62 bits.
    InsertInteger,
    /// The decoder acknowledges a section that was not sent, or needs no acknowledgment.
    Acknowledgment,
    /// The decoder has received no entry more, or more than were sent.
    Increment,
    /// The decoder sends a number of more than 62 bits.
    AcknowledgedInteger,
    /// Far more fields, or longer ones, than allowed: reading the section to its end would be useless work.
    TooLarge,
    /// Far more entries were copied than requests have come to use them.
    Copies,
}

impl QpackError {
    /// The code that ends the connection (RFC 9204 section 6, RFC 9114 section 8.1).
    pub const fn code(self) -> u64 {
        match self {
            QpackError::Truncated
            | QpackError::Integer
            | QpackError::Index
            | QpackError::Huffman
            | QpackError::InsertCount
            | QpackError::Base
            | QpackError::BlockedStreams => DECOMPRESSION_FAILED,
            QpackError::Capacity
            | QpackError::Entry
            | QpackError::InsertIndex
            | QpackError::InsertHuffman
            | QpackError::InsertInteger => ENCODER_STREAM_ERROR,
            QpackError::Acknowledgment | QpackError::Increment | QpackError::AcknowledgedInteger => {
                DECODER_STREAM_ERROR
            }
            QpackError::TooLarge | QpackError::Copies => EXCESSIVE_LOAD,
        }
    }

    /// What the log says after "client" or "upstream".
    pub const fn reason(self) -> &'static str {
        match self {
            QpackError::Truncated => "sent truncated header section",
            QpackError::Integer => "sent too large integer in header section",
            QpackError::Index => "sent header section with invalid table index",
            QpackError::Huffman => "sent header section with invalid huffman code",
            QpackError::InsertCount => "sent header section with invalid Required Insert Count",
            QpackError::Base => "sent header section with invalid Base",
            QpackError::BlockedStreams => "sent too many header sections that wait for the dynamic table",
            QpackError::Capacity => "set too large capacity of the dynamic table",
            QpackError::Entry => "inserted too large entry into the dynamic table",
            QpackError::InsertIndex => "sent encoder instruction with invalid table index",
            QpackError::InsertHuffman => "sent encoder instruction with invalid huffman code",
            QpackError::InsertInteger => "sent encoder instruction with too large integer",
            QpackError::Acknowledgment => "acknowledged header section that was not sent",
            QpackError::Increment => "sent invalid Insert Count Increment",
            QpackError::AcknowledgedInteger => "sent decoder instruction with too large integer",
            QpackError::TooLarge => "sent too large header section (header bomb)",
            QpackError::Copies => "sent too many encoder instructions (dynamic table flood)",
        }
    }
}

impl fmt::Display for QpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for QpackError {}

const EXCESSIVE_LOAD: u64 = 0x107;
const DECOMPRESSION_FAILED: u64 = 0x200;
const ENCODER_STREAM_ERROR: u64 = 0x201;
const DECODER_STREAM_ERROR: u64 = 0x202;
/// Bytes that an entry counts beside its text (RFC 9204 section 3.2.1): the smallest entry.
const ENTRY: u64 = 32;
