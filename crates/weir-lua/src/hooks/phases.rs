//! Scripts of phases: from the handler that the engine asks to its verdict.
//!
//! A script that waits for nothing but what is polled (sockets, timers, semaphores: all but the request's own body and its
//! subrequests) is polled by the task of its connection, and needs no future.

use std::rc::Rc;
use std::task::{Context, Poll};

use weir_engine::body::{BodyBuf, BodyChain, ResponseBody};
use weir_engine::error::FaultSide;
use weir_engine::log::LogLevel;
use weir_engine::phase::LocalFuture;
use weir_engine::redirect::InternalRedirect;
use weir_engine::variable::ValueBasis;
use weir_engine::{Exchange, Handler, Text, Verdict};
use weir_trace::{Site, WaitKind};

use crate::api::relative_location;
use crate::run::drive::drive;
use crate::run::op::ScriptEnd;
use crate::run::owned_run::OwnedRun;
use crate::run::script_run::{RunStep, ScriptRun};
use crate::run::settings::{ExitedStatus, ScriptSettings, ShownUri, prepare};
use crate::vm::chunk::{LoadError, ScriptChunk, ScriptSource};
use crate::vm::lua_vm::LuaVm;
use crate::vm::phase::ScriptPhase;

/// Where a script finds its VM.
#[derive(Clone)]
pub(crate) struct ScriptHome {
    pub(super) vm: Rc<LuaVm>,
    cached: bool,
}

/// The VM of one request (`lua_code_cache off`).
#[derive(Default)]
struct OwnVm(Option<Rc<LuaVm>>);

impl ScriptHome {
    pub(crate) fn new(vm: &Rc<LuaVm>, settings: &ScriptSettings) -> ScriptHome {
        ScriptHome { vm: vm.clone(), cached: settings.code_cache }
    }

    /// The worker's VM, or with `lua_code_cache off` the request's own, made when it is first needed.
    ///
    /// # Errors
    /// What `init_by_lua` failed with.
    pub(crate) fn vm(&self, x: &mut Exchange) -> Result<Rc<LuaVm>, String> {
        if self.cached {
            return Ok(self.vm.clone());
        }
        if let Some(vm) = x.lasting(|own: &mut OwnVm| own.0.clone()) {
            return Ok(vm);
        }
        let vm = self.vm.again()?;
        x.lasting(|own: &mut OwnVm| own.0 = Some(vm.clone()));
        Ok(vm)
    }
}

/// A script of a phase that can wait.
pub(crate) struct PhaseScript {
    home: ScriptHome,
    phase: ScriptPhase,
    chunk: ScriptChunk,
    settings: ScriptSettings,
}

/// A run that waits, between [`Handler::handle`] and [`Handler::poll`] or [`Handler::wait`].
#[derive(Default)]
struct ParkedRun {
    run: Option<OwnedRun>,
    /// The run is over; what it has said is still to be sent.
    over: bool,
    wait: Option<ShownWait>,
}

/// A wait as the trace has it.
struct ShownWait {
    /// Lines that the script is in, which are left when it goes on.
    lines: Rc<[Site]>,
    /// Where the request was before.
    place: Site,
    kind: WaitKind,
}

impl PhaseScript {
    pub(crate) fn new(
        vm: &Rc<LuaVm>,
        phase: ScriptPhase,
        chunk: ScriptChunk,
        settings: ScriptSettings,
    ) -> PhaseScript {
        PhaseScript { home: ScriptHome::new(vm, &settings), phase, chunk, settings }
    }

    /// A run at its beginning; when the script can't be loaded, that is logged.
    fn begin(&self, x: &mut Exchange) -> Result<OwnedRun, Verdict> {
        let mut begin = || {
            let vm = self.home.vm(x)?;
            self.chunk.push(&vm, Some(x))?;
            let mut run = ScriptRun::begin(&vm, self.phase);
            run.default_type = self.settings.use_default_type;
            Ok(run)
        };
        begin().map_err(|unloaded: LoadError| {
            x.log(LogLevel::Error, &unloaded.message);
            Verdict::Status(unloaded.status)
        })
    }

