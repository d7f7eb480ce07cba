//! One request and its response.
//!
//! An [`Exchange`] is taken from its worker's free list at the first byte of a request and goes back when the log
//! phase has run; its vectors keep their memory. Handlers and filters get it by `&mut`; what must be reached while
//! one of them waits is in [`SharedPart`].

mod alone;
pub(crate) mod body_file;
mod boundary;
mod common;
mod content_type;
pub(crate) mod family;
mod fields;
mod file_bytes;
mod head_memo;
pub mod known_heads;
mod known_pass;
mod known_response;
mod lasting;
mod matching;
mod part;
pub(crate) mod paths;
mod request;
pub(crate) mod request_body;
mod response;
pub(crate) mod reuse;
mod role;
mod session_bytes;
mod shared;
pub(crate) mod temp_file;
mod value;
mod variables;

use std::cell::Cell;
use std::rc::Rc;

pub use alone::{RunOrigin, StandaloneRun};
pub use boundary::{DeepTrace, ExchangeTrace};
pub(crate) use common::FamilyState;
pub(crate) use content_type::MediaTypeCache;
use family::SubrequestFamily;
pub use fields::FieldPattern;
pub use head_memo::HeadMemo;
pub(crate) use head_memo::MemoHead;
pub(crate) use known_pass::{ConnectionFacts, KnownPass, KnownScope};
pub use known_response::ResponseSource;
pub(crate) use known_response::{
    DatedHead, KnownBody, KnownCourse, KnownFields, KnownFile, KnownHeadForm, KnownResponse, ResponsePlace,
    SectionResponses,
};
pub use part::ExchangePart;
pub use request::{Field, Request};

pub use request_body::{RequestBody, TempFile};
pub(crate) use response::ReadyHead;
pub use response::{HeaderName, Response, ResponseHeader};
pub(crate) use role::{ExchangeRole, ResponseDelivery};
pub use session_bytes::SessionBytes;
pub use shared::SharedPart;
pub use variables::RegexCaptures;
pub(crate) use variables::{ChangedVariables, VariableValues};
use weir_rt::net::SockAddr;
use weir_trace::{Cause, Site, WaitKind};

use crate::body::ResponseBody;
use crate::filter::{BodyEntry, BodyFilter, FilterSlot, ROOM};
use crate::phase::{LocalFuture, Verdict};
use crate::plan::Plan;
use crate::plan::server::VirtualServer;
use crate::text::{Arena, Span, Text};
use crate::transport::{ClientConnection, Transport};
use crate::typed_values::TypedValues;
use crate::variable_index::VarIndex;
use crate::worker::Worker;

