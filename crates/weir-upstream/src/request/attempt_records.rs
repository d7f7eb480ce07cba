//! What a request knows of its tries: `$upstream_*`, and the context of messages.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use weir_http::h1::{self, TrailerFields};
use weir_http::{Field, Span, classify};
use weir_tls::certificate;
use weir_trace::Cause;

use crate::config::directives::UpstreamSettings;
use crate::config::failure_reason::AttemptFault;
use crate::peer::Peer;
use crate::request::cache_use::cache_validators;
use crate::request::exchange_part::{part, part_if};
use crate::tls_client::tls_facts::UpstreamTlsFacts;
use crate::worker_side::local_upstream::LocalUpstream;
use weir_engine::exchange::{Exchange, ResponseHeader};
use weir_engine::log::LogLevel;
use weir_engine::text::{Arena, Text};
use weir_engine::variable::Variable;

/// The tries of a request, those before an internal redirect included. Clones share them. An exchange has them from its
/// first try on, and keeps their memory for its next request.
#[derive(Clone, Default)]
pub struct AttemptRecords(Rc<AttemptRecordsInner>);

#[derive(Default)]
struct AttemptRecordsInner {
    list: RefCell<Vec<AttemptRecord>>,
    /// The last of the list was asked with this scheme for this URI. As in nginx, it is part of every message to the end of
    /// the request; `None` before the first try of a handler.
    asked: Cell<Option<(&'static str, Span)>>,
    /// The fields of the last response.
    fields: RefCell<Vec<Field>>,
    /// The trailer of the last response.
    trailers: RefCell<Vec<TrailerField>>,
    began: Cell<u64>,
    /// What went wrong where the request was out of reach; [`AttemptRecords::log_complaints`] logs it.
    complaints: RefCell<Vec<(LogLevel, String)>>,
    /// The upstream that is asked.
    upstream: RefCell<Option<Rc<LocalUpstream>>>,
    /// The TLS of the last try's connection.
    tls: RefCell<Option<Rc<UpstreamTlsFacts>>>,
}

/// A name and its value.
type TrailerField = (Box<[u8]>, Box<[u8]>);

/// One try. Times are milliseconds since it began.
#[derive(Default)]
struct AttemptRecord {
    /// When it began, in milliseconds of the worker's clock.
    began: u64,
    /// `None` is the border between two handlers of one request.
    name: Option<AttemptName>,
    status: Option<u16>,
    /// What went wrong.
    cause: Cause,
    connect: Option<u64>,
    header: Option<u64>,
    response: Option<u64>,
    length: u64,
    sent: u64,
    received: u64,
}

enum AttemptName {
    Peer(Arc<Peer>),
    /// No server of this upstream was available.
    Group(Rc<str>),
}

impl AttemptName {
    fn as_str(&self) -> &str {
        match self {
            AttemptName::Peer(peer) => &peer.name,
            AttemptName::Group(name) => name,
        }
    }
}

impl AttemptRecords {
    /// The tries of `x`; a handler begins to ask.
    pub(crate) fn begin(x: &mut Exchange, upstream: &Rc<LocalUpstream>) -> AttemptRecords {
        let records = part(x).records().clone();
        *records.0.upstream.borrow_mut() = Some(upstream.clone());
        records.0.asked.set(None);
        let mut list = records.0.list.borrow_mut();
        if !list.is_empty() {
            list.push(AttemptRecord::default());
        }
        drop(list);
        records
    }

    /// Forgets all; `false`: they are still referred to elsewhere.
    pub(crate) fn clear(&mut self) -> bool {
        let Some(inner) = Rc::get_mut(&mut self.0) else { return false };
        inner.list.get_mut().clear();
        inner.asked.set(None);
        inner.fields.get_mut().clear();
        inner.trailers.get_mut().clear();
        inner.complaints.get_mut().clear();
        *inner.upstream.get_mut() = None;
        *inner.tls.get_mut() = None;
        true
    }

    /// The name of the upstream that is asked, or was last.
    pub(crate) fn upstream(&self) -> Option<String> {
        self.0.upstream.borrow().as_ref().map(|local| local.upstream.name.to_string())
    }

    /// A try of `peer` begins.
    pub(crate) fn start(&self, peer: &Arc<Peer>, scheme: &'static str, uri: Span) {
        self.start_at(weir_rt::now_ms(), peer, scheme, uri);
    }

    /// [`start`](AttemptRecords::start) of a try that began at `began`, in milliseconds of the worker's clock.
    pub(crate) fn start_at(&self, began: u64, peer: &Arc<Peer>, scheme: &'static str, uri: Span) {
        self.0.began.set(began);
        self.add(AttemptName::Peer(peer.clone()), scheme, uri);
    }

