//! Base64 (RFC 4648), as nginx reads it: up to the first `=`, which may be absent, with a group of one digit refused.

/// Section 4; `None` for other bytes, and for a number of digits that no text has.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    read(text, b'+', b'/')
}

/// Decodes the alphabet of RFC 4648, section 5 (`-` and `_`): safe in URLs and file names. `None` for other bytes, and
/// for a number of digits that no text has.
pub fn decode_url(text: &[u8]) -> Option<Vec<u8>> {
    read(text, b'-', b'_')
}

/// Appends `bytes` in base64 (RFC 4648 section 4, with padding) to `out`.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let (groups, rest) = bytes.as_chunks::<3>();
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, b'=');
    let (places, _) = out[start..].as_chunks_mut::<4>();
    for (group, place) in groups.iter().zip(&mut *places) {
        *place = digits(*group);
    }
    if let (false, Some(place)) = (rest.is_empty(), places.last_mut()) {
        let mut group = [0; 3];
        group[..rest.len()].copy_from_slice(rest);
        place[..=rest.len()].copy_from_slice(&digits(group)[..=rest.len()]);
    }
}

fn digits(group: [u8; 3]) -> [u8; 4] {
    let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
    [18, 12, 6, 0].map(|shift| DIGITS[(bits >> shift & 63) as usize])
}

fn read(text: &[u8], plus: u8, slash: u8) -> Option<Vec<u8>> {
    let digits = text.split(|byte| *byte == b'=').next().unwrap_or_default();
    if digits.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let mut bits = 0;
        for byte in group {
            bits = bits << 6 | digit(*byte, plus, slash)?;
        }
        let bytes = (bits << (6 * (4 - group.len()))).to_be_bytes();
        out.extend(bytes.iter().skip(1).take(group.len() - 1));
    }
    Some(out)
}

fn digit(byte: u8, plus: u8, slash: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        _ if byte == plus => 62,
        _ if byte == slash => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_of_the_rfc() {
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut out = Vec::new();
            encode(text.as_bytes(), &mut out);
            assert_eq!(out, encoded.as_bytes());
        }
        assert_eq!((decode_url(b"-_-_"), decode(b"-_-_")), (decode(b"+/+/"), None));
    }

    #[test]
    fn padding_may_lack_and_hides_what_follows() {
        for (text, bytes) in [
            ("QWxhZGRpbjpvcGVuIHNlc2FtZQ==", Some(&b"Aladdin:open sesame"[..])),
            ("QWxhZGRpbjpvcGVuIHNlc2FtZQ", Some(b"Aladdin:open sesame")),
            ("+/+/", Some(b"\xfb\xff\xbf")),
            ("YTpi=ignored!", Some(b"a:b")),
            ("YTpi====", Some(b"a:b")),
            ("=", Some(b"")),
            ("YTpiY", None),
            ("YT-i", None),
            ("YT*i", None),
            ("YTpi\n", None),
        ] {
            assert_eq!(decode(text.as_bytes()).as_deref(), bytes, "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in vec(any::<u8>(), 0..20)) {
            decode(&bytes);
            decode_url(&bytes);
        }

        #[test]
        fn what_was_encoded_is_decoded(bytes in vec(any::<u8>(), 0..60), padded in any::<bool>()) {
            let mut out = Vec::new();
            encode(&bytes, &mut out);
            let end = if padded { out.len() } else { out.iter().position(|b| *b == b'=').unwrap_or(out.len()) };
            prop_assert_eq!(decode(&out[..end]), Some(bytes));
        }
    }
}