/// One request, its response, and everything in between.
pub struct Exchange {
    /// The text of this request.
    pub arena: Arena,
    /// What the client asked for.
    pub request: Request,
    /// The response's head.
    pub response: Response,
    /// The request's body, once it is read.
    pub body: RequestBody,
    /// The connection the request came on.
    pub connection: Rc<ClientConnection>,
    /// The worker's state.
    pub worker: Rc<Worker>,
    /// The client's address, where something other than the connection reports it (`set_real_ip_from`).
    pub client: Option<SockAddr>,
    /// The virtual server.
    pub server: Rc<VirtualServer>,
    /// The location's plan; the server's while there is no location.
    pub plan: Rc<Plan>,
    /// What is reached while a handler waits.
    pub shared: Rc<SharedPart>,
    /// Where the response goes.
    pub transport: Transport,
    /// True when the request came about inside the server, by a redirect or as a subrequest.
    pub internal: bool,
    /// `try_files` found the URI's file below `alias`: the URI is appended to it (a location by regular expression).
    pub add_uri_to_alias: bool,
    /// True when a rewrite has changed the URI: post-rewrite looks for its location again.
    pub uri_changed: bool,
    /// The URI is the one that its location was found for; `false` after `rewrite … break`: `proxy_pass` with a URI then
    /// sends the whole path instead of replacing the location's part of it.
    pub valid_location: bool,
    /// How many more times the URI may change, and one for the time that is a cycle; 0 after that.
    pub uri_changes: u8,
    /// True when the connection may serve another request after this one.
    pub keep_alive: bool,
    /// True when the request had come before the response to the one before it left (`$pipe`).
    pub pipelined: bool,
    /// True when what follows the head on its stream is no body: a tunnel is asked for (RFC 8441).
    pub tunnels: bool,
    /// Which of its connection's requests it is, from 1 (`$connection_requests`).
    pub nth: u64,
    /// When the request began: milliseconds of the worker's monotonic clock (`$request_time`).
    pub start_ms: u64,
    /// Bytes a second; 0 for no limit (`limit_rate`, `$limit_rate`).
    pub limit_rate: Option<u64>,
    /// Captures of the regular expression that matched last (`$1` ...).
    pub captures: RegexCaptures,
    pub(crate) variables: VariableValues,
    pub(crate) body_filters: Vec<BodyEntry>,
    /// The client has its response: nothing is sent of what comes after it (`post_action`).
    pub(crate) answered_already: bool,
    /// Header filters are not asked any more: they refused too many responses.
    pub(crate) unfiltered: bool,
    /// True when a regular expression hit its limits and the request has not been refused for it yet
    /// ([`Exchange::refuse_unmatched`]).
    pub(crate) unmatched: Cell<bool>,
    /// What `satisfy any` remembers for the end of the access phase. As in nginx an internal redirect does not forget it: a
    /// script that goes elsewhere has not let the request pass.
    pub(crate) refused: Option<u16>,
    /// What a header filter wants instead of the response whose head a handler was about to send.
    pub(crate) instead: Option<Verdict>,
    /// Boundaries are recorded. It is here as well as in [`SharedPart`], so that a boundary of a request of which
    /// nothing is recorded costs a test and a jump.
    pub(crate) recorded: Cell<bool>,
    /// True when no stamp was taken for the parser yet: it will be when the location is found.
    pub opening: bool,
    /// What is known of its response because its head came before.
    pub(crate) known: KnownCourse,
    /// Its response was known at the sight of its head: the request was not made, and of the response there is but the status,
    /// the length, and that it was sent.
    pub(crate) untouched: bool,
    /// The handler that made the response: the time of reading its body is charged to it.
    pub(crate) answered: Site,
    /// Why the request ends as it does, where the status does not say it.
    pub cause: Cause,
    /// What has become of the response.
    pub(crate) delivery: Cell<ResponseDelivery>,
    pub(crate) body_sent: u64,
    /// With more bytes than this on their way the client is waited for.
    pub(crate) busy: u64,
    /// Length of the head that was composed.
    pub(crate) header_size: u64,
    /// Bytes that left on the connection before this response ([`Transport::bytes_written`]).
    pub bytes_before: u64,
    states: TypedValues,
    lasting: TypedValues,
    own_lasting: TypedValues,
    /// What the storey of upstreams keeps with it.
    part: Option<Box<dyn ExchangePart>>,
    /// Shared with subrequests.
    pub(crate) common: Option<Rc<FamilyState>>,
    /// Subrequests that run beside this one.
    pub(crate) family: Option<Rc<SubrequestFamily>>,
    /// What the exchange is of.
    pub(crate) role: ExchangeRole,
}

impl Exchange {
    pub(crate) fn new(
        worker: &Rc<Worker>,
        connection: &Rc<ClientConnection>,
        server: &Rc<VirtualServer>,
    ) -> Exchange {
        Exchange {
            arena: Arena::default(),
            request: Request::default(),
            response: Response::default(),
            body: RequestBody::default(),
            connection: connection.clone(),
            worker: worker.clone(),
            client: None,
            server: server.clone(),
            plan: server.plan.clone(),
            shared: Rc::new(SharedPart::new(worker)),
            transport: Transport::None,
            internal: false,
            add_uri_to_alias: false,
            uri_changed: false,
            valid_location: true,
            uri_changes: URI_CHANGES,
            keep_alive: false,
            pipelined: false,
            tunnels: false,
            nth: 0,
            start_ms: 0,
            limit_rate: None,
            captures: RegexCaptures::default(),
            variables: VariableValues::default(),
            body_filters: Vec::new(),
            answered_already: false,
            unfiltered: false,
            unmatched: Cell::new(false),
            refused: None,
            instead: None,
            opening: false,
            known: KnownCourse::Open,
            untouched: false,
            recorded: Cell::new(false),
            answered: Site::OTHER,
            cause: Cause::None,
            delivery: Cell::default(),
            body_sent: 0,
            busy: crate::transport::wire::HIGH,
            header_size: 0,
            bytes_before: 0,
            states: TypedValues::default(),
            lasting: TypedValues::default(),
            own_lasting: TypedValues::default(),
            part: None,
            common: None,
            family: None,
            role: ExchangeRole::default(),
        }
    }

