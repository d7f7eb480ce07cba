//! What a connection knows of its TLS.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use weir_tls::chain::{self, Purpose};
use weir_tls::{Facts, Problem};

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
    /// Early data may be answered: the handshake is not over.
    pub early: Rc<Cell<bool>>,
    /// Whether the client's certificate is trusted, found out once for each server that asks.
    verdict: OnceCell<Result<(), Problem>>,
}

impl Tls {
    pub(super) fn new(facts: Facts, early: Rc<Cell<bool>>) -> Tls {
        Tls { facts, early, verdict: OnceCell::new() }
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
            chain::check(&self.facts.peer, &server.trust, server.depth, Purpose::Client, now)
        })
    }
}
