//! The head of a request: its line, its fields, and what they say about framing and the connection.

use memchr::memchr2;

use super::fields::{HeadCursor, HeadEnd, HeadStop, section};
use super::line::request_line;
use super::{BadRequest, ConnectionTokens, HeadLimits, HeadParse};
use crate::header::{Field, KnownField, Span, decimal};
use crate::{Method, Version};

/// The parts of an absolute-form target (RFC 9112 section 3.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AbsoluteTarget {
    /// `http`, in whatever case it was sent.
    pub scheme: Span,
    /// `host[:port]`; never with user information, which nginx refuses too.
    pub authority: Span,
    /// What follows: begins with `/` or `?`, or is empty, which means `/`.
    pub path: Span,
}

/// A parsed request head: spans into the buffer given to [`parse`](RequestHead::parse), and the facts the server
/// needs before it knows the location. Owned by the connection and reused, so that fields cost no allocation.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    /// The method, classified.
    pub method: Method,
    /// The method as sent.
    pub method_span: Span,
    /// The target as sent: a path with its query, an absolute URI, an authority (`CONNECT`) or `*` (`OPTIONS`).
    pub target: Span,
    /// The parts of the target when it is an absolute URI; `None` for a path.
    pub absolute: Option<AbsoluteTarget>,
    /// The version; HTTP/1.2 and above count as 1.1.
    pub version: Version,
    /// The version as sent, nginx's `$server_protocol`; empty in HTTP/0.9.
    pub protocol: Span,
    /// The request line without its end, nginx's `$request`; of a bad one, everything up to the first CR or LF.
    pub line: Span,
    /// Bytes of the head, from the start of the buffer to the end of the empty line.
    pub len: usize,
    /// CR and LF bytes skipped before the request line, part of `len`; nginx's `$request_length` leaves them out.
    /// While the head is incomplete the caller may drop these from the buffer.
    pub leading_crlf: usize,
    /// The field lines in order, those with unusual names included (see [`Field::is_invalid`]).
    pub fields: Vec<Field>,
    /// Index of `Host` in `fields`; `None` when it is absent.
    pub host: Option<u16>,
    /// How many `Host` fields there are: 0 or 1, since a second one is an error.
    pub host_count: u16,
    /// `Content-Length`, in bytes; `None` when the field is absent.
    pub content_length: Option<u64>,
    /// True when the body is chunked (`Transfer-Encoding: chunked`).
    pub chunked: bool,
    /// What `Connection` names.
    pub connection: ConnectionTokens,
    /// `Expect: 100-continue`, in HTTP/1.1 only (RFC 9110 section 10.1.1).
    pub expect_continue: bool,
    /// True with another expectation, in HTTP/1.1 only; nginx ignores it, RFC 9110 allows 417.
    pub expect_other: bool,
    /// After an error: the line it is in, up to the wrong byte.
    pub offending: Span,
    /// One bit for each known name seen.
    seen: KnownFieldSet,
    /// A `Transfer-Encoding` that is not `chunked`.
    coding_unknown: bool,
}

impl RequestHead {
    /// Reads the head at the start of `buf`, forgetting what was read before.
    ///
    /// After `Complete` every span lies in `buf[..len]`, and the body, or the next head, begins at `len`. After
    /// `Incomplete` call again with the same bytes and more ([`may_be_complete`](super::may_be_complete) says
    /// when it pays). A missing `Host` is left to [`require_host`](RequestHead::require_host).
    ///
    /// # Errors
    /// [`BadRequest`] as soon as the bytes at hand cannot begin a good head. The connection is to be closed after
    /// the response. The parts read before the error stay readable, for the access log.
    pub fn parse(&mut self, buf: &[u8], limits: &HeadLimits) -> Result<HeadParse, BadRequest> {
        self.clear();
        self.leading_crlf = buf.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let most = self.leading_crlf.saturating_add(limits.max_head).min(i32::MAX as usize);
        let mut cursor = HeadCursor::new(buf.get(..most).unwrap_or(buf), self.leading_crlf);
        match self.read(&mut cursor, limits) {
            Ok(()) => {
                self.len = cursor.at;
                Ok(HeadParse::Complete)
            }
            Err(stop) => self.stopped(&cursor, limits, stop, buf.len() >= most),
        }
    }

