//! Responses that are known before their requests are looked at.
//!
//! A client that sends the same head again (a program that polls, a proxy, a benchmark) has it read once
//! ([`known_heads`]); here it has its response made once, too, if that follows from the head, the configuration and a
//! file: a file as it is, a constant text. Neither phases nor filters run for it the second time; what they would have
//! left for the log, the trace and the counters is there. Which handlers and filters may be left out they say themselves
//! ([`Handler::is_fixed`](crate::phase::Handler::is_fixed), [`HeaderFilter::is_fixed`](crate::filter::HeaderFilter::is_fixed));
//! all others, scripts above all, are asked for every request.

use std::rc::Rc;

use weir_http::KnownField;
use weir_http::h2::StreamEnd;
use weir_sys::probe;
use weir_trace::{ConnectionStep, RequestRecord, Site};

use super::{ServeWait, known_pass};
use crate::body::{BodyBuf, ResponseBody};
use crate::deep_traces;
use crate::exchange::known_heads::KnownSight;
use crate::exchange::{
    DatedHead, Exchange, KnownBody, KnownCourse, KnownFields, KnownFile, KnownHeadForm, KnownResponse,
    KnownScope, ReadyHead, ResponseDelivery, ResponseSource, known_heads,
};
use crate::file::{self, FoundPath, OpenFile};
use crate::log::LogLevel;
use crate::phase::Phase;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::request_head::ClientJudge;
use crate::settings::location::DisableSymlinks;
use crate::settings::server::{InvalidValues, has_control};
use crate::text::Arena;
use crate::transport::multiplexed::RequestStream;
use crate::transport::wire::{self, ClientWire};
use crate::transport::{ClientStream, Transport, heads, is_paced, keepalive};

impl Exchange {
    /// Says that the response follows from the request's head as long as `source` gives its body, for a handler that has a
    /// response at hand which it would give to the next request like this one, too.
    #[inline]
    pub fn comes_from(&mut self, source: impl FnOnce(&Arena) -> Rc<dyn ResponseSource>) {
        if let KnownCourse::Wanted = self.known {
            self.known = KnownCourse::Sourced(source(&self.arena));
        }
    }

    /// Whether a handler has called [`comes_from`](Exchange::comes_from).
    pub fn is_sourced(&self) -> bool {
        matches!(self.known, KnownCourse::Sourced(_))
    }
}

/// Serves the request whose head the input of `wire` begins with, and logs it, if its response is known from the sight of that
/// head. `x` is begun, and nothing was done for the request yet; `None`: nor was it now, and its head is to be read.
#[inline]
pub fn try_at_sight<J: ClientJudge>(x: &mut Exchange, wire: &ClientWire) -> Option<Progress<(), ServeWait>> {
    let mut input = wire.input.borrow_mut();
    let (known, length) = match known_heads::find(x, input.bytes()) {
        KnownSight::Response(known, length) => (known, length),
        KnownSight::Passed => {
            drop(input);
            return known_pass::try_at_sight::<J>(x, wire);
        }
        KnownSight::Nothing => return None,
    };
    let nth = x.connection.requests.get() + 1;
    if !known.keep_alive || !known.is_for::<J>(x, nth) {
        return None;
    }
    let body = known.body_at_sight(x)?;
    if known.is_logged {
        known_heads::fill(x);
    }
    input.consume(length);
    drop(input);
    x.nth = nth;
    x.connection.requests.set(nth);
    Some(known.serve_at_sight(x, body))
}

/// [`try_at_sight`] for a stream of HTTP/2: the request whose header section was read last, and has no body where `end` says so,
/// is served by what the one before it got, if that had the same section. The request is counted by its connection.
#[inline]
pub fn try_repeated<J: ClientJudge>(x: &mut Exchange, end: StreamEnd) -> Option<Progress<(), ServeWait>> {
    let Transport::Stream(ClientStream::H2(stream)) = &x.transport else { return None };
    let section = stream.mux.h2.borrow().section_number();
    let known = x.server.caches.sections.find(x.connection.number, section)?;
    let is_whole = end == StreamEnd::Last && known.at_sight && !known.is_logged;
    let same = std::ptr::eq(known.scope.hosts.as_ptr(), Rc::as_ptr(&*x.connection.hosts.borrow()));
    if !(is_whole && same && known.is_for::<J>(x, x.nth)) {
        return None;
    }
    let body = known.body_at_sight(x)?;
    Some(known.serve_at_sight(x, body))
}

