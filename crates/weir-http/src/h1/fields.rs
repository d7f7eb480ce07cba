//! The field section of a head or trailer (RFC 9112 section 5), shared by requests, responses and chunked bodies.

use super::{BadRequest, HeadLimits, scan};
use crate::header::{
    Field, IgnoredFields, KnownField, Span, classify, classify_clean, lookup, lookup_clean, tokens,
};

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
        // What browsers and tools send, at a tenth of the cost.
        if value.eq_ignore_ascii_case(b"keep-alive") {
            self.keep_alive = true;
            return;
        }
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
pub(super) enum HeadStop {
    /// The buffer ended.
    More,
    /// The bytes are wrong; [`HeadCursor::at`] is at the first wrong one.
    Bad(BadRequest),
}

impl From<BadRequest> for HeadStop {
    fn from(bad: BadRequest) -> HeadStop {
        HeadStop::Bad(bad)
    }
}

/// A place in a head.
pub(super) struct HeadCursor<'b> {
    /// The head, cut to the longest one allowed.
    pub(super) buf: &'b [u8],
    /// The next byte to read.
    pub(super) at: usize,
    /// Where the line of `at` begins.
    pub(super) line: usize,
}

impl<'b> HeadCursor<'b> {
    pub(super) fn new(buf: &'b [u8], at: usize) -> HeadCursor<'b> {
        HeadCursor { buf, at, line: at }
    }

    /// The bytes from `at` on.
    #[inline(always)]
    pub(super) fn rest(&self, at: usize) -> &'b [u8] {
        self.buf.get(at..).unwrap_or_default()
    }

    /// Ends reading at the wrong byte `at`.
    #[cold]
    pub(super) fn bad(&mut self, at: usize, bad: BadRequest) -> HeadStop {
        self.at = at;
        HeadStop::Bad(bad)
    }

    /// Moves over the line end that must be at `at`; `otherwise` is the error when another byte is there.
    #[inline(always)]
    pub(super) fn line_end(&mut self, at: usize, otherwise: BadRequest) -> Result<(), HeadStop> {
        match self.rest(at) {
            [b'\r', b'\n', ..] => self.at = at + 2,
            [b'\n', ..] => self.at = at + 1,
            [] | [b'\r'] => return Err(HeadStop::More),
            [b'\r', ..] => return Err(self.bad(at + 1, otherwise)),
            _ => return Err(self.bad(at, otherwise)),
        }
        Ok(())
    }

    /// The text from the start of the line to the wrong byte.
    pub(super) fn offending(&self) -> Span {
        Span::new(self.line, self.at.min(self.buf.len()))
    }

    /// What a head that ended too early amounts to: `Ok` when more bytes can still make it good.
    pub(super) fn unfinished(&self, limits: &HeadLimits, end: HeadEnd) -> Result<(), BadRequest> {
        let HeadEnd { cut, in_line } = end;
        if self.buf.len().saturating_sub(self.line) >= limits.max_line || (cut && in_line) {
            return Err(if in_line { BadRequest::LineTooLong } else { BadRequest::FieldTooLong });
        }
        if cut { Err(BadRequest::HeadTooLarge) } else { Ok(()) }
    }
}

/// Where the bytes of a head end that is not complete.
#[derive(Clone, Copy)]
pub(super) struct HeadEnd {
    /// The buffer was cut to [`HeadLimits::max_head`].
    pub(super) cut: bool,
    /// In its first line.
    pub(super) in_line: bool,
}

/// Why a line could not be read: the reason, and how many bytes of the buffer are left from the wrong one on.
struct LineHalt {
    stop: HeadStop,
    left: usize,
}

/// A halt at the first byte of `rest`.
#[cold]
fn halt(rest: &[u8], bad: BadRequest) -> LineHalt {
    LineHalt { stop: HeadStop::Bad(bad), left: rest.len() }
}

/// A halt at the end of the buffer.
#[cold]
fn more() -> LineHalt {
    LineHalt { stop: HeadStop::More, left: 0 }
}

