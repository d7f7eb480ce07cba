//! The Huffman code of RFC 7541 section 5.2 and appendix B.
//!
//! The code is canonical: codes follow from the lengths alone, which is all that is written down here. Decoding looks
//! eight bits up at a time, which ends nearly every symbol of a header; longer codes are found by their length.

/// The text is not one that the code can give: padding of eight bits or more, padding that is not ones, or the symbol
/// that ends nothing (RFC 7541 section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadText;

/// Appends the text that `code` encodes.
///
/// # Errors
/// [`BadText`]; what was decoded before stays appended.
pub(crate) fn decode(code: &[u8], out: &mut Vec<u8>) -> Result<(), BadText> {
    // The shortest code has five bits. A slice that is there needs no look at its capacity for each byte.
    let start = out.len();
    out.resize(start + code.len() * 8 / 5, 0);
    let mut room = out.get_mut(start..).unwrap_or_default().iter_mut();
    let decoded = symbols(code, &mut room);
    let left = room.len();
    out.truncate(out.len() - left);
    decoded
}

fn symbols(code: &[u8], room: &mut std::slice::IterMut<'_, u8>) -> Result<(), BadText> {
    let mut rest = code;
    let (mut bits, mut have) = (0_u64, 0_u32);
    loop {
        if have <= 32 {
            refill(&mut rest, &mut bits, &mut have);
        }
        let mut short = lookup(bits);
        // This many bits have four short codes.
        if have >= 32 {
            for _ in 0..4 {
                if short.length == 0 {
                    break;
                }
                put(room, short.symbol)?;
                bits <<= short.length;
                have -= u32::from(short.length);
                short = lookup(bits);
            }
            if short.length != 0 {
                continue;
            }
        }
        if short.length != 0 && u32::from(short.length) <= have {
            put(room, short.symbol)?;
            bits <<= short.length;
            have -= u32::from(short.length);
            continue;
        }
        if have < 8 && rest.is_empty() {
            // The rest is padding: ones, as the longest code begins.
            let padding = if have == 0 { 0 } else { bits >> (64 - have) };
            return if padding == (1 << have) - 1 { Ok(()) } else { Err(BadText) };
        }
        if have <= 32 {
            refill(&mut rest, &mut bits, &mut have);
        }
        let (symbol, length) = long(bits, have).ok_or(BadText)?;
        put(room, symbol)?;
        bits <<= length;
        have -= length;
    }
}

#[inline(always)]
fn lookup(bits: u64) -> ShortCode {
    SHORT.get((bits >> 56) as usize).copied().unwrap_or(ShortCode::NONE)
}

/// There is room for as many symbols as the shortest code gives.
#[inline(always)]
fn put(room: &mut std::slice::IterMut<'_, u8>, symbol: u8) -> Result<(), BadText> {
    *room.next().ok_or(BadText)? = symbol;
    Ok(())
}

/// Puts up to four bytes after the `have` bits that are there; `have` is 32 at most.
#[inline(always)]
fn refill(rest: &mut &[u8], bits: &mut u64, have: &mut u32) {
    if let Some((word, after)) = rest.split_first_chunk::<4>() {
        *bits |= u64::from(u32::from_be_bytes(*word)) << (32 - *have);
        (*have, *rest) = (*have + 32, after);
        return;
    }
    while let Some((byte, after)) = rest.split_first() {
        *bits |= u64::from(*byte) << (56 - *have);
        (*have, *rest) = (*have + 8, after);
    }
}

/// The symbol whose code of more than eight bits is first in `bits`, of which `have` are there.
#[cold]
fn long(bits: u64, have: u32) -> Option<(u8, u32)> {
    for length in 10..=LONGEST.min(have) {
        let code = (bits >> (64 - length)) as u32;
        let group = GROUPS.get(length as usize)?;
        let at = code.checked_sub(group.first).unwrap_or(u32::MAX);
        if at < group.count {
            // The one symbol that is no byte is EOS.
            let symbol = *ORDER.get((group.start + at) as usize)?;
            return u8::try_from(symbol).ok().map(|symbol| (symbol, length));
        }
    }
    None
}

/// Bytes that `text` takes when encoded.
#[inline]
pub(crate) fn encoded_len(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|byte| usize::from(length(*byte))).sum();
    bits.div_ceil(8)
}

/// Appends the code of `text`, padded with ones.
pub(crate) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut have) = (0_u64, 0_u32);
    for byte in text {
        let (code, length) = CODES.get(usize::from(*byte)).copied().unwrap_or_default();
        bits = bits << length | u64::from(code);
        have += u32::from(length);
        if have >= 32 {
            have -= 32;
            out.extend_from_slice(&((bits >> have) as u32).to_be_bytes());
        }
    }
    let padding = (8 - have % 8) % 8;
    bits = bits << padding | ((1 << padding) - 1);
    have += padding;
    while have > 0 {
        have -= 8;
        out.push((bits >> have) as u8);
    }
}

#[inline]
fn length(byte: u8) -> u8 {
    LENGTHS.get(usize::from(byte)).copied().unwrap_or_default()
}

