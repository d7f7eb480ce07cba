//! The Huffman code of RFC 7541 appendix B, bit by bit. It is canonical: codes follow from their lengths.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::wire::BadMessage;

/// The text that `code` encodes.
///
/// # Errors
/// EOS in the text, or padding that is not up to seven ones.
pub(super) fn decode(code: &[u8]) -> Result<Vec<u8>, BadMessage> {
    let mut text = Vec::new();
    let (mut bits, mut length) = (0_u32, 0_u8);
    for bit in code.iter().flat_map(|byte| (0..8).rev().map(move |at| u32::from(byte >> at & 1))) {
        (bits, length) = (bits << 1 | bit, length + 1);
        match CODES.get(&(length, bits)).copied() {
            Some(EOS) => return Err(BadMessage("EOS in a Huffman text".to_owned())),
            Some(symbol) => {
                text.push(symbol as u8);
                (bits, length) = (0, 0);
            }
            None if length >= 30 => return Err(BadMessage("no Huffman code".to_owned())),
            None => (),
        }
    }
    let is_padding = length < 8 && bits == (1 << length) - 1;
    if is_padding { Ok(text) } else { Err(BadMessage("padding of a Huffman text".to_owned())) }
}

const EOS: usize = 256;

/// Symbols by the lengths of their codes and the codes.
static CODES: LazyLock<BTreeMap<(u8, u32), usize>> = LazyLock::new(|| {
    let (mut codes, mut code) = (BTreeMap::new(), 0_u32);
    for length in 1..=30 {
        code <<= 1;
        for (symbol, _) in LENGTHS.iter().enumerate().filter(|(_, one)| **one == length) {
            codes.insert((length, code), symbol);
            code += 1;
        }
    }
    codes
});

/// Bits of the code of each byte and of EOS.
static LENGTHS: [u8; EOS + 1] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, //
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, //
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, //
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, //
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, //
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, //
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, //
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, //
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, //
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, //
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, //
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, //
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, //
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, //
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, //
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, //
    30,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_the_rfc_are_read() {
        let example = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(decode(&example).expect("good"), b"www.example.com");
        let date = [
            0xd0, 0x7a, 0xbe, 0x94, 0x10, 0x54, 0xd4, 0x44, 0xa8, 0x20, 0x05, 0x95, 0x04, 0x0b, 0x81, 0x66,
            0xe0, 0x82, 0xa6, 0x2d, 0x1b, 0xff,
        ];
        assert_eq!(decode(&date).expect("good"), b"Mon, 21 Oct 2013 20:13:21 GMT");
        assert!(decode(&[0xff]).is_err(), "eight ones are no padding");
        assert!(decode(&[0x00, 0x00]).is_err() && decode(&[0xff; 4]).is_err());
    }
}
