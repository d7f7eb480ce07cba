//! Entity tags and conditional requests (RFC 9110, sections 8.8.3 and 13) in the order nginx evaluates them.

use std::io::Write as _;

use crate::date;

/// Appends nginx's tag of a file: modification time (seconds since the epoch) and size in bytes, in hexadecimal,
/// `"5f3c1a2b-1f4"`.
pub fn file(out: &mut Vec<u8>, modified: i64, size: u64) {
    out.write_fmt(format_args!("\"{modified:x}-{size:x}\"")).expect("a Vec takes every write");
}

/// Makes a tag weak, as a filter that changes the body must. A text that is no tag is cleared: the field is to be
/// removed.
pub fn weaken(tag: &mut Vec<u8>) {
    if is_weak(tag) {
        return;
    }
    if tag.first() == Some(&b'"') {
        tag.splice(0..0, *b"W/");
    } else {
        tag.clear();
    }
}

/// Whether the tag begins with `W/`.
pub fn is_weak(tag: &[u8]) -> bool {
    tag.len() > 2 && tag.starts_with(b"W/")
}

/// Strong comparison: equal and neither weak.
pub fn strong_eq(a: &[u8], b: &[u8]) -> bool {
    !is_weak(a) && a == b
}

/// Weak comparison: equal but for `W/`.
pub fn weak_eq(a: &[u8], b: &[u8]) -> bool {
    opaque(a) == opaque(b)
}

fn opaque(tag: &[u8]) -> &[u8] {
    if is_weak(tag) { tag.get(2..).unwrap_or_default() } else { tag }
}

/// Whether the list of an `If-Match` (`weak` false) or `If-None-Match` (`weak` true) names `tag`. `*` matches even a
/// representation without a tag; anything else needs one.
pub fn list_matches(list: &[u8], tag: Option<&[u8]>, weak: bool) -> bool {
    if list == b"*" {
        return true;
    }
    let Some(tag) = tag else { return false };
    let tag = if weak { opaque(tag) } else { tag };
    let mut rest = list;
    while !rest.is_empty() {
        let candidate = if weak { opaque(rest) } else { rest };
        if let Some(behind) = candidate.strip_prefix(tag)
            && matches!(trim_blanks(behind).first(), None | Some(b','))
        {
            return true;
        }
        let comma = memchr::memchr(b',', candidate).unwrap_or(candidate.len());
        rest = candidate.get(comma..).unwrap_or_default();
        let skip = rest.iter().take_while(|byte| b" \t,".contains(byte)).count();
        rest = rest.get(skip..).unwrap_or_default();
    }
    false
}

fn trim_blanks(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|byte| b" \t".contains(byte)).count();
    text.get(blanks..).unwrap_or_default()
}

/// The `if_modified_since` directive: how `If-Modified-Since` is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IfModifiedSince {
    /// The field is ignored: the response always counts as modified.
    Off,
    /// Unmodified only when the dates are equal.
    #[default]
    Exact,
    /// Unmodified when the response is not newer.
    Before,
}

/// The conditional fields of a request, each the raw value when present.
#[derive(Debug, Clone, Copy, Default)]
pub struct Conditions<'a> {
    /// `If-Match`.
    pub if_match: Option<&'a [u8]>,
    /// `If-None-Match`.
    pub if_none_match: Option<&'a [u8]>,
    /// `If-Modified-Since`.
    pub if_modified_since: Option<&'a [u8]>,
    /// `If-Unmodified-Since`.
    pub if_unmodified_since: Option<&'a [u8]>,
}

/// What the conditions say about a 200 response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Send it.
    Proceed,
    /// 304 without a body.
    NotModified,
    /// 412.
    PreconditionFailed,
}

impl Conditions<'_> {
    /// Whether there is nothing to evaluate.
    pub fn is_empty(&self) -> bool {
        self.if_match.is_none()
            && self.if_none_match.is_none()
            && self.if_modified_since.is_none()
            && self.if_unmodified_since.is_none()
    }

    /// Evaluates as nginx: `If-Unmodified-Since`, `If-Match`, then both of `If-Modified-Since` and `If-None-Match`
    /// must call the response unchanged for a 304. `tag` and `last_modified` (seconds since the epoch) describe the
    /// response.
    pub fn evaluate(&self, tag: Option<&[u8]>, last_modified: Option<i64>, how: IfModifiedSince) -> Verdict {
        let too_new = |since| last_modified.is_none_or(|time| date::parse(since).unwrap_or(-1) < time);
        if self.if_unmodified_since.is_some_and(too_new)
            || self.if_match.is_some_and(|list| !list_matches(list, tag, false))
        {
            return Verdict::PreconditionFailed;
        }
        if self.if_modified_since.is_none() && self.if_none_match.is_none() {
            return Verdict::Proceed;
        }
        if self.if_modified_since.is_some_and(|since| is_modified(since, last_modified, how))
            || self.if_none_match.is_some_and(|list| !list_matches(list, tag, true))
        {
            return Verdict::Proceed;
        }
        Verdict::NotModified
    }
}

fn is_modified(since: &[u8], last_modified: Option<i64>, how: IfModifiedSince) -> bool {
    let (Some(since), Some(modified)) = (date::parse(since), last_modified) else { return true };
    match how {
        IfModifiedSince::Off => true,
        IfModifiedSince::Exact => since != modified,
        IfModifiedSince::Before => since < modified,
    }
}