    /// Forgets everything but the memory for fields.
    pub fn clear(&mut self) {
        // One by one, in place: a new head would be made elsewhere and copied, for every request.
        let RequestHead {
            method,
            method_span,
            target,
            absolute,
            version,
            protocol,
            line,
            len,
            leading_crlf,
            fields,
            host,
            host_count,
            content_length,
            chunked,
            connection,
            expect_continue,
            expect_other,
            offending,
            seen,
            coding_unknown,
        } = self;
        (*method, *version) = (Method::default(), Version::default());
        (*method_span, *target, *protocol, *line, *offending) = Default::default();
        *absolute = None;
        (*len, *leading_crlf) = (0, 0);
        fields.clear();
        (*host, *host_count, *content_length) = (None, 0, None);
        *connection = ConnectionTokens::default();
        (*chunked, *coding_unknown, *expect_continue, *expect_other) = (false, false, false, false);
        *seen = KnownFieldSet::default();
    }

    /// Makes this the head that `other` is, keeping the memory for fields.
    pub fn copy_from(&mut self, other: &RequestHead) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        fields.extend_from_slice(&other.fields);
        *self = RequestHead { fields, ..*other };
    }

    /// Whether the client, by version and `Connection`, would send another request (RFC 9112 section 9.3).
    pub fn keep_alive(&self) -> bool {
        !self.connection.close && (self.connection.keep_alive || self.version.keeps_alive_by_default())
    }

    /// Whether a body follows the head (RFC 9112 section 6.3).
    pub fn has_body(&self) -> bool {
        self.chunked || self.content_length.is_some_and(|length| length > 0)
    }

    /// The path and query to serve: the target, or what follows the authority in an absolute one. May be empty or
    /// begin with `?` there; a `/` is then to be put before it.
    pub fn path(&self) -> Span {
        self.absolute.map_or(self.target, |absolute| absolute.path)
    }

    /// The first field called `known`; `None` when the request has no such field, which is a bit of the head.
    #[inline]
    pub fn field(&self, known: KnownField) -> Option<&Field> {
        if self.seen.has(known) { self.find(known) } else { None }
    }

    fn find(&self, known: KnownField) -> Option<&Field> {
        self.fields.iter().find(|field| field.known == known)
    }

    /// Whether the request may have one of these fields; `false`: it has none.
    #[inline]
    pub fn may_have(&self, wanted: KnownFieldSet) -> bool {
        self.seen.meets(wanted)
    }

    /// Adds a field after the others, for a caller that changes a request that was read.
    pub fn push_field(&mut self, field: Field) {
        self.seen.add(field.known);
        if field.known == KnownField::Host && self.host.is_none() {
            self.host = u16::try_from(self.fields.len()).ok();
        }
        self.fields.push(field);
    }

    /// Keeps the fields that `keep` says, in order.
    pub fn retain_fields(&mut self, keep: impl FnMut(&Field) -> bool) {
        self.fields.retain(keep);
        let host = self.fields.iter().position(|field| field.known == KnownField::Host);
        self.host = host.and_then(|at| u16::try_from(at).ok());
    }

    /// HTTP/1.1 needs `Host`, also with an absolute target (RFC 9112 section 3.2, nginx).
    ///
    /// # Errors
    /// [`BadRequest::MissingHost`].
    pub fn require_host(&self) -> Result<(), BadRequest> {
        if self.host.is_none() && self.version >= Version::V11 {
            Err(BadRequest::MissingHost)
        } else {
            Ok(())
        }
    }

    fn read(&mut self, cursor: &mut HeadCursor<'_>, limits: &HeadLimits) -> Result<(), HeadStop> {
        let line = request_line(cursor)?;
        self.method = line.method;
        self.method_span = line.method_span;
        self.target = line.target;
        self.absolute = line.absolute;
        self.version = line.version;
        self.protocol = line.protocol;
        self.line = line.text;
        if cursor.at - cursor.line > limits.max_line {
            return Err(HeadStop::Bad(BadRequest::LineTooLong));
        }
        if self.version == Version::V09 {
            return Ok(());
        }
        let buf = cursor.buf;
        let mut fields = std::mem::take(&mut self.fields);
        let read =
            section(cursor, limits, &mut fields, |index, known, value| self.notice(buf, index, known, value));
        self.fields = fields;
        read?;
        Ok(self.check_framing()?)
    }

    /// Takes note of a known field. One that may come once is refused the second time, as nginx does.
    #[inline(always)]
    fn notice(&mut self, buf: &[u8], index: u16, known: KnownField, value: Span) -> Result<(), BadRequest> {
        let before = self.seen.add(known);
        if known.is_noticed() { self.act(index, known, value.of(buf), before) } else { Ok(()) }
    }

    fn act(&mut self, index: u16, known: KnownField, value: &[u8], before: bool) -> Result<(), BadRequest> {
        if before && known.is_single() {
            return Err(match known {
                KnownField::Host => BadRequest::RepeatedHost,
                KnownField::ContentLength => BadRequest::ContentLengthRepeated,
                _ => BadRequest::RepeatedField(known),
            });
        }
        match known {
            KnownField::Host => {
                self.host = Some(index);
                self.host_count = 1;
            }
            KnownField::Connection => self.connection.add(value),
            KnownField::ContentLength => {
                self.content_length = Some(decimal(value).ok_or(BadRequest::ContentLengthInvalid)?);
            }
            KnownField::TransferEncoding => {
                self.chunked = value.eq_ignore_ascii_case(b"chunked");
                self.coding_unknown = !self.chunked;
            }
            KnownField::Expect if self.version >= Version::V11 => {
                self.expect_continue = value.eq_ignore_ascii_case(b"100-continue");
                self.expect_other = !self.expect_continue;
            }
            _ => {}
        }
        Ok(())
    }

    /// The length of the body must be beyond doubt (RFC 9112 section 6.1); the order is nginx's.
    fn check_framing(&self) -> Result<(), BadRequest> {
        let encoded = self.chunked || self.coding_unknown;
        if encoded && self.version < Version::V11 {
            return Err(BadRequest::TransferEncodingHttp10);
        }
        if self.chunked && self.content_length.is_some() {
            return Err(BadRequest::BothLengths);
        }
        if self.coding_unknown { Err(BadRequest::TransferEncodingUnknown) } else { Ok(()) }
    }

    #[cold]
    fn stopped(
        &mut self,
        at: &HeadCursor<'_>,
        limits: &HeadLimits,
        stop: HeadStop,
        cut: bool,
    ) -> Result<HeadParse, BadRequest> {
        let in_line = self.line.is_empty();
        let outcome = match stop {
            HeadStop::Bad(bad) => Err(bad),
            HeadStop::More => {
                at.unfinished(limits, HeadEnd { cut, in_line }).map(|()| HeadParse::Incomplete { in_line })
            }
        };
        if outcome.is_err() {
            self.offending = at.offending();
            if in_line {
                let end = memchr2(b'\r', b'\n', at.rest(at.line)).map_or(at.buf.len(), |end| at.line + end);
                self.line = Span::new(at.line, end);
            }
        }
        outcome
    }
}

