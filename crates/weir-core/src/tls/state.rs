//! What a connection knows of its TLS.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use weir_tls::certificate::CertificateDer;
use weir_tls::chain::{self, Purpose};
use weir_tls::{Facts, Problem, Secrets};

use super::hook::Clients;
use super::server::ServerTls;

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
    /// Whether the client's certificate is trusted, found out once for each server that asks.
    verdict: OnceCell<Result<(), Problem>>,
    /// What issuers said of the client's certificates (`ssl_ocsp`), if they were asked.
    status: OnceCell<Result<(), &'static str>>,
    /// Who is trusted in this handshake otherwise than its server says.
    clients: OnceCell<Clients>,
}

impl Tls {
    pub(super) fn new(facts: Facts, secrets: Option<Box<Secrets>>, early: Rc<Cell<bool>>) -> Tls {
        let (verdict, status, clients) = Default::default();
        Tls { facts, secrets, early, verdict, status, clients }
    }

    /// The client's certificates up to one that `server` trusts; none of a client that has none.
    ///
    /// # Errors
    /// It is not trusted.
    pub(super) fn path(&self, server: &ServerTls) -> Result<Vec<CertificateDer<'static>>, Problem> {
        if self.facts.peer.is_empty() {
            return Ok(Vec::new());
        }
        let now = weir_rt::unix_time().0;
        chain::verified(&self.facts.peer, &server.common().trust, server.depth(), Purpose::Client, now)
    }

    /// Notes who is trusted in this handshake.
    pub(super) fn set_clients(&self, clients: Clients) {
        let _first = self.clients.set(clients);
    }

    /// Whether the client was asked for a certificate whatever the server says.
    pub(super) fn asks_by_itself(&self) -> bool {
        self.clients.get().is_some()
    }

    /// Notes what issuers said of the client's certificates.
    pub(super) fn set_status(&self, status: Result<(), &'static str>) {
        let _first = self.status.set(status);
    }

    /// What issuers said of the client's certificates; fine where they were not asked.
    ///
    /// # Errors
    /// nginx's words.
    pub fn status(&self) -> Result<(), &'static str> {
        self.status.get().copied().unwrap_or(Ok(()))
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

    /// Whether the client's certificate is trusted by the server that asked for it during the handshake. One that has no
    /// certificate is not untrusted.
    ///
    /// # Errors
    /// OpenSSL's verdict.
    pub fn verify(&self, server: &ServerTls) -> Result<(), Problem> {
        if self.facts.peer.is_empty() {
            return Ok(());
        }
        *self.verdict.get_or_init(|| {
            let now = weir_rt::unix_time().0;
            let (trust, depth) = match self.clients.get() {
                Some(clients) => (&clients.trust, clients.depth),
                None => (&server.common().trust, server.depth()),
            };
            chain::check(&self.facts.peer, trust, depth, Purpose::Client, now)
        })
    }
}
