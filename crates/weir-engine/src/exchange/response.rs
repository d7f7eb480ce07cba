//! The response's head, while it is being made.

use std::rc::Rc;

use weir_http::KnownField;

use super::head_memo::HeadMemo;
use crate::body::ResponseBody;
use crate::text::{Arena, Span, Text};

/// A field of a response: its name, known or as written, and its value.
#[derive(Clone, Debug)]
pub struct ResponseHeader {
    /// The field's name.
    pub name: HeaderName,
    /// The field's value.
    pub value: Text,
}

/// The name of a response field: of the table of known names, or a text.
#[derive(Clone, Debug)]
pub enum HeaderName {
    /// One that Weir knows; compared as an integer, written in its usual form.
    Known(KnownField),
    /// One that Weir knows, in another letter case than the usual one: compared as an integer, too, written as here.
    Written(KnownField, Text),
    /// Any other, as it shall be written.
    Other(Text),
}

impl HeaderName {
    /// The name as it is sent, in its letter case.
    pub fn bytes<'a>(&'a self, arena: &'a Arena) -> &'a [u8] {
        match self {
            HeaderName::Known(known) => known.name().as_bytes(),
            HeaderName::Written(_, text) | HeaderName::Other(text) => text.bytes(arena),
        }
    }

    /// The field that Weir knows by this name, in any letter case; `None` for [`HeaderName::Other`].
    #[inline]
    pub fn known(&self) -> Option<KnownField> {
        match self {
            HeaderName::Known(known) | HeaderName::Written(known, _) => Some(*known),
            HeaderName::Other(_) => None,
        }
    }

    /// The name of a field that shall be written as `text`, which is `known` as a token.
    pub fn written(known: KnownField, text: Text, arena: &Arena) -> HeaderName {
        match known {
            KnownField::Other => HeaderName::Other(text),
            known if known.name().as_bytes() == text.bytes(arena) => HeaderName::Known(known),
            known => HeaderName::Written(known, text),
        }
    }

    /// Whether this is `name`, in any case.
    pub fn is(&self, arena: &Arena, name: &[u8]) -> bool {
        let own = self.bytes(arena);
        // Names of one length often begin alike; their last letters distinguish most of them.
        own.len() == name.len()
            && own.last().map(u8::to_ascii_lowercase) == name.last().map(u8::to_ascii_lowercase)
            && own.eq_ignore_ascii_case(name)
    }
}

/// A response, its head above all. What nearly every response has is a typed field and is written in nginx's order;
/// everything else is in `headers`.
#[derive(Debug, Default)]
pub struct Response {
    /// Status code; 0 until it is set.
    pub status: u16,
    /// The reason phrase, if it is not the usual one of the status (an upstream's); `None`: the usual one.
    pub reason: Option<Text>,
    /// `Content-Type` without charset.
    pub content_type: Option<Text>,
    /// Charset added to the type; `None`: none is added.
    pub charset: Option<Text>,
    /// The type and charset as an upstream wrote them, sent as long as [`Response::content_type`] and
    /// [`Response::charset`] are parts of it; `None`: composed from those.
    pub written_type: Option<Span>,
    /// The charset that an upstream wants its response recoded to (`X-Accel-Charset`); `None` without that field.
    pub override_charset: Option<Text>,
    /// `Content-Length`, in bytes; `None`: the body is chunked or ends with the connection.
    pub content_length: Option<u64>,
    /// True when the handler has not said the length, which is known only since its whole body came at once: a filter
    /// that may change the body takes the length away.
    pub open_length: bool,
    /// True when a filter that runs scripts sees the end of the body after its last bytes, as with nginx's modules whose bodies come a
    /// piece at a time: upstreams, and scripts. Of a file or a page it sees both at once.
    pub end_apart: bool,
    /// `Last-Modified`, in seconds since 1970; also what conditional requests compare. `None`: not known.
    pub last_modified: Option<i64>,
    /// `Location`; made absolute by `absolute_redirect`. `None`: no such field.
    pub location: Option<Text>,
    /// All other fields, in order.
    pub headers: Vec<ResponseHeader>,
    /// Trailer fields, in the order in which they are sent.
    pub trailers: Vec<ResponseHeader>,
    /// True when trailer fields will follow, or a script wants chunks: the length is not sent even if it is known, the body is chunked.
    pub expect_trailers: bool,
    /// True when the response may be cut into ranges (a whole 200 of known length).
    pub allow_ranges: bool,
    /// True when several ranges are not cut, only one: the body comes in pieces, which are not retained.
    pub single_range: bool,
    /// True when ranges are cut even if the upstream did not offer to (`proxy_force_ranges`).
    pub force_ranges: bool,
    /// The body begins with this byte of the whole that the head describes (`slice`); with one range asked for, its
    /// first byte, once that is decided.
    pub content_offset: u64,
    /// True when conditional request fields are ignored.
    pub disable_not_modified: bool,
    /// True when a 304 was decided: nginx writes neither type nor length.
    pub not_modified: bool,
    /// True when the head was handed to the connection.
    pub header_sent: bool,
    /// True when no body follows whatever the handler gives: HEAD, 204, 304.
    pub header_only: bool,
    /// True when the response is chunked on this connection.
    pub chunked: bool,
    /// True when the bytes of a tunnel follow the head: they have no framing.
    pub unframed: bool,
    /// This many bytes of the body may wait for the client before what makes it waits too; at most, and unless a filter
    /// wants less, 64 KB.
    pub(crate) ahead: Option<u64>,
    /// `Vary: Accept-Encoding` is written (`gzip_vary`).
    pub vary_encoding: bool,
    /// Whether the client accepts gzip; `None` until the first caller has computed it for all.
    pub gzip_ok: Option<bool>,
    /// `error_page` is not applied (again) to this response.
    pub error_page_done: bool,
    /// The status with which `error_page` was entered, for `error_page ... =`; 0 otherwise.
    pub err_status: u16,
    /// `Server` as set by an upstream or a script; `None`: the server's own.
    pub server: Option<Text>,
    /// `Date` as set by an upstream or a script; `None`: the current time.
    pub date: Option<Text>,
    /// What is known of the head before its filters have seen it.
    pub(crate) ready: ReadyHead,
    /// Where the head is stored with what it comes from; `None`: nowhere.
    pub(crate) memo: Option<Rc<HeadMemo>>,
    /// What follows the head, until the engine takes it.
    pub(crate) body: ResponseBody,
}

