//! The request line, what was made of it, the body, and where the request leads to.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use weir_http::escape::{self, EscapeSet};
use weir_http::{KnownField, Span};

use super::{copied, number, present};
use crate::exchange::Exchange;
use crate::exchange::paths;
use crate::log::LogLevel;
use crate::text::Text;

/// `$host`: from the request line or the Host field, in lower case, without port; else the server's name.
pub(super) fn host(x: &mut Exchange) -> Option<Text> {
    match x.request.host.is_empty() {
        true => server_name(x),
        false => Some(Text::Span(x.request.host)),
    }
}

pub(super) fn line(x: &mut Exchange) -> Option<Text> {
    present(x.request.head.line)
}

/// `$request_method`: in a subrequest that of the request, as in nginx.
pub(super) fn method(x: &mut Exchange) -> Option<Text> {
    present(x.main_method())
}

pub(super) fn unparsed_uri(x: &mut Exchange) -> Option<Text> {
    present(x.request.unparsed_uri)
}

pub(super) fn uri(x: &mut Exchange) -> Option<Text> {
    present(x.request.uri)
}

/// `$request_uri_from_N`: the request's path from its byte N on, as the client sent it, and the query: what follows a
/// location's prefix. A path that was rewritten, or that had `..`, `.` or `//` in it, is as it was made, escaped.
pub(super) fn uri_from(x: &mut Exchange, number: &str) -> Option<Text> {
    let skip: usize = number.parse().ok()?;
    let sent = x.arena.get(x.request.unparsed_uri);
    let path = &sent[..sent.iter().position(|byte| *byte == b'?').unwrap_or(sent.len())];
    let uri = x.arena.get(x.request.uri);
    if path.len() >= skip && path.get(..skip) == uri.get(..skip) && is_sent_as(path, uri) {
        let whole = x.request.unparsed_uri;
        return Some(Text::Span(Span { start: whole.start + skip as u32, ..whole }));
    }
    let mut out = Vec::with_capacity(uri.len());
    escape::escape(&mut out, uri.get(skip..).unwrap_or_default(), EscapeSet::Uri);
    let args = x.arena.get(x.request.args);
    if !args.is_empty() {
        out.push(b'?');
        out.extend_from_slice(args);
    }
    Some(Text::Span(x.arena.push(&out)))
}

/// Whether `sent` is `uri` with nothing but escapes.
fn is_sent_as(sent: &[u8], uri: &[u8]) -> bool {
    let (mut sent, mut uri) = (sent.iter(), uri.iter());
    while let Some(byte) = sent.next() {
        let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
        let decoded = match byte {
            b'%' => match (digit(sent.next()), digit(sent.next())) {
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => return false,
            },
            byte => *byte,
        };
        if uri.next() != Some(&decoded) {
            return false;
        }
    }
    uri.next().is_none()
}

/// `$args`: no value without arguments, nor after a bare `?`.
pub(super) fn args(x: &mut Exchange) -> Option<Text> {
    (!x.request.args.is_empty()).then_some(Text::Span(x.request.args))
}

/// `set $args`
pub(super) fn set_args(x: &mut Exchange, value: &[u8]) {
    let args = x.arena.push(value);
    x.request.set_args(args);
}

pub(super) fn is_args(x: &mut Exchange) -> Option<Text> {
    Some(if x.request.args.is_empty() { Text::EMPTY } else { Text::Static(b"?") })
}

/// `$server_protocol`, as it was sent; no value in HTTP/0.9.
pub(super) fn protocol(x: &mut Exchange) -> Option<Text> {
    present(x.request.head.protocol)
}

pub(super) fn port(x: &mut Exchange) -> Option<Text> {
    Some(Text::Span(x.request.port))
}

/// `$is_request_port`: the colon for `$host$is_request_port$request_port`.
pub(super) fn is_port(x: &mut Exchange) -> Option<Text> {
    Some(if x.request.port.is_empty() { Text::EMPTY } else { Text::Static(b":") })
}

/// `$request_length`: line, fields and what came of the body so far, chunk framing included; without empty lines
/// before the request.
pub(super) fn length(x: &mut Exchange) -> Option<Text> {
    let head = x.request.head.len.saturating_sub(x.request.head.leading_crlf);
    let length = head as u64 + x.body.framed();
    number(x, length)
}

/// `$request_body`: once it was read, if it is in memory and not empty.
pub(super) fn body(x: &mut Exchange) -> Option<Text> {
    if !x.body.is_read() || x.body.file().is_some() || x.body.memory().is_empty() {
        return None;
    }
    Some(Text::Span(x.arena.push(x.body.memory())))
}

/// `$request_body_file`: the temporary file's name, where the body lies in one that has a name.
pub(super) fn body_file(x: &mut Exchange) -> Option<Text> {
    let path = x.body.file()?.path.as_ref()?;
    Some(Text::Span(x.arena.push(path.as_os_str().as_bytes())))
}

/// `$content_length`: as sent; of a chunked body its size once it was read.
pub(super) fn content_length(x: &mut Exchange) -> Option<Text> {
    if let Some(span) = x.request.span(KnownField::ContentLength) {
        return Some(Text::Span(span));
    }
    let size = x.body.received();
    (x.request.head.chunked && x.body.is_read()).then(|| number(x, size))?
}

pub(super) fn server_name(x: &mut Exchange) -> Option<Text> {
    Some(Text::Shared(x.server.name.clone()))
}

pub(super) fn document_root(x: &mut Exchange) -> Option<Text> {
    Some(Text::Span(paths::root(x)))
}

/// `$realpath_root`: no value, and a line in the log, when `root` leads nowhere.
pub(super) fn realpath_root(x: &mut Exchange) -> Option<Text> {
    let root = paths::root(x);
    let path = Path::new(OsStr::from_bytes(x.arena.get(root)));
    match path.canonicalize() {
        Ok(real) => copied(x, real.as_os_str().as_bytes()),
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(0);
            let text = weir_rt::file::errno_text(errno);
            x.log(
                LogLevel::Crit,
                &format_args!("realpath() \"{}\" failed ({errno}: {text})", path.display()),
            );
            None
        }
    }
}

pub(super) fn filename(x: &mut Exchange) -> Option<Text> {
    Some(Text::Span(paths::map_uri(x).ok()?.span))
}