/// A symbol whose code is at most eight bits long.
#[derive(Clone, Copy)]
struct ShortCode {
    symbol: u8,
    /// 0: these eight bits begin a longer code.
    length: u8,
}

impl ShortCode {
    const NONE: ShortCode = ShortCode { symbol: 0, length: 0 };
}

/// Codes of one length: consecutive numbers, given to the symbols in order.
#[derive(Clone, Copy)]
struct CodeGroup {
    first: u32,
    count: u32,
    /// Where their symbols are in [`ORDER`].
    start: u32,
}

/// Bits of the longest code.
const LONGEST: u32 = 30;
/// Bytes and EOS.
const SYMBOLS: usize = 257;

static GROUPS: [CodeGroup; LONGEST as usize + 1] = groups();
static ORDER: [u16; SYMBOLS] = order();
static CODES: [(u32, u8); 256] = codes();
static SHORT: [ShortCode; 256] = short();

#[allow(clippy::indexing_slicing, reason = "at compile time")]
const fn groups() -> [CodeGroup; LONGEST as usize + 1] {
    let mut groups = [CodeGroup { first: 0, count: 0, start: 0 }; LONGEST as usize + 1];
    let mut symbol = 0;
    while symbol < SYMBOLS {
        groups[LENGTHS[symbol] as usize].count += 1;
        symbol += 1;
    }
    let (mut length, mut code, mut start) = (1, 0, 0);
    while length <= LONGEST as usize {
        code <<= 1;
        groups[length].first = code;
        groups[length].start = start;
        code += groups[length].count;
        start += groups[length].count;
        length += 1;
    }
    groups
}

#[allow(clippy::indexing_slicing, reason = "at compile time")]
const fn order() -> [u16; SYMBOLS] {
    let (mut order, mut at, mut length) = ([0; SYMBOLS], 0, 1);
    while length <= LONGEST as u8 {
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] == length {
                order[at] = symbol as u16;
                at += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    order
}

#[allow(clippy::indexing_slicing, reason = "at compile time")]
const fn codes() -> [(u32, u8); 256] {
    let (groups, order, mut codes) = (groups(), order(), [(0, 0); 256]);
    let mut at = 0;
    while at < SYMBOLS {
        let symbol = order[at] as usize;
        if symbol < 256 {
            let group = groups[LENGTHS[symbol] as usize];
            codes[symbol] = (group.first + at as u32 - group.start, LENGTHS[symbol]);
        }
        at += 1;
    }
    codes
}

#[allow(clippy::indexing_slicing, reason = "at compile time")]
const fn short() -> [ShortCode; 256] {
    let (codes, mut short, mut symbol) = (codes(), [ShortCode::NONE; 256], 0);
    while symbol < 256 {
        let (code, length) = codes[symbol];
        if length <= 8 {
            let first = (code as usize) << (8 - length);
            let mut at = first;
            while at < first + (1 << (8 - length)) {
                short[at] = ShortCode { symbol: symbol as u8, length };
                at += 1;
            }
        }
        symbol += 1;
    }
    short
}

/// Bits of the code of each byte and of EOS.
static LENGTHS: [u8; SYMBOLS] = [
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
    use proptest::prelude::*;

    use super::*;

    fn coded(text: &[u8]) -> Vec<u8> {
        let mut code = Vec::new();
        encode(text, &mut code);
        code
    }

    #[test]
    fn the_longest_codes_are_those_of_the_rfc() {
        assert_eq!(CODES[usize::from(b'0')], (0, 5));
        assert_eq!(CODES[usize::from(b'&')], (0xf8, 8));
        assert_eq!(CODES[10], (0x3fff_fffc, 30));
        assert_eq!(CODES[22], (0x3fff_fffe, 30));
        assert_eq!(CODES[249], (0xfff_fffe, 28));
        assert_eq!(coded(b"www.example.com"), b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff");
    }

    #[test]
    fn wrong_padding_and_eos_are_refused() {
        let mut out = Vec::new();
        assert_eq!(decode(b"\xff\xff\xff\xff", &mut out), Err(BadText), "EOS");
        assert_eq!(decode(b"\x07\xff", &mut out), Err(BadText), "more than seven bits");
        assert_eq!(decode(b"\x06", &mut out), Err(BadText), "a zero in the padding");
        assert_eq!(decode(b"\xff\xff\xfc", &mut out), Err(BadText), "an unfinished code");
        out.clear();
        assert_eq!(decode(b"\x07", &mut out), Ok(()));
        assert_eq!(out, b"0");
        assert_eq!(decode(b"", &mut out), Ok(()));
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let code = coded(&text);
            prop_assert_eq!(code.len(), encoded_len(&text));
            let mut back = Vec::new();
            prop_assert_eq!(decode(&code, &mut back), Ok(()));
            prop_assert_eq!(back, text);
        }

        #[test]
        fn what_is_decoded_encodes_to_the_same(code in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut text = Vec::new();
            if decode(&code, &mut text).is_ok() {
                prop_assert_eq!(coded(&text), code);
            }
        }
    }
}
