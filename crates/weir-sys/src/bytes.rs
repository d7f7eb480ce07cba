//! Sixteen bytes looked at as one: a bit for each that has a property, the first byte's the lowest.
//!
//! For parsers, which may not use `unsafe` themselves: SSE2 is part of every x86-64 and needs no detection; other
//! machines get the same by words. AVX2 was left out: it can be called only after a check, which can't be inlined,
//! and heads are short.

/// Bytes in a block.
pub const BLOCK: usize = 16;

/// The bytes below 0x20, as bits: bit n for byte n of the block.
#[inline(always)]
pub fn controls(block: &[u8; BLOCK]) -> u16 {
    imp::at_most(block, 0x1f)
}

/// The bytes that end a request target: controls, space and DEL.
#[inline(always)]
pub fn target_ends(block: &[u8; BLOCK]) -> u16 {
    imp::at_most(block, 0x20) | imp::equal(block, 0x7f)
}

/// The bytes from `least` to `most`, both included and below 0x80.
#[inline(always)]
pub fn within(block: &[u8; BLOCK], least: u8, most: u8) -> u16 {
    imp::at_most(block, most) & !imp::at_most(block, least - 1)
}

/// The bytes equal to `byte`.
#[inline(always)]
pub fn equal(block: &[u8; BLOCK], byte: u8) -> u16 {
    imp::equal(block, byte)
}

#[cfg(target_arch = "x86_64")]
mod imp {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_set1_epi8,
    };

    #[inline(always)]
    fn load(block: &[u8; 16]) -> __m128i {
        // SAFETY: SSE2 is part of x86-64; 16 readable bytes, at any address.
        unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
    }

    #[inline(always)]
    pub(super) fn at_most(block: &[u8; 16], most: u8) -> u16 {
        let block = load(block);
        // SAFETY: SSE2 is part of x86-64; no memory is touched.
        unsafe {
            let least = _mm_min_epu8(block, _mm_set1_epi8(most as i8));
            _mm_movemask_epi8(_mm_cmpeq_epi8(least, block)) as u16
        }
    }

    #[inline(always)]
    pub(super) fn equal(block: &[u8; 16], byte: u8) -> u16 {
        // SAFETY: SSE2 is part of x86-64; no memory is touched.
        unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(load(block), _mm_set1_epi8(byte as i8))) as u16 }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod imp {
    pub(super) use super::words::{at_most, equal};
}

/// The same by 64-bit words, and what the tests compare with.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod words {
    /// A word of eight equal bytes.
    const fn all(byte: u8) -> u64 {
        u64::from_ne_bytes([byte; 8])
    }

    /// `most` below 0x80. No carry leaves its byte: the sums are below 0x100.
    pub(super) fn at_most(block: &[u8; 16], most: u8) -> u16 {
        halves(block, |word| !((word & all(0x7f)).wrapping_add(all(0x7f - most)) | word) & all(0x80))
    }

    pub(super) fn equal(block: &[u8; 16], byte: u8) -> u16 {
        halves(block, |word| {
            let other = word ^ all(byte);
            !((other & all(0x7f)).wrapping_add(all(0x7f)) | other) & all(0x80)
        })
    }

    fn halves(block: &[u8; 16], marks: impl Fn(u64) -> u64) -> u16 {
        let block = u128::from_le_bytes(*block);
        gather(marks(block as u64)) | gather(marks((block >> 64) as u64)) << 8
    }

    /// Bit 7 of each byte, side by side.
    fn gather(marks: u64) -> u16 {
        ((marks >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_at_every_place_is_marked_as_by_a_plain_loop() {
        for filler in [0_u8, 0x1f, b' ', b':', b'a', 0x7f, 0x80, 0xff] {
            for (place, byte) in (0..BLOCK).flat_map(|place| (0..=255).map(move |byte| (place, byte))) {
                let mut block = [filler; BLOCK];
                block[place] = byte;
                let marks = |is: fn(u8) -> bool| {
                    block.iter().rev().fold(0_u16, |marks, &byte| marks << 1 | u16::from(is(byte)))
                };
                assert_eq!(controls(&block), marks(|byte| byte < 0x20));
                assert_eq!(target_ends(&block), marks(|byte| byte <= 0x20 || byte == 0x7f));
                assert_eq!(equal(&block, b':'), marks(|byte| byte == b':'));
                assert_eq!(within(&block, b'a', b'z'), marks(|byte| byte.is_ascii_lowercase()));
                assert_eq!(words::at_most(&block, 0x1f), marks(|byte| byte < 0x20));
                assert_eq!(words::equal(&block, b':'), marks(|byte| byte == b':'));
            }
        }
    }
}
