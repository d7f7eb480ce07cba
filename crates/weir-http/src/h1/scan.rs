//! Finding the byte that ends a token: sixteen bytes at a time as the compiler vectorises them, then eight at a time
//! in a 64-bit word.
//!
//! Why no intrinsics: they cannot be called without `unsafe`, and tokens are short (in a browser's request a name has
//! 12 bytes and a value 32 on average), so that a called `memchr` costs more than it saves.

/// Offset of the first `:`, or the length of `text`.
#[inline(always)]
pub(super) fn colon(text: &[u8]) -> usize {
    blocks(text, |word| equal(word, b':'), |byte| byte == b':')
}

/// The name in the first 16 bytes when a `:` ends it there: its length, and its bytes as two words padded with zeros.
#[inline(always)]
pub(super) fn short_name(block: &[u8; 16]) -> Option<(usize, (u64, u64))> {
    let block = u128::from_le_bytes(*block);
    let (first, last) = (block as u64, (block >> 64) as u64);
    let (in_first, in_last) = (equal(first, b':'), equal(last, b':'));
    if in_first != 0 {
        return Some((place(in_first), (first & before(in_first), 0)));
    }
    if in_last != 0 {
        return Some((8 + place(in_last), (first, last & before(in_last))));
    }
    None
}

/// Offset of the first control byte (below 0x20), or the length of `text`.
#[inline(always)]
pub(super) fn control(text: &[u8]) -> usize {
    blocks(text, |word| below(word, 0x20), |byte| byte < 0x20)
}

/// Offset of the first control byte, space or DEL, or the length of `text`.
#[inline(always)]
pub(super) fn target_end(text: &[u8]) -> usize {
    blocks(text, |word| below(word, 0x21) | equal(word, 0x7f), |byte| byte <= 0x20 || byte == 0x7f)
}

/// Whether nginx passes a field name with `byte` in it without further settings.
pub(super) const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// A word of eight equal bytes.
const fn all(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Bit 7 of each byte below `limit` (at most 0x80). The borrow of a hit may mark bytes above it wrongly, so only
/// the lowest mark counts.
#[inline(always)]
const fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(all(limit)) & !word & all(0x80)
}

/// Bit 7 of each byte equal to `byte`, with the same reserve.
#[inline(always)]
const fn equal(word: u64, byte: u8) -> u64 {
    below(word ^ all(byte), 1)
}

/// The first byte that `stops` marks.
#[inline(always)]
fn blocks(text: &[u8], stops: impl Fn(u64) -> u64, stop: impl Fn(u8) -> bool) -> usize {
    let mut rest = text;
    while let Some((block, after)) = rest.split_first_chunk::<16>() {
        // A fold without branches becomes a comparison of all 16 bytes at once.
        if block.iter().fold(0, |any, &byte| any | if stop(byte) { 0xff_u8 } else { 0 }) != 0 {
            let block = u128::from_le_bytes(*block);
            let marks = u128::from(stops(block as u64)) | u128::from(stops((block >> 64) as u64)) << 64;
            return text.len() - rest.len() + (marks.trailing_zeros() / 8) as usize;
        }
        rest = after;
    }
    text.len() - rest.len() + words(rest, stops, stop)
}

/// The first byte that `stops` marks in a word and `stop` holds for among the last seven.
#[inline(always)]
fn words(text: &[u8], stops: impl Fn(u64) -> u64, stop: impl Fn(u8) -> bool) -> usize {
    let mut rest = text;
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        let marks = stops(u64::from_le_bytes(*word));
        if marks != 0 {
            return text.len() - rest.len() + place(marks);
        }
        rest = after;
    }
    let last = rest.iter().position(|&byte| stop(byte)).unwrap_or(rest.len());
    text.len() - rest.len() + last
}

/// All bits of the bytes below the one that the lowest mark belongs to.
#[inline(always)]
const fn before(marks: u64) -> u64 {
    ((marks & marks.wrapping_neg()) >> 7).wrapping_sub(1)
}

/// The byte that the lowest mark belongs to.
#[inline(always)]
const fn place(marks: u64) -> usize {
    (marks.trailing_zeros() / 8) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    type Scan = (fn(&[u8]) -> usize, fn(u8) -> bool);

    #[test]
    fn every_byte_at_every_place_is_judged_as_by_the_plain_loop() {
        let scans: [Scan; 3] = [
            (colon, |byte| byte == b':'),
            (control, |byte| byte < 0x20),
            (target_end, |byte| byte <= 0x20 || byte == 0x7f),
        ];
        for (scan, stop) in scans {
            for length in [0_usize, 1, 7, 8, 9, 15, 16, 17, 24, 31, 33] {
                for (place, byte) in (0..length).flat_map(|place| (0..=255).map(move |byte| (place, byte))) {
                    let mut buf = vec![b'a'; length];
                    buf[place] = byte;
                    let plain = buf.iter().position(|&byte| stop(byte)).unwrap_or(length);
                    assert_eq!(scan(&buf), plain, "{byte} at {place} of {length}");
                }
            }
        }
    }

    #[test]
    fn the_lowest_mark_is_right_when_a_borrow_spoils_those_above() {
        assert_eq!(control(b"ab\x1f\x20\x20\x20\x20\x20"), 2);
        assert_eq!(colon(b"a:;;;;;;"), 1);
        assert_eq!(target_end(b"\x7f\x20\x20\x20\x20\x20\x20\x20"), 0);
        assert_eq!(target_end(b"\xff\xa0\x80\x7e\x21\x21\x21\x21"), 8);
    }
}
