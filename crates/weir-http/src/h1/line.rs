//! The request line (RFC 9112 section 3), with the liberties nginx takes: several spaces between its parts and
//! after the version, and HTTP/0.9.

use super::fields::{HeadCursor, HeadStop};
use super::{AbsoluteTarget, BadRequest, scan};
use crate::header::Span;
use crate::method::is_method_byte;
use crate::{Method, Version};

/// The parts of a request line.
pub(super) struct RequestLine {
    pub(super) method: Method,
    pub(super) method_span: Span,
    pub(super) target: Span,
    pub(super) absolute: Option<AbsoluteTarget>,
    pub(super) version: Version,
    /// The text of the version; empty in HTTP/0.9.
    pub(super) protocol: Span,
    /// The line without its end.
    pub(super) text: Span,
}

/// Reads the line at the cursor, its end included.
pub(super) fn request_line(cursor: &mut HeadCursor<'_>) -> Result<RequestLine, HeadStop> {
    let start = cursor.at;
    let (method, method_span, at) = if cursor.rest(start).starts_with(b"GET /") {
        (Method::Get, Span::new(start, start + 3), start + 4)
    } else {
        method_name(cursor)?
    };
    let (target, absolute) = match (method, cursor.buf.get(at)) {
        (_, None) => return Err(HeadStop::More),
        (Method::Connect, _) => (authority_form(cursor, at)?, None),
        (_, Some(b'/')) => (path(cursor, at)?, None),
        (_, Some(byte)) if byte.is_ascii_alphabetic() => absolute_form(cursor, at)?,
        (Method::Options, Some(b'*')) => (Span::new(at, at + 1), None),
        _ => return Err(cursor.bad(at, BadRequest::InvalidTarget)),
    };
    let (version, protocol) = version(cursor, target.end as usize)?;
    if version == Version::V09 && method != Method::Get {
        return Err(HeadStop::Bad(BadRequest::InvalidMethod09));
    }
    let text = Span::new(start, without_line_end(cursor, start));
    Ok(RequestLine { method, method_span, target, absolute, version, protocol, text })
}

/// The method, its text, and where the target begins.
fn method_name(cursor: &mut HeadCursor<'_>) -> Result<(Method, Span, usize), HeadStop> {
    let start = cursor.at;
    let length = cursor.rest(start).iter().position(|&byte| !is_method_byte(byte)).ok_or(HeadStop::More)?;
    let end = start + length;
    if length == 0 || cursor.buf.get(end) != Some(&b' ') {
        return Err(cursor.bad(end, BadRequest::InvalidMethod));
    }
    let span = Span::new(start, end);
    Ok((Method::parse(span.of(cursor.buf)), span, skip_spaces(cursor, end)))
}

/// Origin-form, or the path of an absolute one: everything up to a space or the end of the line.
fn path(cursor: &mut HeadCursor<'_>, start: usize) -> Result<Span, HeadStop> {
    let end = start + scan::target_end(cursor.rest(start));
    match cursor.buf.get(end) {
        None => Err(HeadStop::More),
        Some(b' ' | b'\r' | b'\n') => Ok(Span::new(start, end)),
        Some(_) => Err(cursor.bad(end, BadRequest::InvalidTarget)),
    }
}

/// `host:port`, both needed (RFC 9112 section 3.2.3).
fn authority_form(cursor: &mut HeadCursor<'_>, start: usize) -> Result<Span, HeadStop> {
    let (end, port) = authority(cursor, start)?;
    match cursor.buf.get(end) {
        Some(b' ') if port.is_some_and(|port| port < end) => Ok(Span::new(start, end)),
        _ => Err(cursor.bad(end, BadRequest::InvalidTarget)),
    }
}

/// `scheme://host[:port][path]` (RFC 9112 section 3.2.2); user information is refused, as nginx does.
fn absolute_form(
    cursor: &mut HeadCursor<'_>,
    start: usize,
) -> Result<(Span, Option<AbsoluteTarget>), HeadStop> {
    let scheme =
        run(cursor, start, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))?;
    expect(cursor, scheme, b"://", BadRequest::InvalidTarget)?;
    let host = scheme + 3;
    let (end, _) = authority(cursor, host)?;
    let path = match cursor.buf.get(end) {
        Some(b'/' | b'?') => path(cursor, end)?,
        Some(b' ') => Span::new(end, end),
        _ => return Err(cursor.bad(end, BadRequest::InvalidTarget)),
    };
    let absolute = AbsoluteTarget { scheme: Span::new(start, scheme), authority: Span::new(host, end), path };
    Ok((Span::new(start, path.end as usize), Some(absolute)))
}

