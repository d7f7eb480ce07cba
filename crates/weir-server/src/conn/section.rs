//! A header section as the request that the phases start on.

use std::hash::{BuildHasher, Hasher, RandomState};

use weir_http::hpack::{DecodedSection, NameKind};
use weir_http::message::{MalformedMessage, SectionMessage, StreamEnd};
use weir_http::{Field, KnownField, Method, Span, Version, base64};
use weir_trace::{ConnectionStep, Site};

use crate::tls::accepted::TlsJudge;
use weir_engine::exchange::Exchange;
use weir_engine::log::LogLevel;
use weir_engine::request_head::{HeadFailure, check};
use weir_engine::transport::ClientConnection;
use weir_engine::worker::CloseReason;

/// A header section of HTTP/2 or HTTP/3, decoded.
pub(super) struct ReceivedSection<'s> {
    pub(super) section: &'s DecodedSection,
    /// What its pseudo-header fields say.
    pub(super) message: SectionMessage,
    /// What is wrong with it.
    pub(super) checked: Result<(), MalformedMessage>,
    /// Bytes that it had.
    pub(super) len: usize,
    pub(super) version: Version,
}

/// Makes the request of `x` from `received`; `end`: whether content follows. Also whether it is malformed, so that its stream ends
/// as such after the response.
pub(super) fn read(
    x: &mut Exchange,
    received: &ReceivedSection<'_>,
    end: StreamEnd,
) -> (Result<(), HeadFailure>, bool) {
    let repeated = take_over(x, received, end);
    x.request.head.len = received.len;
    x.trace().mark(Site::step(ConnectionStep::Parse));
    if let Err(malformed) = received.checked {
        return (Err(refuse(x, &malformed)), true);
    }
    if received.section.too_large {
        x.log(LogLevel::Info, &"client sent too large request header");
        return (Err(HeadFailure::Refuse(494)), false);
    }
    if let Some(known) = repeated {
        let name = known.lower();
        x.log(LogLevel::Info, &format_args!("client sent duplicate header line: \"{name}\""));
        return (Err(refused(x)), false);
    }
    let authority = received.message.authority;
    let checked = host(x, authority).and_then(|()| check::<TlsJudge>(x)).and_then(|()| served_here(x));
    x.trace().mark(Site::step(ConnectionStep::VirtualServer));
    (checked, false)
}

/// Counts the request of `x`; why the connection ends after it, where it had as many, or lasted as long, as it may.
pub(super) fn count(x: &mut Exchange, connection: &ClientConnection) -> Option<CloseReason> {
    x.nth = connection.requests.get() + 1;
    connection.requests.set(x.nth);
    let hosts = connection.hosts.borrow();
    let core = &hosts.default().plan.core;
    let age = x.start_ms.saturating_sub(connection.started_ms);
    match () {
        () if core.keepalive_timeout == 0 => Some(CloseReason::KeepaliveOff),
        () if x.nth >= core.keepalive_requests => Some(CloseReason::KeepaliveRequests),
        () if age > core.keepalive_time => Some(CloseReason::KeepaliveTime),
        () => None,
    }
}

/// The request line that HTTP/1 would have, the fields, and what they say. The text of the section is first in the
/// arena, so that its spans hold there. Returns the name of a field that may come once and came twice.
fn take_over(x: &mut Exchange, received: &ReceivedSection<'_>, end: StreamEnd) -> Option<KnownField> {
    let ReceivedSection { section, message, version, .. } = received;
    let head = &mut x.request.head;
    head.clear();
    x.arena.push(&section.text);
    head.version = *version;
    let copied = |x: &mut weir_engine::text::Arena, span: Option<Span>| {
        span.map_or_else(Span::default, |span| x.copy(span))
    };
    let start = x.arena.mark();
    head.method_span = copied(&mut x.arena, message.method);
    x.arena.push(b" ");
    head.target = copied(&mut x.arena, message.path.or(message.authority));
    x.arena.push(b" ");
    head.protocol = x.arena.push(version.as_str().as_bytes());
    head.line = x.arena.since(start);
    head.method = Method::parse(x.arena.get(head.method_span));
    let websocket = message.protocol.is_some_and(|protocol| protocol.of(&section.text) == b"websocket");
    head.content_length = message.content_length;
    head.chunked = end == StreamEnd::More && message.content_length.is_none();
    let (mut cookies, mut repeated) = (0, None);
    for item in section.items.iter().skip(message.pseudo) {
        if item.name.kind.is_pseudo() {
            continue;
        }
        match item.name.known {
            KnownField::Cookie => cookies += 1,
            KnownField::Expect if head.field(KnownField::Expect).is_none() => {
                head.expect_continue = item.value.of(&section.text).eq_ignore_ascii_case(b"100-continue");
            }
            known if known.is_single() && head.field(known).is_some() => repeated = Some(known),
            _ => {}
        }
        head.push_field(Field {
            known: item.name.known,
            valid: item.name.kind == NameKind::Usual,
            underscore: item.name.kind == NameKind::Underscore,
            name: item.label,
            value: item.value,
        });
    }
    if websocket && x.request.head.method == Method::Connect {
        open_tunnel(x);
    }
    if cookies > 1 {
        join_cookies(x);
    }
    repeated
}

