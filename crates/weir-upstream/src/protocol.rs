//! What speaks to a server: composes requests, reads heads, finds where a body ends.

use std::any::Any;
use std::rc::Rc;

use weir_http::h1::ChunkedDecoder;
use weir_http::hpack::{FieldIndexing, HpackEncoder};
use weir_http::{Field, KnownField, Span};

use crate::tls_client::SecureUpstream;
use weir_engine::exchange::{Exchange, HeadMemo};
use weir_engine::log::LogLevel;
use weir_engine::phase::Verdict;
use weir_engine::text::Text;
use weir_engine::variable::ValueBasis;
use weir_engine::worker::UpstreamCloseProtocol;

/// A protocol that servers of an upstream speak. One instance per location and worker.
pub trait UpstreamProtocol {
    /// What precedes an address in messages: `http://`.
    fn scheme(&self) -> &'static str;

    /// What its connections are counted as when they end.
    fn closes_as(&self) -> UpstreamCloseProtocol;

    /// The scheme of connections with TLS: `https://`.
    fn secure_scheme(&self) -> &'static str {
        "https://"
    }

    /// The TLS that connections for `x` need; none by default.
    fn secure(&self, _x: &mut Exchange) -> Option<SecureUpstream> {
        None
    }

    /// Servers speak HTTP/2: the request is in [`OutgoingRequest::section`], and the engine reads the response.
    fn multiplexes(&self) -> bool {
        false
    }

    /// Nothing is asked: the response is that the connection is established, and from there on bytes pass both ways.
    fn opens_tunnels(&self) -> bool {
        false
    }

    /// How the bytes of a session of `stream` pass; asked when the server is connected. `None`: they are a request's.
    fn session(&self, _x: &mut Exchange) -> Option<SessionManners> {
        None
    }

    /// A connection takes one request after the other, and [`UpstreamProtocol::head`] may be shown the same bytes twice: what it
    /// keeps between two calls it keeps nowhere.
    fn is_plain(&self) -> bool {
        false
    }

    /// What names the response to `x` in a cache, where no `*_cache_key` does; at the end of the arena.
    ///
    /// # Errors
    /// The verdict that ends the request.
    fn cache_key(&self, x: &mut Exchange) -> Result<Span, Verdict> {
        Ok(x.arena.push(b""))
    }

    /// Composes the request for a try; runs once per request, before the first try, and again when a try must be made
    /// with another name. `Err`: what to respond instead.
    ///
    /// # Errors
    /// The verdict that ends the request (a bad variable, say).
    fn request(&self, x: &mut Exchange, out: &mut OutgoingRequest) -> Result<(), Verdict>;

    /// The length of the body precedes it: one that comes in chunks is read whole before it is sent.
    fn needs_length(&self) -> bool {
        false
    }

    /// Frames a piece of the request's body; as it is by default.
    fn body(&self, piece: Vec<u8>, framing: RequestFraming) -> Vec<u8> {
        match framing {
            RequestFraming::Chunked => chunk(&piece),
            RequestFraming::None | RequestFraming::Plain | RequestFraming::Records => piece,
        }
    }

    /// What precedes `len` bytes, [`RECORD`] at most, of a body that lies in a file; for [`RequestFraming::Records`].
    fn body_head(&self, _len: u64) -> Vec<u8> {
        Vec::new()
    }

    /// What follows the last piece of the request's body.
    fn body_end(&self, framing: RequestFraming) -> Vec<u8> {
        match framing {
            RequestFraming::Chunked => b"0\r\n\r\n".to_vec(),
            RequestFraming::None | RequestFraming::Plain | RequestFraming::Records => Vec::new(),
        }
    }

    /// Reads the head of a response from the start of `bytes`, of which it may take as many as it needs. What it finds
    /// it copies into the exchange's arena. Interim responses (1xx but 101) are reported as such; the fields of a 103
    /// stay spans of `bytes`. What it keeps between two calls for the same response is in [`IncomingHead::state`].
    ///
    /// # Errors
    /// Why it is not one, in nginx's words; empty when that is in the log already.
    fn head(
        &self,
        x: &mut Exchange,
        bytes: &[u8],
        incoming: &mut IncomingHead,
    ) -> Result<HeadProgress, String>;

    /// What the request that [`UpstreamProtocol::request`] composes for `x` follows from, where `x` has no body.
    fn basis(&self, _x: &Exchange) -> ValueBasis {
        ValueBasis::Request
    }

    /// The head that `bytes` begin with, the response to a GET, if it has come a few times before and its length is known; `None`
    /// says nothing.
    fn known_head(&self, _bytes: &[u8]) -> Option<KnownHead> {
        None
    }

    /// Another value for a field of the response (`Location`, `Set-Cookie`, `Refresh`); `None`: as it is.
    fn field(&self, _x: &mut Exchange, _field: &Field) -> Option<Text> {
        None
    }

    /// Whether a response without `Server` or `Date` leaves the client without one, too, where `_pass_header` shows it.
    fn speaks_for_server(&self) -> bool {
        false
    }
}