    /// Empties the exchange for its next request, keeping its memory.
    pub fn reset(&mut self, connection: &Rc<ClientConnection>, server: &Rc<VirtualServer>) {
        self.clear_rare();
        self.renew(connection, server);
    }

    /// [`reset`](Exchange::reset) of one that was released, and so holds nothing of what few requests have. Takes the
    /// exchange apart, so that a new field does not compile before it is decided what becomes of it here.
    pub(crate) fn renew(&mut self, connection: &Rc<ClientConnection>, server: &Rc<VirtualServer>) {
        // By groups, and so not a line each.
        #[rustfmt::skip]
        let Exchange {
            arena, request, response, connection: old_connection, server: old_server, plan, client,
            internal, add_uri_to_alias, uri_changed, valid_location, uri_changes,
            keep_alive, pipelined, tunnels, limit_rate, captures, variables,
            answered_already, unfiltered, unmatched, refused, opening, known, untouched, answered, cause,
            delivery, body_sent, busy, header_size,
            // The same for all requests of the exchange, or memory that is used again.
            worker: _, shared: _,
            // Set where a request begins, by its protocol.
            transport: _, recorded: _, nth: _, start_ms: _, bytes_before: _,
            // Few requests have them: emptied by `clear_rare`.
            body: _, body_filters: _, instead: _, states: _, lasting: _, own_lasting: _, part: _, common: _,
            family: _, role: _,
        } = self;
        if std::mem::take(untouched) {
            (response.status, response.content_length, response.header_sent) = (0, None, false);
            response.ready = ReadyHead::Open;
        } else {
            arena.reset();
            request.clear();
            response.clear();
            captures.clear();
            variables.clear();
        }
        if !Rc::ptr_eq(old_connection, connection) {
            *old_connection = connection.clone();
        }
        if !Rc::ptr_eq(old_server, server) {
            *old_server = server.clone();
        }
        *plan = server.plan.clone();
        *client = None;
        *internal = false;
        *add_uri_to_alias = false;
        *uri_changed = false;
        *valid_location = true;
        *uri_changes = URI_CHANGES;
        *keep_alive = false;
        *pipelined = false;
        *tunnels = false;
        *limit_rate = None;
        *answered_already = false;
        *unfiltered = false;
        unmatched.set(false);
        *refused = None;
        *opening = false;
        if !matches!(known, KnownCourse::Open) {
            *known = KnownCourse::Open;
        }
        *answered = Site::OTHER;
        *cause = Cause::None;
        delivery.set(ResponseDelivery::Open);
        *body_sent = 0;
        *busy = crate::transport::wire::HIGH;
        *header_size = 0;
    }

    /// What few requests have: looked at when the exchange is released, so that it is not looked at when it is taken.
    #[inline]
    fn clear_rare(&mut self) {
        if self.untouched {
            return;
        }
        self.body.clear();
        if !matches!(self.response.body, ResponseBody::Empty) {
            self.response.body = ResponseBody::Empty;
        }
        if !self.body_filters.is_empty() {
            self.body_filters.clear();
        }
        self.states.clear();
        self.lasting.clear();
        self.own_lasting.clear();
        if let Some(part) = &mut self.part {
            part.clear();
        }
        if self.common.is_some() {
            self.common = None;
        }
        if self.family.is_some() {
            self.family = None;
        }
        if !matches!(self.role, ExchangeRole::Request) {
            self.role = ExchangeRole::Request;
        }
        if self.instead.is_some() {
            self.instead = None;
        }
    }

    /// Lets go of what the exchange holds while it waits in the free list.
    pub(crate) fn release(&mut self) {
        self.transport = Transport::None;
        self.shared.end_branch();
        self.recorded.set(false);
        self.shared.presence.leave();
        self.shared.detach();
        self.clear_rare();
    }

    /// The client's address: the connection's, unless realip put another one in its place.
    #[inline]
    pub fn client(&self) -> &SockAddr {
        self.client.as_ref().unwrap_or(&self.connection.peer)
    }

    /// The normalised path of the request, without arguments.
    #[inline]
    pub fn uri(&self) -> &[u8] {
        self.arena.get(self.request.uri)
    }

    /// The arguments, without `?`.
    #[inline]
    pub fn args(&self) -> &[u8] {
        self.arena.get(self.request.args)
    }

    /// The bytes of a value of this exchange.
    #[inline]
    pub fn text<'a>(&'a self, text: &'a Text) -> &'a [u8] {
        text.bytes(&self.arena)
    }

