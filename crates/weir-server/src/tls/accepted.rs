//! What a request on an address with TLS needs of it for its response.

use std::rc::Rc;
use std::sync::Arc;

use weir_tls::{SessionFacts, VerifyProblem};

use super::clients::ClientTrust;
use super::server_part::{client_policy, server_tls};
use super::settings::ClientVerify;
use super::state;
use weir_engine::exchange::Exchange;
use weir_engine::log::LogLevel;
use weir_engine::plan::server::VirtualServer;
use weir_engine::request_head::ClientJudge;
use weir_engine::transport::ClientConnection;
use weir_engine::transport::tls::ConnectionTls;

/// Judges by what the request's server wants of clients.
pub(crate) struct TlsJudge;

impl ClientJudge for TlsJudge {
    #[inline(always)]
    fn check(x: &mut Exchange) -> Result<(), u16> {
        check(x)
    }

    #[inline(always)]
    fn is_open(connection: &ClientConnection, server: &VirtualServer) -> bool {
        !connection.expects_tls || (connection.is_tls() && !client_policy(server).asks())
    }

    fn is_misdirected(x: &Exchange) -> bool {
        misdirected(x)
    }
}

/// The TLS of a client of `server` without certificates, for a connection that is not made; `None` of a server without TLS.
pub fn rehearsed(server: &VirtualServer) -> Option<ConnectionTls> {
    let trust = server_tls(server)?.trust().clone();
    let facts = SessionFacts {
        version: "TLSv1.3",
        cipher: "TLS_AES_256_GCM_SHA384",
        curve: "X25519MLKEM768",
        signature: "",
        peer_signature: "",
        resumed: false,
        resumed_from: None,
        alpn: Some(b"http/1.1".to_vec()),
        peer: Vec::new(),
    };
    Some(ConnectionTls::new(facts, None, Rc::default(), state::ClientJudgement::new(trust)))
}

/// Whether the request may go on.
///
/// # Errors
/// nginx's own status: 497 for a request without TLS, 495 for a certificate that is not trusted, 496 for none; 421 where
/// the server wants issuers asked, and the handshake, which was another server's, did not.
#[inline(always)]
fn check(x: &mut Exchange) -> Result<(), u16> {
    if x.connection.expects_tls { check_tls(x) } else { Ok(()) }
}

#[inline(never)]
fn check_tls(x: &mut Exchange) -> Result<(), u16> {
    let connection = x.connection.clone();
    let Some(tls) = connection.tls.get() else {
        return refuse(x, 497, "client sent plain HTTP request to HTTPS port");
    };
    let verify = client_policy(&x.server).verify;
    if verify == ClientVerify::Off {
        return Ok(());
    }
    let judges = ClientJudges::of(x, tls);
    if let Some(problem) =
        judges.problems(tls).find(|it| !(verify == ClientVerify::OptionalNoCa && it.is_about_trust()))
    {
        let message = format!("client SSL certificate verify error: ({}:{})", problem.code, problem.text);
        return refuse(x, 495, &message);
    }
    if verify == ClientVerify::On && tls.certificate().is_none() {
        return refuse(x, 496, "client sent no required SSL certificate");
    }
    match judges.status(tls) {
        Some(Ok(())) => Ok(()),
        Some(Err(why)) => refuse(x, 495, &format!("client SSL certificate verify error: {why}")),
        None => refuse(
            x,
            421,
            "client attempted to request a server that asks issuers about certificates, which the handshake did not",
        ),
    }
}

/// Why the client's certificate is not one that requests like `x` may rely on, as `$ssl_client_verify` says it.
///
/// # Errors
/// The reason.
pub(super) fn verdict(x: &Exchange, tls: &ConnectionTls) -> Result<(), &'static str> {
    let judges = ClientJudges::of(x, tls);
    if let Some(problem) = judges.problems(tls).next() {
        return Err(problem.text);
    }
    judges.status(tls).unwrap_or(Err("certificate status request failed"))
}

/// Whose trust a client's certificate needs for a request.
///
/// A server that the handshake's name chose, or the default one without a name, judges by its own settings. Another
/// server, which `Host` names in a handshake without a name that is known, needs the verdict of the handshake's server
/// (as in nginx) and its own: an authority of the default server gives access to no other server. A server that does
/// not ask for certificates says what the handshake's server, which did, makes of them.
struct ClientJudges {
    handshake: Arc<ClientTrust>,
    own: Option<Arc<ClientTrust>>,
}

impl ClientJudges {
    fn of(x: &Exchange, tls: &ConnectionTls) -> ClientJudges {
        let policy = client_policy(&x.server);
        let own = policy.asks().then(|| policy.trust.clone());
        let chosen = Rc::ptr_eq(&x.connection.server(), &x.server);
        match own {
            Some(handshake) if chosen => ClientJudges { handshake, own: None },
            own => ClientJudges { handshake: state::trust(tls).clone(), own },
        }
    }

    /// What each of them finds wrong.
    fn problems(&self, tls: &ConnectionTls) -> impl Iterator<Item = VerifyProblem> {
        let handshake = state::verdict_of_handshake(tls, &self.handshake).err();
        handshake.into_iter().chain(self.own.as_ref().and_then(|own| state::verdict(tls, own).err()))
    }

    /// What issuers said for them; `None`: they were not asked.
    fn status(&self, tls: &ConnectionTls) -> Option<Result<(), &'static str>> {
        for trust in [Some(&self.handshake), self.own.as_ref()].into_iter().flatten() {
            if let problem @ (None | Some(Err(_))) = state::status(tls, trust) {
                return problem;
            }
        }
        Some(Ok(()))
    }
}

/// A host other than the name of the handshake: a server that asks for certificates does not respond there.
fn misdirected(x: &Exchange) -> bool {
    let asks = client_policy(&x.server).asks();
    if asks {
        let message =
            "client attempted to request the server name different from the one that was negotiated";
        x.log(LogLevel::Info, &message);
    }
    asks
}

fn refuse(x: &mut Exchange, status: u16, message: &str) -> Result<(), u16> {
    x.log(LogLevel::Info, &message);
    x.keep_alive = false;
    Err(status)
}
