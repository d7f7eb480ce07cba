//! What all of QPACK is made of: integers that share their first byte, and texts (RFC 9204 section 4.1).

use crate::hpack::huffman;

/// Why something could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireFault {
    /// It goes on in bytes that are still to come.
    Short,
    /// An integer of more than 62 bits.
    Integer,
    /// A text that is longer than any that is allowed here.
    Long,
}

/// Reads from the front of some bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireReader<'i> {
    rest: &'i [u8],
}

/// A text as it was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireText<'i> {
    is_coded: bool,
    bytes: &'i [u8],
}

impl<'i> WireReader<'i> {
    pub(super) fn new(rest: &'i [u8]) -> WireReader<'i> {
        WireReader { rest }
    }

    /// What was not read.
    pub(super) fn rest(&self) -> &'i [u8] {
        self.rest
    }

    /// The byte that comes next, which is not taken.
    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// An integer whose first byte has `prefix` bits of it (RFC 7541 section 5.1), of 62 bits at most. Bytes that add nothing
    /// are taken where all have room in them.
    #[inline]
    pub(super) fn integer(&mut self, prefix: u32) -> Result<u64, WireFault> {
        let (&first, after) = self.rest.split_first().ok_or(WireFault::Short)?;
        let full = (1_u64 << prefix) - 1;
        let value = u64::from(first) & full;
        if value == full {
            return self.long_integer(full, after);
        }
        self.rest = after;
        Ok(value)
    }

    /// An integer that is `full` and what follows in `after`.
    fn long_integer(&mut self, full: u64, mut after: &'i [u8]) -> Result<u64, WireFault> {
        let (mut value, mut shift) = (full, 0);
        loop {
            let (&byte, rest) = after.split_first().ok_or(WireFault::Short)?;
            after = rest;
            if shift > LAST_SHIFT {
                return Err(WireFault::Integer);
            }
            value += u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        if value > MOST {
            return Err(WireFault::Integer);
        }
        self.rest = after;
        Ok(value)
    }

    /// A text whose length has `prefix` bits in the first byte, after the bit that says whether it is coded. One that would
    /// be longer than `most` bytes is known by its length alone.
    #[inline]
    pub(super) fn text(&mut self, prefix: u32, most: usize) -> Result<WireText<'i>, WireFault> {
        let is_coded = self.peek().is_some_and(|first| first & (1 << prefix) != 0);
        let mut after = *self;
        let length = usize::try_from(after.integer(prefix)?).unwrap_or(usize::MAX);
        let least = if is_coded { length / LONGEST_CODE } else { length };
        if least > most {
            return Err(WireFault::Long);
        }
        let (bytes, rest) = after.rest.split_at_checked(length).ok_or(WireFault::Short)?;
        self.rest = rest;
        Ok(WireText { is_coded, bytes })
    }
}

impl WireText<'_> {
    /// Appends the text.
    ///
    /// # Errors
    /// It is no Huffman code.
    #[inline]
    pub(super) fn append(self, out: &mut Vec<u8>) -> Result<(), huffman::BadText> {
        if !self.is_coded {
            out.extend_from_slice(self.bytes);
            return Ok(());
        }
        let start = out.len();
        match (huffman::decode(self.bytes, out), self.bytes) {
            // A whole byte of padding is against RFC 7541 section 5.2, nginx takes it in HTTP/3, and clients exist that send it.
            (Err(huffman::BadText), [text @ .., 0xff]) => {
                out.truncate(start);
                huffman::decode(text, out)
            }
            (decoded, _) => decoded,
        }
    }
}

/// The largest integer that QUIC has, and QPACK has to know (RFC 9204 section 4.1.1).
const MOST: u64 = (1 << 62) - 1;
/// Of the last byte that an integer of 62 bits may have after its first.
const LAST_SHIFT: u32 = 56;
/// Bytes of code that a byte of text has at most: 30 bits.
const LONGEST_CODE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::prefixed::{integer, text};

    fn read(bytes: &[u8], prefix: u32) -> Result<u64, WireFault> {
        WireReader::new(bytes).integer(prefix)
    }

    #[test]
    fn integers_have_62_bits_and_no_more() {
        for value in [0, 1, 62, 63, 64, 127, 128, 16_383, 1 << 32, MOST - 1, MOST] {
            for prefix in 3..=8 {
                let mut out = Vec::new();
                integer(&mut out, 0, prefix, value);
                assert_eq!(read(&out, prefix), Ok(value), "{prefix}");
                for cut in 0..out.len() {
                    assert_eq!(read(&out[..cut], prefix), Err(WireFault::Short), "{value} {cut}");
                }
            }
        }
        let mut out = Vec::new();
        integer(&mut out, 0, 6, MOST + 1);
        assert_eq!(read(&out, 6), Err(WireFault::Integer));
        assert_eq!(read(&[&[0x3f][..], &[0xff; 11]].concat(), 6), Err(WireFault::Integer));
        assert_eq!(read(&[&[0x3f][..], &[0x80; 8], &[0]].concat(), 6), Ok(63), "bytes that add nothing");
        assert_eq!(read(&[&[0x3f][..], &[0x80; 9], &[0]].concat(), 6), Err(WireFault::Integer));
    }

    #[test]
    fn texts_may_begin_in_a_byte() {
        for prefix in [3, 5, 7] {
            for given in [&b""[..], b"a", b"www.example.com", b"\x01\x02\xff", &[b'a'; 300]] {
                let mut out = Vec::new();
                text(&mut out, 0, prefix, given);
                for cut in 0..out.len() {
                    let short = WireReader::new(&out[..cut]).text(prefix, 300).map(|_| ());
                    assert_eq!(short, Err(WireFault::Short));
                }
                let (mut back, mut reader) = (Vec::new(), WireReader::new(&out));
                let read = reader.text(prefix, 300).expect("a text");
                assert_eq!(read.append(&mut back), Ok(()));
                assert_eq!((&back[..], reader.rest()), (given, &b""[..]));
            }
        }
        let mut out = Vec::new();
        text(&mut out, 0, 7, b"&");
        assert_eq!(out, b"\x01&", "its code is as long");
        let long = WireReader::new(&[0x7f, 0x80, 0x08]).text(7, 1000).map(|_| ());
        assert_eq!(long, Err(WireFault::Long), "before any of it has come");
    }

    #[test]
    fn a_whole_byte_of_padding_is_taken_and_two_are_not() {
        let text = |bytes: &'static [u8]| {
            let mut out = b"before ".to_vec();
            WireText { is_coded: true, bytes }
                .append(&mut out)
                .map(|()| String::from_utf8_lossy(&out).into_owned())
        };
        let mut coded = Vec::new();
        huffman::encode(b"localhost", &mut coded);
        for padding in [0, 1] {
            let padded: &'static [u8] = [&coded[..], &[0xff; 2][..padding]].concat().leak();
            assert_eq!(text(padded).as_deref(), Ok("before localhost"), "{padding}");
        }
        assert!(text([&coded[..], &[0xff; 2]].concat().leak()).is_err());
    }
}
