//! Scripts of handshakes with servers: `proxy_ssl_certificate_by_lua`, `proxy_ssl_verify_by_lua`.

use std::cell::Cell;
use std::rc::Rc;

use weir_engine::Exchange;
use weir_engine::log::LogLevel;
use weir_engine::phase::LocalFuture;
use weir_tls::VerifyProblem;
use weir_upstream::tls_client::{MetServer, ShownCertificate, UpstreamHandler};

use crate::api::ssl::HandshakeWishes;
use crate::api::ssl::parsed::{self};
use crate::api::ssl::upstream::{CurrentUpstreamHandshake, UpstreamHandshake};
use crate::hooks::phases::ScriptHome;
use crate::hooks::tls::clients::{HandshakeSources, goes_on};
use crate::run::drive::drive;
use crate::run::op::ScriptEnd;
use crate::run::script_run::ScriptRun;
use crate::run::settings::ScriptSettings;
use crate::vm::chunk::{ScriptChunk, ScriptSource};
use crate::vm::phase::ScriptPhase;

/// The scripts of a location.
pub(crate) struct UpstreamScripts {
    home: ScriptHome,
    settings: ScriptSettings,
    certificate: Option<ScriptChunk>,
    verify: Option<ScriptChunk>,
    judges_alone: bool,
}

impl UpstreamScripts {
    pub(crate) fn new(
        home: &ScriptHome,
        settings: ScriptSettings,
        sources: &HandshakeSources,
    ) -> UpstreamScripts {
        let chunk = |source: &Option<ScriptSource>| source.clone().map(ScriptChunk::new);
        UpstreamScripts {
            home: home.clone(),
            settings,
            certificate: chunk(&sources.shown),
            verify: chunk(&sources.verify),
            judges_alone: sources.judges_alone.unwrap_or(false),
        }
    }

    /// Runs a script to its end; whether the handshake goes on.
    async fn run(
        &self,
        x: &mut Exchange,
        phase: ScriptPhase,
        chunk: &ScriptChunk,
        toward: &Rc<UpstreamHandshake>,
    ) -> bool {
        x.state::<CurrentUpstreamHandshake>().0 = Some(toward.clone());
        let begun = self.home.vm(x).and_then(|vm| {
            chunk.push(&vm, Some(x)).map_err(|unloaded| unloaded.message)?;
            Ok(ScriptRun::begin(&vm, phase))
        });
        let end = match begun {
            Ok(mut run) => drive(&mut run, x, &self.settings).await,
            Err(message) => {
                x.log(LogLevel::Error, &message);
                Some(ScriptEnd::Error)
            }
        };
        x.state::<CurrentUpstreamHandshake>().0 = None;
        goes_on(x, phase, end.as_ref())
    }

    async fn shown(&self, x: &mut Exchange, version: Option<&'static str>) -> Result<ShownCertificate, ()> {
        let Some(chunk) = &self.certificate else { return Ok(ShownCertificate::default()) };
        let toward = Rc::new(UpstreamHandshake { version, ..UpstreamHandshake::default() });
        if !self.run(x, ScriptPhase::ProxySslCertificate, chunk, &toward).await {
            return Err(());
        }
        let HandshakeWishes { chains, keys, cleared, .. } = toward.wishes.take();
        match parsed::certificates(&chains, &keys).await {
            Ok(made) => Ok(ShownCertificate {
                cleared: cleared || made.is_none(),
                certificates: made.unwrap_or_default(),
            }),
            Err(message) => {
                x.log(LogLevel::Error, &message);
                Err(())
            }
        }
    }

    async fn judged(&self, x: &mut Exchange, met: MetServer) -> Result<Result<(), VerifyProblem>, ()> {
        let Some(chunk) = &self.verify else { return Ok(met.verdict) };
        let result = met.verdict.err().map_or(0, |problem| problem.code);
        let version = Some(met.version);
        let toward = UpstreamHandshake {
            version,
            met: Some(met),
            result: Cell::new(result),
            ..UpstreamHandshake::default()
        };
        let toward = Rc::new(toward);
        match self.run(x, ScriptPhase::ProxySslVerify, chunk, &toward).await {
            true => Ok(VerifyProblem::of(toward.result.get()).map_or(Ok(()), Err)),
            false => Err(()),
        }
    }
}

impl UpstreamHandler for UpstreamScripts {
    fn certificate<'x>(
        &'x self,
        x: &'x mut Exchange,
        version: Option<&'static str>,
    ) -> LocalFuture<'x, Result<ShownCertificate, ()>> {
        Box::pin(self.shown(x, version))
    }

    fn abandoned(&self, x: &mut Exchange) {
        x.state::<CurrentUpstreamHandshake>().0 = None;
        let label = ScriptPhase::ProxySslCertificate.label();
        x.log(LogLevel::Debug, &format_args!("{label}: cert cb aborted"));
    }

    fn verify<'x>(
        &'x self,
        x: &'x mut Exchange,
        met: MetServer,
    ) -> LocalFuture<'x, Result<Result<(), VerifyProblem>, ()>> {
        Box::pin(self.judged(x, met))
    }

    fn judges_alone(&self) -> bool {
        self.judges_alone
    }
}