/// Where the authority at `start` ends, and where its port begins when it has a colon. The byte at the end is in
/// the buffer.
fn authority(cursor: &mut HeadCursor<'_>, start: usize) -> Result<(usize, Option<usize>), HeadStop> {
    let end = if cursor.buf.get(start) == Some(&b'[') {
        let end = run(cursor, start + 1, is_literal_byte)?;
        expect(cursor, end, b"]", BadRequest::InvalidTarget)?;
        end + 1
    } else {
        run(cursor, start, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))?
    };
    match cursor.buf.get(end) {
        None => Err(HeadStop::More),
        Some(b':' | b'/' | b'?' | b' ') if end == start => Err(cursor.bad(end, BadRequest::InvalidHost)),
        Some(b':') => Ok((run(cursor, end + 1, |byte| byte.is_ascii_digit())?, Some(end + 1))),
        Some(_) => Ok((end, None)),
    }
}

/// Bytes of an IP literal between its brackets (RFC 3986 section 3.2.2).
fn is_literal_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b":-._~!$&'()*+,;=".contains(&byte)
}

/// Spaces, then the version and the end of the line; the end alone is HTTP/0.9.
#[inline]
fn version(cursor: &mut HeadCursor<'_>, at: usize) -> Result<(Version, Span), HeadStop> {
    if cursor.rest(at).starts_with(b" HTTP/1.1\r\n") {
        cursor.at = at + 11;
        return Ok((Version::V11, Span::new(at + 1, at + 9)));
    }
    let start = skip_spaces(cursor, at);
    if cursor.buf.get(start) != Some(&b'H') {
        cursor.line_end(start, BadRequest::InvalidTarget)?;
        return Ok((Version::V09, Span::default()));
    }
    expect(cursor, start, b"HTTP/", BadRequest::InvalidVersion)?;
    let (version, end) = version_number(cursor, start + 5)?;
    let end = skip_spaces(cursor, end);
    cursor.line_end(end, BadRequest::InvalidVersion)?;
    Ok((version, Span::new(start, end)))
}

/// `1.` and at most three digits; a major version above 1 is known at its first wrong digit.
fn version_number(cursor: &mut HeadCursor<'_>, at: usize) -> Result<(Version, usize), HeadStop> {
    match cursor.rest(at) {
        [] | [b'1'] | [b'1', b'.'] => return Err(HeadStop::More),
        [b'1', b'.', b'0'..=b'9', ..] => {}
        [b'2'..=b'9', ..] | [b'1', b'0'..=b'9', ..] => {
            return Err(cursor.bad(at, BadRequest::VersionNotSupported));
        }
        _ => return Err(cursor.bad(at, BadRequest::InvalidVersion)),
    }
    let end = run(cursor, at + 2, |byte| byte.is_ascii_digit())?;
    let minor = cursor.buf.get(at + 2..end).unwrap_or_default();
    if minor.len() > 3 {
        return Err(cursor.bad(at + 5, BadRequest::InvalidVersion));
    }
    let version = if minor.iter().all(|&digit| digit == b'0') { Version::V10 } else { Version::V11 };
    Ok((version, end))
}

/// Where the run of bytes that `belongs` holds for ends; it must end inside the buffer.
fn run(cursor: &HeadCursor<'_>, at: usize, belongs: impl Fn(u8) -> bool) -> Result<usize, HeadStop> {
    let length = cursor.rest(at).iter().position(|&byte| !belongs(byte)).ok_or(HeadStop::More)?;
    Ok(at + length)
}

/// Requires `text` at `at`, as far as the buffer goes.
fn expect(
    cursor: &mut HeadCursor<'_>,
    at: usize,
    text: &[u8],
    otherwise: BadRequest,
) -> Result<(), HeadStop> {
    let rest = cursor.rest(at);
    let same = rest.iter().zip(text).take_while(|(is, should)| is == should).count();
    match (same == text.len(), same == rest.len()) {
        (true, _) => Ok(()),
        (_, true) => Err(HeadStop::More),
        _ => Err(cursor.bad(at + same, otherwise)),
    }
}

#[inline(always)]
fn skip_spaces(cursor: &HeadCursor<'_>, mut at: usize) -> usize {
    while cursor.buf.get(at) == Some(&b' ') {
        at += 1;
    }
    at
}

/// Where the text of the line just read ends.
fn without_line_end(cursor: &HeadCursor<'_>, start: usize) -> usize {
    let line = cursor.buf.get(start..cursor.at).unwrap_or_default();
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    start + line.strip_suffix(b"\r").unwrap_or(line).len()
}
