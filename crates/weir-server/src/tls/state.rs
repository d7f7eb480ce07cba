//! What a connection's handshake says of its client's certificates, and what servers make of them.

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use weir_tls::certificate::CertificateDer;
use weir_tls::chain::{self, CertificatePurpose};
use weir_tls::{TrustStore, VerifyProblem};

use super::clients::ClientTrust;
use super::hook::TrustedClients;
use weir_engine::transport::tls::ConnectionTls;

/// What the server knows of a client's certificates, in its connection's [`ConnectionTls`].
#[derive(Debug)]
pub(super) struct ClientJudgement {
    /// Whom the handshake took clients' certificates from: of the server whose certificate was shown.
    trust: Arc<ClientTrust>,
    /// Whether the client's certificate is trusted, determined once for each server that judges otherwise: a handful,
    /// since servers of the same settings share their trust.
    verdicts: RefCell<Vec<(Arc<ClientTrust>, ClientVerdict)>>,
    /// What issuers said of the client's certificates (`ssl_ocsp`), if they were asked, and for whom.
    status: OnceCell<(Arc<ClientTrust>, Result<(), &'static str>)>,
    /// Authorities trusted in this handshake in place of its server's, and the verdict.
    clients: OnceCell<(TrustedClients, OnceCell<ClientVerdict>)>,
}

/// OpenSSL's verdict on a client's certificate.
pub(super) type ClientVerdict = Result<(), VerifyProblem>;

impl ClientJudgement {
    /// Of a handshake that took clients' certificates from whom `trust` names.
    pub(super) fn new(trust: Arc<ClientTrust>) -> ClientJudgement {
        let (verdicts, status, clients) = Default::default();
        ClientJudgement { trust, verdicts, status, clients }
    }
}

fn of(tls: &ConnectionTls) -> &ClientJudgement {
    tls.judgement()
}

/// Whom the handshake took clients' certificates from.
pub(super) fn trust(tls: &ConnectionTls) -> &Arc<ClientTrust> {
    &of(tls).trust
}

/// The client's certificates up to one that the handshake's server, whose trust this is, or a handler in its place
/// trusts; none of a client that has none.
///
/// # Errors
/// It is not trusted.
pub(super) fn path(
    tls: &ConnectionTls,
    trust: &ClientTrust,
) -> Result<Vec<CertificateDer<'static>>, VerifyProblem> {
    if tls.facts.peer.is_empty() {
        return Ok(Vec::new());
    }
    let now = weir_rt::unix_time().0;
    let (trusted, depth) = match of(tls).clients.get() {
        Some((clients, _)) => (&clients.trust, clients.depth),
        None => (&trust.trust, trust.depth()),
    };
    chain::verified(&tls.facts.peer, trusted, depth, CertificatePurpose::Client, now)
}

/// Notes the authorities trusted in this handshake.
pub(super) fn set_clients(tls: &ConnectionTls, clients: TrustedClients) {
    let _first = of(tls).clients.set((clients, OnceCell::new()));
}

/// Notes what issuers said of the client's certificates when they were asked as `trust` says.
pub(super) fn set_status(tls: &ConnectionTls, trust: Arc<ClientTrust>, status: Result<(), &'static str>) {
    let _first = of(tls).status.set((trust, status));
}

/// What issuers said of the client's certificates; fine where `trust` does not want them asked. `None`: it wants it, and
/// they were not.
pub(super) fn status(tls: &ConnectionTls, trust: &Arc<ClientTrust>) -> Option<Result<(), &'static str>> {
    if trust.issuers.is_none() || tls.facts.peer.is_empty() {
        return Some(Ok(()));
    }
    of(tls).status.get().filter(|(asked, _)| asked.is_like(trust)).map(|(_, status)| *status)
}

/// Whether the client's certificate comes from whom `trust` names. One that has no certificate is not untrusted.
pub(super) fn verdict(tls: &ConnectionTls, trust: &Arc<ClientTrust>) -> ClientVerdict {
    if tls.facts.peer.is_empty() {
        return Ok(());
    }
    let known =
        |(of, verdict): &(Arc<ClientTrust>, ClientVerdict)| Arc::ptr_eq(of, trust).then_some(*verdict);
    if let Some(verdict) = of(tls).verdicts.borrow().iter().find_map(known) {
        return verdict;
    }
    let verdict = check(tls, &trust.trust, trust.depth());
    of(tls).verdicts.borrow_mut().push((trust.clone(), verdict));
    verdict
}

/// The verdict on the client's certificate by the handshake's server, whose trust this is: a handler of the handshake
/// may have replaced that.
pub(super) fn verdict_of_handshake(tls: &ConnectionTls, trust: &Arc<ClientTrust>) -> ClientVerdict {
    match of(tls).clients.get() {
        Some((clients, verdict)) if !tls.facts.peer.is_empty() => {
            *verdict.get_or_init(|| check(tls, &clients.trust, clients.depth))
        }
        Some(_) => Ok(()),
        None => verdict(tls, trust),
    }
}

fn check(tls: &ConnectionTls, trust: &TrustStore, depth: usize) -> ClientVerdict {
    chain::check(&tls.facts.peer, trust, depth, CertificatePurpose::Client, weir_rt::unix_time().0)
}
