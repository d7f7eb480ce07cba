//! Handlers between the ClientHello and the choice of certificates. They may wait: no byte of the handshake has been
//! complete yet.

use std::rc::Rc;

use weir_tls::suites::ProtocolVersions;
use weir_tls::{Certificate, HelloFields, ServerConfig, TrustStore};

use super::server::ServerTls;
use weir_engine::phase::LocalFuture;
use weir_engine::plan::{Plan, PlanBuilder};
use weir_engine::transport::ClientConnection;
use weir_engine::worker::{HandshakeFault, Worker};

/// A handshake that has begun.
#[derive(Clone)]
pub struct ClientGreeting {
    /// The worker that serves the connection.
    pub worker: Rc<Worker>,
    /// The client's connection.
    pub connection: Rc<ClientConnection>,
    /// What the client said, for handlers with extensions.
    pub hello: Rc<HelloFields>,
    /// Versions that the server offers.
    pub protocols: ProtocolVersions,
}

/// What a handler makes of a ClientHello.
#[derive(Debug)]
pub enum HelloVerdict {
    /// The next handler is asked, and at last the handshake is as the server is configured.
    Declined,
    /// The handshake is otherwise in some points.
    Choose(Box<HandshakeChoice>),
    /// The handshake is refused.
    Reject(HandshakeRefusal),
}

/// In what a handshake is otherwise than its server.
#[derive(Debug, Default)]
pub struct HandshakeChoice {
    /// These certificates are used: instead of the server's whose keys are of the same kind, the others stay.
    pub certificates: Vec<Certificate>,
    /// True when the server's own certificates are not used at all.
    pub cleared: bool,
    /// The OCSP response to staple, as encoded; `None`: the server's.
    pub status: Option<Vec<u8>>,
    /// Versions that are offered; `None`: the server's.
    pub protocols: Option<ProtocolVersions>,
    /// Authorities for the client's certificate, which is then asked for; `$ssl_client_verify` has the result.
    /// `None`: the server's settings.
    pub clients: Option<TrustedClients>,
    /// The session that the client has named, as [`HelloHandler::made`] received it; `None`: not found.
    pub session: Option<Vec<u8>>,
    /// The random bytes of the ServerHello (see [`weir_tls::ServerHandshake::with_random`]); `None`: not chosen by
    /// the script.
    pub random: Option<[u8; 32]>,
    /// True when [`HelloHandler::made`] is called for new sessions.
    pub keeps: bool,
    /// True when no session is resumed, and none is to be resumed later.
    pub unresumable: bool,
}

/// Whose certificates are asked for and taken.
#[derive(Clone, Debug, Default)]
pub struct TrustedClients {
    /// The names of issuers that are sent to the client, as encoded.
    pub subjects: Vec<Vec<u8>>,
    /// The certificates that are trusted.
    pub trust: TrustStore,
    /// Certificates between the client's and a trusted one.
    pub depth: usize,
}

/// Why a handshake is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeRefusal {
    /// No server has the name that the client asks for.
    Name,
    /// A handler of the ClientHello does not want it, or has failed.
    Hello,
    /// The handler that chooses certificates does not want it, or has failed.
    Certificate,
    /// There is no certificate.
    NoCertificate,
    /// No version is left.
    NoVersion,
}

impl HandshakeRefusal {
    /// The alert's number (RFC 8446, section 6).
    pub(super) fn alert(self) -> u8 {
        match self {
            HandshakeRefusal::Name => 112,
            HandshakeRefusal::Hello | HandshakeRefusal::Certificate => 80,
            HandshakeRefusal::NoCertificate => 40,
            HandshakeRefusal::NoVersion => 70,
        }
    }

    /// What to count.
    pub(super) fn fault(self) -> HandshakeFault {
        match self {
            HandshakeRefusal::Name => HandshakeFault::NoServer,
            HandshakeRefusal::Hello => HandshakeFault::Script,
            HandshakeRefusal::Certificate | HandshakeRefusal::NoCertificate => HandshakeFault::NoCertificate,
            HandshakeRefusal::NoVersion => HandshakeFault::NoVersion,
        }
    }

    /// OpenSSL's words.
    pub(super) fn text(self) -> &'static str {
        match self {
            HandshakeRefusal::Name | HandshakeRefusal::Hello => {
                "error:0A0000EA:SSL routines::callback failed"
            }
            HandshakeRefusal::Certificate => "error:0A000179:SSL routines::cert cb error",
            HandshakeRefusal::NoCertificate => "error:0A000076:SSL routines::no suitable signature algorithm",
            HandshakeRefusal::NoVersion => "error:0A000102:SSL routines::unsupported protocol",
        }
    }
}

/// A module's handler of ClientHellos, of the server that the name in them chose.
pub trait HelloHandler {
    /// Looks at what the client said.
    fn handle<'h>(&'h self, greeting: &'h ClientGreeting) -> LocalFuture<'h, HelloVerdict>;

    /// The handshake, which is complete, has made a session of TLS 1.2, which is stored nowhere else but perhaps in the
    /// server's own cache. Called if the handler's [`HandshakeChoice`] says so.
    fn made(&self, _greeting: &ClientGreeting, _id: &[u8], _session: &[u8]) {}
}

/// A handler in a plan.
struct HelloEntry(Box<dyn HelloHandler>);

/// Adds a handler of ClientHellos to the plan of a server. It is asked if handshakes can be completed there.
pub fn handle_client_hello(plan: &mut PlanBuilder<'_>, handler: impl HelloHandler + 'static) {
    plan.keep(HelloEntry(Box::new(handler)));
}

/// Whether there are any.
pub(super) fn is_asked(plan: &Plan) -> bool {
    plan.all_kept::<HelloEntry>().next().is_some()
}

/// Asks the handlers of `plan` in turn; the one that has decided comes along.
pub(super) async fn ask<'p>(
    plan: &'p Plan,
    greeting: &ClientGreeting,
) -> (HelloVerdict, Option<&'p dyn HelloHandler>) {
    for HelloEntry(handler) in plan.all_kept::<HelloEntry>() {
        match handler.handle(greeting).await {
            HelloVerdict::Declined => {}
            verdict => return (verdict, Some(&**handler)),
        }
    }
    (HelloVerdict::Declined, None)
}

impl ServerTls {
    /// The cipher suites that are offered, in order, by their numbers.
    pub fn suites(&self) -> Vec<u16> {
        self.plain().suites()
    }
}

/// `config` with the certificates of `choice`, and what it staples.
pub(super) fn chosen(config: &ServerConfig, choice: &HandshakeChoice, own: Vec<Certificate>) -> ServerConfig {
    let mut certificates = choice.certificates.clone();
    if !choice.cleared {
        let kinds: Vec<_> = certificates.iter().map(|it| it.key().algorithm()).collect();
        certificates.extend(own.into_iter().filter(|it| !kinds.contains(&it.key().algorithm())));
    }
    if let Some(status) = &choice.status {
        certificates = certificates.iter().map(|it| it.with_ocsp(Some(status.clone()))).collect();
    }
    config.with_certificates(certificates)
}
