//! `Accept-Encoding` as nginx reads it: the first element that names the coding counts, `*` names none.

/// How much the client likes the coding `token`, in thousandths; `None` if it does not take it.
pub(crate) fn quality(accept: &[u8], token: &str) -> Option<u16> {
    let after = named(accept, token.as_bytes())?;
    let parameters = match trim(after) {
        [] | [b',', ..] => return Some(1000),
        [b';', rest @ ..] => trim(rest),
        _ => return None,
    };
    match parameters {
        [] => Some(1000),
        [b'q' | b'Q', b'=', value @ ..] => thousandths(value).filter(|&quality| quality > 0),
        _ => None,
    }
}

/// What follows the first element of this name.
fn named<'a>(accept: &'a [u8], token: &[u8]) -> Option<&'a [u8]> {
    let begins = |at: usize| at == 0 || matches!(accept[at - 1], b',' | b' ');
    let at = accept
        .windows(token.len())
        .enumerate()
        .position(|(at, name)| name.eq_ignore_ascii_case(token) && begins(at))?;
    accept.get(at + token.len()..)
}

fn trim(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|&&byte| byte == b' ').count();
    &text[spaces..]
}

/// A quality, which a comma, a space or the end ends: 0 to 1, three decimals at most.
fn thousandths(value: &[u8]) -> Option<u16> {
    let end = value.iter().position(|byte| matches!(byte, b',' | b' ')).unwrap_or(value.len());
    let (whole, decimals) = match &value[..end] {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] => (whole, decimals),
        _ => return None,
    };
    if decimals.len() > 3 || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut sum = u16::from(whole - b'0') * 1000;
    let mut weight = 100;
    for digit in decimals {
        sum += u16::from(digit - b'0') * weight;
        weight /= 10;
    }
    (sum <= 1000).then_some(sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn qualities_are_nginx_s() {
        for (accept, expected) in [
            ("gzip", Some(1000)),
            ("GZIP", Some(1000)),
            ("gzip, deflate", Some(1000)),
            ("deflate,gzip", Some(1000)),
            ("deflate, gzip ;q=0.5", Some(500)),
            ("gzip;q=0", None),
            ("gzip; q=0.0", None),
            ("gzip;q=0.000", None),
            ("gzip;q=0.001", Some(1)),
            ("gzip;q=0.0001", None),
            ("gzip;q=1.000", Some(1000)),
            ("gzip;q=1.001", None),
            ("gzip;Q=1", Some(1000)),
            ("gzip;q=2", None),
            ("gzip;q", None),
            ("gzip;q=", None),
            ("gzip;q=1.", Some(1000)),
            ("gzip;q=0.", None),
            ("gzip;q=0.5, gzip;q=1", Some(500)),
            ("gzip;q=0,gzip", None),
            ("gzip;", Some(1000)),
            ("gzip;level=1", None),
            ("gzipped", None),
            ("x-gzip", None),
            ("x-gzip,gzip", Some(1000)),
            ("*", None),
            ("identity", None),
            ("", None),
            ("gz", None),
        ] {
            assert_eq!(quality(accept.as_bytes(), "gzip"), expected, "{accept}");
        }
        assert_eq!(quality(b"gzip, br;q=0.8, zstd;q=0.9", "br"), Some(800));
        assert_eq!(quality(b"gzip, br;q=0.8, zstd;q=0.9", "zstd"), Some(900));
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_quality_of_one_at_most(accept in "[gzip;q=01.59, *]{0,24}") {
            if let Some(quality) = quality(accept.as_bytes(), "gzip") {
                prop_assert!((1..=1000).contains(&quality), "{accept}");
                prop_assert!(accept.to_ascii_lowercase().contains("gzip"));
            }
        }
    }
}