    /// No peer of the upstream `name` can be asked.
    pub(crate) fn nobody(&self, name: &str, scheme: &'static str, uri: Span) {
        self.0.began.set(weir_rt::now_ms());
        self.add(AttemptName::Group(name.into()), scheme, uri);
        self.with(|this| {
            this.status = Some(502);
            this.cause = Cause::AllPeersDown;
            this.response = Some(0);
        });
    }

    fn add(&self, name: AttemptName, scheme: &'static str, uri: Span) {
        self.0.asked.set(Some((scheme, uri)));
        self.0.fields.borrow_mut().clear();
        self.0.trailers.borrow_mut().clear();
        *self.0.tls.borrow_mut() = None;
        let began = self.0.began.get();
        self.0.list.borrow_mut().push(AttemptRecord { began, name: Some(name), ..AttemptRecord::default() });
    }

    /// The connection is established.
    pub(crate) fn connected(&self) {
        let age = self.age();
        self.with(|this| this.connect = Some(age));
    }

    /// The connection has TLS.
    pub(crate) fn secured(&self, tls: &Rc<UpstreamTlsFacts>) {
        *self.0.tls.borrow_mut() = Some(tls.clone());
    }

    /// The connection was there when the try began.
    pub(crate) fn connected_at_once(&self) {
        self.with(|this| this.connect = Some(0));
    }

    /// The head is there.
    pub(crate) fn head(&self, status: u16, fields: &[Field]) {
        let age = self.age();
        self.with(|this| {
            this.status = Some(status);
            this.header = Some(age);
        });
        self.0.fields.borrow_mut().extend_from_slice(fields);
    }

    /// The connection is established, which is all that was asked for.
    pub(crate) fn opened(&self) {
        let age = self.age();
        self.with(|this| this.header = Some(age));
    }

    /// The first byte of a session's server is there.
    pub(crate) fn first_byte(&self) {
        let age = self.age();
        self.with(|this| this.header = Some(age));
    }

    /// The try has ended, with this status if no head came.
    pub(crate) fn end(&self, status: Option<u16>) {
        let age = self.age();
        self.with(|this| {
            this.response = Some(age);
            this.status = this.status.or(status);
        });
    }

    /// The try has ended without a response for the client.
    pub(crate) fn failed(&self, fault: AttemptFault) {
        self.end(Some(fault.reason.status()));
        self.with(|this| this.cause = fault.cause);
    }

    /// Whether the current try had a connection.
    pub(crate) fn was_connected(&self) -> bool {
        self.0.list.borrow().last().is_some_and(|this| this.connect.is_some())
    }

    /// Counts bytes: of the body for the client, sent, and received.
    pub(crate) fn count(&self, length: u64, sent: u64, received: u64) {
        self.with(|this| {
            this.length += length;
            this.sent = this.sent.max(sent);
            this.received += received;
        });
    }

    /// A field of the response's trailer, unless it is one that none may have (RFC 9110 section 6.5.1): such are about framing,
    /// routing, or how to read what came before.
    pub(crate) fn trailer(&self, name: &[u8], value: &[u8]) {
        if classify(name).forbidden_in_trailer() {
            return;
        }
        self.0.trailers.borrow_mut().push((name.into(), value.into()));
    }

    /// The trailer section of a response in chunks.
    pub(crate) fn note_trailers(&self, section: &TrailerFields) {
        let bytes = section.bytes();
        for field in section.fields() {
            self.trailer(field.name.of(bytes), field.value.of(bytes));
        }
    }

    /// Whether the response has had one.
    pub(crate) fn has_trailer(&self) -> bool {
        !self.0.trailers.borrow().is_empty()
    }

    /// Gives the client the trailer of the response, but for what `settings` hide.
    pub(crate) fn pass_trailers(&self, x: &mut Exchange, settings: &UpstreamSettings) {
        for (name, value) in
            self.0.trailers.borrow().iter().filter(|(name, _)| !settings.hidden.has_name(name))
        {
            let name = weir_engine::exchange::HeaderName::Other(Text::Span(x.arena.push(name)));
            let value = Text::Span(x.arena.push(value));
            x.response.trailers.push(ResponseHeader { name, value });
        }
    }

    fn age(&self) -> u64 {
        weir_rt::now_ms().saturating_sub(self.0.began.get())
    }

    fn with(&self, change: impl FnOnce(&mut AttemptRecord)) {
        if let Some(last) = self.0.list.borrow_mut().last_mut() {
            change(last);
        }
    }

    /// Notes a message of one that has no request to log it with.
    pub(crate) fn complain(&self, level: LogLevel, message: String) {
        self.0.complaints.borrow_mut().push((level, message));
    }

    /// Logs what went wrong after the request was over.
    pub(crate) fn tell_nobody(&self) {
        for (level, message) in self.0.complaints.take() {
            weir_engine::log::cycle(level, &message);
        }
    }

