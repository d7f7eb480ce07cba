//! A connection of the admin listener: heads in, responses out, until either side closes.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use weir_http::h1::{self, HeadLimits, HeadParse, RequestHead};
use weir_http::{KnownField, Method, Version};

use super::listener::{AdminPermit, AdminStream, ListenerState};
use super::route;
use crate::interrupted::uninterrupted;
use crate::responses::reply::{ReplyFailure, ReplySink};

/// A request, as far as responses need it.
#[derive(Debug, Default)]
pub(super) struct AdminRequest {
    pub(super) method: Method,
    pub(super) path: String,
    /// After the `?`, not decoded.
    pub(super) query: String,
    pub(super) accept: String,
    pub(super) host: String,
    pub(super) authorization: String,
    pub(super) content_type: String,
    pub(super) origin: String,
    pub(super) body: Vec<u8>,
    pub(super) version: Version,
    pub(super) keep_alive: bool,
}

/// A request whose response takes no time.
pub(super) struct AdminResponse {
    pub(super) status: u16,
    pub(super) media_type: &'static str,
    /// What its head says besides.
    pub(super) fields: &'static [(&'static str, &'static str)],
    pub(super) body: Vec<u8>,
}

impl AdminResponse {
    pub(super) fn new(status: u16, media_type: &'static str, body: impl Into<Vec<u8>>) -> AdminResponse {
        AdminResponse { status, media_type, fields: &[], body: body.into() }
    }

    /// Text with that status.
    pub(super) fn text(status: u16, text: impl Into<String>) -> AdminResponse {
        AdminResponse::new(status, "text/plain; charset=utf-8", text.into())
    }
}

/// Serves requests one after the other.
pub(super) fn run(stream: Box<dyn AdminStream>, door: &ListenerState, place: &AdminPermit) -> io::Result<()> {
    let mut line = BufferedConnection { stream, input: Vec::new(), until: Instant::now() };
    for _ in 0..REQUESTS {
        let request = match line.request() {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            Err(RequestRefusal::Broken(error)) => return Err(error),
            Err(RequestRefusal::Bad(status)) => {
                return line.send(
                    &AdminRequest::default(),
                    &AdminResponse::text(status, "what was sent is no good request\n"),
                );
            }
        };
        let mut responder =
            ResponseWriter { line: &mut line, request: &request, place, started: false, stopped: false };
        route::answer(door, &request, &mut responder)?;
        if !request.keep_alive || responder.stopped {
            return Ok(());
        }
    }
    Ok(())
}

/// Why there is no request.
enum RequestRefusal {
    Broken(io::Error),
    /// The response has this status.
    Bad(u16),
}

/// The connection with what was read ahead.
struct BufferedConnection {
    stream: Box<dyn AdminStream>,
    input: Vec<u8>,
    /// When the request that is read must be here.
    until: Instant,
}

impl BufferedConnection {
    /// The next request; `None` when the client sends no more.
    fn request(&mut self) -> Result<Option<AdminRequest>, RequestRefusal> {
        let mut head = RequestHead::default();
        self.until = Instant::now() + IDLE;
        loop {
            match head.parse(&self.input, &LIMITS) {
                Ok(HeadParse::Complete) => break,
                Ok(HeadParse::Incomplete { .. }) => {}
                Err(_) => return Err(RequestRefusal::Bad(400)),
            }
            match self.read() {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                // A client that keeps its connection and has no more questions.
                Err(error) if is_timeout(&error) => return Ok(None),
                Err(error) => return Err(RequestRefusal::Broken(error)),
            }
        }
        let mut request = read_head(&head, &self.input);
        self.input.drain(..head.len);
        if head.chunked || head.content_length.is_some_and(|length| length > BODY) {
            return Err(RequestRefusal::Bad(413));
        }
        let length = head.content_length.unwrap_or(0) as usize;
        self.until = Instant::now() + IDLE;
        while self.input.len() < length {
            if self.read().map_err(RequestRefusal::Broken)? == 0 {
                return Ok(None);
            }
        }
        request.body = self.input.drain(..length).collect();
        Ok(Some(request))
    }

    /// Reads, up to the end of the request's time: a client that sends a byte now and then keeps no place for longer
    /// than others.
    fn read(&mut self) -> io::Result<usize> {
        uninterrupted(|| {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_patience(Some(left))?;
            self.receive()
        })
    }

    fn receive(&mut self) -> io::Result<usize> {
        let mut piece = [0; 4096];
        let length = self.stream.read(&mut piece)?;
        self.input.extend_from_slice(&piece[..length]);
        Ok(length)
    }

    fn send(&mut self, request: &AdminRequest, answer: &AdminResponse) -> io::Result<()> {
        let mut out = head(request, answer.status, answer.media_type);
        answer.fields.iter().for_each(|(name, value)| h1::field(&mut out, name.as_bytes(), value.as_bytes()));
        h1::content_length(&mut out, answer.body.len() as u64);
        h1::end(&mut out);
        if request.method != Method::Head {
            out.extend_from_slice(&answer.body);
        }
        self.stream.write_all(&out)
    }
}