/// What is known of the response to `x`, a request of HTTP/2 whose head was read, by the section of that.
#[inline]
pub fn recall_section(x: &mut Exchange) {
    if let Transport::Stream(ClientStream::H2(stream)) = &x.transport {
        let section = stream.mux.h2.borrow().section_number();
        x.known = x.server.caches.sections.course(x.connection.number, section);
    }
}

/// Serves `x`, whose head was read or recalled, by what is known of its response, and logs it; `None`: nothing is, or not
/// enough, and nothing was done.
#[inline]
pub(super) fn try_recalled(x: &mut Exchange) -> Option<Progress<(), ServeWait>> {
    match std::mem::take(&mut x.known) {
        KnownCourse::Response(known) => serve_recalled(x, &known),
        course => {
            x.known = course;
            None
        }
    }
}

fn serve_recalled(x: &mut Exchange, known: &KnownResponse) -> Option<Progress<(), ServeWait>> {
    let is_of = std::ptr::eq(known.scope.server.as_ptr(), Rc::as_ptr(&x.server));
    let stays = x.keep_alive && !keepalive::ends(x, &known.scope.plan.core, x.nth);
    if !is_of || stays != known.keep_alive || !known.is_taken(x) {
        return None;
    }
    let body = if known.fits(x) { known.body(x, || ()) } else { None };
    let Some(body) = body else {
        x.known = KnownCourse::Wanted;
        return None;
    };
    known.serve(x, body);
    Some(super::try_end(x))
}

/// The body that is all of `file`.
#[inline]
fn whole(file: Rc<OpenFile>) -> BodyBuf {
    match file.body() {
        Some(bytes) => BodyBuf::shared(bytes),
        None => BodyBuf::File { offset: 0, len: file.size(), file },
    }
}

impl KnownScope {
    /// The scope of what `x` has: requests that lead where it did.
    pub(super) fn of(x: &Exchange) -> KnownScope {
        KnownScope {
            hosts: Rc::downgrade(&x.connection.hosts.borrow()),
            server: Rc::downgrade(&x.server),
            plan: x.plan.clone(),
        }
    }

    /// Gives `x`, whose head is that of the scope on one of its addresses, its server. `false`: it is not there any more, or not all
    /// clients may have what it has.
    #[inline]
    pub(super) fn enter<J: ClientJudge>(&self, x: &mut Exchange) -> bool {
        if std::ptr::eq(self.server.as_ptr(), Rc::as_ptr(&x.server)) {
            return J::is_open(&x.connection, &x.server);
        }
        match self.server.upgrade().filter(|server| J::is_open(&x.connection, server)) {
            Some(server) => {
                x.server = server;
                true
            }
            None => false,
        }
    }
}

impl KnownResponse {
    /// Whether it is the response to `x`, the `nth` request of its connection, of which nothing was looked at but that its head
    /// is that of this response. If so, `x` has its server.
    #[inline]
    fn is_for<J: ClientJudge>(&self, x: &mut Exchange, nth: u64) -> bool {
        let stays = keepalive::possible(x) && !keepalive::ends(x, &self.scope.plan.core, nth);
        if self.keep_alive != stays || !self.fits(x) || probe::traces_begin() || !self.is_taken(x) {
            return false;
        }
        self.scope.enter::<J>(x)
    }

    /// Whether what is known of it is all that is wanted of `x`.
    #[inline]
    fn fits(&self, x: &Exchange) -> bool {
        !x.connection.debug && (self.pattern.is_some() || !x.recorded.get())
    }

