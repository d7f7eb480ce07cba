//! What a connection knows of its TLS.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use weir_tls::certificate::CertificateDer;
use weir_tls::chain::{self, Purpose};
use weir_tls::{Facts, Problem, Secrets, Trust};

use super::clients::ClientTrust;
use super::hook::Clients;

/// The protocol that a handshake agreed upon; what the connection speaks from here on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alpn {
    /// HTTP/1, also where nothing was agreed upon.
    #[default]
    Http1,
    /// HTTP/2 (`h2`).
    Http2,
}

/// The TLS of a client's connection.
#[derive(Debug)]
pub struct Tls {
    /// What the handshake agreed upon.
    pub facts: Facts,
    /// What it agreed upon in secret.
    pub secrets: Option<Box<Secrets>>,
    /// Early data may be answered: the handshake is not over.
    pub early: Rc<Cell<bool>>,
    /// Whom the handshake took clients' certificates from: of the server whose certificate was shown.
    trust: Arc<ClientTrust>,
    /// Whether the client's certificate is trusted, found out once for each server that judges otherwise: a handful, since
    /// servers of the same settings share their trust.
    verdicts: RefCell<Vec<(Arc<ClientTrust>, Verdict)>>,
    /// What issuers said of the client's certificates (`ssl_ocsp`), if they were asked, and for whom.
    status: OnceCell<(Arc<ClientTrust>, Result<(), &'static str>)>,
    /// Who is trusted in this handshake otherwise than its server says, and the verdict.
    clients: OnceCell<(Clients, OnceCell<Verdict>)>,
}

/// OpenSSL's verdict on a client's certificate.
pub(super) type Verdict = Result<(), Problem>;

impl Tls {
    pub(super) fn new(
        facts: Facts,
        secrets: Option<Box<Secrets>>,
        early: Rc<Cell<bool>>,
        trust: Arc<ClientTrust>,
    ) -> Tls {
        let (verdicts, status, clients) = Default::default();
        Tls { facts, secrets, early, trust, verdicts, status, clients }
    }

    /// Whom the handshake took clients' certificates from.
    pub(super) fn trust(&self) -> &Arc<ClientTrust> {
        &self.trust
    }

    /// The client's certificates up to one that the handshake's server, whose trust this is, or a handler in its place
    /// trusts; none of a client that has none.
    ///
    /// # Errors
    /// It is not trusted.
    pub(super) fn path(&self, trust: &ClientTrust) -> Result<Vec<CertificateDer<'static>>, Problem> {
        if self.facts.peer.is_empty() {
            return Ok(Vec::new());
        }
        let now = weir_rt::unix_time().0;
        let (trusted, depth) = match self.clients.get() {
            Some((clients, _)) => (&clients.trust, clients.depth),
            None => (&trust.trust, trust.depth()),
        };
        chain::verified(&self.facts.peer, trusted, depth, Purpose::Client, now)
    }

    /// Notes who is trusted in this handshake.
    pub(super) fn set_clients(&self, clients: Clients) {
        let _first = self.clients.set((clients, OnceCell::new()));
    }

    /// Notes what issuers said of the client's certificates when they were asked as `trust` says.
    pub(super) fn set_status(&self, trust: Arc<ClientTrust>, status: Result<(), &'static str>) {
        let _first = self.status.set((trust, status));
    }

    /// What issuers said of the client's certificates; fine where `trust` does not want them asked. `None`: it wants it, and
    /// they were not.
    pub(super) fn status(&self, trust: &Arc<ClientTrust>) -> Option<Result<(), &'static str>> {
        if trust.issuers.is_none() || self.facts.peer.is_empty() {
            return Some(Ok(()));
        }
        self.status.get().filter(|(asked, _)| asked.is_like(trust)).map(|(_, status)| *status)
    }

    /// Whether the client's certificate comes from whom `trust` names. One that has no certificate is not untrusted.
    pub(super) fn verdict(&self, trust: &Arc<ClientTrust>) -> Verdict {
        if self.facts.peer.is_empty() {
            return Ok(());
        }
        let known = |(of, verdict): &(Arc<ClientTrust>, Verdict)| Arc::ptr_eq(of, trust).then_some(*verdict);
        if let Some(verdict) = self.verdicts.borrow().iter().find_map(known) {
            return verdict;
        }
        let verdict = self.check(&trust.trust, trust.depth());
        self.verdicts.borrow_mut().push((trust.clone(), verdict));
        verdict
    }

    /// The same of the handshake's server, whose trust this is: a handler of the handshake may have put its own in place.
    pub(super) fn verdict_of_handshake(&self, trust: &Arc<ClientTrust>) -> Verdict {
        match self.clients.get() {
            Some((clients, verdict)) if !self.facts.peer.is_empty() => {
                *verdict.get_or_init(|| self.check(&clients.trust, clients.depth))
            }
            Some(_) => Ok(()),
            None => self.verdict(trust),
        }
    }

    fn check(&self, trust: &Trust, depth: usize) -> Verdict {
        chain::check(&self.facts.peer, trust, depth, Purpose::Client, weir_rt::unix_time().0)
    }

    /// The client's own certificate, as encoded.
    pub fn certificate(&self) -> Option<&[u8]> {
        self.facts.peer.first().map(|der| der.as_ref())
    }

    /// The protocol to speak.
    pub fn alpn(&self) -> Alpn {
        match self.facts.alpn.as_deref() {
            Some(b"h2") => Alpn::Http2,
            _ => Alpn::Http1,
        }
    }
}
