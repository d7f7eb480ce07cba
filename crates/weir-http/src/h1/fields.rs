//! The field section of a head or trailer (RFC 9112 section 5), shared by requests, responses and chunked bodies.

use super::{BadRequest, Limits, scan};
use crate::header::{Field, Known, Span, classify, lookup, tokens};

/// What `Connection` fields name, of the tokens a server acts on (RFC 9110 section 7.6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionTokens {
    /// `close`: no further request on this connection.
    pub close: bool,
    /// `keep-alive`: HTTP/1.0's wish for a further one.
    pub keep_alive: bool,
    /// `upgrade`: the `Upgrade` field is meant for this hop.
    pub upgrade: bool,
    /// `te`: the `TE` field is meant for this hop.
    pub te: bool,
}

impl ConnectionTokens {
    /// Adds what one `Connection` value names; several lines add up.
    pub(super) fn add(&mut self, value: &[u8]) {
        for token in tokens(value) {
            match token.len() {
                5 => self.close |= token.eq_ignore_ascii_case(b"close"),
                10 => self.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive"),
                7 => self.upgrade |= token.eq_ignore_ascii_case(b"upgrade"),
                2 => self.te |= token.eq_ignore_ascii_case(b"te"),
                _ => {}
            }
        }
    }
}

/// Why reading stopped before the end of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The buffer ended.
    More,
    /// The bytes are wrong; [`Cursor::at`] is at the first wrong one.
    Bad(BadRequest),
}

impl From<BadRequest> for Stop {
    fn from(bad: BadRequest) -> Stop {
        Stop::Bad(bad)
    }
}

/// A place in a head.
pub(super) struct Cursor<'b> {
    /// The head, cut to the longest one allowed.
    pub(super) buf: &'b [u8],
    /// The next byte to read.
    pub(super) at: usize,
    /// Where the line of `at` begins.
    pub(super) line: usize,
}

impl<'b> Cursor<'b> {
    pub(super) fn new(buf: &'b [u8], at: usize) -> Cursor<'b> {
        Cursor { buf, at, line: at }
    }

    /// The bytes from `at` on.
    #[inline(always)]
    pub(super) fn rest(&self, at: usize) -> &'b [u8] {
        self.buf.get(at..).unwrap_or_default()
    }

    /// Ends reading at the wrong byte `at`.
    #[cold]
    pub(super) fn bad(&mut self, at: usize, bad: BadRequest) -> Stop {
        self.at = at;
        Stop::Bad(bad)
    }

    /// Moves over the line end that must stand at `at`; `otherwise` is the error when another byte stands there.
    #[inline(always)]
    pub(super) fn line_end(&mut self, at: usize, otherwise: BadRequest) -> Result<(), Stop> {
        match self.rest(at) {
            [b'\r', b'\n', ..] => self.at = at + 2,
            [b'\n', ..] => self.at = at + 1,
            [] | [b'\r'] => return Err(Stop::More),
            [b'\r', ..] => return Err(self.bad(at + 1, otherwise)),
            _ => return Err(self.bad(at, otherwise)),
        }
        Ok(())
    }

    /// The text from the start of the line to the wrong byte.
    pub(super) fn offending(&self) -> Span {
        Span::new(self.line, self.at.min(self.buf.len()))
    }

    /// What a head that ended too early amounts to: `Ok` when more bytes can still make it good. `whole` says that
    /// the buffer was cut to [`Limits::max_head`].
    pub(super) fn unfinished(&self, limits: &Limits, cut: bool, in_line: bool) -> Result<(), BadRequest> {
        if self.buf.len().saturating_sub(self.line) >= limits.max_line || (cut && in_line) {
            return Err(if in_line { BadRequest::LineTooLong } else { BadRequest::FieldTooLong });
        }
        if cut { Err(BadRequest::HeadTooLarge) } else { Ok(()) }
    }
}

/// Reads field lines up to and including the empty line, and shows each known one to `notice` after storing it.
#[inline]
pub(super) fn section(
    cursor: &mut Cursor<'_>,
    limits: &Limits,
    fields: &mut Vec<Field>,
    mut notice: impl FnMut(u16, Known, &[u8]) -> Result<(), BadRequest>,
) -> Result<(), Stop> {
    let most = limits.max_fields.min(usize::from(u16::MAX));
    loop {
        cursor.line = cursor.at;
        match cursor.rest(cursor.at) {
            [b'\r' | b'\n', ..] => return cursor.line_end(cursor.at, BadRequest::BareCr),
            [] => return Err(Stop::More),
            [b' ' | b'\t', ..] => return Err(Stop::Bad(BadRequest::ObsFold)),
            _ => {}
        }
        let index = fields.len();
        if index >= most {
            return Err(Stop::Bad(BadRequest::TooManyFields));
        }
        let (known, value) = line(cursor, fields)?;
        if cursor.at - cursor.line > limits.max_line {
            return Err(Stop::Bad(BadRequest::FieldTooLong));
        }
        if known != Known::Other {
            notice(index as u16, known, value)?;
        }
    }
}