fn read_head(head: &RequestHead, buf: &[u8]) -> AdminRequest {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let field = |known| head.field(known).map_or(String::new(), |field| text(field.value.of(buf)));
    let named = |name: &[u8]| {
        let found = head.fields.iter().find(|field| field.name.of(buf).eq_ignore_ascii_case(name));
        found.map_or(String::new(), |field| text(field.value.of(buf)))
    };
    let target = text(head.path().of(buf));
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    AdminRequest {
        method: head.method,
        path: path.to_owned(),
        query: query.to_owned(),
        accept: field(KnownField::Accept),
        host: field(KnownField::Host),
        authorization: field(KnownField::Authorization),
        content_type: field(KnownField::ContentType),
        origin: named(b"origin"),
        body: Vec::new(),
        version: head.version,
        keep_alive: head.keep_alive(),
    }
}

/// The head up to the framing.
fn head(request: &AdminRequest, status: u16, media_type: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    h1::status_line(&mut out, status);
    h1::known_field(&mut out, KnownField::ContentType, media_type.as_bytes());
    h1::field(&mut out, b"Cache-Control", b"no-store");
    h1::field(&mut out, b"X-Content-Type-Options", b"nosniff");
    if !request.keep_alive {
        h1::known_field(&mut out, KnownField::Connection, b"close");
    }
    out
}

/// Where responses go: at once, or piece by piece as a streamed response.
pub(super) struct ResponseWriter<'a> {
    line: &'a mut BufferedConnection,
    request: &'a AdminRequest,
    place: &'a AdminPermit,
    started: bool,
    stopped: bool,
}

impl ResponseWriter<'_> {
    /// The request may have a response: its connection counts among those that do. `false`: there are too many.
    pub(super) fn keep_place(&self) -> bool {
        self.place.keep()
    }

    /// A whole response.
    pub(super) fn send(&mut self, answer: &AdminResponse) -> io::Result<()> {
        self.line.send(self.request, answer)
    }

    /// A response sent piece by piece: chunked, or up to the end of the connection for HTTP/1.0.
    pub(super) fn stream(
        &mut self,
        media_type: &str,
        f: impl FnOnce(&mut dyn ReplySink) -> Result<(), ReplyFailure>,
    ) -> io::Result<()> {
        let chunked = self.request.version >= Version::V11;
        let mut pieces = ChunkedReply { responder: self, media_type, chunked };
        let end = f(&mut pieces);
        match end {
            Err(ReplyFailure::Gone(error)) => Err(error),
            Err(ReplyFailure::Wrong(text)) if !self.started => {
                self.send(&AdminResponse::text(400, text + "\n"))
            }
            Ok(()) | Err(ReplyFailure::Wrong(_)) => self.finish(media_type, chunked),
        }
    }

    fn finish(&mut self, media_type: &str, chunked: bool) -> io::Result<()> {
        if !self.started {
            self.begin(media_type, chunked)?;
        }
        if !chunked {
            self.stopped = true;
            return Ok(());
        }
        let mut out = Vec::new();
        h1::last_chunk(&mut out, std::iter::empty());
        self.line.stream.write_all(&out)
    }

    fn begin(&mut self, media_type: &str, chunked: bool) -> io::Result<()> {
        let mut out = head(self.request, 200, media_type);
        if chunked {
            h1::known_field(&mut out, KnownField::TransferEncoding, b"chunked");
        }
        h1::end(&mut out);
        self.started = true;
        self.line.stream.write_all(&out)
    }

    /// Whether the client has closed its side. What it sends meanwhile is its next request.
    fn is_gone(&mut self) -> bool {
        let read = self.line.stream.set_patience(None).and_then(|()| self.line.receive());
        let gone = match read {
            Ok(length) => length == 0 || self.line.input.len() > AHEAD,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        self.stopped |= gone || self.line.stream.set_patience(Some(IDLE)).is_err();
        self.stopped
    }
}

/// A response is collected before it is sent.
pub(super) struct CollectedReply<'a, 'b>(pub(super) &'a mut ResponseWriter<'b>, pub(super) Vec<u8>);

impl ReplySink for CollectedReply<'_, '_> {
    fn out(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.1.extend_from_slice(bytes);
        Ok(())
    }

    fn note(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn is_stopped(&mut self) -> bool {
        self.0.is_gone()
    }
}

struct ChunkedReply<'a, 'b> {
    responder: &'a mut ResponseWriter<'b>,
    media_type: &'a str,
    chunked: bool,
}

impl ReplySink for ChunkedReply<'_, '_> {
    fn out(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.responder.started {
            self.responder.begin(self.media_type, self.chunked)?;
        }
        // An empty chunk would be the last one.
        if bytes.is_empty() {
            return Ok(());
        }
        let mut out = Vec::with_capacity(bytes.len() + 16);
        if self.chunked {
            h1::chunk_head(&mut out, bytes.len() as u64);
        }
        out.extend_from_slice(bytes);
        if self.chunked {
            out.extend_from_slice(b"\r\n");
        }
        self.responder.line.stream.write_all(&out)
    }

    fn note(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn is_stopped(&mut self) -> bool {
        self.responder.is_gone()
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

const LIMITS: HeadLimits = HeadLimits::new(8 * 1024, 16 * 1024, 100);
/// Bytes of a body at most: addresses to be named, lists of servers.
const BODY: u64 = 256 * 1024;
/// Bytes a client may send ahead while its response is made.
const AHEAD: usize = 64 * 1024;
/// How long a connection may wait for a request, or for the rest of one.
const IDLE: Duration = Duration::from_secs(30);
/// Requests on a connection.
const REQUESTS: usize = 1000;
