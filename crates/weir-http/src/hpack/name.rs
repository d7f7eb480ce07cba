//! What a field's name is, found out once: when it enters a table, or when it is read.

use crate::header::{Known, classify};

/// What a field name of HTTP/2 or HTTP/3 is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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

impl Kind {
    /// Whether the name begins with a colon.
    pub const fn is_pseudo(self) -> bool {
        !matches!(self, Kind::Usual | Kind::Underscore | Kind::Unusual | Kind::Malformed)
    }

    fn of(name: &[u8]) -> Kind {
        match name {
            b":method" => Kind::Method,
            b":scheme" => Kind::Scheme,
            b":authority" => Kind::Authority,
            b":path" => Kind::Path,
            b":status" => Kind::Status,
            b":protocol" => Kind::Protocol,
            [b':', ..] => Kind::UnknownPseudo,
            [] => Kind::Malformed,
            _ => match name.iter().fold(0, |seen, byte| seen | class(*byte)) {
                0 => Kind::Usual,
                UNDERSCORE => Kind::Underscore,
                seen if seen & MALFORMED == 0 => Kind::Unusual,
                _ => Kind::Malformed,
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
pub struct Name {
    /// Which one of those a server meets.
    pub known: Known,
    /// What it is made of.
    pub kind: Kind,
}

impl Name {
    /// Classifies `name`.
    pub fn of(name: &[u8]) -> Name {
        let kind = Kind::of(name);
        let known = if kind == Kind::Usual { classify(name) } else { Known::Other };
        Name { known, kind }
    }
}

/// Whether `value` may be a field's: no NUL, CR or LF, no space or tab at either end (RFC 9113 section 8.2.1).
#[inline]
pub(super) fn is_clean(value: &[u8]) -> bool {
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
            (&b"content-length"[..], Kind::Usual),
            (b"x_y", Kind::Underscore),
            (b"x_y!", Kind::Unusual),
            (b"x!_y", Kind::Unusual),
            (b"x\xffy", Kind::Unusual),
            (b"Host", Kind::Malformed),
            (b"x y", Kind::Malformed),
            (b"x:y", Kind::Malformed),
            (b"x!Y", Kind::Malformed),
            (b"", Kind::Malformed),
            (b":path", Kind::Path),
            (b":", Kind::UnknownPseudo),
        ] {
            assert_eq!(Name::of(name).kind, kind, "{}", name.escape_ascii());
        }
        assert_eq!(Name::of(b"host").known, Known::Host);
        assert_eq!(Name::of(b"Host").known, Known::Other);
    }

    #[test]
    fn values_are_clean_inside_and_at_their_ends() {
        for value in [&b""[..], b"a b", b"\x80\x01"] {
            assert!(is_clean(value));
        }
        for value in [&b" a"[..], b"a\t", b"a\0b", b"\n", b"a\rb"] {
            assert!(!is_clean(value));
        }
    }
}
