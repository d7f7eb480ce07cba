//! The eleven phases, what runs in them, and how their results are read.
//!
//! A [`Handler`] answers a [`Verdict`] at once or, when it has to wait, a future that gives one later
//! ([`Outcome`]): only waiting allocates (measured: 2.4 ns a call against 14.6 ns for a boxed future per call).
//! The runner is [`run`]; which handlers stand where is the location's [`Plan`](crate::plan::Plan).

use std::future::Future;
use std::pin::Pin;

use weir_trace::{Kind, Site};

use crate::body::Body;
use crate::exchange::Exchange;
use crate::plan::Plan;
use crate::redirect::Redirect;

/// nginx's phases, in the order in which a request passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// After the head was read: realip.
    PostRead,
    /// Rewrite directives of the server block.
    ServerRewrite,
    /// The location is looked up; no module runs here.
    FindConfig,
    /// Rewrite directives of the location.
    Rewrite,
    /// Back to [`Phase::FindConfig`] when the URI was changed; no module runs here.
    PostRewrite,
    /// limit_req, limit_conn.
    Preaccess,
    /// access, auth_basic, auth_request, under `satisfy`.
    Access,
    /// Reads what `satisfy any` left; no module runs here.
    PostAccess,
    /// try_files, mirror.
    Precontent,
    /// The location's content handler, or index, autoindex, static in turn.
    Content,
    /// After the response: access logs. Always runs.
    Log,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Phase; 11] = [
        Phase::PostRead,
        Phase::ServerRewrite,
        Phase::FindConfig,
        Phase::Rewrite,
        Phase::PostRewrite,
        Phase::Preaccess,
        Phase::Access,
        Phase::PostAccess,
        Phase::Precontent,
        Phase::Content,
        Phase::Log,
    ];

    /// The phase's name as in nginx's source and in every trace.
    pub fn name(self) -> &'static str {
        weir_trace::PHASES[self as usize]
    }

    /// The site kind under which the phase is accounted.
    pub fn kind(self) -> Kind {
        Kind::Phase(self as u8)
    }
}

/// What a handler decided: nginx packs all of this in one integer.
#[derive(Debug)]
pub enum Verdict {
    /// Not mine: the next handler.
    Declined,
    /// As nginx's checker of that phase reads `NGX_OK`: generic phases go on with the next phase, `satisfy any`
    /// is content, header filters go on.
    Ok,
    /// The response was produced already, through [`Exchange::send`].
    Done,
    /// The response's head stands in [`Exchange::response`]; this is its body.
    Respond(Body),
    /// Answer with this status: `error_page` applies, else nginx's page for it.
    Status(u16),
    /// Go on elsewhere: internal redirect, `@named` location.
    Redirect(Redirect),
    /// Close the connection without an answer (nginx's 444, a client that is gone: 499, ...); logged with this status.
    Close(u16),
}

/// A future that stays on its worker.
pub type LocalFuture<'x, T> = Pin<Box<dyn Future<Output = T> + 'x>>;

/// A verdict now, or later.
pub enum Outcome<'x> {
    /// Now: nothing was allocated.
    Ready(Verdict),
    /// Later; the engine awaits it in the request's own task.
    Pending(LocalFuture<'x, Verdict>),
}

impl From<Verdict> for Outcome<'_> {
    fn from(verdict: Verdict) -> Self {
        Outcome::Ready(verdict)
    }
}

impl<'x> Outcome<'x> {
    /// A verdict that is waited for.
    pub fn wait(future: impl Future<Output = Verdict> + 'x) -> Self {
        Outcome::Pending(Box::pin(future))
    }
}

/// Something that runs in a phase. One instance per location and worker, so it may hold `Rc`s and `Cell`s.
pub trait Handler {
    /// Looks at the exchange and decides.
    fn handle<'x>(&'x self, x: &'x mut Exchange) -> Outcome<'x>;
}

/// One handler's place in a plan.
pub struct Entry {
    /// Where it runs.
    pub phase: Phase,
    /// Where its time goes.
    pub site: Site,
    /// The handler.
    pub handler: Box<dyn Handler>,
}

/// Runs the phases of `x` from `from` on; the result is never [`Verdict::Declined`] or [`Verdict::Ok`].
pub(crate) async fn run(x: &mut Exchange, from: Phase) -> Verdict {
    if from <= Phase::PostRead
        && let Some(end) = server_phase(x, Phase::PostRead).await
    {
        return end;
    }
    if from <= Phase::ServerRewrite
        && let Some(end) = server_phase(x, Phase::ServerRewrite).await
    {
        return end;
    }
    let mut find = from <= Phase::FindConfig;
    loop {
        if find && let Some(end) = find_config(x) {
            return end;
        }
        find = true;
        let plan = x.plan.clone();
        if let Some(end) = rewrite(x, &plan).await {
            return end;
        }
        match post_rewrite(x) {
            PostRewrite::Go => return location(x, &plan).await,
            PostRewrite::Again => {}
            PostRewrite::Cycle => return Verdict::Status(500),
        }
    }
}

