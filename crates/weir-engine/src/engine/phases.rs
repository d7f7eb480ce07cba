//! Runs the phases of a request: asks the handlers of its plan in turn, and reads what they say as nginx's checkers do.
//!
//! [`try_phases`] is a plain function that stops where something must be waited for; [`finish_phases`] waits and goes on.

use std::any::Any;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_trace::{ConnectionStep, Site};

use crate::body::ResponseBody;
use crate::exchange::Exchange;
use crate::log::LogLevel;
use crate::phase::{HandlerEntry, Phase, Verdict};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::rehearsed::{PhaseEnd, RehearsalNotes};

/// Where a request is in its phases.
pub struct PhaseWalk {
    phase: Phase,
    /// The plan of the phase: the server's up to find-config, then the location's.
    plan: Rc<Plan>,
    /// The next entry of the plan, and where those of the phase end.
    at: u16,
    end: u16,
    /// The location's own content handler is being asked.
    own: bool,
}

/// What the phases wait for.
pub enum PhaseWait {
    /// A handler of a phase waits, as long as its [`poll`](crate::phase::Handler::poll) says.
    Handler(PhaseWalk),
    /// A handler of a phase waits, for its future.
    Future(PhaseWalk),
    /// `auth_delay`, which holds back this 401.
    Delay(Verdict),
}

/// The phases from `from` on. They end with a verdict that is never [`Verdict::Declined`], [`Verdict::Passed`],
/// [`Verdict::Ok`] or [`Verdict::Wait`]; what they wait for is left to [`finish_phases`].
pub(crate) fn try_phases(x: &mut Exchange, from: Phase) -> Progress<Verdict, PhaseWait> {
    PhaseWalk::new(x, from).run(x)
}

/// Has the content handler of `x`'s location, which has nothing before it, go on from what it has `made` of an earlier request
/// with the same head.
#[inline]
pub(super) fn try_content_again(x: &mut Exchange, made: &Rc<dyn Any>) -> Progress<Verdict, PhaseWait> {
    let plan = x.plan.clone();
    let Some(entry) = &plan.content else { return Progress::Done(Verdict::Status(500)) };
    let site = entry.site;
    x.trace().open(site);
    let verdict = entry.handler.handle_again(x, made);
    let (_, end) = plan.range(Phase::Content);
    let mut walk = PhaseWalk { phase: Phase::Content, plan, at: end, end, own: true };
    match verdict {
        Verdict::Wait => Progress::Wait(PhaseWait::Handler(walk)),
        verdict => match walk.left(x, site, verdict) {
            Some(end) => end,
            None => walk.run(x),
        },
    }
}

/// Waits for what [`try_phases`] stopped at, and runs the other phases.
pub(crate) async fn finish_phases(x: &mut Exchange, wait: PhaseWait) -> Verdict {
    let mut wait = wait;
    loop {
        let progress = match wait {
            PhaseWait::Handler(walk) => walk.wait(x).await,
            PhaseWait::Future(walk) => walk.wait_whole(x).await,
            PhaseWait::Delay(verdict) => {
                delay(x).await;
                return verdict;
            }
        };
        match progress {
            Progress::Done(verdict) => return verdict,
            Progress::Wait(again) => wait = again,
        }
    }
}

/// `auth_delay`: a client that guesses passwords learns late that one is wrong, and for all of them after the same
/// time.
async fn delay(x: &mut Exchange) {
    x.log(LogLevel::Info, &"delaying unauthorized request");
    let delay = std::time::Duration::from_millis(x.plan.core.auth_delay);
    x.shared.pending(Box::pin(weir_rt::sleep(delay))).await;
}

impl PhaseWalk {
    /// Runs the phases from here on.
    fn run(mut self, x: &mut Exchange) -> Progress<Verdict, PhaseWait> {
        loop {
            let entry = match self.seek(x) {
                Ok(entry) => entry,
                Err(end) => return self.ended(x, end),
            };
            let site = entry.site;
            x.trace().open(site);
            let verdict = entry.handler.handle(x);
            if let Verdict::Wait = verdict {
                return Progress::Wait(PhaseWait::Handler(self));
            }
            if let Verdict::Passed = verdict {
                x.trace().close_passed(site);
                if let Some(end) = self.judge(x, Verdict::Declined) {
                    return self.ended(x, end);
                }
                continue;
            }
            if let Some(end) = self.left(x, site, verdict) {
                return end;
            }
        }
    }