/// Reads field lines up to and including the empty line, and shows each known one to `notice` after storing it.
///
/// Where a line ends is asked first ([`scan::ControlBytes`]): then no line waits for the reading of the one before it.
/// Lines that are in any way unusual, or not complete, go by [`line`](line()), which alone knows about errors.
pub(super) fn section(
    cursor: &mut HeadCursor<'_>,
    limits: &HeadLimits,
    fields: &mut Vec<Field>,
    mut notice: impl FnMut(u16, KnownField, Span) -> Result<(), BadRequest>,
) -> Result<(), HeadStop> {
    let mut counted = CountedFields::new(limits, fields.len());
    let buf = cursor.buf;
    let mut controls = scan::ControlBytes::new(buf, cursor.at);
    let mut start = cursor.at;
    let end = loop {
        let stop = controls.find(start);
        if stop == start
            && let Some(end) = empty_line(buf, start)
        {
            break Ok(end);
        }
        let index = fields.len();
        let FieldLine { known, value, next } = match plain_line(buf, start, stop, fields) {
            Some((known, value)) => FieldLine { known, value, next: stop + 2 },
            None => match line(buf.len(), cursor.rest(start), fields) {
                Ok(read) => read,
                Err(halt) => break Err(halt),
            },
        };
        if fields.len() > counted.most && counted.are_too_many(fields) {
            break Err(halt(cursor.rest(next), BadRequest::TooManyFields));
        }
        if next - start > limits.max_line {
            break Err(halt(cursor.rest(next), BadRequest::FieldTooLong));
        }
        if known != KnownField::Other
            && let Err(bad) = notice(index as u16, known, value)
        {
            break Err(halt(cursor.rest(next), bad));
        }
        start = next;
    };
    cursor.line = start;
    cursor.at = end.as_ref().map_or_else(|halt| buf.len() - halt.left, |end| *end);
    end.map(|_| ()).map_err(|halt| halt.stop)
}

/// How many fields there may be. Those that are left out later are found when the others seem too many: a head without
/// them costs nothing, and none is looked at twice.
struct CountedFields {
    /// Above this number it is looked closer.
    most: usize,
    /// So many have been looked at.
    seen: usize,
    ignored: IgnoredFields,
}

impl CountedFields {
    fn new(limits: &HeadLimits, seen: usize) -> CountedFields {
        CountedFields { most: limits.max_fields.min(MOST_FIELDS), seen, ignored: limits.ignored }
    }

    /// Whether they are too many without those that are left out.
    #[cold]
    fn are_too_many(&mut self, fields: &[Field]) -> bool {
        let unseen = fields.get(self.seen..).unwrap_or_default();
        let left_out = unseen.iter().filter(|field| self.ignored.has(field)).count();
        self.seen = fields.len();
        self.most = (self.most + left_out).min(MOST_FIELDS);
        fields.len() > self.most
    }
}

/// Places of fields are 16 bits wide.
const MOST_FIELDS: usize = u16::MAX as usize;

/// Where the empty line that begins at `start` ends, if one does.
#[inline(always)]
fn empty_line(buf: &[u8], start: usize) -> Option<usize> {
    match buf.get(start..)? {
        [b'\r', b'\n', ..] => Some(start + 2),
        [b'\n', ..] => Some(start + 1),
        _ => None,
    }
}

/// Stores the field line from `start` on, whose first control byte is at `stop`, when nothing about it is unusual: CRLF
/// ends it, the name is known or has only usual bytes, no space or one is before the value, none after it, and it
/// is not empty. `None`, and nothing done, for any other.
///
/// The field is built where it stays: returned by value it is copied in pieces that do not match how it was written,
/// which cost 40% of the whole parse in stalled loads.
#[inline(always)]
fn plain_line(buf: &[u8], start: usize, stop: usize, fields: &mut Vec<Field>) -> Option<(KnownField, Span)> {
    let line = buf.get(start..stop + 2)?;
    let (length, known) = match buf.get(start..)?.first_chunk().and_then(scan::short_name) {
        Some((length, words)) => (length, lookup_clean(words, length)),
        None => {
            let length = scan::colon(line);
            (length, classify_clean(line.get(..length)?))
        }
    };
    // The colon is before the control byte: so the name has none, as the look-ups want, nor has the value.
    let [first, second] = *line.get(length + 1..)?.first_chunk()?;
    let skip = length + 1 + usize::from(first == b' ');
    let first = if first == b' ' { second } else { first };
    let place = start + skip;
    let [last, cr, lf] = *line.last_chunk()?;
    if place >= stop || first <= b' ' || last <= b' ' || [cr, lf] != *b"\r\n" {
        return None;
    }
    if known == KnownField::Other && !is_usual(line.get(..length)?) {
        return None;
    }
    let value = Span::new(place, stop);
    fields.push(Field {
        known,
        valid: true,
        underscore: false,
        name: Span::new(start, start + length),
        value,
    });
    Some((known, value))
}

/// A field line that was stored.
struct FieldLine {
    known: KnownField,
    value: Span,
    /// Where the next line begins.
    next: usize,
}

