//! What a field's name is, determined once: when it enters a table, or when it is read.

use crate::header::{KnownField, classify};

/// What a field name of HTTP/2 or HTTP/3 is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// `a`-`z`, `0`-`9` and `-`.
    Usual,
    /// Only underscores keep it from being usual: nginx's `underscores_in_headers` decides.
    Underscore,
    /// Other bytes that RFC 9110 allows, or that are above 0x7f: `ignore_invalid_headers` decides.
    Unusual,
    /// Capital letters, control bytes, space, a colon, or nothing at all: the message is malformed (RFC 9113
    /// section 8.2.1).
    Malformed,
    /// `:method`
    Method,
    /// `:scheme`
    Scheme,
    /// `:authority`
    Authority,
    /// `:path`
    Path,
    /// `:status`
    Status,
    /// `:protocol` (RFC 8441)
    Protocol,
    /// Any other name that begins with a colon.
    UnknownPseudo,
}

impl NameKind {
    /// Whether the name begins with a colon.
    pub const fn is_pseudo(self) -> bool {
        !matches!(self, NameKind::Usual | NameKind::Underscore | NameKind::Unusual | NameKind::Malformed)
    }

    fn of(name: &[u8]) -> NameKind {
        match name {
            b":method" => NameKind::Method,
            b":scheme" => NameKind::Scheme,
            b":authority" => NameKind::Authority,
            b":path" => NameKind::Path,
            b":status" => NameKind::Status,
            b":protocol" => NameKind::Protocol,
            [b':', ..] => NameKind::UnknownPseudo,
            [] => NameKind::Malformed,
            _ => match name.iter().fold(0, |seen, byte| seen | class(*byte)) {
                0 => NameKind::Usual,
                UNDERSCORE => NameKind::Underscore,
                seen if seen & MALFORMED == 0 => NameKind::Unusual,
                _ => NameKind::Malformed,
            },
        }
    }
}

#[inline]
fn class(byte: u8) -> u8 {
    CLASSES.get(usize::from(byte)).copied().unwrap_or_default()
}

const UNDERSCORE: u8 = 1;
const UNUSUAL: u8 = 2;
const MALFORMED: u8 = 4;

/// What each byte does to a name.
#[allow(clippy::indexing_slicing, reason = "at compile time")]
static CLASSES: [u8; 256] = {
    let (mut classes, mut byte) = ([0; 256], 0);
    while byte < 256 {
        classes[byte] = match byte as u8 {
            0..=0x20 | 0x7f | b':' | b'A'..=b'Z' => MALFORMED,
            b'a'..=b'z' | b'0'..=b'9' | b'-' => 0,
            b'_' => UNDERSCORE,
            _ => UNUSUAL,
        };
        byte += 1;
    }
    classes
};

/// A field name, classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldName {
    /// Which one of those a server meets.
    pub known: KnownField,
    /// What it is made of.
    pub kind: NameKind,
}

impl FieldName {
    /// Classifies `name`.
    pub fn of(name: &[u8]) -> FieldName {
        let kind = NameKind::of(name);
        let known = if kind == NameKind::Usual { classify(name) } else { KnownField::Other };
        FieldName { known, kind }
    }
}

/// Whether `value` may be a field's: no NUL, CR or LF, no space or tab at either end (RFC 9113 section 8.2.1).
#[inline]
pub(crate) fn is_clean(value: &[u8]) -> bool {
    let edge = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    // Without an early end the compiler compares many bytes at a time.
    let wrong =
        value.iter().fold(false, |wrong, byte| wrong | (*byte == 0) | (*byte == b'\r') | (*byte == b'\n'));
    !wrong && !edge(value.first()) && !edge(value.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_their_bytes_say() {
        for (name, kind) in [
            (&b"content-length"[..], NameKind::Usual),
            (b"x_y", NameKind::Underscore),
            (b"x_y!", NameKind::Unusual),
            (b"x!_y", NameKind::Unusual),
            (b"x\xffy", NameKind::Unusual),
            (b"Host", NameKind::Malformed),
            (b"x y", NameKind::Malformed),
            (b"x:y", NameKind::Malformed),
            (b"x!Y", NameKind::Malformed),
            (b"HoSt", NameKind::Malformed),
            (b"x  y", NameKind::Malformed),
            (b"x__y", NameKind::Underscore),
            (b"x!!y", NameKind::Unusual),
            (b"", NameKind::Malformed),
            (b":path", NameKind::Path),
            (b":", NameKind::UnknownPseudo),
        ] {
            assert_eq!(FieldName::of(name).kind, kind, "{}", name.escape_ascii());
        }
        assert_eq!(FieldName::of(b"host").known, KnownField::Host);
        assert_eq!(FieldName::of(b"Host").known, KnownField::Other);
    }

    #[test]
    fn values_are_clean_inside_and_at_their_ends() {
        for value in [&b""[..], b"a b", b"\x80\x01"] {
            assert!(is_clean(value));
        }
        for value in
            [&b" a"[..], b"a\t", b"a\0b", b"\n", b"a\rb", b"a\0b\0c", b"a\rb\rc", b"a\nb\nc", b"a\r\nb"]
        {
            assert!(!is_clean(value));
        }
    }
}