    /// Whether this is a subrequest.
    #[inline]
    pub fn is_subrequest(&self) -> bool {
        matches!(self.role, ExchangeRole::Subrequest)
    }

    /// The method of the client's request, also in its subrequests (`$request_method`).
    pub(crate) fn main_method(&self) -> Span {
        if self.is_subrequest() { self.request.main_method } else { self.request.head.method_span }
    }

    /// The value of a variable; `None` where nginx has "not found".
    pub fn variable(&mut self, index: VarIndex) -> Option<Text> {
        variables::value(self, index)
    }

    /// Awaits `future`, accounted as waiting.
    pub async fn waiting<T>(&self, future: LocalFuture<'_, T>) -> T {
        self.shared.clone().waiting(future).await
    }

    /// Awaits `future`, accounted as waiting for a `kind` of thing.
    pub async fn waiting_for<T>(&self, kind: WaitKind, future: LocalFuture<'_, T>) -> T {
        self.shared.clone().waiting_for(kind, future).await
    }

    /// The verdict that the response is whole: its head is in [`Exchange::response`], and this is its body.
    #[inline]
    pub fn respond(&mut self, body: ResponseBody) -> Verdict {
        self.response.body = body;
        Verdict::Respond
    }

    /// The verdict that the connection is closed without a response, on purpose: what a script asks for with
    /// `ngx.exit(ngx.ERROR)`. Whatever else ends without a response gets 500.
    pub fn abandon(&self, status: u16) -> Verdict {
        if self.delivery.get() == ResponseDelivery::Open {
            self.delivery.set(ResponseDelivery::Abandoned);
        }
        Verdict::Close(status)
    }

    /// Adds a body filter to this response. Called by header filters; the order is that of the slots.
    /// What is included in another response passes that one's filters from [`FilterSlot::Postpone`] on, not its own.
    pub fn body_filter(&mut self, slot: FilterSlot, site: Site, filter: impl BodyFilter + 'static) {
        if slot > FilterSlot::Postpone && matches!(self.transport, Transport::Splice(_)) {
            return;
        }
        if filter.in_memory() && !self.body_filters.is_empty() {
            // Each of several holds a part: with less of it on its way all of them stay below 256 KB.
            self.response.bound(ROOM);
        }
        let at = self.body_filters.partition_point(|entry| entry.slot <= slot);
        let (input, unread) = Default::default();
        let entry = BodyEntry { slot, site, filter: Box::new(filter), input, unread, full: false };
        self.body_filters.insert(at, entry);
    }

    /// A module's state in this request; made by `Default` when asked for first. Lost on an internal redirect,
    /// as nginx's module contexts are.
    pub fn state<T: Default + 'static>(&mut self) -> &mut T {
        self.states.of()
    }

    /// A module's state in this request; `None` if [`Exchange::state`] was not called for it, or an internal redirect
    /// has dropped it.
    pub fn state_if<T: 'static>(&self) -> Option<&T> {
        self.states.find()
    }

    /// Counts a change of the URI; `false`: it is one too many.
    pub(crate) fn may_change_uri(&mut self) -> bool {
        self.uri_changes = self.uri_changes.saturating_sub(1);
        self.uri_changes != 0
    }

    pub(crate) fn reset_states(&mut self) {
        self.states.clear();
    }

    /// Notes why the request ends as it does (`$cause`). The last word counts.
    pub fn because(&mut self, cause: Cause) {
        self.cause = cause;
    }

    /// Bytes of this response that left so far, head included (`$bytes_sent`).
    pub fn bytes_sent(&self) -> u64 {
        self.transport.bytes_written().saturating_sub(self.bytes_before)
    }

    /// Whether the whole response was handed over (`$request_completion`).
    pub fn is_complete(&self) -> bool {
        self.delivery.get() == ResponseDelivery::Whole
    }

    /// Bytes that left after the head (`$body_bytes_sent`): as in nginx with the framing of chunks, without that of HTTP/2 and HTTP/3.
    pub fn body_bytes_sent(&self) -> u64 {
        match &self.transport {
            Transport::H1(_) => self.bytes_sent().saturating_sub(self.header_size),
            Transport::Stream(stream) => stream.content(),
            _ => self.body_sent,
        }
    }
}

/// nginx's `NGX_HTTP_MAX_URI_CHANGES`, and the one that is a cycle.
const URI_CHANGES: u8 = 11;
