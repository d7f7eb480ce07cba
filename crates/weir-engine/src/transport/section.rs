//! Responses as header sections of HTTP/2 and HTTP/3, in nginx's order of fields.

use weir_http::KnownField;
use weir_http::coder::{FieldIndexing, SectionCoder};
use weir_http::priority::Priority;

use crate::exchange::{Exchange, HeaderName};
use crate::settings::location::ServerTokens;
use crate::text::Text;
use crate::transport::encode::redirect_target;

/// Writes the head of `x.response`.
pub(super) fn compose<C: SectionCoder>(x: &Exchange, coder: &mut C, out: &mut Vec<u8>) {
    let response = &x.response;
    // What opens a tunnel in HTTP/1 is a success here (RFC 8441 section 5, RFC 9220 section 3).
    coder.status(if response.status == 101 { 200 } else { response.status }, out);
    server(x, coder, out);
    date(x, coder, out);
    let mut scratch = std::mem::take(&mut *x.worker.scratch.borrow_mut());
    if let Some((kind, charset)) = response.typed(&x.arena)
        && !response.not_modified
    {
        match charset {
            None => coder.known(KnownField::ContentType, kind, out),
            Some(charset) => {
                let parts = [kind, b"; charset=", charset];
                coder.known(KnownField::ContentType, joined(&mut scratch, &parts), out);
            }
        }
    }
    if let Some(length) = response.content_length
        && !response.not_modified
    {
        scratch.clear();
        weir_http::h1::number(&mut scratch, length);
        coder.known(KnownField::ContentLength, &scratch, out);
    }
    if let Some(seconds) = response.last_modified
        && response.header(KnownField::LastModified).is_none()
    {
        x.worker.http_date(seconds, |date| coder.known(KnownField::LastModified, date, out));
    }
    if let Some(location) = &response.location {
        scratch.clear();
        redirect_target(x, location, &mut scratch);
        coder.known(KnownField::Location, &scratch, out);
    }
    if response.vary_encoding {
        coder.known(KnownField::Vary, b"Accept-Encoding", out);
    }
    for header in &response.headers {
        // Space around a value makes a message malformed (RFC 9113 section 8.2.1, RFC 9114 section 4.3), and means nothing.
        let value = x.text(&header.value).trim_ascii();
        match &header.name {
            HeaderName::Known(known) | HeaderName::Written(known, _) if is_of_connection(*known) => {}
            HeaderName::Known(KnownField::SecWebsocketAccept)
            | HeaderName::Written(KnownField::SecWebsocketAccept, _)
                if response.status == 101 => {}
            HeaderName::Known(known) | HeaderName::Written(known, _) => coder.known(*known, value, out),
            HeaderName::Other(name) => named(coder, name.bytes(&x.arena), value, &mut scratch, out),
        }
    }
    *x.worker.scratch.borrow_mut() = scratch;
}

/// The priority of a stream whose response is that of `x`: a server that is asked on the client's behalf knows better what its
/// response is to the page (RFC 9218 section 8). `None`: it says nothing.
pub(super) fn priority(x: &Exchange, of_client: impl FnOnce() -> Priority) -> Option<Priority> {
    let value = x.response.header(KnownField::Priority)?;
    Some(of_client().with(x.text(value)))
}

/// Whether the response of `x` is one that a page waits for before it is shown: a style sheet or a script.
pub(super) fn is_blocking(x: &Exchange) -> bool {
    const KINDS: [&[u8]; 4] =
        [b"text/css", b"text/javascript", b"application/javascript", b"application/x-javascript"];
    let Some((kind, _)) = x.response.typed(&x.arena) else { return false };
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    KINDS.iter().any(|known| known.eq_ignore_ascii_case(kind))
}

/// Writes the head of an interim response.
pub(super) fn interim<'f, C: SectionCoder>(
    status: u16,
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    coder: &mut C,
    out: &mut Vec<u8>,
) {
    coder.status(status, out);
    trailers(fields, coder, out);
}

/// Writes fields, but for those that are about a connection of HTTP/1.
pub(super) fn trailers<'f, C: SectionCoder>(
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    coder: &mut C,
    out: &mut Vec<u8>,
) {
    let mut scratch = Vec::new();
    for (name, value) in fields {
        named(coder, name, value, &mut scratch, out);
    }
}

fn named<C: SectionCoder>(
    coder: &mut C,
    name: &[u8],
    value: &[u8],
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) {
    match weir_http::classify(name) {
        KnownField::Other => {
            scratch.clear();
            scratch.extend_from_slice(name);
            scratch.make_ascii_lowercase();
            coder.field(scratch, value, FieldIndexing::Allowed, out);
        }
        known if is_of_connection(known) => {}
        known => coder.known(known, value, out),
    }
}

/// Whether a field is of no meaning in HTTP/2 (RFC 9113 section 8.2.2) and HTTP/3 (RFC 9114 section 4.2).
fn is_of_connection(known: KnownField) -> bool {
    use KnownField::{Connection, KeepAlive, ProxyConnection, TransferEncoding, Upgrade};
    matches!(known, Connection | KeepAlive | ProxyConnection | TransferEncoding | Upgrade)
}

fn joined<'s>(scratch: &'s mut Vec<u8>, parts: &[&[u8]]) -> &'s [u8] {
    scratch.clear();
    parts.iter().for_each(|part| scratch.extend_from_slice(part));
    scratch
}

fn server<C: SectionCoder>(x: &Exchange, coder: &mut C, out: &mut Vec<u8>) {
    if let Some(server) = &x.response.server {
        return given(x, KnownField::Server, server, coder, out);
    }
    let product = &x.server.settings.product;
    let name = match x.plan.core.server_tokens {
        ServerTokens::Off => &product.name,
        _ => &product.full,
    };
    coder.known(KnownField::Server, name.as_bytes(), out);
}

/// A value instead of the server's own; an empty one means no field at all.
fn given<C: SectionCoder>(x: &Exchange, known: KnownField, value: &Text, coder: &mut C, out: &mut Vec<u8>) {
    let value = x.text(value);
    if !value.is_empty() {
        coder.known(known, value, out);
    }
}

fn date<C: SectionCoder>(x: &Exchange, coder: &mut C, out: &mut Vec<u8>) {
    if let Some(date) = &x.response.date {
        return given(x, KnownField::Date, date, coder, out);
    }
    x.worker.dates(|dates| coder.known(KnownField::Date, value_of(dates.line()), out));
}

/// The value of `Date: value`, line end included.
fn value_of(line: &[u8]) -> &[u8] {
    let value = line.strip_prefix(b"Date: ").unwrap_or(line);
    value.strip_suffix(b"\r\n").unwrap_or(value)
}
