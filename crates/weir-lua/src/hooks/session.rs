//! Scripts of sessions of `stream`: `preread_by_lua`, `content_by_lua`.
//!
//! A session has no response: what a script says is sent as it says it, and how it ends says what becomes of the session.

use weir_engine::log::LogLevel;
use weir_engine::phase::LocalFuture;
use weir_engine::{Exchange, Handler, Verdict};

use crate::api::{lend_client, take_client_back};
use crate::hooks::phases::ScriptHome;
use crate::run::drive::drive;
use crate::run::op::ScriptEnd;
use crate::run::owned_run::OwnedRun;
use crate::run::script_run::{RunStep, ScriptRun};
use crate::run::settings::ScriptSettings;
use crate::vm::chunk::{LoadError, ScriptChunk};
use crate::vm::phase::ScriptPhase;

/// A script of a session that can wait.
pub(crate) struct SessionScript {
    home: ScriptHome,
    phase: ScriptPhase,
    chunk: ScriptChunk,
    settings: ScriptSettings,
}

/// A run that waits, between [`Handler::handle`] and [`Handler::wait`].
#[derive(Default)]
struct WaitingSession(Option<OwnedRun>);

impl SessionScript {
    pub(crate) fn new(
        home: &ScriptHome,
        phase: ScriptPhase,
        chunk: ScriptChunk,
        settings: ScriptSettings,
    ) -> SessionScript {
        SessionScript { home: home.clone(), phase, chunk, settings }
    }

    /// A run at its beginning; when the script can't be loaded, that is logged.
    fn begin(&self, x: &mut Exchange) -> Result<OwnedRun, Verdict> {
        let begun = self.home.vm(x).map_err(LoadError::from).and_then(|vm| {
            self.chunk.push(&vm, Some(x))?;
            Ok(ScriptRun::begin(&vm, self.phase))
        });
        begun.map_err(|unloaded| {
            x.log(LogLevel::Error, &unloaded.message);
            Verdict::Status(500)
        })
    }

    /// What becomes of the session after a run that ended so.
    fn ended(&self, x: &mut Exchange, end: Option<&ScriptEnd>) -> Verdict {
        take_client_back(x);
        match end {
            Some(ScriptEnd::Exit(200)) => Verdict::Done,
            Some(ScriptEnd::Exit(code @ 1..)) => Verdict::Status(u16::try_from(*code).unwrap_or(500)),
            None | Some(ScriptEnd::Exit(0 | DECLINED)) if self.phase == ScriptPhase::Content => Verdict::Done,
            // The next phase.
            Some(ScriptEnd::Exit(0)) => Verdict::Ok,
            None | Some(ScriptEnd::Exit(DECLINED)) => Verdict::Declined,
            Some(ScriptEnd::Exit(_)) => Verdict::Status(500),
            Some(ScriptEnd::Error | ScriptEnd::Exec(..) | ScriptEnd::Redirect(..)) => Verdict::Status(500),
        }
    }

    async fn go_on(&self, x: &mut Exchange) -> Verdict {
        let Some(mut run) = x.state::<WaitingSession>().0.take() else { return Verdict::Status(500) };
        let end = drive(&mut run, x, &self.settings).await;
        drop(run);
        self.ended(x, end.as_ref())
    }
}

impl Handler for SessionScript {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        x.log(LogLevel::Debug, &format_args!("lua {} handler", self.phase.name()));
        lend_client(x);
        let mut run = match self.begin(x) {
            Ok(run) => run,
            Err(verdict) => return verdict,
        };
        let end = match run.step(Some(x)) {
            RunStep::Finished => None,
            RunStep::End(end) => Some(end),
            RunStep::Waits => {
                x.state::<WaitingSession>().0 = Some(run);
                return Verdict::Wait;
            }
        };
        drop(run);
        self.ended(x, end.as_ref())
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(self.go_on(x))
    }
}

/// `ngx.DECLINED`
const DECLINED: i64 = -5;
