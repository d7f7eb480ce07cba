//! Subrequests: a request made inside the server, on the same worker, whose response its parent gets in memory.
//!
//! The child is an exchange of its own that takes over the parent's arena, and by default its variables, while it
//! runs: what either writes there stays valid for both. The parent waits meanwhile, so nothing is shared at a time.
//! As in nginx a child begins at the server's rewrite phase, is internal, passes no access phase, and is logged only
//! where `log_subrequest` is on. Its marks go to the parent's trace.

mod background;
mod include;

use std::future::ready;
use std::rc::Rc;

use weir_http::{KnownField, Method};
use weir_trace::Site;

use crate::engine::{self, NextStep};
use crate::exchange::{Exchange, ExchangeRole, Request, RequestBody, SharedPart};
use crate::log::LogLevel;
use crate::phase::{LocalFuture, Phase};
use crate::transport::Transport;

pub use crate::plan::included::{
    CapturedResponse, IncludedRequest, PendingCapture, PrepareChild, ResponseCapture,
};

/// What a subrequest is like; by default as those of nginx's own modules.
#[derive(Debug)]
pub struct SubrequestOptions {
    /// The request method.
    pub method: Method,
    /// Which variables the child sees.
    pub share: VariableShare,
    /// The child's request body.
    pub body: SubrequestBody,
    /// True when only the head of the response is wanted.
    pub head_only: bool,
    /// Done with the child before it runs.
    pub prepare: PrepareHook,
    /// Maximum of bytes of the response's body; a longer one ends the subrequest (`subrequest_output_buffer_size`).
    /// `None`: no limit.
    pub limit: Option<u64>,
    /// True when a status for which a page, or an `error_page`, would be sent is the whole response.
    pub bare: bool,
}

/// A subrequest that is to be made.
#[derive(Debug)]
pub struct SubrequestCall {
    /// The normalised path.
    pub uri: Vec<u8>,
    /// The arguments, without `?`.
    pub args: Vec<u8>,
    /// The method, body and variables of the subrequest.
    pub options: SubrequestOptions,
}

impl Default for SubrequestOptions {
    fn default() -> Self {
        let (method, share, body) = (Method::Get, VariableShare::All, SubrequestBody::None);
        let prepare = PrepareHook::default();
        SubrequestOptions { method, share, body, head_only: false, prepare, limit: None, bare: false }
    }
}

/// What is done with a subrequest before it runs, if anything.
#[derive(Default)]
pub struct PrepareHook(pub Option<PrepareChild>);

impl std::fmt::Debug for PrepareHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Hook").field(&self.0.is_some()).finish()
    }
}

/// Which variables a subrequest sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableShare {
    /// The parent's; what the child sets or computes stays set for the parent.
    All,
    /// Copies of the parent's.
    Copy,
    /// None; each is computed for the child.
    Nothing,
}

/// The request body of a subrequest.
#[derive(Debug)]
pub enum SubrequestBody {
    /// None, whatever the parent has.
    None,
    /// The parent's if it was read ([`Exchange::read_body`]), else none.
    Parent,
    /// The body is these bytes.
    Bytes(Vec<u8>),
}

impl Exchange {
    /// Makes a subrequest for the path `uri`, which is taken as normalised, with `args`. The response does not reach
    /// the client. Dropping the future gives the subrequest up.
    ///
    /// Deeper than nginx's limit, each subrequest making another one, none is made: an error is logged and the
    /// status is 500.
    pub fn subrequest<'x>(
        &'x mut self,
        uri: &[u8],
        args: Option<&[u8]>,
        options: SubrequestOptions,
    ) -> LocalFuture<'x, CapturedResponse> {
        let answered = self.subrequest_then(uri, args, options, |_| ());
        Box::pin(async {
            let refused = || CapturedResponse { status: 500, ..CapturedResponse::default() };
            answered.await.map_or_else(refused, |(captured, ())| captured)
        })
    }

    /// As [`Exchange::subrequest`]; `then` looks at the child once it has its response, before it is gone: what its
    /// variables say (`auth_request_set`). `None` where none is made.
    pub fn subrequest_then<'x, T: 'x>(
        &'x mut self,
        uri: &[u8],
        args: Option<&[u8]>,
        options: SubrequestOptions,
        then: impl FnOnce(&mut Exchange) -> T + 'x,
    ) -> LocalFuture<'x, Option<(CapturedResponse, T)>> {
        if self.is_nested_too_deep(uri) {
            return Box::pin(ready(None));
        }
        let mut child = ChildRun::new(self, uri, args.unwrap_or_default(), options);
        Box::pin(async move {
            let captured = child.run().await;
            let x = child.exchange.as_mut().expect("taken only when dropped");
            Some((captured, then(x)))
        })
    }

    /// Whether one more subrequest would be one too many.
    pub fn has_deep_subrequests(&self) -> bool {
        self.shared.subrequests.get() >= NESTED
    }

    /// Whether a subrequest for `uri` would be one too many; that is logged.
    fn is_nested_too_deep(&self, uri: &[u8]) -> bool {
        let deep = self.has_deep_subrequests();
        if deep {
            let uri = String::from_utf8_lossy(uri);
            // What nginx was doing is in its lines.
            let doing = if self.response.header_sent { " while sending response to client" } else { "" };
            self.log_error(&format_args!("subrequests cycle while processing \"{uri}\"{doing}"));
        }
        deep
    }
}

