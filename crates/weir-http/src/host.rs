//! The `Host` field and the authority of a request target: checked, split and lower-cased as nginx does.
//!
//! The name decides which server responds and ends up in logs, redirects and cache keys, so nothing but what RFC 3986,
//! section 3.2.2, allows passes: no `/`, no control bytes, no empty labels, a port of digits up to 65535.

use weir_sys::bytes;

use crate::Span;
use crate::block::load;

/// A valid host, as spans into the text it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// The name or address without port and without one trailing dot; an IPv6 literal keeps its brackets.
    pub name: Span,
    /// The port; `None` when absent, empty or zero.
    pub port: Option<u16>,
    /// Whether the name holds an upper-case letter, so that comparing it needs a lower-cased copy.
    pub upper: bool,
}

/// The host is invalid: respond with 400, nginx logs `client sent invalid host header`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadHost;

impl std::fmt::Display for BadHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("invalid host")
    }
}

impl std::error::Error for BadHost {}

/// Checks `host[:port]` and returns its parts.
///
/// # Errors
/// [`BadHost`] when it is empty, holds a byte not allowed in a host, two dots in a row, or a bad port.
pub fn validate(text: &[u8]) -> Result<Host, BadHost> {
    let HostParts { name, port, upper } = match text.first() {
        Some(b'[') => literal(text)?,
        _ => registered(text)?,
    };
    let name = match name.split_last() {
        Some((b'.', rest)) => rest,
        _ => name,
    };
    let end = u32::try_from(name.len()).map_err(|_| BadHost)?;
    if end == 0 {
        return Err(BadHost);
    }
    Ok(Host { name: Span { start: 0, end }, port: parse_port(port)?, upper })
}

/// As [`validate`], and appends the lower-cased name to `out`.
///
/// # Errors
/// [`BadHost`]; `out` is then unchanged.
pub fn normalize(text: &[u8], out: &mut Vec<u8>) -> Result<Host, BadHost> {
    let host = validate(text)?;
    let name = text.get(..host.name.end as usize).unwrap_or_default();
    out.extend(name.iter().map(u8::to_ascii_lowercase));
    Ok(host)
}

/// A host and its port, not yet all checked.
struct HostParts<'a> {
    /// With its last dot.
    name: &'a [u8],
    /// Without the colon; empty for none.
    port: &'a [u8],
    /// The name has upper-case letters.
    upper: bool,
}

/// `[…]` and what follows: nothing, or `:port`.
fn literal(text: &[u8]) -> Result<HostParts<'_>, BadHost> {
    let end = memchr::memchr(b']', text).ok_or(BadHost)?;
    let (name, rest) = text.split_at_checked(end + 1).ok_or(BadHost)?;
    let inside = name.get(1..end).ok_or(BadHost)?;
    if !inside.iter().all(|&byte| byte == b':' || (class(byte) != WRONG && byte != b'%')) || two_dots(inside)
    {
        return Err(BadHost);
    }
    let upper = name.iter().any(u8::is_ascii_uppercase);
    match rest.split_first() {
        None => Ok(HostParts { name, port: rest, upper }),
        Some((b':', port)) => Ok(HostParts { name, port, upper }),
        Some(_) => Err(BadHost),
    }
}

/// One pass: every request has a host, and nearly every one is of small letters, digits, `-` and single dots.
fn registered(text: &[u8]) -> Result<HostParts<'_>, BadHost> {
    let plain = plain_prefix(text);
    if plain == text.len() {
        return Ok(HostParts { name: text, port: &[], upper: false });
    }
    // A dot at the end of what was plain is looked at again, with what follows it.
    let (mut end, mut seen, mut before) = (text.len(), 0, 0);
    let start = plain.saturating_sub(1);
    for (at, &byte) in text.iter().enumerate().skip(start) {
        let class = class(byte);
        if class == WRONG || (class & before & DOT) != 0 {
            if byte == b':' {
                end = at;
                break;
            }
            return Err(BadHost);
        }
        seen |= class;
        before = class;
    }
    let (name, rest) = text.split_at_checked(end).ok_or(BadHost)?;
    Ok(HostParts { name, port: rest.get(1..).unwrap_or_default(), upper: seen & UPPER != 0 })
}

/// How many bytes at the start are `a`-`z`, `0`-`9`, `-` and dots that no dot follows or comes before; of a longer text
/// 16 are looked at.
#[inline(always)]
fn plain_prefix(text: &[u8]) -> usize {
    let block = load(text);
    let dots = u32::from(bytes::equal(&block, b'.'));
    let plain = u32::from(bytes::within(&block, b'a', b'z') | bytes::within(&block, b'0', b'9'))
        | u32::from(bytes::equal(&block, b'-'))
        | dots & !(dots << 1);
    plain.trailing_ones() as usize
}