    /// `http://127.0.0.1:8000/uri`, for messages from the first try on.
    pub(crate) fn context(&self, arena: &Arena, out: &mut Vec<u8>) {
        if let (Some((scheme, uri)), Some(last)) = (self.0.asked.get(), self.list().last()) {
            out.extend_from_slice(b", upstream: \"");
            out.extend_from_slice(scheme.as_bytes());
            out.extend_from_slice(last.name().as_bytes());
            out.extend_from_slice(arena.get(uri));
            out.push(b'"');
        }
    }

    /// Logs what went wrong while a body was read from a server; `false`: nothing that ended it did.
    #[inline]
    pub(crate) fn log_complaints(&self, x: &Exchange) -> bool {
        !self.0.complaints.borrow().is_empty() && tell_all(x, self)
    }

    fn list(&self) -> Ref<'_, Vec<AttemptRecord>> {
        self.0.list.borrow()
    }
}

#[cold]
fn tell_all(x: &Exchange, records: &AttemptRecords) -> bool {
    let mut ended = false;
    for (level, message) in records.0.complaints.take() {
        ended |= level != LogLevel::Warn;
        x.log(level, &message);
    }
    ended
}

/// The variables.
pub(crate) const VARIABLES: &[Variable] = &[
    Variable::new("upstream_addr", |x| each(x, |t, out| out.extend_from_slice(t.name().as_bytes())))
        .volatile(),
    Variable::new("upstream_status", |x| each(x, |t, out| optional(out, t.status.map(u64::from)))).volatile(),
    Variable::new("upstream_cause", |x| each(x, |t, out| out.extend_from_slice(t.cause().as_bytes())))
        .volatile()
        .changeable(),
    Variable::new("upstream_connect_time", |x| each(x, |t, out| seconds(out, t.connect))).volatile(),
    Variable::new("upstream_header_time", |x| each(x, |t, out| seconds(out, t.header))).volatile(),
    Variable::new("upstream_response_time", |x| each(x, |t, out| seconds(out, t.response))).volatile(),
    Variable::new("upstream_start_timestamp_us", |x| times(x, |_| Some(0))).volatile().changeable(),
    Variable::new("upstream_connect_timestamp_us", |x| times(x, |t| t.connect)).volatile().changeable(),
    Variable::new("upstream_request_timestamp_us", |x| times(x, |t| t.header)).volatile().changeable(),
    Variable::new("upstream_header_timestamp_us", |x| times(x, |t| t.header)).volatile().changeable(),
    Variable::new("upstream_response_timestamp_us", |x| times(x, |t| t.response)).volatile().changeable(),
    Variable::new("kong_upstream_ssl_protocol", |x| Some(Text::Static(server_tls(x)?.version.as_bytes())))
        .volatile()
        .changeable(),
    Variable::new("kong_upstream_ssl_server_raw_cert", |x| {
        let pem = certificate::to_pem(server_tls(x)?.certificate.as_deref()?);
        Some(Text::Span(x.arena.write(|out| out.extend_from_slice(pem.as_bytes()))))
    })
    .volatile()
    .changeable(),
    Variable::new("upstream_response_length", |x| each(x, |t, out| optional(out, Some(t.length)))).volatile(),
    Variable::new("upstream_bytes_received", |x| each(x, |t, out| optional(out, Some(t.received))))
        .volatile(),
    Variable::new("upstream_bytes_sent", |x| each(x, |t, out| optional(out, Some(t.sent)))).volatile(),
    Variable::new("upstream_cache_status", |x| {
        part_if(x)?.cached.status.map(|status| Text::Static(status.as_str().as_bytes()))
    })
    .volatile(),
    Variable::new("upstream_cache_last_modified", |x| cache_validators(x).0).volatile(),
    Variable::new("upstream_cache_etag", |x| cache_validators(x).1).volatile(),
    Variable::prefix("upstream_http_", field).volatile(),
    Variable::prefix("upstream_trailer_", trailer).volatile(),
    Variable::prefix("upstream_cookie_", cookie).volatile(),
];

impl AttemptRecord {
    fn name(&self) -> &str {
        self.name.as_ref().map_or("", AttemptName::as_str)
    }

    fn cause(&self) -> &'static str {
        if self.cause == Cause::None { "-" } else { self.cause.as_str() }
    }
}

/// The TLS of the connection to the server that was asked last.
fn server_tls(x: &mut Exchange) -> Option<Rc<UpstreamTlsFacts>> {
    part_if(x)?.records.as_ref()?.0.tls.borrow().clone()
}

/// When the first byte of each try of a session came, in seconds since it began (`$upstream_first_byte_time`).
pub fn first_byte_times(x: &mut Exchange) -> Option<Text> {
    each(x, |this, out| seconds(out, this.header))
}