    /// [`body`](KnownResponse::body) of a request that is not among those in flight: it is, from here on, if something of it
    /// may take time.
    #[inline]
    fn body_at_sight(&self, x: &Exchange) -> Option<BodyBuf> {
        let presence = &x.shared.presence;
        let mut entered = false;
        let body = self.body(x, || {
            entered = true;
            crate::trace::enter_as(x, None, self.record.method.as_bytes(), self.record.path.as_bytes());
        });
        match (entered, body.is_some()) {
            (false, _) => presence.pass(),
            (true, false) => presence.leave(),
            (true, true) => {}
        }
        body
    }

    /// What is to be sent of it, at once; `None` if it is not what it was. `enter` is called before anything that a slow disk could
    /// hold up.
    #[inline]
    fn body(&self, x: &Exchange, enter: impl FnOnce()) -> Option<BodyBuf> {
        let body = match &self.body {
            KnownBody::Empty => BodyBuf::Static(b""),
            KnownBody::Constant(constant) => constant.clone(),
            KnownBody::Source(source) => {
                enter();
                source.body()?
            }
            KnownBody::File(file) => match file.seen() {
                Some(file) => whole(file),
                None => {
                    enter();
                    whole(file.look(&x.worker.files, self.scope.plan.core.open_file_cache.as_ref())?)
                }
            },
        };
        (body.memory().is_some() || matches!(x.transport, Transport::H1(_))).then_some(body)
    }

    /// Whether the client takes it at once.
    #[inline]
    fn is_taken(&self, x: &Exchange) -> bool {
        match &x.transport {
            Transport::H1(wire) => wire.takes(self.length),
            Transport::Stream(ClientStream::H2(stream)) => {
                stream.takes_at_once(self.length, self.scope.plan.core.http2_chunk_size)
            }
            _ => false,
        }
    }

    /// Serves `x`, of which nothing was looked at, and logs it.
    #[inline]
    fn serve_at_sight(&self, x: &mut Exchange, body: BodyBuf) -> Progress<(), ServeWait> {
        x.worker.counters.requests.add(1);
        x.worker.counters.writing.add(1);
        x.untouched = !self.is_logged;
        self.serve(x, body);
        if self.is_logged {
            return super::try_end(x);
        }
        super::record_as(x, |x, record| {
            *record = self.record;
            if let Transport::Stream(ClientStream::H2(_)) = x.transport {
                record.bytes_out = x.bytes_sent();
            }
            super::describe_own(x, record);
        });
        Progress::Done(())
    }

    /// Sends it, and leaves `x` as if its phases had run.
    #[inline]
    fn serve(&self, x: &mut Exchange, body: BodyBuf) {
        // What was done so far is the parser's, as everywhere.
        let parsed = x.trace().now();
        x.trace().at(self.maker);
        self.describe(x);
        x.header_size = match &self.head {
            KnownHeadForm::Dated(head) => self.send(x, head, body),
            KnownHeadForm::Numbered(number) => self.send_on_stream(x, *number, body),
        };
        if let Some(pattern) = &self.pattern {
            x.trace().replay(pattern, parsed);
        }
        x.trace().nowhere();
    }

    /// Hands it to a connection of HTTP/1; the length of its head.
    #[inline]
    fn send(&self, x: &Exchange, head: &DatedHead, body: BodyBuf) -> u64 {
        let Transport::H1(wire) = &x.transport else { return 0 };
        let mut length = 0;
        match body.memory() {
            Some(bytes) if wire::is_copied(&body) => {
                wire.compose(|out| length = head.write(&x.worker, out, bytes));
            }
            _ => {
                wire.compose(|out| length = head.write(&x.worker, out, b""));
                wire.queue(body);
            }
        }
        length
    }

    /// Hands it to a stream of HTTP/2; the length of its head.
    #[inline]
    fn send_on_stream(&self, x: &mut Exchange, number: u32, body: BodyBuf) -> u64 {
        let Transport::Stream(ClientStream::H2(stream)) = &x.transport else { return 0 };
        x.response.ready = ReadyHead::Known(number);
        if !self.is_logged && !stream.has_sent(number) {
            self.fields.describe(&mut x.response);
            x.untouched = false;
        }
        let length = stream.head(x);
        match self.length {
            0 => stream.finish(),
            _ => stream.whole(body),
        }
        length
    }

