//! Fields of request and response by name, for callers that set and remove any of them at run time (`more_set_headers`,
//! scripts).

use weir_http::{Field, KnownField, classify, date};

use super::{Exchange, HeaderName, ResponseHeader};
use crate::log::LogLevel;
use crate::settings::server::{InvalidValues, ends_field, has_control, is_folded};
use crate::text::{Arena, Span, Text};
use crate::value_script::ValueScript;

/// Which fields are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldPattern<'a> {
    /// Those of this name, in any case.
    Exactly(&'a [u8]),
    /// Those whose names begin so, in any case.
    Prefix(&'a [u8]),
}

impl FieldPattern<'_> {
    fn is(self, name: &[u8]) -> bool {
        match self {
            FieldPattern::Exactly(wanted) => wanted.eq_ignore_ascii_case(name),
            FieldPattern::Prefix(prefix) => {
                name.get(..prefix.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(prefix))
            }
        }
    }
}

impl Exchange {
    /// The value of `script` as a field may have it: what variables and captures bring is judged by
    /// `invalid_header_values`, what the configuration writes itself is as it is. A value that is left out is empty; one
    /// that is refused makes the response a 500.
    pub fn field_value(&mut self, script: &ValueScript) -> Text {
        let value = script.value(self);
        let settings = &self.server.settings;
        if !has_control(self.text(&value)) || settings.invalid_made == InvalidValues::Off {
            return value;
        }
        let spoils = if settings.judges_controls { has_control } else { ends_field };
        if !script.brings(self, |part| !is_folded(part) && spoils(part)) {
            return value;
        }
        self.refuse_value(&value);
        Text::EMPTY
    }

    #[cold]
    fn refuse_value(&self, value: &Text) {
        let shown = self.text(value).escape_ascii();
        self.log(LogLevel::Warn, &format_args!("control bytes in the value of a header field: \"{shown}\""));
        if self.server.settings.invalid_made == InvalidValues::Reject {
            self.unmatched.set(true);
        }
    }

    /// Gives the response's field `name` the value; others of the name go. What the server composes itself (type,
    /// length, date, server, location) is replaced.
    pub fn set_response_field(&mut self, name: &[u8], value: Text) {
        self.set_known_response_field(classify(name), name, value);
    }

    /// As [`set_response_field`](Exchange::set_response_field), of a name that is `known` to be this field's.
    pub fn set_known_response_field(&mut self, known: KnownField, name: &[u8], value: Text) {
        let response = &mut self.response;
        match known {
            KnownField::ContentType => {
                // What filters look at is the type without what follows it.
                let text = value.bytes(&self.arena);
                let charset = text.iter().position(|byte| *byte == b';').and_then(|at| {
                    let charset = text[at + 1..].strip_prefix(b" charset=")?;
                    let plain = !charset.is_empty()
                        && charset.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-');
                    plain.then(|| (text[..at].to_vec(), charset.to_vec()))
                });
                (response.content_type, response.charset) = match charset {
                    Some((kind, charset)) => {
                        let (kind, charset) = (self.arena.push(&kind), self.arena.push(&charset));
                        (Some(Text::Span(kind)), Some(Text::Span(charset)))
                    }
                    None => (Some(value), None),
                };
            }
            KnownField::ContentLength => {
                let length =
                    std::str::from_utf8(value.bytes(&self.arena)).ok().and_then(|text| text.parse().ok());
                response.content_length = length.or(response.content_length);
            }
            KnownField::Server => response.server = Some(value),
            KnownField::Date => response.date = Some(value),
            KnownField::Location => response.location = Some(value),
            KnownField::LastModified => {
                response.last_modified = date::parse(value.bytes(&self.arena));
                match response.last_modified {
                    Some(_) => {
                        let arena = &self.arena;
                        response.headers.retain(|header| !header.name.is(arena, name));
                    }
                    None => self.replace_response_field(known, name, value),
                }
            }
            _ => self.replace_response_field(known, name, value),
        }
    }

    /// Adds a field to the response, after those of its name; of those that a response has but once, the value is
    /// replaced.
    pub fn add_response_field(&mut self, name: &[u8], value: Text) {
        match classify(name) {
            KnownField::ContentType
            | KnownField::ContentLength
            | KnownField::Server
            | KnownField::Date
            | KnownField::Location
            | KnownField::LastModified => self.set_response_field(name, value),
            known => {
                let name = self.field_name(known, name);
                self.response.headers.push(ResponseHeader { name, value });
            }
        }
    }