/// How the bytes of a session pass between its client and its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionManners {
    /// Each side may end its direction alone; else the session ends with the first.
    pub half_close: bool,
    /// Bytes a second that are taken of the client; 0: no limit.
    pub upload_rate: u64,
    /// Bytes a second that are taken of the server; 0: no limit.
    pub download_rate: u64,
    /// Over UDP, datagrams of the client after which the next begins another session; 0: there is no such number.
    pub requests: u64,
    /// Over UDP, how many datagrams are expected of the server for each of the client; `None`: that is not known.
    pub responses: Option<u64>,
}

/// The head of a response that came before.
pub struct KnownHead {
    /// Its bytes.
    pub len: usize,
    /// The status code.
    pub status: u16,
    /// The number of bytes after it.
    pub body: u64,
    /// True when the server keeps the connection open.
    pub keep_alive: bool,
    /// Where the client's head is stored.
    pub memo: Rc<HeadMemo>,
}

/// What [`UpstreamProtocol::head`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadProgress {
    /// A whole head of this many bytes.
    Complete(usize),
    /// An interim response of this many bytes; another head follows.
    Interim(usize),
    /// This many bytes were taken and are not shown again; the head is not over. They may be more than the longest
    /// head: the protocol bounds what is stored of them.
    Taken(usize),
    /// More bytes are needed.
    Incomplete,
}

/// How the body of a request is framed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestFraming {
    /// There is no body.
    #[default]
    None,
    /// The body is sent as it is, with a length.
    Plain,
    /// The body is sent in chunks.
    Chunked,
    /// In records of the protocol's own ([`UpstreamProtocol::body`], [`UpstreamProtocol::body_head`], [`UpstreamProtocol::body_end`]).
    Records,
}

/// How many bytes of a file a record holds at most.
pub const RECORD: u64 = 32 * 1024;

/// A request as it is sent.
#[derive(Debug, Default)]
pub struct OutgoingRequest {
    /// The bytes of its head, in the protocol's format; where servers speak HTTP/2, `section` has it instead.
    pub head: Vec<u8>,
    /// Its head, where servers speak HTTP/2.
    pub section: FieldSection,
    /// The section asks for a WebSocket (RFC 8441): what its client receives in `Sec-WebSocket-Accept` where the server
    /// opens it.
    pub websocket: Option<Vec<u8>>,
    /// A body to send in place of the client's; `None`: the client's.
    pub body: Option<Vec<u8>>,
    /// How the client's body follows.
    pub framing: RequestFraming,
    /// The URI in it, for messages; of the exchange's arena.
    pub uri: Span,
    /// True when the connection may be kept alive, as far as the request says.
    pub keep_alive: bool,
}

