//! Finding the byte that ends a token, eight bytes at a time in a 64-bit word, sixteen where there are that many.
//!
//! Why not SIMD: its intrinsics cannot be called without `unsafe`, and tokens are short (in a browser's request a
//! name has 11 bytes and a value 35 on average), so that a called `memchr`, which is SIMD, costs more than it saves.

/// Offset of the first `:` at or after `from`, or the length of `buf`.
#[inline(always)]
pub(super) fn colon(buf: &[u8], from: usize) -> usize {
    find(buf, from, |word| equal(word, b':'))
}

/// Offset of the first control byte (below 0x20) at or after `from`, or the length of `buf`.
#[inline(always)]
pub(super) fn control(buf: &[u8], from: usize) -> usize {
    find(buf, from, |word| below(word, 0x20))
}

/// Offset of the first control byte, space or DEL at or after `from`, or the length of `buf`.
#[inline(always)]
pub(super) fn target_end(buf: &[u8], from: usize) -> usize {
    find(buf, from, |word| below(word, 0x21) | equal(word, 0x7f))
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

/// The first byte that `stops` marks. The last word of a buffer overlaps the one before it, so that only buffers
/// under eight bytes need copying.
#[inline(always)]
fn find(buf: &[u8], from: usize, stops: impl Fn(u64) -> u64) -> usize {
    let mut at = from;
    let mut rest = buf.get(from..).unwrap_or_default();
    while let Some((pair, after)) = rest.split_first_chunk::<16>() {
        let pair = u128::from_le_bytes(*pair);
        let (low, high) = (stops(pair as u64), stops((pair >> 64) as u64));
        if low != 0 {
            return at + place(low);
        }
        if high != 0 {
            return at + 8 + place(high);
        }
        rest = after;
        at += 16;
    }
    if let Some((word, after)) = rest.split_first_chunk::<8>() {
        let marks = stops(u64::from_le_bytes(*word));
        if marks != 0 {
            return at + place(marks);
        }
        rest = after;
        at += 8;
    }
    if rest.is_empty() { buf.len() } else { (at + place(stops(last_word(buf, rest)))).min(buf.len()) }
}

/// The byte, 0 to 8, that the lowest mark belongs to; 8 when there is none.
#[inline(always)]
const fn place(marks: u64) -> usize {
    (marks.trailing_zeros() / 8) as usize
}

/// The one to seven bytes of `rest`, the end of `buf`, and zeros above.
#[inline(always)]
fn last_word(buf: &[u8], rest: &[u8]) -> u64 {
    if let Some(word) = buf.last_chunk::<8>() {
        return u64::from_le_bytes(*word) >> (8 * (8 - rest.len()));
    }
    rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Scan = (fn(&[u8], usize) -> usize, fn(u8) -> bool);

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
                    for from in [0, 1, place, place + 1, length] {
                        let plain = (from..length).find(|&at| stop(buf[at])).unwrap_or(length);
                        assert_eq!(scan(&buf, from.min(length)), plain, "{byte} at {place} of {length}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_lowest_mark_is_right_when_a_borrow_spoils_those_above() {
        assert_eq!(control(b"ab\x1f\x20\x20\x20\x20\x20", 0), 2);
        assert_eq!(colon(b"a:;;;;;;", 0), 1);
        assert_eq!(target_end(b"\x7f\x20", 0), 0);
        assert_eq!(target_end(b"\xff\xa0\x80\x7e\x21", 0), 5);
    }
}