    /// Removes fields of the response. A prefix finds those only that the server does not compose itself.
    pub fn remove_response_fields(&mut self, named: FieldPattern<'_>) {
        let response = &mut self.response;
        if let FieldPattern::Exactly(name) = named {
            match classify(name) {
                KnownField::ContentType => (response.content_type, response.charset) = (None, None),
                KnownField::ContentLength => response.content_length = None,
                KnownField::Server => response.server = Some(Text::EMPTY),
                KnownField::Date => response.date = Some(Text::EMPTY),
                KnownField::Location => response.location = None,
                KnownField::LastModified => response.last_modified = None,
                KnownField::AcceptRanges => response.allow_ranges = false,
                _ => {}
            }
        }
        let arena = &self.arena;
        response.headers.retain(|header| !named.is(header.name.bytes(arena)));
    }

    /// Gives the request's field `name` the value; others of the name go. What was made of `Host` and `Content-Length`
    /// is made again.
    pub fn set_request_field(&mut self, name: &[u8], value: &[u8]) {
        let value = self.arena.push(value);
        self.set_known_request_field(classify(name), name, value);
    }

    /// As [`set_request_field`](Exchange::set_request_field), of a name that is `known` to be this field's, and of a value that
    /// is in the arena.
    pub fn set_known_request_field(&mut self, known: KnownField, name: &[u8], value: Span) {
        let Exchange { arena, request, .. } = self;
        let is_named = |field: &Field| arena.get(field.name).eq_ignore_ascii_case(name);
        match request.head.fields.iter().position(is_named) {
            Some(first) => {
                request.head.fields[first].value = value;
                let mut at = 0;
                request.head.retain_fields(|field| {
                    at += 1;
                    at <= first + 1 || !is_named(field)
                });
            }
            None => self.push_request_field(known, name, value),
        }
        match known {
            KnownField::Host => {
                self.request.host = host(&mut self.arena, value);
                self.forget_variable("host");
            }
            KnownField::ContentLength => {
                let length = std::str::from_utf8(self.arena.get(value)).ok();
                self.request.head.content_length = length.and_then(|text| text.parse().ok());
            }
            KnownField::Connection if self.arena.get(value).eq_ignore_ascii_case(b"close") => {
                self.keep_alive = false;
            }
            _ => {}
        }
    }

    /// Adds a field to the request, after those of its name. Whatever its name, it goes to servers: whatever adds it
    /// means it.
    pub fn add_request_field(&mut self, name: &[u8], value: &[u8]) {
        let value = self.arena.push(value);
        self.push_request_field(classify(name), name, value);
    }

    fn push_request_field(&mut self, known: KnownField, name: &[u8], value: Span) {
        let name = self.arena.push(name);
        self.request.head.push_field(Field { known, valid: true, underscore: false, name, value });
    }

    /// Removes the request's fields that `named` fits. With `Content-Length` or `Host`, the body's announced length
    /// or `$host` goes, too.
    pub fn remove_request_fields(&mut self, named: FieldPattern<'_>) {
        let arena = &self.arena;
        self.request.head.retain_fields(|field| !named.is(arena.get(field.name)));
        if named.is(b"Content-Length") && !self.request.head.chunked {
            self.request.head.content_length = None;
        }
        if named.is(b"Host") {
            self.request.host = Span::default();
        }
    }

    /// The value of the request's first field `name`, in any letter case; `None` if the request has no such field.
    pub fn request_field(&self, name: &[u8]) -> Option<&[u8]> {
        let field = self
            .request
            .head
            .fields
            .iter()
            .find(|field| self.arena.get(field.name).eq_ignore_ascii_case(name))?;
        Some(self.arena.get(field.value))
    }

    fn replace_response_field(&mut self, known: KnownField, name: &[u8], value: Text) {
        let arena = &self.arena;
        let headers = &mut self.response.headers;
        let Some(first) = headers.iter().position(|header| header.name.is(arena, name)) else {
            let name = self.field_name(known, name);
            return self.response.headers.push(ResponseHeader { name, value });
        };
        headers[first].value = value;
        let mut at = 0;
        headers.retain(|header| {
            at += 1;
            at <= first + 1 || !header.name.is(arena, name)
        });
    }