/// The head of a request in HTTP/2. Names are written in lower case.
#[derive(Debug, Default)]
pub struct FieldSection {
    text: Vec<u8>,
    pseudo: Vec<(&'static str, Span)>,
    fields: Vec<(Span, Span)>,
}

impl FieldSection {
    /// Adds `:method` and its like; they precede all fields.
    pub fn pseudo(&mut self, name: &'static str, value: &[u8]) {
        let value = self.text(value);
        self.pseudo.push((name, value));
    }

    /// Appends a field and writes its name in lower case, as HTTP/2 requires (RFC 9113 section 8.2.1).
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        let start = self.text.len();
        let name = self.text(name);
        self.text[start..].make_ascii_lowercase();
        let value = self.text(value);
        self.fields.push((name, value));
    }

    /// Takes a field out; its name in lower case.
    pub fn remove(&mut self, name: &[u8]) {
        self.fields.retain(|(field, _)| field.of(&self.text) != name);
    }

    fn text(&mut self, text: &[u8]) -> Span {
        let start = self.text.len();
        self.text.extend_from_slice(text);
        Span { start: start as u32, end: self.text.len() as u32 }
    }

    /// Writes it as a header block.
    pub(super) fn write(&self, coder: &mut HpackEncoder, out: &mut Vec<u8>) {
        for (name, value) in &self.pseudo {
            coder.pseudo(name, value.of(&self.text), out);
        }
        for (name, value) in &self.fields {
            let (name, value) = (name.of(&self.text), value.of(&self.text));
            match weir_http::classify(name) {
                KnownField::Other => coder.field(name, value, FieldIndexing::Allowed, out),
                known => coder.known(known, value, out),
            }
        }
    }
}

/// The head of a response. Spans are of the exchange's arena.
#[derive(Debug, Default)]
pub struct IncomingHead {
    /// The status code.
    pub status: u16,
    /// The status and the reason as sent (`200 OK`); `None`: the usual one.
    pub reason: Option<Span>,
    /// The response's fields, in order.
    pub fields: Vec<Field>,
    /// The length of the body in bytes, if the head announces it.
    pub content_length: Option<u64>,
    /// Where the body ends.
    pub decoder: BodyDecoder,
    /// True when the server keeps the connection open.
    pub keep_alive: bool,
    /// True when the connection speaks another protocol from here on.
    pub upgraded: bool,
    /// Where the client's head is stored, as the same one has come before; `None`: nowhere.
    pub memo: Option<Rc<HeadMemo>>,
    /// What the protocol stores between two calls of [`UpstreamProtocol::head`]; `None` without any.
    pub state: Option<Box<dyn Any>>,
}

/// Finds the end of a response's body, and takes its framing off.
#[derive(Debug, Default)]
pub enum BodyDecoder {
    /// There is no body.
    #[default]
    None,
    /// This many bytes are to come.
    Length(u64),
    /// The body is chunked.
    Chunked(Box<ChunkedDecoder>),
    /// Everything until the connection is closed.
    UntilClose,
    /// Another protocol's.
    Other(Box<dyn BodyDecode>),
}

/// A body's framing of another protocol.
pub trait BodyDecode: std::fmt::Debug {
    /// Takes from `input`, appends the body's bytes to `out`. Returns how much was taken, and whether the body is
    /// over.
    ///
    /// # Errors
    /// The framing is wrong, in nginx's words.
    fn decode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, bool), String>;

    /// What is to be logged about the bytes decoded last; they are reported once.
    fn messages(&mut self) -> Vec<(LogLevel, String)> {
        Vec::new()
    }

    /// Whether the server may close the connection here and the body is whole all the same.
    fn may_end(&self) -> bool {
        false
    }
}

fn chunk(piece: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(piece.len() + 20);
    weir_http::h1::chunk_head(&mut out, piece.len() as u64);
    out.extend_from_slice(piece);
    out.extend_from_slice(b"\r\n");
    out
}

/// Bytes of interim responses to one request above which the server is not listened to any more: each costs as much as a
/// response, and a request that gets them never times out.
pub(crate) const INTERIM: usize = 64 * 1024;

/// What is wrong with such a server.
pub(crate) const TOO_MANY: &str = "sent too many interim responses";
