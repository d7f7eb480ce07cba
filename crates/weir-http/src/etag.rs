//! Entity tags and conditional requests (RFC 9110, sections 8.8.3 and 13) in the order nginx evaluates them.

use crate::date;
use crate::h1::hexadecimal;

/// Appends nginx's tag of a file: modification time (seconds since the epoch) and size in bytes, in hexadecimal,
/// `"5f3c1a2b-1f4"`.
pub fn file(out: &mut Vec<u8>, modified: i64, size: u64) {
    out.push(b'"');
    hexadecimal(out, modified as u64);
    out.push(b'-');
    hexadecimal(out, size);
    out.push(b'"');
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

fn opaque(tag: &[u8]) -> &[u8] {
    if is_weak(tag) { tag.get(2..).unwrap_or_default() } else { tag }
}

/// How two tags are compared (RFC 9110 section 8.8.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagComparison {
    /// For `If-Match`: `W/` counts.
    Strong,
    /// For `If-None-Match`: `W/` is left out.
    Weak,
}

/// Whether the list of an `If-Match` or `If-None-Match` names `tag`. `*` matches even a representation without a tag;
/// anything else needs one.
pub fn list_matches(list: &[u8], tag: Option<&[u8]>, comparison: TagComparison) -> bool {
    if list == b"*" {
        return true;
    }
    let Some(tag) = tag else { return false };
    let weak = comparison == TagComparison::Weak;
    let tag = if weak { opaque(tag) } else { tag };
    let mut rest = list;
    while !rest.is_empty() {
        let candidate = if weak { opaque(rest) } else { rest };
        if let Some(after) = candidate.strip_prefix(tag)
            && matches!(trim_blanks(after).first(), None | Some(b','))
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
pub struct RequestConditions<'a> {
    /// `If-Match`, the field's value; `None` when it is absent.
    pub if_match: Option<&'a [u8]>,
    /// `If-None-Match`, the field's value; `None` when it is absent.
    pub if_none_match: Option<&'a [u8]>,
    /// `If-Modified-Since`, the field's value (a date); `None` when it is absent.
    pub if_modified_since: Option<&'a [u8]>,
    /// `If-Unmodified-Since`, the field's value (a date); `None` when it is absent.
    pub if_unmodified_since: Option<&'a [u8]>,
}

/// What the conditions say about a 200 response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionVerdict {
    /// Send the response as it is.
    Proceed,
    /// 304 without a body.
    NotModified,
    /// Respond with 412.
    PreconditionFailed,
}