    /// Makes `x` what it would be had its phases run.
    #[inline]
    fn describe(&self, x: &mut Exchange) {
        x.plan = self.scope.plan.clone();
        x.opening = false;
        x.routed();
        x.keep_alive = self.keep_alive;
        x.answered = self.maker;
        x.body_sent = self.length;
        x.delivery.set(ResponseDelivery::Whole);
        (x.response.status, x.response.content_length) = (self.status, Some(self.length));
        x.response.header_sent = true;
        if self.is_logged {
            self.fields.describe(&mut x.response);
        }
    }
}

/// The body of the response that `x` is about to send, if it may become a known one: what is sent of it is taken away.
#[inline]
pub(super) fn wanted(x: &Exchange) -> Option<KnownBody> {
    match &x.known {
        KnownCourse::Wanted => constant(&x.response.body),
        KnownCourse::Sourced(source) => Some(KnownBody::Source(source.clone())),
        KnownCourse::Open | KnownCourse::Response(_) => None,
    }
}

#[cold]
fn constant(body: &ResponseBody) -> Option<KnownBody> {
    match body {
        ResponseBody::Empty => Some(KnownBody::Empty),
        ResponseBody::Whole(buf @ (BodyBuf::Static(_) | BodyBuf::Shared { .. })) => {
            Some(KnownBody::Constant(buf.clone()))
        }
        _ => None,
    }
}

/// `x` has its response, with this body: if it follows from the head, it is stored for the next one.
#[cold]
pub(super) fn learn(x: &mut Exchange, body: KnownBody) {
    let follows = follows(x);
    x.known = KnownCourse::Open;
    if !follows || !may_go_at_once(x) {
        return;
    }
    let Some(body) = body_of(x, body) else { return };
    let Some(known) = known(x, body) else { return };
    match &x.transport {
        Transport::H1(_) => known_heads::keep_response(x, known),
        Transport::Stream(ClientStream::H2(_)) => x.server.caches.sections.keep(x.connection.number, known),
        _ => {}
    }
}

/// Whether a response like that of `x` ever goes out at once: one of several frames of HTTP/2 does not.
fn may_go_at_once(x: &Exchange) -> bool {
    let most = match &x.transport {
        Transport::Stream(ClientStream::H2(_)) => u64::from(x.plan.core.http2_chunk_size),
        _ => wire::HIGH,
    };
    x.response.content_length.is_some_and(|length| length <= most)
}

/// The body as it is to be stored: that of a file is looked for each time.
fn body_of(x: &mut Exchange, sent: KnownBody) -> Option<KnownBody> {
    match x.response.ready {
        // What a log would say of the source is not stored.
        _ if matches!(sent, KnownBody::Source(_)) => {
            return x.plan.phase(Phase::Log).is_empty().then_some(sent);
        }
        // What has a date may be bytes of a file, which is not the same each time.
        ReadyHead::Open => {
            let constant = !matches!(sent, KnownBody::Constant(BodyBuf::Shared { .. }));
            return (constant || x.response.last_modified.is_none()).then_some(sent);
        }
        // A head that a server or a cache has given.
        ReadyHead::Repeated => return None,
        ReadyHead::Known(_) if x.response.memo.is_some() => return None,
        ReadyHead::Alike | ReadyHead::Known(_) => {}
    }
    let core = &x.plan.core;
    let follows = matches!(core.disable_symlinks, DisableSymlinks::Off) && core.root.constant().is_some();
    if !follows || x.add_uri_to_alias {
        return None;
    }
    let path = file::map_uri(x).ok()?;
    match file::lookup(x, path) {
        Ok(FoundPath::File(file)) if x.response.content_length == Some(file.size()) => {
            let path = path.bytes(&x.arena);
            let known = known_heads::file_of_another(x, path, &file);
            Some(KnownBody::File(known.unwrap_or_else(|| Rc::new(KnownFile::new(path, &file)))))
        }
        _ => None,
    }
}

