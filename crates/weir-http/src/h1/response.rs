//! The head of a response, for upstreams and clients, and how long its body is.

use super::fields::{HeadCursor, HeadEnd, HeadStop, section};
use super::{BadRequest, ConnectionTokens, HeadLimits, HeadParse};
use crate::header::{Field, KnownField, Span, decimal};
use crate::{Method, Version};

/// Why a response head is refused; the client of an upstream that sends one gets a 502.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadResponse {
    /// The first line is not `HTTP/1.x` and a status of three digits, 100 to 999.
    InvalidStatusLine,
    /// A major version above 1.
    VersionNotSupported,
    /// A field line or the size of the head is wrong, as it would be in a request.
    Field(BadRequest),
    /// `Content-Length` is no number, or there are several that differ.
    ContentLengthInvalid,
    /// `Content-Length` and `Transfer-Encoding` together (RFC 9112 section 6.3).
    BothLengths,
    /// A `Transfer-Encoding` other than `chunked`, or one in HTTP/1.0.
    TransferEncoding,
}

impl BadResponse {
    fn of(bad: BadRequest) -> BadResponse {
        match bad {
            BadRequest::InvalidVersion => BadResponse::InvalidStatusLine,
            BadRequest::VersionNotSupported => BadResponse::VersionNotSupported,
            BadRequest::ContentLengthInvalid => BadResponse::ContentLengthInvalid,
            BadRequest::TransferEncodingUnknown => BadResponse::TransferEncoding,
            bad => BadResponse::Field(bad),
        }
    }

    /// nginx's message for the error log, without what it quotes.
    pub const fn message(self) -> &'static str {
        match self {
            BadResponse::InvalidStatusLine | BadResponse::VersionNotSupported => {
                "upstream sent no valid HTTP/1.0 header"
            }
            BadResponse::Field(
                BadRequest::HeadTooLarge | BadRequest::FieldTooLong | BadRequest::LineTooLong,
            ) => "upstream sent too big header",
            BadResponse::Field(BadRequest::TooManyFields) => "upstream sent too many header lines",
            BadResponse::Field(_) => "upstream sent invalid header",
            BadResponse::ContentLengthInvalid => "upstream sent invalid \"Content-Length\" header",
            BadResponse::BothLengths => {
                "upstream sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time"
            }
            BadResponse::TransferEncoding => "upstream sent unknown \"Transfer-Encoding\"",
        }
    }
}

/// How the end of a body is found (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// No body follows, whatever the fields say.
    None,
    /// This many bytes, possibly 0.
    Bytes(u64),
    /// The body is chunked.
    Chunked,
    /// All bytes until the connection closes.
    UntilClose,
}

/// A parsed response head: spans into the buffer given to [`parse`](ResponseHead::parse).
#[derive(Clone, Debug, Default)]
pub struct ResponseHead {
    /// The version; HTTP/1.2 and above count as 1.1.
    pub version: Version,
    /// The status, 100 to 999.
    pub status: u16,
    /// The reason as sent, possibly empty.
    pub reason: Span,
    /// Bytes of the head, the empty line included.
    pub len: usize,
    /// The field lines in order.
    pub fields: Vec<Field>,
    /// `Content-Length`, in bytes; `None` when the field is absent.
    pub content_length: Option<u64>,
    /// True when the body is chunked (`Transfer-Encoding: chunked`).
    pub chunked: bool,
    /// What `Connection` names.
    pub connection: ConnectionTokens,
    /// Of a head that was refused for a byte: its line up to there.
    pub offending: Span,
}

/// What a response's head begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadStart {
    /// Its status line.
    StatusLine,
    /// Its fields: it is a CGI response's.
    Fields,
}

impl ResponseHead {
    /// Reads the head at the start of `buf`, forgetting what was read before; stateless like
    /// [`RequestHead::parse`](super::RequestHead::parse). An interim response (1xx) is a head of its own.
    ///
    /// # Errors
    /// [`BadResponse`] as soon as the bytes at hand cannot begin a good head.
    pub fn parse(&mut self, buf: &[u8], limits: &HeadLimits) -> Result<HeadParse, BadResponse> {
        self.parse_as(buf, limits, HeadStart::StatusLine)
    }

    /// Reads the head of a CGI response: fields without a status line (RFC 3875 section 6.2). The status stays 0; its
    /// field is one of the others.
    ///
    /// # Errors
    /// As [`parse`](ResponseHead::parse).
    pub fn parse_fields(&mut self, buf: &[u8], limits: &HeadLimits) -> Result<HeadParse, BadResponse> {
        self.parse_as(buf, limits, HeadStart::Fields)
    }

    fn parse_as(
        &mut self,
        buf: &[u8],
        limits: &HeadLimits,
        start: HeadStart,
    ) -> Result<HeadParse, BadResponse> {
        self.clear();
        let most = limits.max_head.min(i32::MAX as usize);
        let mut cursor = HeadCursor::new(buf.get(..most).unwrap_or(buf), 0);
        match self.read(&mut cursor, limits, start) {
            Ok(()) => {
                self.len = cursor.at;
                if start == HeadStart::StatusLine {
                    self.check_framing()?;
                }
                Ok(HeadParse::Complete)
            }
            Err(HeadStop::Bad(bad)) => {
                self.offending = cursor.offending();
                Err(BadResponse::of(bad))
            }
            Err(HeadStop::More) => {
                let in_line = start == HeadStart::StatusLine && self.status == 0;
                let end = HeadEnd { cut: buf.len() >= most, in_line };
                cursor.unfinished(limits, end).map_err(BadResponse::Field)?;
                Ok(HeadParse::Incomplete { in_line })
            }
        }
    }

