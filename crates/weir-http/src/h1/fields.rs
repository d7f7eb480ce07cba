//! The field section of a head or trailer (RFC 9112 section 5), shared by requests, responses and chunked bodies.

use super::{BadRequest, Limits, scan};
use crate::header::{Field, Known, Span, classify, tokens};

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
    loop {
        cursor.line = cursor.at;
        match cursor.rest(cursor.at) {
            [b'\r' | b'\n', ..] => return cursor.line_end(cursor.at, BadRequest::BareCr),
            [] => return Err(Stop::More),
            [b' ' | b'\t', ..] => return Err(Stop::Bad(BadRequest::ObsFold)),
            _ => {}
        }
        let index = u16::try_from(fields.len()).unwrap_or(u16::MAX);
        if fields.len() >= limits.max_fields || index == u16::MAX {
            return Err(Stop::Bad(BadRequest::TooManyFields));
        }
        let field = line(cursor)?;
        fields.push(field);
        if cursor.at - cursor.line > limits.max_line {
            return Err(Stop::Bad(BadRequest::FieldTooLong));
        }
        if field.known != Known::Other {
            notice(index, field.known, field.value.of(cursor.buf))?;
        }
    }
}

/// One field line, its end included. A known name needs no look at its bytes, whatever the scan for the colon ran
/// over: no name in the table has a byte that is not usual.
#[inline(always)]
fn line(cursor: &mut Cursor<'_>) -> Result<Field, Stop> {
    let start = cursor.at;
    let end = scan::colon(cursor.buf, start);
    let name = Span::new(start, end);
    let text = name.of(cursor.buf);
    let known = classify(text);
    let usual =
        known != Known::Other || !text.is_empty() && text.iter().all(|&byte| scan::is_name_byte(byte));
    if !usual || end == cursor.buf.len() {
        let (name, underscore) = unusual_name(cursor, start)?;
        let value = value(cursor, name.end as usize + 1)?;
        return Ok(Field { known: Known::Other, valid: false, underscore, name, value });
    }
    let value = value(cursor, end + 1)?;
    Ok(Field { known, valid: true, underscore: false, name, value })
}

/// A name that begins at `at` and has other bytes than nginx's usual ones, or no colon after it yet; the second
/// value tells whether only underscores are to blame.
#[cold]
fn unusual_name(cursor: &mut Cursor<'_>, mut at: usize) -> Result<(Span, bool), Stop> {
    let mut only_underscores = true;
    loop {
        match cursor.buf.get(at) {
            None => return Err(Stop::More),
            Some(b':') if at == cursor.line => return Err(cursor.bad(at, BadRequest::InvalidName)),
            Some(b':') => return Ok((Span::new(cursor.line, at), only_underscores)),
            Some(b' ' | b'\t') => return Err(cursor.bad(at, BadRequest::SpaceBeforeColon)),
            Some(b'\r' | b'\n') => return Err(cursor.bad(at, BadRequest::MissingColon)),
            Some(0..0x20 | 0x7f) => return Err(cursor.bad(at, BadRequest::InvalidName)),
            Some(&byte) => only_underscores &= byte == b'_' || scan::is_name_byte(byte),
        }
        at += 1;
    }
}

/// The value after the colon at `at - 1`, trimmed, and the end of its line. Control bytes other than NUL, CR and
/// LF are data, as RFC 9110 section 5.5 permits and nginx does.
#[inline(always)]
fn value(cursor: &mut Cursor<'_>, at: usize) -> Result<Span, Stop> {
    let mut start = at;
    while let Some(b' ' | b'\t') = cursor.buf.get(start) {
        start += 1;
    }
    let mut end = start;
    loop {
        end = scan::control(cursor.buf, end);
        match cursor.rest(end) {
            [b'\r' | b'\n', ..] | [] => break,
            [0, ..] => return Err(cursor.bad(end, BadRequest::InvalidValue)),
            [..] => end += 1,
        }
    }
    cursor.line_end(end, BadRequest::BareCr)?;
    while end > start && matches!(cursor.buf.get(end - 1), Some(b' ' | b'\t')) {
        end -= 1;
    }
    Ok(Span::new(start, end))
}