    /// What an end that needs no waiting means; `None` when what was said has to be sent in pieces.
    fn verdict(&self, x: &mut Exchange, run: &mut ScriptRun, end: Option<ScriptEnd>) -> Option<Verdict> {
        let content = self.phase == ScriptPhase::Content;
        let streaming = x.response.header_sent;
        Some(match end {
            Some(ScriptEnd::Error) if run.began || streaming => {
                // The response can't be taken back: it ends where it is.
                Verdict::Close(if x.response.status == 0 { 200 } else { x.response.status })
            }
            Some(ScriptEnd::Error) => Verdict::Status(500),
            Some(ScriptEnd::Exec(target, args)) => {
                let uri = x.arena.push(&target);
                if target.first() == Some(&b'@') {
                    InternalRedirect::Named(uri).into()
                } else {
                    x.uri_changed = false;
                    InternalRedirect::Uri { uri, args: x.arena.push(&args) }.into()
                }
            }
            Some(ScriptEnd::Redirect(target, status)) => {
                match target.first() {
                    Some(b'/') => relative_location(x, &target),
                    _ => x.response.location = Some(Text::Span(x.arena.push(&target))),
                }
                Verdict::Status(status)
            }
            Some(ScriptEnd::Exit(-1)) => x.abandon(500),
            Some(ScriptEnd::Exit(code)) if code < 200 && !content && !run.began => match code {
                0 => Verdict::Ok,
                _ => Verdict::Declined,
            },
            Some(ScriptEnd::Exit(-5)) if content && !run.began => x.abandon(500),
            Some(ScriptEnd::Exit(code @ (444 | 499 | 408))) => Verdict::Close(code as u16),
            Some(ScriptEnd::Exit(code)) if code >= 200 && !run.began => self.exit(x, code),
            // Under `satisfy any` a script that just ends lets the request pass.
            None if self.phase == ScriptPhase::Access && !run.began => Verdict::Ok,
            _ if !content && !run.began => Verdict::Declined,
            _ if streaming => return None,
            // A response that has begun is the response, in whatever phase.
            _ => self.answer(x, run),
        })
    }

    /// `ngx.exit(status)` before anything was said.
    fn exit(&self, x: &mut Exchange, code: i64) -> Verdict {
        let status = u16::try_from(code).unwrap_or(500);
        if status >= 300 {
            x.own_lasting::<ExitedStatus>().0 = status;
            return Verdict::Status(status);
        }
        if x.response.status == 0 || matches!(status, 201 | 204) {
            x.response.status = status;
        }
        prepare(x, self.settings.use_default_type);
        x.response.open_length = x.response.content_length.is_none();
        x.respond(ResponseBody::Empty)
    }

    /// The whole response, sent at once.
    fn answer(&self, x: &mut Exchange, run: &mut ScriptRun) -> Verdict {
        prepare(x, self.settings.use_default_type);
        x.response.open_length = x.response.content_length.is_none();
        let said = std::mem::take(&mut run.said);
        if said.is_empty() {
            x.respond(ResponseBody::Empty)
        } else {
            x.respond(ResponseBody::Whole(BodyBuf::Bytes(said)))
        }
    }

    /// What the end of a run means; what has to be sent in pieces is to be waited for.
    fn ended(&self, x: &mut Exchange, mut run: OwnedRun, end: Option<ScriptEnd>) -> Verdict {
        self.verdict(x, &mut run, end).unwrap_or_else(|| {
            *x.state::<ParkedRun>() = ParkedRun { run: Some(run), over: true, wait: None };
            Verdict::Wait
        })
    }

    /// Polls what the parked run waits for, and lets it go on, as long as nothing else must be done for it.
    fn poll_parked(&self, x: &mut Exchange, cx: &mut Context<'_>) -> Poll<Verdict> {
        // The client's leaving, and subrequests that go on meanwhile, are for the future of all waits.
        if self.settings.check_client_abort || x.has_family() {
            return Poll::Ready(Verdict::Wait);
        }
        loop {
            let parked = x.state::<ParkedRun>();
            let polled = |run: &&mut OwnedRun| !parked.over && run.is_polled();
            let Some(run) = parked.run.as_mut().filter(polled) else { return Poll::Ready(Verdict::Wait) };
            if run.poll(cx).is_pending() {
                if x.trace().is_on() {
                    suspend(x);
                }
                return Poll::Pending;
            }
            let Some(mut run) = resume(x) else { return Poll::Ready(Verdict::Wait) };
            match run.step(Some(x)) {
                RunStep::Finished => return Poll::Ready(self.ended(x, run, None)),
                RunStep::End(end) => return Poll::Ready(self.ended(x, run, Some(end))),
                RunStep::Waits => x.state::<ParkedRun>().run = Some(run),
            }
        }
    }