/// A WebSocket's CONNECT (RFC 8441) as the request that opens one in HTTP/1.1: whatever is configured for those, and the
/// servers after it, need not know the difference. What follows on the stream is no body.
fn open_tunnel(x: &mut Exchange) {
    let head = &mut x.request.head;
    (head.method, head.chunked, head.content_length) = (Method::Get, false, None);
    head.method_span = x.arena.push(b"GET");
    head.connection.upgrade = true;
    // The key proves to a client that its server speaks WebSocket; this client has asked otherwise.
    let fields = [
        (KnownField::Upgrade, &b"upgrade"[..], &b"websocket"[..]),
        (KnownField::Connection, b"connection", b"Upgrade"),
        (KnownField::SecWebsocketKey, b"sec-websocket-key", &nonce()),
    ];
    for (known, name, value) in fields {
        let (name, value) = (x.arena.push(name), x.arena.push(value));
        x.request.head.push_field(Field { known, valid: true, underscore: false, name, value });
    }
    x.tunnels = true;
}

/// Sixteen random bytes in base64. The keys of the standard library's hash tables come from the system's random numbers, and
/// differ each time.
fn nonce() -> Vec<u8> {
    let number = || RandomState::new().build_hasher().finish().to_le_bytes();
    let mut text = Vec::with_capacity(24);
    base64::encode([number(), number()].as_flattened(), &mut text);
    text
}

/// Cookies may come in many fields so that they compress better; after this they are one (RFC 9113 section 8.2.3).
fn join_cookies(x: &mut Exchange) {
    let start = x.arena.mark();
    let fields: Vec<Field> =
        x.request.head.fields.iter().filter(|field| field.known == KnownField::Cookie).copied().collect();
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            x.arena.push(b"; ");
        }
        x.arena.copy(field.value);
    }
    let value = x.arena.since(start);
    let mut first = true;
    x.request.head.retain_fields(|field| field.known != KnownField::Cookie || std::mem::take(&mut first));
    if let Some(field) = x.request.head.fields.iter_mut().find(|field| field.known == KnownField::Cookie) {
        field.value = value;
    }
}

/// A server without the version is not asked by it, though another of its address is (RFC 9110 section 15.5.20).
fn served_here(x: &Exchange) -> Result<(), HeadFailure> {
    let (has, name) = match x.request.head.version {
        Version::V30 => (x.server.http3.on, "HTTP/3"),
        _ => (x.server.http2.on || x.connection.hosts.borrow().protocols.http2, "HTTP/2"),
    };
    if has {
        return Ok(());
    }
    let message = format_args!("client attempted to request a server for which {name} is disabled");
    x.log(LogLevel::Info, &message);
    Err(HeadFailure::Refuse(421))
}

/// `:authority` takes the place of the Host field; a module that reads that one finds it.
fn host(x: &mut Exchange, authority: Option<Span>) -> Result<(), HeadFailure> {
    let given = x.request.span(KnownField::Host);
    match (authority, given) {
        (Some(authority), None) => {
            let name = x.arena.push(b"host");
            let (known, value) = (KnownField::Host, authority);
            x.request.head.push_field(Field { known, valid: true, underscore: false, name, value });
            Ok(())
        }
        (Some(authority), Some(host)) if x.arena.get(authority) != x.arena.get(host) => {
            x.log(LogLevel::Info, &"client sent \"Host\" header that differs from \":authority\"");
            Err(HeadFailure::Refuse(400))
        }
        (None, None) => {
            x.log(LogLevel::Info, &"client sent neither \":authority\" nor \"Host\" header");
            Err(HeadFailure::Refuse(400))
        }
        _ => Ok(()),
    }
}

fn refuse(x: &mut Exchange, malformed: &MalformedMessage) -> HeadFailure {
    match malformed.place() {
        Some(place) => {
            let name = String::from_utf8_lossy(x.arena.get(place)).into_owned();
            x.log(LogLevel::Info, &format_args!("client {malformed}: \"{name}\""));
        }
        None => x.log(LogLevel::Info, &format_args!("client {malformed}")),
    }
    refused(x)
}

/// nginx has not seen the target at this point.
fn refused(x: &mut Exchange) -> HeadFailure {
    x.request.uri = x.arena.push(b"");
    HeadFailure::Refuse(400)
}