/// From preaccess to content, in a location that is settled.
async fn location(x: &mut Exchange, plan: &Plan) -> Verdict {
    if let Some(end) = generic(x, plan, Phase::Preaccess).await {
        return end;
    }
    if !x.is_subrequest()
        && let Some(end) = access(x, plan).await
    {
        return end;
    }
    if let Some(end) = generic(x, plan, Phase::Precontent).await {
        return end;
    }
    content(x, plan).await
}

/// A phase of the server's own plan; it runs before a location is known.
async fn server_phase(x: &mut Exchange, phase: Phase) -> Option<Verdict> {
    let server = x.server.clone();
    let end = match phase {
        Phase::PostRead => generic(x, &server.plan, phase).await,
        _ => rewrite_phase(x, &server.plan, phase).await,
    };
    // A handler may move the request to another server (TLS, `Host` set by a script); its plan counts from here on.
    x.plan = x.server.plan.clone();
    end
}

/// Finds the location of the URI and takes over its plan; an answer when the location itself has one.
fn find_config(x: &mut Exchange) -> Option<Verdict> {
    let end = crate::conf::location::find(x);
    x.mark(Site::phase(Phase::FindConfig as u8));
    end
}

enum PostRewrite {
    Go,
    Again,
    Cycle,
}

/// nginx's post-rewrite: a changed URI looks for its location again, ten times at most.
fn post_rewrite(x: &mut Exchange) -> PostRewrite {
    if !std::mem::take(&mut x.uri_changed) {
        return PostRewrite::Go;
    }
    if x.uri_changes == 0 {
        x.log_error(&"rewrite or internal redirection cycle while processing");
        return PostRewrite::Cycle;
    }
    x.uri_changes -= 1;
    x.plan = x.server.plan.clone();
    PostRewrite::Again
}

/// Calls one handler, charging its time, and its waiting as waiting, to its site.
async fn call(x: &mut Exchange, entry: &Entry) -> Verdict {
    x.enter(entry.site);
    let shared = x.shared.clone();
    let verdict = match entry.handler.handle(x) {
        Outcome::Ready(verdict) => verdict,
        Outcome::Pending(future) => shared.waiting(future).await,
    };
    x.leave(entry.site);
    verdict
}

/// nginx's generic checker: `Ok` ends the phase, `Declined` asks the next handler.
async fn generic(x: &mut Exchange, plan: &Plan, phase: Phase) -> Option<Verdict> {
    for entry in plan.phase(phase) {
        match call(x, entry).await {
            Verdict::Declined => {}
            Verdict::Ok => break,
            end => return Some(end),
        }
    }
    None
}

async fn rewrite(x: &mut Exchange, plan: &Plan) -> Option<Verdict> {
    rewrite_phase(x, plan, Phase::Rewrite).await
}

/// nginx's rewrite checker: everything but `Declined` ends the request's run.
async fn rewrite_phase(x: &mut Exchange, plan: &Plan, phase: Phase) -> Option<Verdict> {
    for entry in plan.phase(phase) {
        match call(x, entry).await {
            Verdict::Declined | Verdict::Ok => {}
            end => return Some(end),
        }
    }
    None
}

/// nginx's access checker. Under `satisfy all` every handler must let the request pass; under `satisfy any` the
/// first `Ok` does, and a 401 or 403 is remembered for the end of the phase.
async fn access(x: &mut Exchange, plan: &Plan) -> Option<Verdict> {
    let any = plan.core.satisfy_any;
    let mut refused = None;
    for entry in plan.phase(Phase::Access) {
        match call(x, entry).await {
            Verdict::Declined => {}
            Verdict::Ok if any => {
                x.response.remove(weir_http::Known::WwwAuthenticate);
                return None;
            }
            Verdict::Ok => {}
            Verdict::Status(status @ (401 | 403)) if any => {
                if status == 401 || refused.is_none() {
                    refused = Some(status);
                }
            }
            end => return Some(end),
        }
    }
    refused.map(|status| {
        if status == 403 {
            x.log_error(&"access forbidden by rule");
        }
        Verdict::Status(status)
    })
}

/// The location's own content handler, or those of the phase in turn; nobody's is 403 for a folder, 404 else.
async fn content(x: &mut Exchange, plan: &Plan) -> Verdict {
    if let Some(entry) = &plan.content {
        return match call(x, entry).await {
            Verdict::Declined => Verdict::Status(404),
            Verdict::Ok => Verdict::Done,
            end => end,
        };
    }
    for entry in plan.phase(Phase::Content) {
        match call(x, entry).await {
            Verdict::Declined => {}
            Verdict::Ok => return Verdict::Done,
            end => return end,
        }
    }
    if x.uri().ends_with(b"/") {
        crate::file::log_forbidden_index(x);
        return Verdict::Status(403);
    }
    x.log_error(&"no handler found");
    Verdict::Status(404)
}

/// The log phase: every handler runs, whatever the others say.
pub(crate) async fn log(x: &mut Exchange) {
    let plan = x.plan.clone();
    for entry in plan.phase(Phase::Log) {
        call(x, entry).await;
    }
}
