//! What a handler written in Rust is given, and what it responds with.

use std::borrow::Cow;
use std::io;

use weir_engine::body::{BodyBuf, ResponseBody};
use weir_engine::log::LogLevel;
use weir_engine::{EngineError, Exchange, Text, Verdict};
use weir_http::header::is_token_byte;
use weir_http::{KnownField, classify};
use weir_rt::SockAddr;

/// A request, as a handler sees it.
pub struct Request<'x> {
    x: &'x mut Exchange,
}

impl<'x> Request<'x> {
    pub(super) fn new(x: &'x mut Exchange) -> Request<'x> {
        Request { x }
    }

    /// The method, as sent: `GET`, `POST`, ...
    pub fn method(&self) -> Cow<'_, str> {
        self.text(self.x.request.head.method_span)
    }

    /// The normalised path (`$uri`): percent signs decoded, `..` and double slashes resolved. Bytes that are no UTF-8
    /// are replaced.
    pub fn path(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.x.uri())
    }

    /// What follows the question mark, as sent (`$args`); empty when it is absent.
    pub fn query(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.x.args())
    }

    /// The host asked for, in lower case and without port (`$host`).
    pub fn host(&self) -> Cow<'_, str> {
        self.text(self.x.request.host)
    }

    /// The value of the first field called `name`, in any case of letters; `None` when it is absent.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers().find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// All fields, in order: names and values as sent.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let arena = &self.x.arena;
        self.x.request.head.fields.iter().map(|field| (arena.get(field.name), arena.get(field.value)))
    }

    /// The client's address, or what `set_real_ip_from` put in its place.
    pub fn client(&self) -> &SockAddr {
        self.x.client()
    }

    /// The whole body. For asynchronous handlers; the first call reads it, and `client_max_body_size` bounds it.
    ///
    /// # Errors
    /// The client left, was too slow, sent too much or broke the framing. A handler that returns the error responds
    /// with its status.
    pub async fn body(&mut self) -> Result<Vec<u8>, EngineError> {
        self.x.read_body().await?;
        body_bytes(self.x)
    }

    /// Everything else: variables, logging, the connection, the response's head.
    pub fn exchange(&mut self) -> &mut Exchange {
        self.x
    }

    fn text(&self, span: weir_http::Span) -> Cow<'_, str> {
        String::from_utf8_lossy(self.x.arena.get(span))
    }
}

/// All of a request's body that was read ([`Exchange::read_body`]), in one piece, wherever it is: what a handler of
/// [`ServerBuilder::handler_with`](crate::ServerBuilder::handler_with) needs that has no [`Request`].
///
/// # Errors
/// The file of a long body can't be read.
pub fn body_bytes(x: &Exchange) -> Result<Vec<u8>, EngineError> {
    let Some(file) = x.body.file() else { return Ok(x.body.memory().to_vec()) };
    let (handle, length) = (file.handle.clone(), file.len);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    let mut read = 0;
    while read < bytes.len() {
        match handle.pread(&mut bytes[read..], read as u64).map_err(unreadable)? {
            0 => return Err(unreadable(io::ErrorKind::UnexpectedEof.into())),
            more => read += more,
        }
    }
    Ok(bytes)
}

/// The file of a long body went bad: the server's fault.
fn unreadable(error: io::Error) -> EngineError {
    EngineError::file(error.raw_os_error())
}

/// The response: 200 without body, unless the handler says otherwise.
#[derive(Debug)]
pub struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Response {
    pub(super) fn new() -> Response {
        Response { status: 200, headers: Vec::new(), body: Vec::new() }
    }

    /// The status code. From 300 on and without body, the response is what the server makes of it by itself: its page
    /// of that error, or what `error_page` says.
    pub fn status(&mut self, code: u16) -> &mut Response {
        self.status = code;
        self
    }

    /// Adds a field. `Content-Length` and what frames the message is not the handler's business and overlooked.
    pub fn header(&mut self, name: impl Into<String>, value: impl Into<String>) -> &mut Response {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// `Content-Type`; without it the location's `default_type` holds.
    pub fn content_type(&mut self, value: impl Into<String>) -> &mut Response {
        self.header("Content-Type", value)
    }

    /// Replaces the body by `bytes`.
    pub fn body(&mut self, bytes: impl Into<Vec<u8>>) -> &mut Response {
        self.body = bytes.into();
        self
    }

    /// Responds.
    pub(super) fn send(self, x: &mut Exchange) -> Verdict {
        let fits = |(name, value): &(String, String)| {
            !name.is_empty()
                && name.bytes().all(is_token_byte)
                && !value.bytes().any(|b| matches!(b, b'\r' | b'\n' | 0))
        };
        if !(200..=599).contains(&self.status) || !self.headers.iter().all(fits) {
            x.log(LogLevel::Error, &"a handler gave a status or a field that can't be sent");
            return Verdict::Status(500);
        }
        x.response.status = self.status;
        for (name, value) in &self.headers {
            set(x, name, value);
        }
        if self.body.is_empty() && self.status >= 300 && x.response.location.is_none() {
            return Verdict::Status(self.status);
        }
        match self.body.is_empty() {
            true => x.respond(ResponseBody::Empty),
            false => x.respond(ResponseBody::Whole(BodyBuf::Bytes(self.body))),
        }
    }
}

impl io::Write for Response {
    /// Appends to the body.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.body.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn set(x: &mut Exchange, name: &str, value: &str) {
    let value = Text::from(x.arena.push(value.as_bytes()));
    match classify(name.as_bytes()) {
        KnownField::ContentType => x.response.content_type = Some(value),
        KnownField::Location => x.response.location = Some(value),
        KnownField::Server => x.response.server = Some(value),
        KnownField::Date => x.response.date = Some(value),
        KnownField::ContentLength | KnownField::TransferEncoding | KnownField::Connection => {}
        KnownField::Other => {
            let name = Text::from(x.arena.push(name.as_bytes()));
            x.response.add_named(name, value);
        }
        known => x.response.add(known, value),
    }
}