    /// Waits for the handler at which [`PhaseWalk::run`] stopped, and goes on as far as that goes without waiting.
    async fn wait(self, x: &mut Exchange) -> Progress<Verdict, PhaseWait> {
        let entry = self.asked();
        let shared = x.shared.clone();
        match shared.pending_until(|cx| entry.handler.poll(x, cx)).await {
            Verdict::Wait => self.wait_whole(x).await,
            verdict => self.went_on(x, verdict),
        }
    }

    /// [`PhaseWalk::wait`] for the future of the handler.
    async fn wait_whole(self, x: &mut Exchange) -> Progress<Verdict, PhaseWait> {
        let shared = x.shared.clone();
        let verdict = shared.pending(self.asked().handler.wait(x)).await;
        self.went_on(x, verdict)
    }

    /// [`Handler::poll`](crate::phase::Handler::poll) of the handler at which [`PhaseWalk::run`] stopped.
    #[inline]
    pub(super) fn poll_asked(&self, x: &mut Exchange, cx: &mut Context<'_>) -> Poll<Verdict> {
        self.asked().handler.poll(x, cx)
    }

    /// That handler is ready, with this verdict: goes on as far as that goes without waiting.
    #[inline]
    pub(super) fn went_on(mut self, x: &mut Exchange, verdict: Verdict) -> Progress<Verdict, PhaseWait> {
        let site = self.asked().site;
        match self.left(x, site, verdict) {
            Some(end) => end,
            None => self.run(x),
        }
    }

    /// The same place.
    #[inline]
    pub(super) fn here(&self) -> PhaseWalk {
        PhaseWalk { plan: self.plan.clone(), ..*self }
    }

    /// Runs the phases from `from` on for a rehearsal, which `notes` follows: `notes` asks the handlers.
    pub(crate) async fn rehearse(x: &mut Exchange, from: Phase, notes: &mut RehearsalNotes) -> PhaseEnd {
        let mut walk = PhaseWalk::new(x, from);
        loop {
            let entry = walk.seek(x);
            notes.moved(x);
            let entry = match entry {
                Ok(entry) => entry,
                Err(end) => return PhaseEnd::Verdict(end),
            };
            let site = entry.site;
            let asked = notes.ask(x, entry).await;
            notes.moved(x);
            let verdict = match asked {
                PhaseEnd::Verdict(verdict) => verdict,
                end => return end,
            };
            x.trace().open(site);
            match walk.left(x, site, verdict) {
                None => {}
                Some(Progress::Done(end) | Progress::Wait(PhaseWait::Delay(end))) => {
                    return PhaseEnd::Verdict(end);
                }
                Some(Progress::Wait(PhaseWait::Handler(_) | PhaseWait::Future(_))) => {
                    return PhaseEnd::Verdict(Verdict::Status(500));
                }
            }
        }
    }

    /// A handler has decided.
    #[inline(always)]
    fn left(
        &mut self,
        x: &mut Exchange,
        site: Site,
        verdict: Verdict,
    ) -> Option<Progress<Verdict, PhaseWait>> {
        x.trace().close(site);
        x.answered = site;
        let Some(end) = self.judge(x, verdict) else {
            if self.phase == Phase::Rewrite && !Rc::ptr_eq(&self.plan, &x.plan) {
                self.follow_if(x);
            }
            return None;
        };
        Some(self.ended(x, end))
    }

    /// An `if` has led into its own block: the modules after `rewrite` go by its settings already, as in nginx.
    #[inline(never)]
    fn follow_if(&mut self, x: &Exchange) {
        let rank = self.asked().rank;
        self.plan = x.plan.clone();
        (self.at, self.end) = self.plan.range(Phase::Rewrite);
        while self.at < self.end && self.plan.entry(self.at).rank <= rank {
            self.at += 1;
        }
    }

    /// The phases have come to `end`, which `auth_delay` may hold back when it is the access phase's 401, or 407.
    #[inline]
    fn ended(&self, x: &Exchange, end: Verdict) -> Progress<Verdict, PhaseWait> {
        match (self.phase, end) {
            (Phase::Access, end @ Verdict::Status(401 | 407)) if x.plan.core.auth_delay > 0 => {
                Progress::Wait(PhaseWait::Delay(end))
            }
            (_, end) => Progress::Done(end),
        }
    }

