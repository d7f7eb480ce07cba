//! Integers and texts as HPACK and QPACK write them (RFC 7541 section 5): after some bits of a byte that say what they are.

use super::huffman;

/// Writes an integer after the bits of `mark`, `prefix` bits of it in the first byte.
#[inline]
pub(crate) fn integer(out: &mut Vec<u8>, mark: u8, prefix: u32, value: u64) {
    let full = (1_u64 << prefix) - 1;
    if value < full {
        return out.push(mark | value as u8);
    }
    out.push(mark | full as u8);
    let mut rest = value - full;
    while rest >= 0x80 {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Writes a text after the bits of `mark`, `prefix` bits of its length in the first byte; by Huffman's code where that is
/// shorter.
pub(crate) fn text(out: &mut Vec<u8>, mark: u8, prefix: u32, text: &[u8]) {
    let coded = huffman::encoded_len(text);
    if coded < text.len() {
        integer(out, mark | 1 << prefix, prefix, coded as u64);
        huffman::encode(text, out);
    } else {
        integer(out, mark, prefix, text.len() as u64);
        out.extend_from_slice(text);
    }
}
