//! The head of a response in HTTP/1, in nginx's order of fields.

use std::io::Write;

use weir_http::h1::{content_length, field, known_field, status_line};
use weir_http::{KnownField, Version};

use crate::exchange::{Exchange, HeaderName};
use crate::settings::location::ServerTokens;
use crate::text::Text;

/// Appends the head of `x.response`. Nothing is formatted: every line is a constant, a copy, or a number. What it depends
/// on is what [`heads`](super::heads) compares.
pub(crate) fn head(x: &Exchange, out: &mut Vec<u8>) {
    if x.request.head.version == Version::V09 {
        return;
    }
    out.reserve(USUAL);
    let response = &x.response;
    match &response.reason {
        Some(reason) => {
            out.extend_from_slice(b"HTTP/1.1 ");
            out.extend_from_slice(x.text(reason));
            out.extend_from_slice(b"\r\n");
        }
        None => status_line(out, response.status),
    }
    server(x, out);
    date(x, out);
    content_type(x, out);
    if let Some(length) = response.content_length
        && !response.not_modified
    {
        content_length(out, length);
    }
    if let Some(seconds) = response.last_modified
        && response.header(KnownField::LastModified).is_none()
    {
        out.extend_from_slice(b"Last-Modified: ");
        x.worker.http_date(seconds, |date| out.extend_from_slice(date));
        out.extend_from_slice(b"\r\n");
    }
    // nginx composes an address of its own here; one that stays as it is comes with the other fields.
    let (composed, given) = match &response.location {
        Some(location) if is_completed(x, location) => (Some(location), None),
        location => (None, location.as_ref()),
    };
    if let Some(path) = composed {
        location(x, path, out);
    }
    if response.chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    connection(x, out);
    if response.vary_encoding {
        out.extend_from_slice(b"Vary: Accept-Encoding\r\n");
    }
    if let Some(target) = given {
        location(x, target, out);
    }
    for header in &response.headers {
        if let HeaderName::Known(known) = header.name {
            known_field(out, known, x.text(&header.value));
        } else {
            field(out, header.name.bytes(&x.arena), x.text(&header.value));
        }
    }
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn content_type(x: &Exchange, out: &mut Vec<u8>) {
    if let Some((kind, charset)) = x.response.typed(&x.arena)
        && !x.response.not_modified
    {
        out.extend_from_slice(b"Content-Type: ");
        out.extend_from_slice(kind);
        if let Some(charset) = charset {
            out.extend_from_slice(b"; charset=");
            out.extend_from_slice(charset);
        }
        out.extend_from_slice(b"\r\n");
    }
}

fn server(x: &Exchange, out: &mut Vec<u8>) {
    if let Some(server) = &x.response.server {
        return given(x, b"Server", server, out);
    }
    let product = &x.server.settings.product;
    let line = match x.plan.core.server_tokens {
        ServerTokens::Off => &product.line_off,
        _ => &product.line_on,
    };
    out.extend_from_slice(line);
}

/// A value instead of the server's own; an empty one means no field at all.
fn given(x: &Exchange, name: &[u8], value: &Text, out: &mut Vec<u8>) {
    let value = x.text(value);
    if !value.is_empty() {
        field(out, name, value);
    }
}

fn date(x: &Exchange, out: &mut Vec<u8>) {
    if let Some(date) = &x.response.date {
        return given(x, b"Date", date, out);
    }
    x.worker.dates(|dates| out.extend_from_slice(dates.line()));
}

fn location(x: &Exchange, location: &Text, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Location: ");
    redirect_target(x, location, out);
    out.extend_from_slice(b"\r\n");
}

/// Appends where `location` leads to: a path is made absolute unless `absolute_redirect` is off.
pub(crate) fn redirect_target(x: &Exchange, location: &Text, out: &mut Vec<u8>) {
    if is_completed(x, location) {
        origin(x, out);
    }
    out.extend_from_slice(x.text(location));
}

fn is_completed(x: &Exchange, location: &Text) -> bool {
    x.plan.core.absolute_redirect && x.text(location).first() == Some(&b'/')
}

/// `http://host[:port]` as nginx composes it for redirects.
fn origin(x: &Exchange, out: &mut Vec<u8>) {
    let core = &x.plan.core;
    out.extend_from_slice(if x.connection.is_tls() { b"https://" } else { b"http://" });
    let host = x.arena.get(x.request.host);
    let local = x.connection.local();
    if core.server_name_in_redirect && !x.server.name.is_empty() {
        out.extend_from_slice(&x.server.name);
    } else if !host.is_empty() {
        out.extend_from_slice(host);
    } else {
        let _ = write!(out, "{}", local.host()); // writing to memory can't fail
    }
    if core.port_in_redirect {
        let usual = if x.connection.is_tls() { 443 } else { 80 };
        if let Some(port) = local.port().filter(|port| *port != usual && *port != 0) {
            out.push(b':');
            weir_http::h1::number(out, u64::from(port));
        }
    }
}

fn connection(x: &Exchange, out: &mut Vec<u8>) {
    if x.response.status == 101 {
        return out.extend_from_slice(b"Connection: upgrade\r\n");
    }
    // A field of a script's or of `add_header` that names something else than what lasts (`Upgrade` with a 426) goes out after ours, as in
    // nginx.
    let lasts =
        |own: &[u8]| [&b"close"[..], b"keep-alive"].iter().any(|known| own.eq_ignore_ascii_case(known));
    if x.response.header(KnownField::Connection).is_some_and(|own| lasts(x.text(own))) {
        return;
    }
    if !x.keep_alive {
        return out.extend_from_slice(b"Connection: close\r\n");
    }
    out.extend_from_slice(b"Connection: keep-alive\r\n");
    let seconds = x.plan.core.keepalive_header;
    if seconds > 0 {
        out.extend_from_slice(b"Keep-Alive: timeout=");
        weir_http::h1::number(out, seconds);
        out.extend_from_slice(b"\r\n");
    }
}

/// Most heads are shorter: room is made once, not by each of their lines.
const USUAL: usize = 512;
