//! What is sent to a server: the request line, the fields of `proxy_set_header`, the client's others.

use std::sync::Arc;

use weir_conf::LineCx;
use weir_engine::variable::{ValueBasis, ValueScript, Variable};
use weir_engine::{Exchange, Span, Text, Verdict};
use weir_http::escape::{EscapeSet, escape};
use weir_http::{KnownField, Method, base64, h1};
use weir_upstream::protocol::{FieldSection, OutgoingRequest, RequestFraming};
use weir_upstream::{FieldNames, UpstreamSettings};

use super::http::HttpPass;
use super::pass::PassGoal;
use crate::support::password::sha1;
use crate::support::value::WorkerValue;

/// The fields that `proxy_set_header` and its like name, and their values, as written.
pub(crate) type SetHeaders = Vec<(Arc<str>, ValueScript)>;

/// `_set_header field value`
pub(crate) fn set_header(slot: &mut Option<SetHeaders>, line: &mut LineCx<'_>) -> weir_conf::Result {
    let value = ValueScript::compile(line, 1)?;
    slot.get_or_insert_default().push((line.arg(0).into(), value));
    Ok(())
}

/// The fields of `proxy_set_header` and nginx's own, on one worker.
pub(crate) struct RequestFields {
    host: Option<WorkerValue>,
    set: Vec<(Arc<str>, WorkerValue)>,
    /// The client's fields that are not sent as they came.
    replaced: FieldNames,
}

/// What becomes of the client's fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientFields {
    Sent,
    /// `proxy_pass_request_headers off`
    Withheld,
}

impl ClientFields {
    fn of(settings: &UpstreamSettings) -> ClientFields {
        if settings.pass_request_headers { ClientFields::Sent } else { ClientFields::Withheld }
    }
}

impl RequestFields {
    pub(crate) fn new(written: &[(Arc<str>, ValueScript)]) -> RequestFields {
        let host = written.iter().rfind(|(name, _)| name.eq_ignore_ascii_case("Host"));
        let set = written.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("Host"));
        let mut replaced = FieldNames::default();
        written.iter().map(|(name, _)| &**name).chain(OWN).for_each(|name| replaced.add(name));
        RequestFields {
            host: host.map(|(_, value)| WorkerValue::new(value)),
            set: set.map(|(name, value)| (name.clone(), WorkerValue::new(value))).collect(),
            replaced,
        }
    }

    /// What all values follow from.
    pub(super) fn basis(&self, x: &Exchange) -> ValueBasis {
        let values = self.host.iter().chain(self.set.iter().map(|(_, value)| value));
        values.map(|value| value.basis(x)).max().unwrap_or(ValueBasis::Head)
    }

    /// Whether `proxy_set_header` names this field, or nginx composes it itself.
    fn replaces(&self, known: KnownField, name: &[u8]) -> bool {
        self.replaced.has(known, name)
    }

    pub(crate) fn sets(&self, name: &str) -> bool {
        self.set.iter().any(|(set, _)| set.eq_ignore_ascii_case(name))
    }

    /// The value of the field that the configuration sets by this name, in any case.
    pub(super) fn set_value(&self, name: &str) -> Option<&WorkerValue> {
        self.set.iter().find(|(set, _)| set.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// `Host`, if it is set.
    pub(crate) fn host(&self, x: &mut Exchange) -> Option<Text> {
        self.host.as_ref().map(|value| value.get(x))
    }

    /// The fields that revalidate a cached response, where the cache wants that.
    fn conditions(&self, x: &mut Exchange) -> impl Iterator<Item = (&'static str, Text)> + use<> {
        let (modified, etag) =
            if weir_upstream::is_for_cache(x) { weir_upstream::cache_validators(x) } else { (None, None) };
        let named = |name: &'static str, value: Option<Text>| {
            value.filter(|_| !self.sets(name)).map(|value| (name, value))
        };
        [named("If-Modified-Since", modified), named("If-None-Match", etag)].into_iter().flatten()
    }

    /// The fields of a request in HTTP/2: those that are set, the length of the content, the client's others.
    pub(crate) fn section(
        &self,
        x: &mut Exchange,
        length: Option<u64>,
        client: ClientFields,
        section: &mut FieldSection,
    ) {
        let values: Vec<Text> = self.set.iter().map(|(_, value)| value.field(x)).collect();
        for ((name, _), value) in self.set.iter().zip(&values) {
            let value = x.text(value);
            if !value.is_empty() && goes(name.as_bytes(), value) {
                section.field(name.as_bytes(), value);
            }
        }
        if let Some(length) = length.filter(|_| !self.sets("Content-Length")) {
            let mut digits = Vec::new();
            h1::number(&mut digits, length);
            section.field(b"content-length", &digits);
        }
        let whole = weir_upstream::is_for_cache(x);
        for (name, value) in self.conditions(x) {
            section.field(name.to_ascii_lowercase().as_bytes(), x.text(&value));
        }
        for field in x.request.head.fields.iter().filter(|_| client == ClientFields::Sent) {
            let name = x.arena.get(field.name);
            let left_out = self.replaces(field.known, name) || whole && field.known.is_partial();
            if !left_out {
                section.field(name, x.arena.get(field.value));
            }
        }
    }
}