/// Stores one field line and returns its name and value. A known name needs no look at its bytes, whatever the scan
/// for the colon ran over: no name in the table has a byte that is not usual.
///
/// The field is built where it stays: returned by value it is copied in pieces that do not match how it was
/// written, which cost 40% of the whole parse in stalled loads.
#[inline(always)]
fn line<'b>(cursor: &mut Cursor<'b>, fields: &mut Vec<Field>) -> Result<(Known, &'b [u8]), Stop> {
    let start = cursor.at;
    let text = cursor.rest(start);
    let (length, known) = match text.first_chunk().and_then(scan::short_name) {
        Some((length, words)) => (length, lookup(words)),
        None => long_name(text),
    };
    let [b':', after @ ..] = text.get(length..).unwrap_or_default() else {
        return unusual_line(cursor, fields);
    };
    if known == Known::Other && !is_usual(text.get(..length).unwrap_or_default()) {
        return unusual_line(cursor, fields);
    }
    let (span, value) = value(cursor, after)?;
    let name = Span::new(start, start + length);
    fields.push(Field { known, valid: true, underscore: false, name, value: span });
    Ok((known, value))
}

/// A name of 16 bytes or more, or one that is shorter but at the end of the buffer.
fn long_name(text: &[u8]) -> (usize, Known) {
    let length = scan::colon(text);
    (length, classify(text.get(..length).unwrap_or_default()))
}

fn is_usual(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| scan::is_name_byte(byte))
}

/// A field line whose name has other bytes than nginx's usual ones, or no colon after it yet.
#[cold]
fn unusual_line<'b>(cursor: &mut Cursor<'b>, fields: &mut Vec<Field>) -> Result<(Known, &'b [u8]), Stop> {
    let (name, underscore) = unusual_name(cursor)?;
    let (span, value) = value(cursor, cursor.rest(name.end as usize + 1))?;
    fields.push(Field { known: Known::Other, valid: false, underscore, name, value: span });
    Ok((Known::Other, value))
}

/// The name at the cursor; the second value tells whether only underscores make it unusual.
fn unusual_name(cursor: &mut Cursor<'_>) -> Result<(Span, bool), Stop> {
    let start = cursor.at;
    let mut only_underscores = true;
    for (length, &byte) in cursor.rest(start).iter().enumerate() {
        let at = start + length;
        match byte {
            b':' if length == 0 => return Err(cursor.bad(at, BadRequest::InvalidName)),
            b':' => return Ok((Span::new(start, at), only_underscores)),
            b' ' | b'\t' => return Err(cursor.bad(at, BadRequest::SpaceBeforeColon)),
            b'\r' | b'\n' => return Err(cursor.bad(at, BadRequest::MissingColon)),
            0..0x20 | 0x7f => return Err(cursor.bad(at, BadRequest::InvalidName)),
            _ => only_underscores &= byte == b'_' || scan::is_name_byte(byte),
        }
    }
    Err(Stop::More)
}

/// The value that `text`, the rest of the buffer, begins with, trimmed; moves over the end of its line. Control bytes
/// other than NUL, CR and LF are data, as RFC 9110 section 5.5 permits and nginx does.
#[inline(always)]
fn value<'b>(cursor: &mut Cursor<'b>, mut text: &'b [u8]) -> Result<(Span, &'b [u8]), Stop> {
    let whole = cursor.buf.len();
    if let [b' ', rest @ ..] = text {
        text = rest;
    }
    if let [..=b' ', ..] = text {
        text = without_whitespace(text);
    }
    let start = whole - text.len();
    let mut rest = text;
    loop {
        rest = rest.get(scan::control(rest)..).unwrap_or_default();
        match rest {
            [b'\r', b'\n', next @ ..] | [b'\n', next @ ..] => {
                cursor.at = whole - next.len();
                break;
            }
            [] | [b'\r'] => return Err(Stop::More),
            [b'\r', ..] => return Err(cursor.bad(whole - rest.len() + 1, BadRequest::BareCr)),
            [0, ..] => return Err(cursor.bad(whole - rest.len(), BadRequest::InvalidValue)),
            [_, next @ ..] => rest = next,
        }
    }
    let mut value = text.get(..text.len() - rest.len()).unwrap_or_default();
    while let [trimmed @ .., b' ' | b'\t'] = value {
        value = trimmed;
    }
    Ok((Span::new(start, start + value.len()), value))
}

/// The rare value that more than one space precedes, or a tab.
#[cold]
fn without_whitespace(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    text
}
