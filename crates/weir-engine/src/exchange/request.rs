//! The request, as received and as normalised.

use weir_http::h1::RequestHead;
use weir_http::{KnownField, Span};

use crate::text::Arena;

/// A field of the request's head.
pub use weir_http::Field;

/// What the client asked for: the head as parsed, and what was made of it. All text lies in the exchange's arena, the
/// head first.
#[derive(Debug, Default)]
pub struct Request {
    /// The head as parsed.
    pub head: RequestHead,
    /// See [`Exchange::main_method`](super::Exchange::main_method): in a subrequest the client's method; else unused.
    pub(crate) main_method: Span,
    /// The target as written, in absolute form without scheme and host (`$request_uri`).
    pub unparsed_uri: Span,
    /// The normalised path (`$uri`).
    pub uri: Span,
    /// What follows the last dot of the path's last segment; empty for none. Chooses the media type.
    pub exten: Span,
    /// The arguments, undecoded, without `?` (`$args`).
    pub args: Span,
    /// The host asked for, lower case, without port (`$host`); empty without one.
    pub host: Span,
    /// The port in the Host field (`$request_port`); empty without one.
    pub port: Span,
    /// True when the URI is the target as written: `proxy_pass` without URI sends that.
    pub uri_is_plain: bool,
}

impl Request {
    /// The value of the first field `known`; `None` if the request has no such field.
    #[inline]
    pub fn value<'a>(&self, arena: &'a Arena, known: KnownField) -> Option<&'a [u8]> {
        self.head.field(known).map(|field| arena.get(field.value))
    }

    /// The place of the value of the first field `known` in the request's arena; `None` if the request has no such
    /// field.
    #[inline]
    pub fn span(&self, known: KnownField) -> Option<Span> {
        self.head.field(known).map(|field| field.value)
    }

    /// The path as it was sent, without arguments and fragment.
    #[inline]
    pub(crate) fn sent_path<'a>(&self, arena: &'a Arena) -> &'a [u8] {
        if self.uri.start == self.unparsed_uri.start {
            // Nearly always: it was normal, and nothing has changed it since.
            return arena.get(self.uri);
        }
        let target = arena.get(self.unparsed_uri);
        &target[..memchr::memchr2(b'?', b'#', target).unwrap_or(target.len())]
    }

    /// Makes `uri` the path, and finds its extension again.
    pub fn set_uri(&mut self, arena: &Arena, uri: Span) {
        self.uri = uri;
        self.exten = extension(arena.get(uri), uri);
        self.uri_is_plain = false;
    }

    /// Makes `args` the arguments: what is passed on is composed again from here on.
    pub fn set_args(&mut self, args: Span) {
        self.args = args;
        self.uri_is_plain = false;
    }

    /// Makes this the request that `other` is; its spans count for the same text.
    pub(crate) fn copy_from(&mut self, other: &Request) {
        let Request { head, main_method, unparsed_uri, uri, exten, args, host, port, uri_is_plain } = self;
        head.copy_from(&other.head);
        (*main_method, *unparsed_uri, *uri) = (other.main_method, other.unparsed_uri, other.uri);
        (*exten, *args, *host, *port) = (other.exten, other.args, other.host, other.port);
        *uri_is_plain = other.uri_is_plain;
    }

    /// Forgets all but the head, which its next reading clears.
    pub(crate) fn clear(&mut self) {
        let Request { head: _, main_method, unparsed_uri, uri, exten, args, host, port, uri_is_plain } = self;
        for span in [main_method, unparsed_uri, uri, exten, args, host, port] {
            *span = Span::default();
        }
        *uri_is_plain = false;
    }
}

/// The extension of `path`, as a span of the arena in which `path` is at `span`.
pub(crate) fn extension(path: &[u8], span: Span) -> Span {
    weir_http::uri::exten(path).map_or_else(Span::default, |part| Span {
        start: span.start + part.start,
        end: span.start + part.end,
    })
}