    /// Forgets everything but the memory for fields.
    pub fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = ResponseHead { fields, ..ResponseHead::default() };
    }

    /// Makes this the head that `other` is, keeping the memory for fields.
    pub fn copy_from(&mut self, other: &ResponseHead) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        fields.extend_from_slice(&other.fields);
        *self = ResponseHead { fields, ..*other };
    }

    /// How long the body is of this response to a request with `method` (RFC 9112 section 6.3).
    pub fn body_length(&self, method: Method) -> BodyLength {
        match self.status {
            100..=199 | 204 | 304 => BodyLength::None,
            200..=299 if method == Method::Connect => BodyLength::None,
            _ if method == Method::Head => BodyLength::None,
            _ if self.chunked => BodyLength::Chunked,
            _ => self.content_length.map_or(BodyLength::UntilClose, BodyLength::Bytes),
        }
    }

    /// Whether the peer would take another request on this connection, as far as the head says.
    pub fn keep_alive(&self) -> bool {
        !self.connection.close && (self.connection.keep_alive || self.version.keeps_alive_by_default())
    }

    /// The first field called `known`; `None` when the response has no such field.
    pub fn field(&self, known: KnownField) -> Option<&Field> {
        self.fields.iter().find(|field| field.known == known)
    }

    fn read(
        &mut self,
        cursor: &mut HeadCursor<'_>,
        limits: &HeadLimits,
        start: HeadStart,
    ) -> Result<(), HeadStop> {
        if start == HeadStart::StatusLine {
            (self.version, self.status, self.reason) = status_line(cursor)?;
            if cursor.at > limits.max_line {
                return Err(HeadStop::Bad(BadRequest::LineTooLong));
            }
        }
        let (buf, mut fields) = (cursor.buf, std::mem::take(&mut self.fields));
        let read = section(cursor, limits, &mut fields, |_, known, value| self.notice(known, value.of(buf)));
        self.fields = fields;
        read
    }

    fn notice(&mut self, known: KnownField, value: &[u8]) -> Result<(), BadRequest> {
        // An interim response has no content, so that nothing may be said of its framing (RFC 9110 section 8.6, RFC 9112
        // section 6.1): what is said all the same means nothing. 101 is the end of HTTP.
        let is_interim = matches!(self.status, 100 | 102..=199);
        match known {
            KnownField::Connection => self.connection.add(value),
            KnownField::ContentLength | KnownField::TransferEncoding if is_interim => {}
            KnownField::ContentLength => {
                let length = decimal(value).ok_or(BadRequest::ContentLengthInvalid)?;
                if self.content_length.is_some_and(|before| before != length) {
                    return Err(BadRequest::ContentLengthInvalid);
                }
                self.content_length = Some(length);
            }
            KnownField::TransferEncoding if self.chunked || !value.eq_ignore_ascii_case(b"chunked") => {
                return Err(BadRequest::TransferEncodingUnknown);
            }
            KnownField::TransferEncoding => self.chunked = true,
            _ => {}
        }
        Ok(())
    }

    fn check_framing(&self) -> Result<(), BadResponse> {
        match (self.chunked, self.content_length) {
            (true, Some(_)) => Err(BadResponse::BothLengths),
            (true, None) if self.version < Version::V11 => Err(BadResponse::TransferEncoding),
            _ => Ok(()),
        }
    }
}

/// `HTTP/1.1 200 reason` and the end of the line; the reason, and the space before it, may be missing.
fn status_line(cursor: &mut HeadCursor<'_>) -> Result<(Version, u16, Span), HeadStop> {
    const SHAPE: &[u8] = b"HTTP/1.# ### ";
    for (at, &shape) in SHAPE.iter().enumerate() {
        let Some(&byte) = cursor.buf.get(at) else { return Err(HeadStop::More) };
        match (shape, byte) {
            (b'#', b'0'..=b'9') => {}
            (b' ', b'\r' | b'\n') if at + 1 == SHAPE.len() => {}
            (b'1', b'2'..=b'9') => return Err(cursor.bad(at, BadRequest::VersionNotSupported)),
            _ if shape == byte && byte != b'#' => {}
            _ => return Err(cursor.bad(at, BadRequest::InvalidVersion)),
        }
    }
    let &[.., minor, _, a, b, c] = cursor.buf.first_chunk::<12>().ok_or(HeadStop::More)?;
    let status = [a, b, c].iter().fold(0, |status, digit| status * 10 + u16::from(digit - b'0'));
    if status < 100 {
        return Err(cursor.bad(9, BadRequest::InvalidVersion));
    }
    let start = if cursor.buf.get(12) == Some(&b' ') { 13 } else { 12 };
    let length = memchr::memchr3(b'\r', b'\n', 0, cursor.rest(start)).ok_or(HeadStop::More)?;
    cursor.line_end(start + length, BadRequest::InvalidVersion)?;
    let version = if minor == b'0' { Version::V10 } else { Version::V11 };
    Ok((version, status, Span::new(start, start + length)))
}
