//! Fields by name: `$http_name`, `$cookie_name`, `$arg_name`, `$sent_http_name`, `$sent_trailer_name`.
//!
//! Several lines of one name are joined, by `, ` or for cookies `; `; one line is given as it is in the head.

use weir_http::{KnownField, Span, cookie};

use crate::exchange::{Exchange, ResponseHeader};
use crate::text::{Arena, Text};

pub(super) fn content_type(x: &mut Exchange) -> Option<Text> {
    known(x, KnownField::ContentType, b", ")
}

pub(super) fn host(x: &mut Exchange) -> Option<Text> {
    x.request.span(KnownField::Host).map(Text::Span)
}

pub(super) fn user_agent(x: &mut Exchange) -> Option<Text> {
    known(x, KnownField::UserAgent, b", ")
}

pub(super) fn referer(x: &mut Exchange) -> Option<Text> {
    known(x, KnownField::Referer, b", ")
}

pub(super) fn via(x: &mut Exchange) -> Option<Text> {
    known(x, KnownField::Via, b", ")
}

pub(super) fn x_forwarded_for(x: &mut Exchange) -> Option<Text> {
    known(x, KnownField::XForwardedFor, b", ")
}

pub(super) fn cookies(x: &mut Exchange) -> Option<Text> {
    known(x, KnownField::Cookie, b"; ")
}

fn known(x: &mut Exchange, known: KnownField, separator: &[u8]) -> Option<Text> {
    x.request.span(known)?;
    let Exchange { request, arena, .. } = x;
    let fields = request.head.fields.iter().filter(|field| field.known == known);
    joined(arena, fields.map(|field| field.value), separator)
}

/// `$http_name`: any field of the request.
pub(super) fn request_field(x: &mut Exchange, name: &str) -> Option<Text> {
    let Exchange { request, arena, .. } = x;
    let fields = request.head.fields.iter();
    let mut same = fields.filter(|field| is_named(arena.get(field.name), name)).map(|field| field.value);
    let first = same.next()?;
    let others: Vec<Span> = same.collect();
    joined(arena, std::iter::once(first).chain(others), b", ")
}

/// `$cookie_name`: the cookie's value, over all Cookie fields.
pub(super) fn cookie(x: &mut Exchange, name: &str) -> Option<Text> {
    x.request.span(KnownField::Cookie)?;
    let fields = x.request.head.fields.iter().filter(|field| field.known == KnownField::Cookie);
    let value = cookie::find(fields.map(|field| x.arena.get(field.value)), name.as_bytes())?;
    x.arena.locate(value).map(Text::Span)
}

/// `$arg_name`: the argument's value, undecoded.
pub(super) fn argument(x: &mut Exchange, name: &str) -> Option<Text> {
    let value = cookie::arg(x.args(), name.as_bytes())?;
    x.arena.locate(value).map(Text::Span)
}

/// `$sent_http_name`: a field of the response that is in its list.
pub(super) fn response_field(x: &mut Exchange, name: &str) -> Option<Text> {
    let special = match name {
        "server" => x.response.server.clone(),
        "date" => x.response.date.clone(),
        _ => None,
    };
    special.or_else(|| of_list(&mut x.arena, &x.response.headers, name))
}

/// `$sent_trailer_name`.
pub(super) fn response_trailer(x: &mut Exchange, name: &str) -> Option<Text> {
    of_list(&mut x.arena, &x.response.trailers, name)
}

fn of_list(arena: &mut Arena, list: &[ResponseHeader], name: &str) -> Option<Text> {
    let mut same = list.iter().filter(|header| is_named(header.name.bytes(arena), name));
    let first = same.next()?;
    let others: Vec<&ResponseHeader> = same.collect();
    if others.is_empty() {
        return Some(first.value.clone());
    }
    let start = arena.mark();
    arena.append(&first.value);
    for other in others {
        arena.push(b", ");
        arena.append(&other.value);
    }
    Some(Text::Span(arena.since(start)))
}

fn joined(arena: &mut Arena, mut values: impl Iterator<Item = Span>, separator: &[u8]) -> Option<Text> {
    let first = values.next()?;
    let Some(second) = values.next() else { return Some(Text::Span(first)) };
    let start = arena.mark();
    arena.copy(first);
    for value in std::iter::once(second).chain(values) {
        arena.push(separator);
        arena.copy(value);
    }
    Some(Text::Span(arena.since(start)))
}

/// Whether a field called `field` is what a variable means by `name`: `X-Request-ID` and `x_request_id`.
fn is_named(field: &[u8], name: &str) -> bool {
    let folded = |byte: &u8| if *byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
    field.len() == name.len() && field.iter().map(folded).eq(name.bytes())
}
