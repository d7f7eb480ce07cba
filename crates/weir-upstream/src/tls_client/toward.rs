//! Handlers of handshakes with upstream servers: which certificate a server is shown, and whether its own will do. They
//! may wait, and have the request at hand.

use std::rc::Rc;

use weir_tls::certificate::CertificateDer;
use weir_tls::{Certificate, SessionFacts, VerifyProblem};

use weir_engine::exchange::Exchange;
use weir_engine::phase::LocalFuture;
use weir_engine::plan::{Plan, PlanBuilder};

/// The client certificate that a module chose for a handshake with an upstream server; by default the
/// configuration's.
#[derive(Debug, Default)]
pub struct ShownCertificate {
    /// Shown in place of the configuration's certificate; empty: the configuration's. The last one counts.
    pub certificates: Vec<Certificate>,
    /// True when the configuration's certificate must not be shown.
    pub cleared: bool,
}

/// What an upstream server has shown in its handshake.
#[derive(Clone, Debug)]
pub struct MetServer {
    /// Its certificates, its own first.
    pub peer: Vec<CertificateDer<'static>>,
    /// The version of the protocol as nginx writes it: `TLSv1.3`.
    pub version: &'static str,
    /// What is thought of the certificate so far.
    pub verdict: Result<(), VerifyProblem>,
}

/// A module's handler of a location's handshakes with servers.
pub trait UpstreamHandler {
    /// Asked before the handshake. `version`: the one that is offered (`TLSv1.3`), if it is only one.
    ///
    /// # Errors
    /// The handshake must not be made; the reason is logged.
    fn certificate<'x>(
        &'x self,
        x: &'x mut Exchange,
        version: Option<&'static str>,
    ) -> LocalFuture<'x, Result<ShownCertificate, ()>>;

    /// What [`UpstreamHandler::certificate`] has begun is not waited for any longer.
    fn abandoned(&self, x: &mut Exchange);

    /// Asked after the handshake, before a byte is sent, for a verdict that counts instead of [`MetServer::verdict`].
    ///
    /// # Errors
    /// The server won't do, whatever `proxy_ssl_verify` says; the reason is logged.
    fn verify<'x>(
        &'x self,
        x: &'x mut Exchange,
        met: MetServer,
    ) -> LocalFuture<'x, Result<Result<(), VerifyProblem>, ()>>;

    /// The configuration's own verdict is not wanted: it is a good one.
    fn judges_alone(&self) -> bool;
}

/// A handler in a plan.
#[derive(Clone)]
struct HandlerEntry(Rc<dyn UpstreamHandler>);

/// Makes `handler` that of the handshakes with servers in the location of `plan`.
pub fn handle_upstream_handshakes(plan: &mut PlanBuilder<'_>, handler: impl UpstreamHandler + 'static) {
    plan.keep(HandlerEntry(Rc::new(handler)));
}

/// The handler of a location.
pub(crate) fn handler(plan: &Plan) -> Option<Rc<dyn UpstreamHandler>> {
    plan.kept::<HandlerEntry>().map(|entry| entry.0.clone())
}

/// Asks `handler` about a server.
///
/// # Errors
/// The server won't do.
pub(crate) async fn judge(
    handler: &dyn UpstreamHandler,
    x: &mut Exchange,
    facts: SessionFacts,
    own: Result<(), VerifyProblem>,
) -> Result<Result<(), VerifyProblem>, String> {
    let verdict = if handler.judges_alone() { Ok(()) } else { own };
    let met = MetServer { peer: facts.peer, version: facts.version, verdict };
    let failed = "SSL_do_handshake() failed (SSL: error:0A000086:SSL routines::certificate verify failed)";
    handler.verify(x, met).await.map_err(|()| failed.to_owned())
}