    async fn wait_for(&self, x: &mut Exchange) -> Verdict {
        let ParkedRun { run, over, .. } = std::mem::take(x.state::<ParkedRun>());
        let mut run = match run {
            Some(run) => run,
            None => {
                // In a box, as what is sent below: few waits come here, and every one has room for it otherwise.
                if let Err(error) = Box::pin(x.read_body_for_script()).await {
                    return Verdict::Status(error.status());
                }
                match self.begin(x) {
                    Ok(run) => run,
                    Err(verdict) => return verdict,
                }
            }
        };
        let default_type = self.settings.use_default_type;
        if !over {
            let end = drive(&mut run, x, &self.settings).await;
            if let Some(verdict) = self.verdict(x, &mut run, end) {
                return verdict;
            }
        }
        if run.broken {
            // Of the response that has begun a part is missing: nginx keeps the connection, where the client waits for the
            // rest, or takes the next response for it.
            return Verdict::Close(x.response.status);
        }
        // The head has left, or leaves now: the rest follows it, and the end.
        let mut chain = BodyChain::default();
        if !run.said.is_empty() {
            chain.push(BodyBuf::Bytes(std::mem::take(&mut run.said)));
        }
        prepare(x, default_type);
        chain.last = !run.ended;
        if !run.ended
            && !run.raw
            && let Err(error) = Box::pin(x.send(chain)).await
        {
            let left = error.side == FaultSide::Client;
            return Verdict::Close(if left { 499 } else { x.response.status });
        }
        Verdict::Done
    }
}

/// The parked run of `x` waits: the trace shows where.
fn suspend(x: &mut Exchange) {
    let ParkedRun { run, wait, .. } = x.state::<ParkedRun>();
    let kind = match (wait, run) {
        // It was polled before.
        (Some(wait), _) => wait.kind,
        (None, Some(run)) => {
            let (lines, kind) = run.standing(None);
            show(x, lines, kind);
            kind
        }
        (None, None) => WaitKind::Other,
    };
    x.shared.suspend(kind);
}

/// Notes in the trace of `x` that its script waits in `lines`.
fn show(x: &mut Exchange, lines: Rc<[Site]>, kind: WaitKind) {
    let place = x.trace().innermost();
    x.trace().enter_all(&lines);
    x.state::<ParkedRun>().wait = Some(ShownWait { lines, place, kind });
}

/// The parked run of `x`, which goes on.
fn resume(x: &mut Exchange) -> Option<OwnedRun> {
    let ParkedRun { run, wait, .. } = x.state::<ParkedRun>();
    let (run, wait) = (run.take(), wait.take());
    if let Some(ShownWait { lines, place, .. }) = wait {
        x.trace().leave_all_to(&lines, place);
    }
    run
}

impl Handler for PhaseScript {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        // That a request comes to its script follows from its head; the script runs for each.
        if self.phase == ScriptPhase::Content && x.is_pass_wanted() {
            x.is_passed_alike(ValueBasis::Head, Rc::new(()));
        }
        // `rewrite … last` leads elsewhere: nothing more of this location runs.
        if x.uri_changed && matches!(self.phase, ScriptPhase::Rewrite | ScriptPhase::ServerRewrite) {
            return Verdict::Declined;
        }
        x.log(
            LogLevel::Debug,
            &format_args!("lua {} handler, uri:\"{}\" c:1", self.phase.name(), ShownUri(x)),
        );
        if self.settings.need_body && !x.body.is_read() && !x.is_subrequest() {
            return Verdict::Wait;
        }
        let mut run = match self.begin(x) {
            Ok(run) => run,
            Err(verdict) => return verdict,
        };
        match run.step(Some(x)) {
            RunStep::Finished => self.ended(x, run, None),
            RunStep::End(end) => self.ended(x, run, Some(end)),
            RunStep::Waits => {
                *x.state::<ParkedRun>() = ParkedRun { run: Some(run), ..ParkedRun::default() };
                Verdict::Wait
            }
        }
    }

    fn poll(&self, x: &mut Exchange, cx: &mut Context<'_>) -> Poll<Verdict> {
        self.poll_parked(x, cx)
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(self.wait_for(x))
    }
}

/// `log_by_lua`
pub(crate) struct LogScript {
    home: ScriptHome,
    chunk: ScriptChunk,
}

impl LogScript {
    pub(crate) fn new(home: &ScriptHome, source: &ScriptSource) -> LogScript {
        LogScript { home: home.clone(), chunk: ScriptChunk::new(source.clone()) }
    }
}

impl Handler for LogScript {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        x.log(LogLevel::Debug, &format_args!("lua log handler, uri:\"{}\" c:1", ShownUri(x)));
        if let Err(message) = self.home.vm(x).and_then(|vm| vm.run_for(&self.chunk, ScriptPhase::Log, x)) {
            x.log(LogLevel::Error, &message);
        }
        Verdict::Declined
    }
}