/// How long each try of a session took, in seconds (`$upstream_session_time`).
pub fn session_times(x: &mut Exchange) -> Option<Text> {
    each(x, |this, out| seconds(out, this.response))
}

/// The tries one after the other: `, ` between those of one handler, ` : ` between handlers.
fn each(x: &mut Exchange, write: impl Fn(&AttemptRecord, &mut Vec<u8>)) -> Option<Text> {
    let records = part_if(x)?.records.clone()?;
    let list = records.list();
    if list.is_empty() {
        return None;
    }
    let span = x.arena.write(|out| {
        let mut border = "";
        for this in list.iter() {
            if this.name.is_none() {
                border = " : ";
                continue;
            }
            out.extend_from_slice(border.as_bytes());
            write(this, out);
            border = ", ";
        }
    });
    Some(Text::Span(span))
}

/// A number, or `-`.
fn optional(out: &mut Vec<u8>, number: Option<u64>) {
    match number {
        Some(number) => h1::number(out, number),
        None => out.push(b'-'),
    }
}

/// `milliseconds` as seconds with three decimals, or `-`.
fn seconds(out: &mut Vec<u8>, milliseconds: Option<u64>) {
    match milliseconds {
        Some(milliseconds) => h1::thousandths(out, milliseconds),
        None => out.push(b'-'),
    }
}

/// The moments at which something happened to each try, in seconds since 1970 with six decimals: the time that the worker's clock
/// counted from the try's begin until then, in milliseconds, is given by `age`.
fn times(x: &mut Exchange, age: impl Fn(&AttemptRecord) -> Option<u64>) -> Option<Text> {
    let (whole, ms) = weir_rt::unix_time();
    let (wall, clock) = (whole * 1000 + u64::from(ms), weir_rt::now_ms());
    each(x, |this, out| {
        let at = age(this).map(|age| wall.saturating_sub(clock.saturating_sub(this.began + age)));
        seconds(out, at);
        if at.is_some() {
            out.extend_from_slice(b"000");
        }
    })
}

/// All fields of the last response with this name (`-` written as `_`), joined as nginx does.
fn field(x: &mut Exchange, name: &str) -> Option<Text> {
    let named = |field: &&Field| is_named(x.arena.get(field.name), name);
    let found: Vec<Span> = answered(x).iter().filter(named).map(|field| field.value).collect();
    match &found[..] {
        [] => None,
        [one] => Some(Text::Span(*one)),
        several => {
            let start = x.arena.mark();
            for (at, value) in several.iter().enumerate() {
                if at > 0 {
                    x.arena.push(b", ");
                }
                x.arena.copy(*value);
            }
            Some(Text::Span(x.arena.since(start)))
        }
    }
}

fn trailer(x: &mut Exchange, name: &str) -> Option<Text> {
    let records = part_if(x)?.records.clone()?;
    let trailers = records.0.trailers.borrow();
    let mut values = trailers.iter().filter(|(known, _)| is_named(known, name)).map(|(_, value)| value);
    let first = values.next()?;
    let start = x.arena.mark();
    x.arena.push(first);
    for value in values {
        x.arena.push(b", ");
        x.arena.push(value);
    }
    Some(Text::Span(x.arena.since(start)))
}

/// The value that the last response gives a cookie.
fn cookie(x: &mut Exchange, name: &str) -> Option<Text> {
    let fields = answered(x);
    let cookies = fields.iter().filter(|field| field.known == weir_http::KnownField::SetCookie);
    cookies.filter_map(|field| value_of(&x.arena, field.value, name)).next().map(Text::Span)
}

/// The fields of the response: of the one that is served from the cache, or of the last that came from a server.
fn answered(x: &Exchange) -> Vec<Field> {
    let Some(part) = part_if(x) else { return Vec::new() };
    if let Some((answer, base)) = &part.cached.served {
        return answer.fields_at(*base).collect();
    }
    part.records.as_ref().map(|records| records.0.fields.borrow().clone()).unwrap_or_default()
}

/// The value in `name=value; ...`, as a span of the arena.
fn value_of(arena: &Arena, cookie: Span, name: &str) -> Option<Span> {
    let text = arena.get(cookie);
    let value = text.get(..name.len()).filter(|start| start.eq_ignore_ascii_case(name.as_bytes()))?;
    let rest = text.get(value.len()..)?.strip_prefix(b"=")?;
    let end = rest.iter().position(|byte| *byte == b';').unwrap_or(rest.len());
    arena.locate(&rest[..end])
}

/// Whether a field called `field` is meant by the variable's `name`: in any case, and with `_` for `-`.
fn is_named(field: &[u8], name: &str) -> bool {
    field.len() == name.len()
        && field.iter().zip(name.bytes()).all(|(field, name)| match field {
            b'-' => name == b'_',
            field => field.to_ascii_lowercase() == name,
        })
}