/// What is known of a response's head before its filters have seen it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReadyHead {
    /// Nothing.
    #[default]
    Open,
    /// Other requests like this one will get the same: it can be stored for them.
    Alike,
    /// It can be stored in [`Response::memo`].
    Repeated,
    /// It is the one of this number, which was stored for requests like this: filters would leave it as it is.
    Known(u32),
}

impl Response {
    /// Whether nothing has been said of the response yet.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        let texts = [
            &self.reason,
            &self.content_type,
            &self.charset,
            &self.override_charset,
            &self.location,
            &self.server,
            &self.date,
        ];
        let flags = [
            self.header_sent,
            self.expect_trailers,
            self.vary_encoding,
            self.unframed,
            self.not_modified,
            self.open_length,
        ];
        (self.status, self.err_status) == (0, 0)
            && self.headers.is_empty()
            && self.trailers.is_empty()
            && texts.iter().all(|text| text.is_none())
            && !flags.contains(&true)
    }

    /// Whether it has nothing but a status, a type, a length, a date of its last change and fields.
    pub(crate) fn is_of_head_alone(&self) -> bool {
        let texts = [&self.reason, &self.override_charset, &self.location, &self.server, &self.date];
        let flags = [
            self.expect_trailers,
            self.unframed,
            self.not_modified,
            self.open_length,
            self.chunked,
            self.header_only,
        ];
        self.err_status == 0
            && self.written_type.is_none()
            && self.trailers.is_empty()
            && texts.iter().all(|text| text.is_none())
            && !flags.contains(&true)
    }

    /// Adds a field after those of the same name.
    pub fn add(&mut self, known: KnownField, value: impl Into<Text>) {
        self.headers.push(ResponseHeader { name: HeaderName::Known(known), value: value.into() });
    }

    /// Adds a field whose `name` is not one that Weir knows, in the letter case in which it shall be sent.
    pub fn add_named(&mut self, name: Text, value: Text) {
        self.headers.push(ResponseHeader { name: HeaderName::Other(name), value });
    }

    /// Replaces all fields of that name by one.
    pub fn set(&mut self, known: KnownField, value: impl Into<Text>) {
        self.remove(known);
        self.add(known, value);
    }

    /// The value of the first field `known` among [`Response::headers`]; `None` if there is no such field.
    pub fn header(&self, known: KnownField) -> Option<&Text> {
        self.headers.iter().find(|h| h.name.known() == Some(known)).map(|h| &h.value)
    }

    /// The value of the first field `name` among [`Response::headers`], in any letter case; `None` if there is no such field.
    pub fn header_named(&self, arena: &Arena, name: &[u8]) -> Option<&Text> {
        self.headers.iter().find(|header| header.name.is(arena, name)).map(|header| &header.value)
    }

    /// Removes all fields of that name from `headers`.
    pub fn remove(&mut self, known: KnownField) {
        self.headers.retain(|h| h.name.known() != Some(known));
    }

    /// The value of `ETag`, whether this server or an upstream has made it; `None` if the response has no such field.
    pub fn etag(&self) -> Option<&Text> {
        self.header(KnownField::Etag)
    }

    /// What nginx clears when a handler's response is replaced by an error page or cut into several ranges.
    pub fn clear_entity(&mut self) {
        (self.ready, self.memo) = (ReadyHead::Open, None);
        self.content_length = None;
        (self.open_length, self.end_apart) = (false, false);
        self.last_modified = None;
        self.not_modified = false;
        self.allow_ranges = false;
        self.remove(KnownField::AcceptRanges);
        self.remove(KnownField::Etag);
        self.remove(KnownField::LastModified);
        self.remove(KnownField::ContentEncoding);
    }

    /// What nginx clears when a header filter replaces a response by a page: everything that the handler has given it
    /// (`ngx_http_clean_header`), so that nothing of a cached or an upstream's response is seen with a 412.
    pub fn clear_head(&mut self) {
        self.clear_entity();
        (self.reason, self.content_type, self.charset, self.override_charset) = (None, None, None, None);
        (self.location, self.server, self.date) = (None, None, None);
        self.headers.clear();
        self.trailers.clear();
        (self.expect_trailers, self.vary_encoding) = (false, false);
    }

    /// `Content-Type` as it is sent: the type, and the charset to be added to it. What an upstream wrote, however it
    /// did, is sent as it came unless its type or charset was changed.
    #[inline]
    pub fn typed<'a>(&'a self, arena: &'a Arena) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        if let Some(whole) = self.as_written() {
            return Some((arena.get(whole), None));
        }
        let (kind, charset) = (self.content_type.as_ref()?, self.charset.as_ref());
        Some((kind.bytes(arena), charset.map(|charset| charset.bytes(arena))))
    }

    /// The type and charset as an upstream wrote them, unless they were changed: what is put into the arena later has
    /// another place.
    #[inline]
    pub(crate) fn as_written(&self) -> Option<Span> {
        let whole = self.written_type?;
        let (Text::Span(kind), Text::Span(charset)) = (self.content_type.as_ref()?, self.charset.as_ref()?)
        else {
            return None;
        };
        let of_it = kind.start == whole.start && charset.start > whole.start && charset.end <= whole.end;
        of_it.then_some(whole)
    }

    /// [`Response::typed`] as one text, `text/html; charset=utf-8`; `None` if the response has no type.
    pub fn typed_whole(&self, arena: &Arena) -> Option<Vec<u8>> {
        let (kind, charset) = self.typed(arena)?;
        Some(charset.map_or_else(|| kind.to_vec(), |charset| [kind, b"; charset=", charset].concat()))
    }

    /// At most `bytes` of the body wait for the client.
    pub fn bound(&mut self, bytes: u64) {
        self.ahead = Some(self.ahead.map_or(bytes, |other| other.min(bytes)));
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        // One by one, in place: a new one would be made elsewhere and copied, for every request.
        let Response {
            status,
            reason,
            content_type,
            charset,
            written_type,
            override_charset,
            content_length,
            open_length,
            end_apart,
            last_modified,
            location,
            headers,
            trailers,
            expect_trailers,
            allow_ranges,
            single_range,
            force_ranges,
            content_offset,
            disable_not_modified,
            not_modified,
            header_sent,
            header_only,
            chunked,
            unframed,
            ahead,
            vary_encoding,
            gzip_ok,
            error_page_done,
            err_status,
            server,
            date,
            ready,
            memo,
            body,
        } = self;
        *ready = ReadyHead::Open;
        if memo.is_some() {
            *memo = None;
        }
        (*status, *err_status) = (0, 0);
        (*content_length, *last_modified, *content_offset, *ahead) = (None, None, 0, None);
        for text in [reason, content_type, charset, override_charset, location, server, date] {
            if text.is_some() {
                *text = None;
            }
        }
        *written_type = None;
        headers.clear();
        trailers.clear();
        if !matches!(body, ResponseBody::Empty) {
            *body = ResponseBody::Empty;
        }
        (*expect_trailers, *allow_ranges, *single_range, *force_ranges) = (false, false, false, false);
        (*disable_not_modified, *not_modified, *header_sent) = (false, false, false);
        (*header_only, *chunked, *unframed, *error_page_done) = (false, false, false, false);
        (*vary_encoding, *open_length, *end_apart, *gzip_ok) = (false, false, false, None);
    }
}