/// A running subrequest. Dropping it, finished or not, gives the parent back what the child took over.
struct ChildRun<'x> {
    parent: &'x mut Exchange,
    exchange: Option<Box<Exchange>>,
    /// The trace that the child's exchange has when it is not a child.
    own: Option<Rc<SharedPart>>,
    variables: bool,
    body: bool,
}

impl<'x> ChildRun<'x> {
    fn new(parent: &'x mut Exchange, uri: &[u8], args: &[u8], options: SubrequestOptions) -> ChildRun<'x> {
        parent.trace().enter(Site::SUBREQUEST);
        let variables = options.share == VariableShare::All;
        let (mut x, body) = child(parent, SubrequestTarget { uri, args }, options, ParentShare::Over);
        let own = Some(std::mem::replace(&mut x.shared, parent.shared.clone()));
        x.recorded.set(parent.shared.is_on());
        x.shared.subrequests.set(x.shared.subrequests.get() + 1);
        ChildRun { parent, exchange: Some(x), own, variables, body }
    }

    async fn run(&mut self) -> CapturedResponse {
        let x = self.exchange.as_mut().expect("taken only when dropped");
        run_child(x, Phase::ServerRewrite).await;
        captured(x)
    }
}

impl Drop for ChildRun<'_> {
    fn drop(&mut self) {
        let (Some(mut x), Some(own)) = (self.exchange.take(), self.own.take()) else { return };
        let parent = &mut *self.parent;
        std::mem::swap(&mut x.arena, &mut parent.arena);
        if self.variables {
            std::mem::swap(&mut x.variables, &mut parent.variables);
        }
        if self.body {
            std::mem::swap(&mut x.body, &mut parent.body);
        }
        x.shared = own;
        parent.shared.subrequests.set(parent.shared.subrequests.get() - 1);
        // A location with `profile off` may have ended it for both.
        parent.recorded.set(parent.shared.is_on());
        parent.trace().leave(Site::SUBREQUEST);
        parent.worker.give_exchange(x);
    }
}

/// Where a subrequest goes.
#[derive(Clone, Copy)]
struct SubrequestTarget<'t> {
    /// The normalised path, or `@name`.
    uri: &'t [u8],
    /// The arguments, without `?`.
    args: &'t [u8],
}

/// What a child gets of its parent's state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ParentShare {
    /// It holds the parent's own while it runs, and the parent waits.
    Over,
    /// It has copies, and in common with its parent and others that run beside it what lasts for their request.
    Beside,
    /// It has copies.
    Copies,
}

/// A subrequest's exchange, not yet run, whose response is captured; and whether it holds the parent's own body.
fn child(
    parent: &mut Exchange,
    target: SubrequestTarget<'_>,
    mut options: SubrequestOptions,
    taking: ParentShare,
) -> (Box<Exchange>, bool) {
    let SubrequestTarget { uri, args } = target;
    parent.log(
        LogLevel::Debug,
        &format_args!("http subrequest \"{}?{}\"", uri.escape_ascii(), args.escape_ascii()),
    );
    let mut x = parent.worker.take_exchange(&parent.connection, &parent.server);
    match taking {
        ParentShare::Over => {
            std::mem::swap(&mut x.arena, &mut parent.arena);
        }
        ParentShare::Beside | ParentShare::Copies => x.arena.copy_from(&parent.arena),
    }
    if taking != ParentShare::Copies {
        x.common = Some(parent.family_state().clone());
    }
    match options.share {
        VariableShare::Nothing => {}
        VariableShare::All if taking == ParentShare::Over => {
            std::mem::swap(&mut x.variables, &mut parent.variables);
        }
        VariableShare::All | VariableShare::Copy => x.variables = parent.variables.clone(),
    }
    x.transport = Transport::Capture(ResponseCapture {
        bytes: Vec::new(),
        head_only: options.head_only,
        limit: options.limit,
        limited: false,
        bare: options.bare,
        pageless: false,
    });
    x.internal = true;
    x.client = parent.client.clone();
    x.nth = parent.nth;
    x.keep_alive = true;
    x.start_ms = weir_rt::now_ms();
    x.bytes_before = 0;
    x.role = ExchangeRole::Subrequest;
    request(&mut x, &parent.request, target, options.method);
    x.request.main_method = parent.main_method();
    let holds = match (taking, &options.body) {
        (ParentShare::Beside | ParentShare::Copies, SubrequestBody::Parent) => {
            let mut copy = parent.body.copy();
            body(&mut x, &mut copy, options.body)
        }
        (..) => body(&mut x, &mut parent.body, options.body),
    };
    if let Some(prepare) = options.prepare.0.take() {
        prepare(&mut x);
    }
    (x, holds)
}