/// A set of known names; the table has at most 128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownFieldSet([u64; 2]);

impl KnownFieldSet {
    /// The set of `names`.
    pub const fn of(names: &[KnownField]) -> KnownFieldSet {
        let (mut bits, mut rest) = (0_u128, names);
        while let [first, others @ ..] = rest {
            bits |= 1 << *first as u8;
            rest = others;
        }
        KnownFieldSet([bits as u64, (bits >> 64) as u64])
    }

    /// Whether the sets have a name in common.
    #[inline]
    fn meets(self, other: KnownFieldSet) -> bool {
        let (KnownFieldSet([low, high]), KnownFieldSet([other_low, other_high])) = (self, other);
        low & other_low | high & other_high != 0
    }

    #[inline]
    fn has(self, known: KnownField) -> bool {
        let KnownFieldSet([low, high]) = self;
        let word = if known as u8 >= 64 { high } else { low };
        word >> (known as u8 & 63) & 1 != 0
    }

    /// Puts `known` in; true when it was there.
    #[inline(always)]
    fn add(&mut self, known: KnownField) -> bool {
        let KnownFieldSet([low, high]) = self;
        let word = if known as u8 >= 64 { high } else { low };
        let bit = 1 << (known as u8 & 63);
        let before = *word & bit != 0;
        *word |= bit;
        before
    }
}