const WRONG: u8 = 0;
const PLAIN: u8 = 1;
const UPPER: u8 = 2;
const DOT: u8 = 4;

/// RFC 3986: unreserved, sub-delims, and `%` of an escape, which is not decoded.
const CLASSES: [u8; 256] = {
    let mut classes = [WRONG; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'A'..=b'Z' => UPPER,
            b'.' => DOT,
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'~' | b'_' | b'!' | b'$' | b'&' | b'\'' => PLAIN,
            b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b'%' => PLAIN,
            _ => WRONG,
        };
        byte += 1;
    }
    classes
};

fn class(byte: u8) -> u8 {
    CLASSES.get(usize::from(byte)).copied().unwrap_or(WRONG)
}

fn two_dots(name: &[u8]) -> bool {
    name.array_windows::<2>().any(|pair| pair == b"..")
}

fn parse_port(digits: &[u8]) -> Result<Option<u16>, BadHost> {
    let mut port: u16 = 0;
    for &digit in digits {
        let value = digit.is_ascii_digit().then(|| u16::from(digit - b'0')).ok_or(BadHost)?;
        port = port.checked_mul(10).and_then(|port| port.checked_add(value)).ok_or(BadHost)?;
    }
    Ok((port != 0).then_some(port))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn normal(text: &str) -> Option<(String, Option<u16>)> {
        let mut out = Vec::new();
        let host = normalize(text.as_bytes(), &mut out).ok()?;
        assert_eq!(host.upper, host.name.of(text.as_bytes()) != out);
        Some((String::from_utf8(out).expect("host bytes are ASCII"), host.port))
    }

    #[test]
    fn hosts_are_split_and_lowered() {
        for (text, name, port) in [
            ("example.com", "example.com", None),
            ("Example.COM", "example.com", None),
            ("example.com.", "example.com", None),
            ("example.com.:80", "example.com", Some(80)),
            ("example.com:", "example.com", None),
            ("example.com:0", "example.com", None),
            ("example.com:65535", "example.com", Some(65535)),
            ("example.com:00080", "example.com", Some(80)),
            ("192.0.2.1:8080", "192.0.2.1", Some(8080)),
            ("[2001:DB8::1]", "[2001:db8::1]", None),
            ("[::1]:443", "[::1]", Some(443)),
            ("_dmarc.a-b", "_dmarc.a-b", None),
            ("*.example.com", "*.example.com", None),
            (".example", ".example", None),
            ("a%20b", "a%20b", None),
        ] {
            assert_eq!(normal(text), Some((name.to_owned(), port)), "{text}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in [
            "",
            ".",
            ":80",
            ".:80",
            "a..b",
            "a/b",
            "a b",
            "a\0",
            "a\tb",
            "a@b",
            "a?b",
            "a#b",
            "a\\b",
            "\u{fc}",
            "<a>",
            "a:b",
            "a:65536",
            "a:100000",
            "a:99999999999999999999",
            "a:1:2",
            "a: 1",
            "a:+1",
            "[::1",
            "[::1]a",
            "[::1].",
            "[::1]:x",
            "[::/1]",
            "[%25]",
            "a[b]",
            "a]",
        ] {
            assert_eq!(normal(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_begins_plainly_reads_as_by_the_classes_alone(text in "[a-z0-9.:A-Z_/-]{0,20}") {
            let name = text.split(':').next().unwrap_or_default();
            let upper = name.bytes().any(|byte| byte.is_ascii_uppercase());
            let good = !name.contains("..") && name.bytes().all(|byte| class(byte) != WRONG);
            let port = text.get(name.len() + 1..).unwrap_or_default();
            let parts = good.then_some((name.as_bytes(), port.as_bytes(), upper));
            let found = registered(text.as_bytes()).ok().map(|it| (it.name, it.port, it.upper));
            prop_assert_eq!(found, parts, "{}", text);
        }

        #[test]
        fn a_normalised_host_is_valid_and_stays_itself(text in vec(any::<u8>(), 0..24)) {
            let (mut once, mut twice) = (Vec::new(), Vec::new());
            if normalize(&text, &mut once).is_ok() {
                let again = normalize(&once, &mut twice).map(|host| (host.port, host.upper));
                prop_assert_eq!(again, Ok((None, false)));
                prop_assert_eq!(once, twice);
            }
        }
    }
}
