//! Reading field values: lists of tokens, numbers, whitespace (RFC 9110 section 5.6).
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

/// `value` without spaces and tabs at either end (OWS, RFC 9110 section 5.6.3).
pub fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The members of a comma-separated list, trimmed, empty ones left out (RFC 9110 section 5.6.1.2).
///
/// For lists of tokens (`Connection`, `TE`, `Trailer`, `Vary`): a quoted comma would split.
pub fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|token| !token.is_empty())
}

/// Whether a token, such as the name of a field, may have this byte (`tchar`, RFC 9110 section 5.6.2).
#[inline]
pub const fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

/// A number of decimal digits only, at most 2^63-1, as nginx's offsets and RFC 9110 section 8.6 want it:
/// no sign, no whitespace, no empty text, no overflow.
pub fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let mut number = 0_u64;
    for &digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    (number <= i64::MAX as u64).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_and_fit_an_offset() {
        let table: [(&[u8], Option<u64>); 10] = [
            (b"0", Some(0)),
            (b"007", Some(7)),
            (b"9223372036854775807", Some(i64::MAX as u64)),
            (b"9223372036854775808", None),
            (b"99999999999999999999999999999", None),
            (b"", None),
            (b"+1", None),
            (b"-1", None),
            (b"1 ", None),
            (b"0x1", None),
        ];
        for (text, number) in table {
            assert_eq!(decimal(text), number, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn lists_lose_their_empty_members() {
        let found: Vec<_> = tokens(b" ,close,\t keep-alive ,,te").collect();
        assert_eq!(found, [&b"close"[..], b"keep-alive", b"te"]);
        assert_eq!(tokens(b"").count(), 0);
        assert_eq!(trim(b" \t \t"), b"");
    }
}