/// Whether the response of `x` is the same for all requests with its head, as far as it is not its source's.
fn follows(x: &Exchange) -> bool {
    heads::ready::asks_plainly(x)
        && leads_alike(x)
        && are_fixed(x, &x.plan)
        && x.response.is_of_head_alone()
        && x.body_filters.is_empty()
        && x.plan.core.post_action.is_none()
        && !is_paced(x)
}

/// Whether requests with the head of `x` lead where it did, as far as that is not up to the handlers of the location.
pub(super) fn leads_alike(x: &Exchange) -> bool {
    let has_content =
        x.request.head.chunked || x.request.head.content_length.is_some_and(|length| length > 0);
    !has_content
        && !deep_traces::is_asked()
        && x.server.plan.is_empty_before(Phase::FindConfig)
        && x.family.is_none()
        && x.captures.groups.is_empty()
        && x.client.is_none()
        && !x.server.is_retired()
        && !x.plan.core.error_log.enabled(LogLevel::Debug)
        && !is_judged(x)
}

/// Whether fields of the request may be dropped for what they say, which is logged each time.
fn is_judged(x: &Exchange) -> bool {
    let has_bad = || x.request.head.fields.iter().any(|field| has_control(x.arena.get(field.value)));
    x.server.settings.invalid_received != InvalidValues::Off && has_bad()
}

/// Whether all handlers of `plan` that were asked for the response of `x` are fixed.
fn are_fixed(x: &Exchange, plan: &Plan) -> bool {
    let own = plan.content.as_deref();
    let end = if own.is_some() { Phase::Content } else { Phase::Log };
    let entries = plan.between(Phase::Rewrite, end).iter().chain(own);
    for entry in entries {
        if !entry.handler.is_fixed(x) {
            return false;
        }
        if entry.site == x.answered {
            return true;
        }
    }
    false
}

/// The head of the response of `x`.
fn form(x: &Exchange) -> Option<KnownHeadForm> {
    match &x.transport {
        Transport::H1(_) => {
            let mut head = Vec::new();
            heads::head(x, &mut head);
            DatedHead::new(&x.worker, head).map(KnownHeadForm::Dated)
        }
        Transport::Stream(ClientStream::H2(_)) => {
            Some(heads::number(x)).filter(|number| *number > 0).map(KnownHeadForm::Numbered)
        }
        _ => None,
    }
}

/// Whether a request with the head of `x` need not be made to get its response: nothing else is looked at in it.
fn is_sufficient(x: &Exchange) -> bool {
    !x.plan.core.keepalive_disable_safari
        && x.request.span(KnownField::Traceparent).is_none()
        && !x.request.head.connection.upgrade
        && x.args().is_empty()
        && x.uri().len() <= PATH
}

fn known(x: &Exchange, body: KnownBody) -> Option<KnownResponse> {
    let head = form(x)?;
    let mut record = RequestRecord::default();
    super::describe_alike(x, &mut record);
    let pattern = x.shared.pattern(Site::step(ConnectionStep::Parse), x.answered);
    let response = &x.response;
    let text = |text: &Option<crate::text::Text>| text.as_ref().map(|text| heads::lasting(x, text));
    Some(KnownResponse {
        scope: KnownScope::of(x),
        maker: x.answered,
        keep_alive: x.keep_alive,
        status: response.status,
        length: response.content_length?,
        body,
        is_logged: !x.plan.phase(Phase::Log).is_empty(),
        head,
        at_sight: is_sufficient(x),
        record,
        fields: KnownFields {
            modified: response.last_modified,
            kind: text(&response.content_type),
            charset: text(&response.charset),
            vary_encoding: response.vary_encoding,
            headers: heads::lasting_fields(x),
        },
        pattern,
    })
}

/// Bytes of a path that a record has whole.
const PATH: usize = 95;
