//! The eleven phases, what runs in them, and how their results are read.
//!
//! A [`Handler`] gives a [`Verdict`] at once or says that it has to wait ([`Verdict::Wait`]), and only then is asked for
//! a future. So the runner, [`engine::phases`](crate::engine), is a plain function that stops where something must be waited
//! for: a request that never waits meets no future at all. Which handlers are where is the location's
//! [`Plan`](crate::plan::Plan).

use std::any::Any;
use std::future::ready;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_trace::{Site, SiteKind};

use crate::exchange::Exchange;
pub use crate::progress::LocalFuture;
use crate::redirect::InternalRedirect;
use crate::rehearsed::HandlerRehearsal;

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
    pub fn kind(self) -> SiteKind {
        SiteKind::Phase(self as u8)
    }
}

/// What a handler decided: nginx packs all of this in one integer. Two words, so that handing it on costs little.
#[derive(Debug)]
pub enum Verdict {
    /// Not mine: the next handler.
    Declined,
    /// As [`Verdict::Declined`], determined by a look at a few fields: takes no stamp, its time counts for what comes
    /// next. Of a header filter: there was nothing to do, or no more than to set a field.
    Passed,
    /// As nginx's checker of that phase reads `NGX_OK`: generic phases go on with the next phase, `satisfy any`
    /// is content, header filters go on.
    Ok,
    /// Not decided yet: what is to be waited for says [`Handler::wait`] or [`HeaderFilter::wait`].
    ///
    /// [`HeaderFilter::wait`]: crate::filter::HeaderFilter::wait
    Wait,
    /// The response was produced already, through [`Exchange::send`].
    Done,
    /// Head and body are in [`Exchange::response`]; made by [`Exchange::respond`].
    Respond,
    /// Respond with this status: `error_page` applies, else nginx's page for it.
    Status(u16),
    /// Go on elsewhere: internal redirect, `@named` location.
    Redirect(Box<InternalRedirect>),
    /// Close the connection without a response (nginx's 444, a client that is gone: 499, ...); logged with this status.
    Close(u16),
}

impl From<InternalRedirect> for Verdict {
    fn from(redirect: InternalRedirect) -> Verdict {
        Verdict::Redirect(Box::new(redirect))
    }
}

/// Something that runs in a phase. One instance per location and worker, so it may hold `Rc`s and `Cell`s.
pub trait Handler {
    /// Looks at the exchange and decides, or says [`Verdict::Wait`].
    fn handle(&self, x: &mut Exchange) -> Verdict;

    /// As [`Handler::handle`], for a request with the head of one of which `made` was made
    /// ([`Exchange::is_passed_alike`]).
    fn handle_again(&self, x: &mut Exchange, _made: &Rc<dyn Any>) -> Verdict {
        self.handle(x)
    }

    /// Looks whether a handler that said [`Verdict::Wait`] has to wait any longer, and registers the task if so: for
    /// waits that need no future of their own. [`Verdict::Wait`]: [`Handler::wait`] is to be awaited.
    fn poll(&self, _x: &mut Exchange, _cx: &mut Context<'_>) -> Poll<Verdict> {
        Poll::Ready(Verdict::Wait)
    }

    /// What a handler that said [`Verdict::Wait`] waits for, and its verdict then; awaited in the request's own task.
    /// What `handle` has determined for it goes through [`Exchange::state`].
    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        nothing_to_wait_for(x)
    }

    /// Whether what it does for `x` follows from the head of the request, the settings, and the file that the URI leads to: a
    /// request with the same head gets the same as long as that file is the same, and the handler need not be asked again.
    /// Called once the request has its response.
    fn is_fixed(&self, _x: &Exchange) -> bool {
        false
    }

    /// What a rehearsal does in its place, see [`HandlerRehearsal`]. By default it is not asked.
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Unknown
    }
}

/// The default of those that never wait. A handler that says that it waits must say for what.
#[cold]
pub(crate) fn nothing_to_wait_for(x: &mut Exchange) -> LocalFuture<'_, Verdict> {
    x.log(crate::log::LogLevel::Alert, &"a handler waits and does not say for what");
    Box::pin(ready(Verdict::Status(500)))
}

/// One handler's place in a plan.
pub struct HandlerEntry {
    /// Where it runs.
    pub phase: Phase,
    /// Where its time goes.
    pub site: Site,
    /// The number of its module in the list; 0 of one that runs before all modules.
    pub(crate) rank: u16,
    /// The handler.
    pub handler: Box<dyn Handler>,
}
