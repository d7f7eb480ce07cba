//! Header fields: where a field lies in its buffer, which names a server knows, and how values are read.
//!
//! A field is never copied: it is two [`Span`]s into the head it was read from, with its name already classified
//! ([`KnownField`]), so that everything after the parser compares integers, not text.

mod name;
mod value;

pub use name::{KnownField, classify};
pub(crate) use name::{NameWords, classify_clean, lookup, lookup_clean};
pub use value::{decimal, is_token_byte, tokens, trim};

/// A range of bytes in the buffer that was parsed; 32 bits each, since no head is longer than 2 GiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
}

impl Span {
    /// The span from `start` to `end`; the caller has bounded both below 2^32 (the parsers cut their input).
    pub(crate) const fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }

    /// The bytes in `buf`, the buffer the span came from; empty when the span does not lie inside it.
    #[inline]
    pub fn of(self, buf: &[u8]) -> &[u8] {
        buf.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// Length in bytes; 0 for an empty span.
    pub const fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// Whether there is nothing in it.
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

/// One field line of a header or trailer section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name, when it is one of those a server meets.
    pub known: KnownField,
    /// True when the name consists of `A`-`Z`, `a`-`z`, `0`-`9` and `-` only: what nginx passes without further
    /// settings.
    pub valid: bool,
    /// True when the name would be `valid` but for underscores: nginx's `underscores_in_headers` decides.
    pub underscore: bool,
    /// The name as sent, a span of the head.
    pub name: Span,
    /// The value without the whitespace around it.
    pub value: Span,
}

/// Whether a field with an unusual name may be taken for one that says where a body ends: servers that write names with
/// underscores (CGI's way) or trim what they do not know take `Transfer_Encoding` for `Transfer-Encoding`.
pub fn resembles_framing(name: &[u8]) -> bool {
    let letters = || name.iter().filter(|byte| byte.is_ascii_alphabetic()).map(u8::to_ascii_lowercase);
    letters().eq(b"contentlength".iter().copied()) || letters().eq(b"transferencoding".iter().copied())
}

/// The fields that a receiver leaves out for their names, which no limit counts (as in nginx).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IgnoredFields {
    /// None are: `ignore_invalid_headers off`.
    #[default]
    None,
    /// Those with unusual names but for underscores: `underscores_in_headers on`.
    Invalid,
    /// Those with underscores, too.
    InvalidOrUnderscored,
}

impl IgnoredFields {
    /// Whether a field is left out.
    pub const fn has(self, field: &Field) -> bool {
        self.has_name(field.valid, field.underscore)
    }

    /// Whether a field is left out whose name is `valid` or would be but for underscores, as [`Field`] has it.
    pub(crate) const fn has_name(self, valid: bool, underscore: bool) -> bool {
        match self {
            IgnoredFields::None => false,
            IgnoredFields::Invalid => !valid && !underscore,
            IgnoredFields::InvalidOrUnderscored => !valid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_outside_its_buffer_is_empty() {
        assert_eq!(Span { start: 1, end: 3 }.of(b"abcd"), b"bc");
        assert_eq!(Span { start: 3, end: 9 }.of(b"abcd"), b"");
        assert_eq!(Span { start: 3, end: 1 }.of(b"abcd"), b"");
        assert_eq!(Span { start: 3, end: 1 }.len(), 0);
        assert_eq!(Span { start: 1, end: 3 }.len(), 2);
        assert!(Span::default().is_empty());
    }

    #[test]
    fn names_that_others_take_for_a_length_are_known() {
        let names = [
            &b"Content_Length"[..],
            b"transfer_encoding",
            b"TRANSFER-ENCODING\xa0",
            b";Content-Length",
            b"Content Length",
        ];
        assert!(names.iter().all(|name| resembles_framing(name)));
        let others =
            [&b"Content_Lengths"[..], b"X_Content_Length", b"Content_Type", b"Transfer_Encodin", b"", b"_"];
        assert!(!others.iter().any(|name| resembles_framing(name)));
    }

    #[test]
    fn underscores_are_the_only_thing_the_switch_forgives() {
        let field = |valid, underscore| Field {
            known: KnownField::Other,
            valid,
            underscore,
            name: Span::default(),
            value: Span::default(),
        };
        use IgnoredFields::{Invalid, InvalidOrUnderscored};
        assert!(!InvalidOrUnderscored.has(&field(true, false)));
        assert!(InvalidOrUnderscored.has(&field(false, true)));
        assert!(!Invalid.has(&field(false, true)));
        assert!(Invalid.has(&field(false, false)));
        assert!(!IgnoredFields::None.has(&field(false, false)));
    }
}