    fn field_name(&mut self, known: KnownField, name: &[u8]) -> HeaderName {
        if known != KnownField::Other && known.name().as_bytes() == name {
            return HeaderName::Known(known);
        }
        let text = Text::Span(self.arena.push(name));
        HeaderName::written(known, text, &self.arena)
    }
}

/// `$host` of a new `Host` field: lower case, without port.
fn host(arena: &mut Arena, field: Span) -> Span {
    let value = arena.get(field);
    let end = match value.first() {
        Some(b'[') => value.iter().position(|byte| *byte == b']').map_or(value.len(), |at| at + 1),
        _ => value.iter().position(|byte| *byte == b':').unwrap_or(value.len()),
    };
    let host = arena.copy(Span { end: field.start + end as u32, ..field });
    arena.get_mut(host).make_ascii_lowercase();
    host
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run;

    const HEAD: &str = "GET / HTTP/1.1\r\nHost: a.example\r\nX-One: 1\r\nx-one: 2\r\nX-Two: 3\r\n\r\n";

    fn fields(x: &Exchange) -> Vec<String> {
        let text = |span| String::from_utf8_lossy(x.arena.get(span)).into_owned();
        x.request
            .head
            .fields
            .iter()
            .map(|field| format!("{}={}", text(field.name), text(field.value)))
            .collect()
    }

    #[test]
    fn fields_of_a_request_are_set_and_removed() {
        run("server { }", HEAD, async |x: &mut Exchange| {
            x.set_request_field(b"X-ONE", b"4");
            assert_eq!(fields(x), ["Host=a.example", "X-One=4", "X-Two=3"]);
            x.set_request_field(b"Host", b"B.example:80");
            assert_eq!(x.arena.get(x.request.host), b"b.example");
            x.set_request_field(b"User-Agent", b"me");
            assert_eq!(x.request.value(&x.arena, KnownField::UserAgent), Some(&b"me"[..]));
            x.remove_request_fields(FieldPattern::Prefix(b"x-"));
            assert_eq!(fields(x), ["Host=B.example:80", "User-Agent=me"]);
            x.remove_request_fields(FieldPattern::Exactly(b"host"));
            assert!(x.request.head.host.is_none() && x.arena.get(x.request.host).is_empty());
        });
    }

    /// Filters look for fields by their number: a script may write the name in any case.
    #[test]
    fn known_fields_of_a_response_are_found_in_any_case() {
        run("server { }", HEAD, async |x: &mut Exchange| {
            x.set_response_field(b"etag", "\"a\"".into());
            x.add_response_field(b"cache-CONTROL", "no-store".into());
            let text = |x: &Exchange, known| x.response.header(known).map(|value| x.text(value).to_vec());
            assert_eq!(x.response.etag().map(|tag| x.text(tag).to_vec()), Some(b"\"a\"".to_vec()));
            assert_eq!(text(x, KnownField::CacheControl), Some(b"no-store".to_vec()));
            let names: Vec<_> = x.response.headers.iter().map(|h| h.name.bytes(&x.arena).to_vec()).collect();
            assert_eq!(names, [b"etag".to_vec(), b"cache-CONTROL".to_vec()], "written as they were set");
            x.response.remove(KnownField::Etag);
            assert_eq!(x.response.headers.len(), 1);
        });
    }

    #[test]
    fn fields_of_a_response_are_set_and_removed() {
        run("server { }", HEAD, async |x: &mut Exchange| {
            let names = |x: &Exchange| -> Vec<String> {
                let name = |header: &ResponseHeader| {
                    String::from_utf8_lossy(header.name.bytes(&x.arena)).into_owned()
                };
                x.response.headers.iter().map(name).collect()
            };
            x.add_response_field(b"X-A", "1".into());
            x.add_response_field(b"X-A", "2".into());
            x.add_response_field(b"Cache-Control", "no-store".into());
            assert_eq!(names(x), ["X-A", "X-A", "Cache-Control"]);
            x.set_response_field(b"x-a", "3".into());
            assert_eq!(names(x), ["X-A", "Cache-Control"]);
            x.set_response_field(b"Content-Type", "text/x".into());
            assert!(x.response.content_type.is_some());
            x.remove_response_fields(FieldPattern::Exactly(b"content-type"));
            x.remove_response_fields(FieldPattern::Prefix(b"x"));
            assert!(x.response.content_type.is_none());
            assert_eq!(names(x), ["Cache-Control"]);
        });
    }
}