    fn new(x: &Exchange, from: Phase) -> PhaseWalk {
        let plan = if from <= Phase::FindConfig { x.server.plan.clone() } else { x.plan.clone() };
        // Most servers have no handlers of their own.
        let from = if from == Phase::PostRead && plan.is_empty_before(Phase::FindConfig) {
            Phase::FindConfig
        } else {
            from
        };
        let (at, end) = plan.range(from);
        // A request that begins with its content (a subrequest for another part of it) has come through all before.
        let own = from == Phase::Content && plan.content.is_some();
        PhaseWalk { phase: from, plan, at: if own { end } else { at }, end, own }
    }

    /// The next handler to ask, or how the phases end.
    #[inline]
    fn seek(&mut self, x: &mut Exchange) -> Result<&HandlerEntry, Verdict> {
        while self.at == self.end {
            if self.phase == Phase::Content {
                return self.content(x);
            }
            if let Some(end) = self.pass(x) {
                return Err(end);
            }
        }
        self.at += 1;
        Ok(self.plan.entry(self.at - 1))
    }

    /// The handler that was asked last.
    fn asked(&self) -> &HandlerEntry {
        match &self.plan.content {
            Some(own) if self.own => own,
            _ => self.plan.entry(self.at - 1),
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        (self.at, self.end) = self.plan.range(phase);
    }

    /// The phase is over: on to the next, or the end of the run.
    #[inline(never)]
    fn pass(&mut self, x: &mut Exchange) -> Option<Verdict> {
        match self.phase {
            Phase::PostRead => {
                self.follow_server(x);
                self.enter(Phase::ServerRewrite);
            }
            Phase::ServerRewrite => {
                self.follow_server(x);
                self.enter(Phase::FindConfig);
            }
            Phase::FindConfig => {
                if let Some(end) = find_config(x) {
                    return Some(end);
                }
                self.plan = x.plan.clone();
                let only_content = self.plan.is_only_content() && !x.uri_changed && x.refused.is_none();
                self.enter(if only_content { Phase::Content } else { Phase::Rewrite });
            }
            Phase::Rewrite | Phase::PostRewrite => match post_rewrite(x) {
                PostRewrite::Go => {
                    self.enter(Phase::Preaccess);
                }
                PostRewrite::Again => self.enter(Phase::FindConfig),
                PostRewrite::Cycle => return Some(Verdict::Status(500)),
            },
            Phase::Preaccess if x.is_subrequest() => self.enter(Phase::Precontent),
            Phase::Preaccess => self.enter(Phase::Access),
            Phase::Access | Phase::PostAccess => {
                if let Some(status) = x.refused.take() {
                    if status == 403 {
                        x.log_error(&"access forbidden by rule");
                    }
                    return Some(Verdict::Status(status));
                }
                self.enter(Phase::Precontent);
            }
            Phase::Precontent => {
                self.enter(Phase::Content);
                if self.plan.content.is_some() {
                    self.own = true;
                    self.at = self.end;
                }
            }
            Phase::Content | Phase::Log => return Some(Verdict::Status(404)),
        }
        None
    }

    /// A handler may move the request to another server (TLS, `Host` set by a script); its plan counts from there on.
    fn follow_server(&mut self, x: &mut Exchange) {
        if !Rc::ptr_eq(&self.plan, &x.server.plan) {
            self.plan = x.server.plan.clone();
        }
        if !Rc::ptr_eq(&x.plan, &self.plan) {
            x.plan = self.plan.clone();
        }
    }

    /// After the content phase's handlers: the location's own, which comes instead of them, or nginx's response where
    /// nothing was found, 403 for a directory and 404 else.
    fn content(&mut self, x: &mut Exchange) -> Result<&HandlerEntry, Verdict> {
        if self.own
            && let Some(entry) = &self.plan.content
        {
            return Ok(entry);
        }
        if x.uri().ends_with(b"/") {
            crate::file::log_forbidden_index(x);
            return Err(Verdict::Status(403));
        }
        x.log_error(&"no handler found");
        Err(Verdict::Status(404))
    }

    /// Reads a verdict as nginx's checker of the phase does; the end of the run, unless it goes on.
    #[inline(always)]
    fn judge(&mut self, x: &mut Exchange, verdict: Verdict) -> Option<Verdict> {
        if x.unmatched.get() && !x.response.header_sent {
            return Some(unmatched(x));
        }
        match (self.phase, verdict) {
            (_, Verdict::Respond) => Some(Verdict::Respond),
            // Only `Handler::wait` may wait, and that is over.
            (_, Verdict::Wait) => Some(Verdict::Status(500)),
            // The location's own handler leaves the request to those of all locations, as in nginx.
            (Phase::Content, Verdict::Declined | Verdict::Passed) if self.own => {
                self.own = false;
                self.enter(Phase::Content);
                None
            }
            (_, Verdict::Declined | Verdict::Passed) => None,
            (Phase::Content, Verdict::Ok) => Some(Verdict::Done),
            (Phase::ServerRewrite | Phase::Rewrite, Verdict::Ok) => None,
            (Phase::Access, verdict) => self.judge_access(x, verdict),
            (_, Verdict::Ok) => {
                self.at = self.end;
                None
            }
            (_, end) => Some(end),
        }
    }

    /// Under `satisfy all` every handler must let the request pass; under `satisfy any` the first `Ok` does, and a
    /// 401, 403 or 407 is remembered for the end of the phase.
    fn judge_access(&mut self, x: &mut Exchange, verdict: Verdict) -> Option<Verdict> {
        let any = self.plan.core.satisfy_any;
        match verdict {
            Verdict::Ok if any => {
                x.response.remove(weir_http::KnownField::WwwAuthenticate);
                x.response.remove(weir_http::KnownField::ProxyAuthenticate);
                x.refused = None;
                self.at = self.end;
            }
            Verdict::Ok => {}
            Verdict::Status(status @ (401 | 403 | 407)) if any => {
                if status != 403 || x.refused.is_none() {
                    x.refused = Some(status);
                }
            }
            end => return Some(end),
        }
        None
    }
}

/// A pattern was given up: whatever was decided, the request is refused, and nothing of a response that was made goes out.
#[cold]
fn unmatched(x: &mut Exchange) -> Verdict {
    x.response.clear();
    x.response.body = ResponseBody::Empty;
    Verdict::Status(500)
}

/// Finds the location of the URI and takes over its plan; a response when the location itself has one.
fn find_config(x: &mut Exchange) -> Option<Verdict> {
    let end = crate::plan::location::find(x);
    let site = Site::phase(Phase::FindConfig as u8);
    if std::mem::take(&mut x.opening) {
        x.trace().mark_and_pass(
            Site::step(ConnectionStep::Parse),
            [Site::step(ConnectionStep::VirtualServer), site],
        );
    } else {
        x.trace().mark(site);
    }
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
    if !x.may_change_uri() {
        let uri = String::from_utf8_lossy(x.uri());
        x.log_error(&format_args!("rewrite or internal redirection cycle while processing \"{uri}\""));
        return PostRewrite::Cycle;
    }
    x.plan = x.server.plan.clone();
    PostRewrite::Again
}

/// A handler of the log phase that waits.
pub struct LogWait {
    /// Its place among those of the phase.
    at: usize,
}

/// The log phase: every handler runs, whatever the others say. Those from one that waits on are left to [`finish_log`].
pub(crate) fn try_log(x: &mut Exchange) -> Progress<(), LogWait> {
    log_from(x, 0)
}

fn log_from(x: &mut Exchange, first: usize) -> Progress<(), LogWait> {
    if x.plan.phase(Phase::Log).len() <= first {
        return Progress::Done(());
    }
    let plan = x.plan.clone();
    for (at, entry) in plan.phase(Phase::Log).iter().enumerate().skip(first) {
        x.trace().open(entry.site);
        if let Verdict::Wait = entry.handler.handle(x) {
            return Progress::Wait(LogWait { at });
        }
        x.trace().close(entry.site);
    }
    Progress::Done(())
}

/// Waits for the handler at which [`try_log`] stopped, and runs the others.
pub(crate) async fn finish_log(x: &mut Exchange, wait: LogWait) {
    let plan = x.plan.clone();
    let shared = x.shared.clone();
    let mut progress = Progress::Wait(wait);
    while let Progress::Wait(LogWait { at }) = progress {
        let Some(entry) = plan.phase(Phase::Log).get(at) else { return };
        shared.pending(entry.handler.wait(x)).await;
        x.trace().close(entry.site);
        progress = log_from(x, at + 1);
    }
}
