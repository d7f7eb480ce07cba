//! Basic authentication (RFC 7617): user and password in the Authorization field, for `$remote_user` and the modules
//! that check them.

use weir_http::Known;

use crate::exchange::Exchange;
use crate::text::{Span, Text};

/// User and password as decoded, in the request's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// What stands before the first colon; may be empty.
    pub user: Span,
    /// What stands behind it; may be empty.
    pub password: Span,
}

/// The credentials that `x` was sent with. `None`: there is no Authorization field, it is of another scheme, or it
/// is no base64 of a text with a colon.
pub fn basic(x: &mut Exchange) -> Option<Credentials> {
    let field = x.request.span(Known::Authorization)?;
    let value = x.arena.get(field);
    let encoded =
        value.split_at_checked(SCHEME.len()).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME))?.1;
    let decoded = decode(encoded.trim_ascii_start())?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    let all = x.arena.push(&decoded);
    let middle = all.start + colon as u32;
    Some(Credentials {
        user: Span { start: all.start, end: middle },
        password: Span { start: middle + 1, end: all.end },
    })
}

/// `$remote_user`.
pub(super) fn remote_user(x: &mut Exchange) -> Option<Text> {
    basic(x).map(|credentials| Text::Span(credentials.user))
}

/// Base64 (RFC 4648 section 4) up to the first `=` or the end; `None` for other bytes, for nothing, and for a
/// number of digits that no text has. Padding may lack, as nginx has it.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.split(|&byte| byte == b'=').next().filter(|digits| !digits.is_empty())?;
    if digits.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let mut bits = 0;
        for &byte in group {
            bits = bits << 6 | u32::from(digit(byte)?);
        }
        let bytes = (bits << (6 * (4 - group.len()))).to_be_bytes();
        out.extend(bytes.iter().skip(1).take(group.len() - 1));
    }
    Some(out)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

const SCHEME: &[u8] = b"Basic ";

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Base64 without padding.
    fn encode(bytes: &[u8]) -> String {
        let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
        let sextets = bits.as_bytes().chunks(6).map(|bits| {
            let text = format!("{:0<6}", String::from_utf8_lossy(bits));
            char::from(digits[usize::from_str_radix(&text, 2).expect("six binary digits")])
        });
        sextets.collect()
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(bytes in vec(any::<u8>(), 1..60), padding in 0..4_usize) {
            let text = encode(&bytes) + &"=".repeat(padding);
            prop_assert_eq!(decode(text.as_bytes()), Some(bytes));
        }

        #[test]
        fn nothing_makes_it_panic(bytes in vec(any::<u8>(), 0..20)) {
            decode(&bytes);
        }
    }

    #[test]
    fn base64_is_decoded_with_and_without_padding() {
        for (text, bytes) in [
            ("QWxhZGRpbjpvcGVuIHNlc2FtZQ==", Some(&b"Aladdin:open sesame"[..])),
            ("QWxhZGRpbjpvcGVuIHNlc2FtZQ", Some(b"Aladdin:open sesame")),
            ("YTo=", Some(b"a:")),
            ("YTpi", Some(b"a:b")),
            ("+/+/", Some(b"\xfb\xff\xbf")),
            ("YTpi=ignored!", Some(b"a:b")),
            ("YTpiY", None),
            ("YT-i", None),
            ("YTpi\n", None),
            ("=", None),
            ("", None),
        ] {
            assert_eq!(decode(text.as_bytes()).as_deref(), bytes, "{text}");
        }
    }
}