impl RequestConditions<'_> {
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
    pub fn evaluate(
        &self,
        tag: Option<&[u8]>,
        last_modified: Option<i64>,
        how: IfModifiedSince,
    ) -> ConditionVerdict {
        let too_new = |since| last_modified.is_none_or(|time| date::parse(since).unwrap_or(-1) < time);
        if self.if_unmodified_since.is_some_and(too_new)
            || self.if_match.is_some_and(|list| !list_matches(list, tag, TagComparison::Strong))
        {
            return ConditionVerdict::PreconditionFailed;
        }
        if self.if_modified_since.is_none() && self.if_none_match.is_none() {
            return ConditionVerdict::Proceed;
        }
        if self.if_modified_since.is_some_and(|since| is_modified(since, last_modified, how))
            || self.if_none_match.is_some_and(|list| !list_matches(list, tag, TagComparison::Weak))
        {
            return ConditionVerdict::Proceed;
        }
        ConditionVerdict::NotModified
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

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const TIME: i64 = 784_111_777;

    #[test]
    fn a_file_tag_is_time_and_size_in_hexadecimal() {
        let mut out = Vec::new();
        file(&mut out, 0x5f3c_1a2b, 500);
        assert_eq!(out, b"\"5f3c1a2b-1f4\"");
        out.clear();
        file(&mut out, 0, 0);
        assert_eq!(out, b"\"0-0\"");
    }

    #[test]
    fn weakening_happens_once_and_drops_what_is_no_tag() {
        for (tag, expected) in [("\"a\"", "W/\"a\""), ("W/\"a\"", "W/\"a\""), ("a", ""), ("", ""), ("W/", "")]
        {
            let mut text = tag.as_bytes().to_vec();
            weaken(&mut text);
            assert_eq!(text, expected.as_bytes(), "{tag}");
        }
    }

    #[test]
    fn lists_are_searched_as_nginx_does() {
        for (list, tag, weak, matches) in [
            ("*", None, false, true),
            ("\"a\"", None, true, false),
            ("\"a\"", Some("\"a\""), false, true),
            ("\"b\", \"a\"", Some("\"a\""), false, true),
            ("\"b\",,\t\"a\" ,\"c\"", Some("\"a\""), false, true),
            ("\"aa\", \"b\"", Some("\"a\""), false, false),
            ("\"a\"x", Some("\"a\""), false, false),
            ("W/\"a\"", Some("\"a\""), false, false),
            ("W/\"a\"", Some("\"a\""), true, true),
            ("\"b\", W/\"a\"", Some("W/\"a\""), true, true),
            ("\"a\"", Some("W/\"a\""), true, true),
            ("\"a\"", Some("W/\"a\""), false, false),
            ("\"b\", *", Some("\"a\""), true, false),
            ("", Some("\"a\""), true, false),
            ("W/", Some("\"a\""), true, false),
        ] {
            let comparison = if weak { TagComparison::Weak } else { TagComparison::Strong };
            assert_eq!(
                list_matches(list.as_bytes(), tag.map(str::as_bytes), comparison),
                matches,
                "{list} {tag:?}"
            );
        }
    }

    #[test]
    fn preconditions_come_before_freshness() {
        let tag: Option<&[u8]> = Some(b"\"a\"");
        let (same, other) = (Some(b"\"a\"".as_slice()), Some(b"\"b\"".as_slice()));
        let none = RequestConditions::default();
        assert!(none.is_empty());
        for (conditions, verdict) in [
            (none, ConditionVerdict::Proceed),
            (RequestConditions { if_match: same, ..none }, ConditionVerdict::Proceed),
            (
                RequestConditions { if_match: other, if_none_match: same, ..none },
                ConditionVerdict::PreconditionFailed,
            ),
            (RequestConditions { if_none_match: same, ..none }, ConditionVerdict::NotModified),
            (RequestConditions { if_none_match: other, ..none }, ConditionVerdict::Proceed),
            (RequestConditions { if_modified_since: Some(DATE), ..none }, ConditionVerdict::NotModified),
            (RequestConditions { if_modified_since: Some(b"junk"), ..none }, ConditionVerdict::Proceed),
            (
                RequestConditions { if_modified_since: Some(DATE), if_none_match: other, ..none },
                ConditionVerdict::Proceed,
            ),
            (
                RequestConditions { if_modified_since: Some(b"junk"), if_none_match: same, ..none },
                ConditionVerdict::Proceed,
            ),
            (RequestConditions { if_unmodified_since: Some(DATE), ..none }, ConditionVerdict::Proceed),
            (
                RequestConditions { if_unmodified_since: Some(b"junk"), ..none },
                ConditionVerdict::PreconditionFailed,
            ),
        ] {
            assert_eq!(
                conditions.evaluate(tag, Some(TIME), IfModifiedSince::Exact),
                verdict,
                "{conditions:?}"
            );
        }
    }

    #[test]
    fn if_modified_since_has_three_modes() {
        let conditions = RequestConditions { if_modified_since: Some(DATE), ..RequestConditions::default() };
        for (how, older, equal, newer) in [
            (
                IfModifiedSince::Off,
                ConditionVerdict::Proceed,
                ConditionVerdict::Proceed,
                ConditionVerdict::Proceed,
            ),
            (
                IfModifiedSince::Exact,
                ConditionVerdict::Proceed,
                ConditionVerdict::NotModified,
                ConditionVerdict::Proceed,
            ),
            (
                IfModifiedSince::Before,
                ConditionVerdict::NotModified,
                ConditionVerdict::NotModified,
                ConditionVerdict::Proceed,
            ),
        ] {
            assert_eq!(conditions.evaluate(None, Some(TIME - 1), how), older, "{how:?}");
            assert_eq!(conditions.evaluate(None, Some(TIME), how), equal, "{how:?}");
            assert_eq!(conditions.evaluate(None, Some(TIME + 1), how), newer, "{how:?}");
            assert_eq!(conditions.evaluate(None, None, how), ConditionVerdict::Proceed, "{how:?}");
        }
    }
}