/// Stores the field line that `text`, the rest of a buffer of `whole` bytes, begins with. A known name needs no look
/// at its bytes, whatever the scan for the colon ran over: no name in the table has a byte that is not usual.
#[inline(never)]
fn line(whole: usize, text: &[u8], fields: &mut Vec<Field>) -> Result<FieldLine, LineHalt> {
    let (length, known) = match text.first_chunk().and_then(scan::short_name) {
        Some((length, words)) => (length, lookup(words, length)),
        None => long_name(text),
    };
    let Some((name, [b':', after @ ..])) = text.split_at_checked(length) else {
        return unusual_line(whole, text, fields);
    };
    if known == KnownField::Other && !is_usual(name) {
        return unusual_line(whole, text, fields);
    }
    let value = value(after)?;
    let (name, span) = (span(whole, text, length), span(whole, value.text, value.length));
    fields.push(Field { known, valid: true, underscore: false, name, value: span });
    Ok(FieldLine { known, value: span, next: whole - value.next.len() })
}

/// The span of the first `length` bytes of `text`, which reaches to the end of a buffer of `whole` bytes.
fn span(whole: usize, text: &[u8], length: usize) -> Span {
    let start = whole - text.len();
    Span::new(start, start + length)
}

/// A name of 16 bytes or more, or one that is shorter but at the end of the buffer, which may have any bytes.
fn long_name(text: &[u8]) -> (usize, KnownField) {
    let length = scan::colon(text);
    (length, classify(text.get(..length).unwrap_or_default()))
}

fn is_usual(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| scan::is_name_byte(byte))
}

/// A field line whose name has other bytes than nginx's usual ones, or no colon after it yet.
#[cold]
fn unusual_line(whole: usize, text: &[u8], fields: &mut Vec<Field>) -> Result<FieldLine, LineHalt> {
    let (length, underscore) = unusual_name(text)?;
    let value = value(text.get(length + 1..).unwrap_or_default())?;
    let (name, span) = (span(whole, text, length), span(whole, value.text, value.length));
    fields.push(Field { known: KnownField::Other, valid: false, underscore, name, value: span });
    Ok(FieldLine { known: KnownField::Other, value: span, next: whole - value.next.len() })
}

/// The length of the name that `text` begins with, and whether only underscores make it unusual.
fn unusual_name(text: &[u8]) -> Result<(usize, bool), LineHalt> {
    let mut only_underscores = true;
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        let length = text.len() - rest.len();
        match byte {
            b':' if length == 0 => return Err(halt(rest, BadRequest::InvalidName)),
            b':' => return Ok((length, only_underscores)),
            b'\r' if length == 0 && after.is_empty() => return Err(more()),
            b'\r' if length == 0 => return Err(halt(after, BadRequest::BareCr)),
            b' ' | b'\t' if length == 0 => return Err(halt(rest, BadRequest::ObsFold)),
            b' ' | b'\t' => return Err(halt(rest, BadRequest::SpaceBeforeColon)),
            b'\r' | b'\n' => return Err(halt(rest, BadRequest::MissingColon)),
            0..0x20 | 0x7f => return Err(halt(rest, BadRequest::InvalidName)),
            _ => only_underscores &= *byte == b'_' || scan::is_name_byte(*byte),
        }
        rest = after;
    }
    Err(more())
}

/// A value and what follows.
struct FieldValue<'b> {
    /// The buffer from the first byte of the value on.
    text: &'b [u8],
    length: usize,
    /// The bytes after the end of the line.
    next: &'b [u8],
}

/// The value that `text` begins with, trimmed. Control bytes other than NUL, CR and LF are data, as RFC 9110 section 5.5 permits and nginx does.
fn value(mut text: &[u8]) -> Result<FieldValue<'_>, LineHalt> {
    if let [b' ', rest @ ..] = text {
        text = rest;
    }
    if let [(..=b' '), ..] = text {
        text = without_whitespace(text);
    }
    let mut length = 0;
    let next = loop {
        let Some((_, rest)) = text.split_at_checked(length) else { return Err(more()) };
        let Some((_, rest)) = rest.split_at_checked(scan::control(rest)) else { return Err(more()) };
        length = text.len() - rest.len();
        match rest {
            [b'\r', b'\n', next @ ..] | [b'\n', next @ ..] => break next,
            [] | [b'\r'] => return Err(more()),
            [b'\r', after @ ..] => return Err(halt(after, BadRequest::BareCr)),
            [0, ..] => return Err(halt(rest, BadRequest::InvalidValue)),
            [_, ..] => length += 1,
        }
    };
    while let Some(b' ' | b'\t') = length.checked_sub(1).and_then(|last| text.get(last)) {
        length -= 1;
    }
    Ok(FieldValue { text, length, next })
}

/// The rare value that more than one space precedes, or a tab.
#[cold]
fn without_whitespace(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    text
}
