//! Up to sixteen bytes as one block, so that short texts are looked at without a loop.

/// Bytes in a block.
pub(crate) const BLOCK: usize = 16;

/// `text` padded with zeros, or its first 16 bytes.
///
/// Two loads that overlap in the middle, where they agree: a copy of a length not known is a call.
#[inline(always)]
pub(crate) fn load(text: &[u8]) -> [u8; BLOCK] {
    if let Some(block) = text.first_chunk::<BLOCK>() {
        return *block;
    }
    let length = text.len();
    let words = match (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        (Some(first), Some(last)) => {
            let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
            // 8 to 15 bytes: of the last word those after the first one.
            let after = if length == 8 { 0 } else { last >> (8 * (16 - length)) };
            u128::from(after) << 64 | u128::from(first)
        }
        _ => u128::from(word(text)),
    };
    words.to_le_bytes()
}

/// Fewer than 8 bytes as a word.
#[inline(always)]
fn word(text: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return u64::from(first) | u64::from(last) << (8 * (text.len() - 4));
    }
    match *text {
        [a, b, c] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
        [a, b] => u64::from(a) | u64::from(b) << 8,
        [a] => u64::from(a),
        _ => 0,
    }
}

/// A bit for each of the first `length` bytes of a block.
#[inline(always)]
pub(crate) const fn below(length: usize) -> u32 {
    (1_u32 << if length > BLOCK { BLOCK } else { length }) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_are_padded_and_long_ones_cut() {
        let text: Vec<u8> = (1..=20).collect();
        for length in 0..=text.len() {
            let mut plain = [0; BLOCK];
            plain[..length.min(BLOCK)].copy_from_slice(&text[..length.min(BLOCK)]);
            assert_eq!(load(&text[..length]), plain, "{length}");
            assert_eq!(below(length).count_ones() as usize, length.min(BLOCK));
        }
    }
}