/// Whether a field is allowed in a request of HTTP/2 (RFC 9113 section 8.2.2).
fn goes(name: &[u8], value: &[u8]) -> bool {
    match weir_http::classify(name) {
        KnownField::Connection
        | KnownField::KeepAlive
        | KnownField::ProxyConnection
        | KnownField::TransferEncoding
        | KnownField::Upgrade => false,
        KnownField::Te => value.eq_ignore_ascii_case(b"trailers"),
        _ => true,
    }
}

/// Fields of the client that belong to its own connection, or are composed again.
const OWN: [&str; 10] = [
    "Host",
    "Connection",
    "Proxy-Connection",
    "Content-Length",
    "Transfer-Encoding",
    "TE",
    "Keep-Alive",
    "Expect",
    "Upgrade",
    // Of the connection (RFC 7540 section 3.2.1): without it no server takes an `Upgrade: h2c`, be it the client's or
    // the configuration's.
    "HTTP2-Settings",
];

/// Composes the request for `x`.
pub(super) fn compose(http: &HttpPass, x: &mut Exchange, out: &mut OutgoingRequest) -> Result<(), Verdict> {
    let host = host(http, x);
    // A HEAD that fills a cache is a GET before it is what `proxy_method` says, as in nginx.
    let method =
        http.method.as_ref().filter(|_| !weir_upstream::is_sent_as_get(x)).map(|method| method.value(x));
    let body = http.body.as_ref().map(|body| body.value(x));
    if let Some(body) = &body {
        out.body = Some(x.text(body).to_vec());
    }
    frame(http, x, out);
    out.uri = uri(x)?;
    if http.version == 20 {
        section(http, x, out, method, host);
        return Ok(());
    }
    let head = &mut out.head;
    head.reserve(512);
    match &method {
        Some(method) => head.extend_from_slice(x.text(method)),
        None if weir_upstream::is_sent_as_get(x) => head.extend_from_slice(b"GET"),
        None => head.extend_from_slice(x.arena.get(x.request.head.method_span)),
    }
    head.push(b' ');
    head.extend_from_slice(x.arena.get(out.uri));
    head.extend_from_slice(if http.version == 11 { b" HTTP/1.1\r\n" } else { b" HTTP/1.0\r\n" });
    if !x.text(&host).is_empty() {
        h1::field(head, b"Host", x.text(&host));
    }
    let mut closes = false;
    for (name, value) in &http.fields.set {
        let value = value.field(x);
        let value = x.text(&value);
        if !value.is_empty() {
            closes |= name.eq_ignore_ascii_case("Connection") && value.eq_ignore_ascii_case(b"close");
            h1::field(head, name.as_bytes(), value);
        }
    }
    if !http.fields.sets("Content-Length")
        && let Some(length) = length(x, out.body.as_deref(), out.framing)
    {
        h1::content_length(&mut out.head, length);
    }
    if out.framing == RequestFraming::Chunked && !http.fields.sets("Transfer-Encoding") {
        out.head.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if !http.upgrade.is_empty() && http.version == 11 {
        upgrade(http, x, &mut out.head);
    }
    for (name, value) in http.fields.conditions(x) {
        h1::field(&mut out.head, name.as_bytes(), x.text(&value));
    }
    if http.settings.pass_request_headers {
        client(http, x, &mut out.head);
    }
    out.head.extend_from_slice(b"\r\n");
    // What an HTTP/1.0 server keeps it says so itself.
    out.keep_alive = !closes;
    Ok(())
}

/// Composes the head of a request in HTTP/2.
fn section(http: &HttpPass, x: &mut Exchange, out: &mut OutgoingRequest, method: Option<Text>, host: Text) {
    let length = length(x, out.body.as_deref(), out.framing);
    let section = &mut out.section;
    if let Some(accept) = websocket(http, x) {
        out.websocket = Some(accept);
        section.pseudo(":method", b"CONNECT");
        section.pseudo(":protocol", b"websocket");
        section.pseudo(":path", x.arena.get(out.uri));
        section.pseudo(":scheme", scheme(x));
        section.pseudo(":authority", x.text(&host));
        http.fields.section(x, None, ClientFields::of(&http.settings), section);
        // It has no meaning here (RFC 8441 section 5.1).
        return section.remove(b"sec-websocket-key");
    }
    match &method {
        Some(method) => section.pseudo(":method", x.text(method)),
        None if weir_upstream::is_sent_as_get(x) => section.pseudo(":method", b"GET"),
        None => section.pseudo(":method", x.arena.get(x.request.head.method_span)),
    }
    section.pseudo(":path", x.arena.get(out.uri));
    section.pseudo(":scheme", scheme(x));
    section.pseudo(":authority", x.text(&host));
    http.fields.section(x, length, ClientFields::of(&http.settings), section);
}

/// A request for a WebSocket, which a server of HTTP/2 is asked for by extended CONNECT (RFC 8441 section 5), where the
/// configuration passes the client's wish on (`proxy_set_header Upgrade`, `proxy_upgrade`): what proves to a client of HTTP/1.1
/// that it was granted (RFC 6455 section 4.2.2).
fn websocket(http: &HttpPass, x: &mut Exchange) -> Option<Vec<u8>> {
    let key = x.request.head.fields.iter().find(|field| field.known == KnownField::SecWebsocketKey)?.value;
    let wish = x.request.head.fields.iter().find(|field| field.known == KnownField::Upgrade)?.value;
    let is_websocket = |text: &[u8]| text.eq_ignore_ascii_case(b"websocket");
    let set = http.fields.set.iter().find(|(name, _)| name.eq_ignore_ascii_case("Upgrade"));
    let passed = match set {
        Some((_, value)) => {
            let value = value.get(x);
            is_websocket(x.text(&value))
        }
        None => !http.upgrade.of(b"websocket").is_empty() && !http.fields.sets("Connection"),
    };
    if !passed || !is_websocket(x.arena.get(wish)) || x.request.head.method != Method::Get {
        return None;
    }
    let mut accept = Vec::new();
    let digest = sha1::digest(&[x.arena.get(key), b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat());
    base64::encode(&digest, &mut accept);
    Some(accept)
}

/// The client's fields, but for those that are sent otherwise.
fn client(http: &HttpPass, x: &Exchange, head: &mut Vec<u8>) {
    let whole = weir_upstream::is_for_cache(x);
    for field in &x.request.head.fields {
        let name = x.arena.get(field.name);
        let left_out = http.fields.replaces(field.known, name) || whole && field.known.is_partial();
        if !left_out {
            h1::field(head, name, x.arena.get(field.value));
        }
    }
}

/// What the client wishes to speak from here on, if anything (RFC 9110 section 7.8).
fn upgrade(http: &HttpPass, x: &Exchange, head: &mut Vec<u8>) {
    let wish = x.request.head.fields.iter().find(|field| field.known == KnownField::Upgrade);
    if let Some(wish) = wish.filter(|_| !http.fields.sets("Upgrade") && !http.fields.sets("Connection")) {
        let names = http.upgrade.of(x.arena.get(wish.value));
        if !names.is_empty() {
            h1::field(head, b"Upgrade", &names.join(&b", "[..]));
            head.extend_from_slice(b"Connection: upgrade\r\n");
        }
    }
}

/// How the client's body follows.
fn frame(http: &HttpPass, x: &Exchange, out: &mut OutgoingRequest) {
    if out.body.is_some() || !http.settings.pass_request_body {
        return;
    }
    let chunked = x.request.head.chunked && !x.body.is_read() && http.version != 20;
    out.framing = match () {
        () if chunked => RequestFraming::Chunked,
        () if x.body.is_read() || x.body.is_pending() || x.request.head.content_length.is_some() => {
            RequestFraming::Plain
        }
        () => RequestFraming::None,
    };
}

/// `:scheme`
pub(crate) fn scheme(x: &Exchange) -> &'static [u8] {
    if PassGoal::of(x).is_some_and(|goal| goal.https) { b"https" } else { b"http" }
}

/// What `Content-Length` says, if anything.
pub(crate) fn length(x: &Exchange, body: Option<&[u8]>, framing: RequestFraming) -> Option<u64> {
    match (body, framing) {
        (Some(body), _) => Some(body.len() as u64),
        (None, RequestFraming::Plain) if x.body.is_read() => {
            let length = x.body.file().map_or(x.body.memory().len() as u64, |file| file.len);
            (length > 0 || x.request.head.content_length.is_some() || x.request.head.chunked)
                .then_some(length)
        }
        (None, RequestFraming::Plain) => x.request.head.content_length,
        (None, RequestFraming::None | RequestFraming::Chunked | RequestFraming::Records) => None,
    }
}

/// `Host`: as set, else as `proxy_pass` names the server; HTTP/1.1 must have one.
fn host(http: &HttpPass, x: &mut Exchange) -> Text {
    let set = http.fields.host.as_ref().map(|value| value.field(x));
    match set {
        Some(set) if http.version < 11 || !x.text(&set).is_empty() => set,
        _ => proxy_host(x).unwrap_or(Text::EMPTY),
    }
}

/// The default cache key of the response to `x`: scheme, host and URI of the request that is sent.
pub(super) fn cache_key(x: &mut Exchange) -> Result<Span, Verdict> {
    let uri = uri(x)?;
    let start = x.arena.mark();
    let goal = PassGoal::of(x);
    let (https, host) = goal.map_or((false, None), |goal| (goal.https, goal.host.clone()));
    x.arena.push(if https { b"https://" } else { b"http://" });
    if let Some(host) = host {
        x.arena.append(&host);
    }
    x.arena.copy(uri);
    Ok(x.arena.since(start))
}

/// The URI that is sent, in the arena.
pub(crate) fn uri(x: &mut Exchange) -> Result<Span, Verdict> {
    let (given, whole) = PassGoal::of(x).map_or((None, false), |goal| (goal.uri.clone(), goal.whole));
    let uri = match given {
        Some(given) if whole => x.arena.append(&given),
        None if x.request.uri_is_plain => x.request.unparsed_uri,
        given => {
            let replaced = match &given {
                Some(_) if x.valid_location => location_len(x).min(x.uri().len()),
                _ => 0,
            };
            let start = x.arena.mark();
            if let Some(given) = given.filter(|_| x.valid_location) {
                x.arena.append(&given);
            }
            let rest = x.uri()[replaced..].to_vec();
            x.arena.write(|out| escape(out, &rest, EscapeSet::Uri));
            if !x.args().is_empty() {
                let args = x.request.args;
                x.arena.push(b"?");
                x.arena.copy(args);
            }
            x.arena.since(start)
        }
    };
    if uri.is_empty() {
        x.log_error(&"zero length URI to proxy");
        return Err(Verdict::Status(500));
    }
    Ok(uri)
}

/// How much of the URI the location's name is, which the URI of `proxy_pass` replaces.
fn location_len(x: &Exchange) -> usize {
    x.plan.core.location_len
}

/// `$proxy_host`
pub(crate) fn proxy_host(x: &mut Exchange) -> Option<Text> {
    let host = PassGoal::of(x)?.host.clone()?;
    if x.text(&host).starts_with(b"unix:") {
        return Some(Text::Static(b"localhost"));
    }
    Some(host)
}

/// The variables.
pub(super) const VARIABLES: &[Variable] = &[
    Variable::new("proxy_host", proxy_host).volatile().changeable().of_head(),
    Variable::new("proxy_port", |x| {
        let usual = if PassGoal::of(x)?.https { 443 } else { 80 };
        let host = PassGoal::of(x)?.host.clone()?;
        let text = String::from_utf8_lossy(x.text(&host)).into_owned();
        let port = weir_conf::split_port(&text).ok()?.1.unwrap_or(usual);
        Some(Text::Span(x.arena.push(port.to_string().as_bytes())))
    })
    .volatile()
    .changeable()
    .of_head(),
    Variable::new("proxy_add_x_forwarded_for", |x| {
        let start = x.arena.mark();
        let Exchange { request, arena, .. } = x;
        for field in request.head.fields.iter().filter(|field| field.known == KnownField::XForwardedFor) {
            arena.copy(field.value);
            arena.push(b", ");
        }
        x.push_client();
        Some(Text::Span(x.arena.since(start)))
    })
    .volatile()
    .of_connection(),
];

/// Whether the response to `x` has no body because of the method that was sent.
pub(super) fn is_head(http: &HttpPass, x: &mut Exchange) -> bool {
    match &http.method {
        Some(method) if !weir_upstream::is_sent_as_get(x) => {
            let method = method.value(x);
            x.text(&method).eq_ignore_ascii_case(b"HEAD")
        }
        _ => x.request.head.method == Method::Head && !weir_upstream::is_sent_as_get(x),
    }
}