/// The parent's head with another method, path and arguments.
fn request(x: &mut Exchange, parent: &Request, target: SubrequestTarget<'_>, method: Method) {
    x.request = Request {
        head: parent.head.clone(),
        unparsed_uri: parent.unparsed_uri,
        args: x.arena.push(target.args),
        host: parent.host,
        port: parent.port,
        ..Request::default()
    };
    if method != parent.head.method {
        x.request.head.method = method;
        x.request.head.method_span = x.arena.push(method.as_str().as_bytes());
    }
    let uri = x.arena.push(target.uri);
    x.request.set_uri(&x.arena, uri);
}

/// Gives the child its body; whether it is the parent's own, to be given back.
fn body(x: &mut Exchange, parent: &mut RequestBody, from: SubrequestBody) -> bool {
    x.request.head.chunked = false;
    x.request.head.expect_continue = false;
    x.request.head.content_length = None;
    match from {
        SubrequestBody::Parent if parent.is_read() => {
            std::mem::swap(&mut x.body, parent);
            let length = x.body.file().map_or(x.body.memory().len() as u64, |file| file.len);
            x.request.head.content_length = (length > 0).then_some(length);
            true
        }
        SubrequestBody::Bytes(bytes) => {
            unframe(x);
            x.request.head.content_length = Some(bytes.len() as u64);
            x.body.replace(bytes);
            false
        }
        SubrequestBody::Parent | SubrequestBody::None => {
            unframe(x);
            x.body.replace(Vec::new());
            false
        }
    }
}

/// Removes the fields that speak of the parent's body.
fn unframe(x: &mut Exchange) {
    let head = &mut x.request.head;
    head.fields
        .retain(|field| !matches!(field.known, KnownField::ContentLength | KnownField::TransferEncoding));
    let host = head.fields.iter().position(|field| field.known == KnownField::Host);
    head.host = host.map(|at| at as u16);
}

/// Runs a child, nearly always from where subrequests begin: the server's rewrite phase.
async fn run_child(x: &mut Exchange, from: Phase) {
    engine::conclude(x, NextStep::Run(from)).await;
    if x.plan.core.log_subrequest {
        engine::log_request(x).await;
    }
}

/// What is in the child when it has run.
fn captured(x: &mut Exchange) -> CapturedResponse {
    let headers = headers(x);
    let (body, pageless) = match &mut x.transport {
        Transport::Capture(capture) => (std::mem::take(&mut capture.bytes), capture.pageless),
        _ => (Vec::new(), false),
    };
    let truncated =
        if pageless { x.response.status >= 300 } else { x.response.header_sent && !x.is_complete() };
    CapturedResponse { status: x.response.status, headers, body, truncated }
}

fn headers(x: &Exchange) -> Vec<(Vec<u8>, Vec<u8>)> {
    let response = &x.response;
    let mut headers = Vec::with_capacity(response.headers.len() + 4);
    let mut add = |name: &[u8], value: Vec<u8>| headers.push((name.to_vec(), value));
    if let Some(kind) = response.typed_whole(&x.arena) {
        add(b"Content-Type", kind);
    }
    if let Some(length) = response.content_length {
        add(b"Content-Length", length.to_string().into_bytes());
    }
    if let Some(seconds) = response.last_modified {
        add(b"Last-Modified", weir_http::date::http(seconds).to_vec());
    }
    if let Some(location) = &response.location {
        add(b"Location", x.text(location).to_vec());
    }
    for header in &response.headers {
        add(header.name.bytes(&x.arena), x.text(&header.value).to_vec());
    }
    headers
}

/// How deep subrequests may make subrequests: one more than nginx's `NGX_HTTP_MAX_SUBREQUESTS`, since the request
/// itself counts there.
const NESTED: u8 = 51;
