//! Scripts of phases: from the handler that the engine asks to its verdict.

use std::rc::Rc;

use weir_core::body::{Body, Buf, Chain};
use weir_core::log::Level;
use weir_core::phase::LocalFuture;
use weir_core::redirect::Redirect;
use weir_core::{Exchange, Handler, Text, Verdict};

use crate::chunk::{Chunk, Source};
use crate::drive::drive;
use crate::op::End;
use crate::phase::Phase;
use crate::run::{Run, Step};
use crate::vm::Vm;

/// What a block says about its scripts.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) need_body: bool,
    pub(crate) use_default_type: bool,
}

/// A script of a phase that can wait.
pub(crate) struct Script {
    vm: Rc<Vm>,
    phase: Phase,
    chunk: Chunk,
    settings: Settings,
}

/// A run that waits, between [`Handler::handle`] and [`Handler::wait`].
#[derive(Default)]
struct Parked(Option<Box<Run>>);

impl Script {
    pub(crate) fn new(vm: &Rc<Vm>, phase: Phase, chunk: Chunk, settings: Settings) -> Script {
        Script { vm: vm.clone(), phase, chunk, settings }
    }

    /// A run at its beginning; `None`, and that is logged, when the script can't be loaded.
    fn begin(&self, x: &mut Exchange) -> Option<Run> {
        match self.chunk.push(&self.vm, Some(x)) {
            Ok(()) => Some(Run::new(&self.vm, self.phase)),
            Err(message) => {
                x.log(Level::Error, &message);
                None
            }
        }
    }

    /// What an end that needs no waiting means; `None` when what was said has to be sent in pieces.
    fn verdict(&self, x: &mut Exchange, run: &mut Run, end: Option<End>) -> Option<Verdict> {
        let content = self.phase == Phase::Content;
        let streaming = x.response.header_sent;
        Some(match end {
            Some(End::Error) if run.began || streaming => {
                // The answer can't be taken back: it ends where it is.
                Verdict::Close(if x.response.status == 0 { 200 } else { x.response.status })
            }
            Some(End::Error) => Verdict::Status(500),
            Some(End::Exec(target)) => {
                if target.first() != Some(&b'@') {
                    x.uri_changed = false;
                }
                Redirect::to(x, &target).into()
            }
            Some(End::Redirect(target, status)) => {
                x.response.location = Some(Text::Span(x.arena.push(&target)));
                Verdict::Status(status)
            }
            // Of `ngx.exit` with a special code in content: a plain end.
            Some(End::Exit(code)) if code < 200 && !content => match code {
                0 => Verdict::Ok,
                -1 => Verdict::Status(500),
                _ => Verdict::Declined,
            },
            Some(End::Exit(-1)) => Verdict::Status(500),
            Some(End::Exit(code @ (444 | 499 | 408))) => Verdict::Close(code as u16),
            Some(End::Exit(code)) if code >= 200 && !run.began => self.exit(x, code),
            _ if !content && !run.began => Verdict::Declined,
            _ if streaming => return None,
            Some(End::Exit(code)) if !content && code < 200 => return None,
            None if !content => return None,
            _ => self.answer(x, run),
        })
    }

    /// `ngx.exit(status)` before anything was said.
    fn exit(&self, x: &mut Exchange, code: i64) -> Verdict {
        let status = u16::try_from(code).unwrap_or(500);
        if status >= 300 {
            return Verdict::Status(status);
        }
        if x.response.status == 0 {
            x.response.status = status;
        }
        prepare(x, self.settings.use_default_type);
        x.respond(Body::Empty)
    }

    /// The whole answer, said in one go.
    fn answer(&self, x: &mut Exchange, run: &mut Run) -> Verdict {
        prepare(x, self.settings.use_default_type);
        let said = std::mem::take(&mut run.said);
        if said.is_empty() { x.respond(Body::Empty) } else { x.respond(Body::Whole(Buf::Bytes(said))) }
    }

    async fn wait_for(&self, x: &mut Exchange) -> Verdict {
        let parked = x.state::<Parked>().0.take();
        let mut run = match parked {
            Some(run) => run,
            None => {
                if let Err(error) = x.read_body().await {
                    return Verdict::Status(error.status());
                }
                match self.begin(x) {
                    Some(run) => Box::new(run),
                    None => return Verdict::Status(500),
                }
            }
        };
        let default_type = self.settings.use_default_type;
        let end = drive(&mut run, x, default_type).await;
        if let Some(verdict) = self.verdict(x, &mut run, end) {
            return verdict;
        }
        // The head has left, or leaves now: the rest follows it, and where this is the content, its end.
        let content = self.phase == Phase::Content;
        let mut chain = Chain::default();
        if !run.said.is_empty() {
            chain.push(Buf::Bytes(std::mem::take(&mut run.said)));
        }
        prepare(x, default_type);
        chain.last = content && !run.ended;
        if !run.broken && !run.ended && x.send(chain).await.is_err() {
            return Verdict::Close(499);
        }
        if content { Verdict::Done } else { Verdict::Declined }
    }
}

impl Handler for Script {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        if self.settings.need_body && !x.body.is_read() && !x.is_subrequest() {
            return Verdict::Wait;
        }
        let Some(mut run) = self.begin(x) else { return Verdict::Status(500) };
        let end = match run.step(Some(x)) {
            Step::Finished => None,
            Step::End(end) => Some(end),
            Step::Waits => {
                x.state::<Parked>().0 = Some(Box::new(run));
                return Verdict::Wait;
            }
        };
        match self.verdict(x, &mut run, end) {
            Some(verdict) => verdict,
            None => {
                x.state::<Parked>().0 = Some(Box::new(run));
                Verdict::Wait
            }
        }
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(self.wait_for(x))
    }
}

/// What a head has that a script has not given it: 200, and the type of `default_type`.
pub(crate) fn prepare(x: &mut Exchange, default_type: bool) {
    if x.response.status == 0 {
        x.response.status = 200;
    }
    if default_type && !x.response.header_sent {
        x.set_content_type();
    }
}

/// `log_by_lua`
pub(crate) struct LogScript {
    vm: Rc<Vm>,
    chunk: Chunk,
}

impl LogScript {
    pub(crate) fn new(vm: &Rc<Vm>, source: &Source) -> LogScript {
        LogScript { vm: vm.clone(), chunk: Chunk::new(source.clone()) }
    }
}

impl Handler for LogScript {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        if let Err(message) = self.vm.run_for(&self.chunk, Phase::Log, x) {
            x.log(Level::Error, &message);
        }
        Verdict::Declined
    }
}
