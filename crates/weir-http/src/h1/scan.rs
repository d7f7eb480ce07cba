//! Finding the bytes that end tokens and lines: sixteen at a time by [`weir_sys::bytes`], the rest of a buffer as a
//! block padded with zeros.

use weir_sys::bytes;

use crate::block::{BLOCK, below, load};
use crate::header::NameWords;

/// Offset of the first `:`, or the length of `text`.
#[inline(always)]
pub(super) fn colon(text: &[u8]) -> usize {
    first(text, |block| bytes::equal(block, b':'))
}

/// Offset of the first control byte (below 0x20), or the length of `text`.
#[inline(always)]
pub(super) fn control(text: &[u8]) -> usize {
    first(text, bytes::controls)
}

/// Offset of the first control byte, space or DEL, or the length of `text`.
#[inline(always)]
pub(super) fn target_end(text: &[u8]) -> usize {
    first(text, bytes::target_ends)
}

/// The name in the first 16 bytes when a `:` ends it there: its length, and its bytes as two words padded with zeros.
#[inline(always)]
pub(super) fn short_name(block: &[u8; BLOCK]) -> Option<(usize, NameWords)> {
    let marks = bytes::equal(block, b':');
    let length = marks.trailing_zeros() as usize;
    let mask = NAMES.get(length)?;
    let words = NameWords::of(u128::from_le_bytes(*block));
    Some((length, NameWords { first: words.first & mask.first, last: words.last & mask.last }))
}

/// The bits of a name of each length below 16.
#[expect(clippy::indexing_slicing, reason = "at compile time")]
static NAMES: [NameWords; BLOCK] = {
    let (mut masks, mut length) = ([NameWords::of(0); BLOCK], 0);
    while length < BLOCK {
        masks[length] = NameWords::of((1_u128 << (8 * length)) - 1);
        length += 1;
    }
    masks
};

/// Where the control bytes of a buffer are, asked for in order. Lines end at one: so where a line ends is known
/// without waiting for what is in it, and the processor reads several lines at once.
pub(super) struct ControlBytes<'b> {
    /// The whole buffer.
    buf: &'b [u8],
    /// Where the block of `marks` begins.
    base: usize,
    /// One bit for each control byte among the 64 from `base` on.
    marks: u64,
}

impl<'b> ControlBytes<'b> {
    /// The first question is about `at` or a later place.
    #[inline(always)]
    pub(super) fn new(buf: &'b [u8], at: usize) -> ControlBytes<'b> {
        ControlBytes { buf, base: at, marks: marks(buf.get(at..).unwrap_or_default()) }
    }

    /// The first control byte at `at` or later, the length of the buffer without one. `at` must not be before
    /// that of an earlier call.
    #[inline(always)]
    pub(super) fn find(&mut self, at: usize) -> usize {
        let mut passed = at.saturating_sub(self.base);
        loop {
            if passed < 64 {
                let ahead = self.marks >> passed << passed;
                if ahead != 0 {
                    return self.base + ahead.trailing_zeros() as usize;
                }
            }
            let Some(rest) = self.buf.get(self.base + 64..).filter(|rest| !rest.is_empty()) else {
                return self.buf.len();
            };
            self.base += 64;
            self.marks = marks(rest);
            passed = at.saturating_sub(self.base);
        }
    }
}

/// A bit for each control byte among the first 64.
#[inline(always)]
fn marks(text: &[u8]) -> u64 {
    match text.first_chunk::<64>() {
        Some(chunk) => {
            let (blocks, _) = chunk.as_chunks::<BLOCK>();
            blocks.iter().rev().fold(0, |marks, block| marks << 16 | u64::from(bytes::controls(block)))
        }
        None => last_marks(text),
    }
}

/// As [`marks`], for fewer than 64 bytes.
fn last_marks(text: &[u8]) -> u64 {
    let (blocks, rest) = text.as_chunks::<BLOCK>();
    let whole =
        blocks.iter().rev().fold(0, |marks, block| marks << BLOCK | u64::from(bytes::controls(block)));
    let done = BLOCK * blocks.len();
    let last = match text.last_chunk::<BLOCK>() {
        // Of a block that overlaps the one before it only the bytes that are new.
        Some(block) => u32::from(bytes::controls(block)) >> (BLOCK - rest.len()),
        // The zeros after it are control bytes, but no part of the text.
        None => u32::from(bytes::controls(&load(rest))) & below(rest.len()),
    };
    // 48 bytes done leave at most 15: the shift is below 64.
    whole | u64::from(last) << done
}

/// Whether nginx passes a field name with `byte` in it without further settings.
pub(super) const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// The first byte that `marks` marks, or the length of `text`.
#[inline(always)]
fn first(text: &[u8], marks: impl Fn(&[u8; BLOCK]) -> u16) -> usize {
    let (blocks, rest) = text.as_chunks::<BLOCK>();
    for (number, block) in blocks.iter().enumerate() {
        let found = marks(block);
        if found != 0 {
            return BLOCK * number + found.trailing_zeros() as usize;
        }
    }
    let last = u32::from(marks(&load(rest))) | !below(rest.len());
    text.len() - rest.len() + last.trailing_zeros() as usize
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
    fn controls_are_found_in_order_wherever_the_question_begins() {
        for length in (0..=66).chain([127, 128, 129, 200]) {
            for place in 0..length {
                let mut buf = vec![b'a'; length];
                buf[place] = b'\n';
                if place + 70 < length {
                    buf[place + 70] = 0x1f;
                }
                for begin in [0, 1, 17, place.saturating_sub(1), place, length / 2].map(|b| b.min(length)) {
                    let mut controls = ControlBytes::new(&buf, begin);
                    for at in begin..=length {
                        let plain =
                            at + buf[at..].iter().position(|&byte| byte < 0x20).unwrap_or(length - at);
                        assert_eq!(controls.find(at), plain, "{at} of {length}, from {begin}, {place}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_short_name_is_what_stands_before_the_colon() {
        for length in 0..BLOCK {
            let block: [u8; BLOCK] =
                std::array::from_fn(|at| if at == length { b':' } else { b'a' + at as u8 });
            let (found, NameWords { first, last }) = short_name(&block).expect("a colon is there");
            let mut name = block;
            name[length..].fill(0);
            assert_eq!(
                (found, u128::from(last) << 64 | u128::from(first)),
                (length, u128::from_le_bytes(name))
            );
        }
        assert_eq!(short_name(b"abcdefghijklmnop"), None);
    }
}
