//! What a connection knows of its TLS.

use std::any::Any;
use std::cell::Cell;
use std::rc::Rc;

use weir_tls::{HandshakeSecrets, SessionFacts};

/// The protocol that a handshake agreed upon; what the connection speaks from here on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgreedProtocol {
    /// HTTP/1, also where nothing was agreed upon.
    #[default]
    Http1,
    /// HTTP/2 (`h2`).
    Http2,
}

/// The TLS of a client's connection.
#[derive(Debug)]
pub struct ConnectionTls {
    /// What the handshake agreed upon.
    pub facts: SessionFacts,
    /// The secrets that the handshake agreed upon, for scripts; `None` where they are not recorded.
    pub secrets: Option<Box<HandshakeSecrets>>,
    /// Early data may be responded to: the handshake is not over.
    pub early: Rc<Cell<bool>>,
    /// What the side that accepted the connection knows of the client's certificates.
    judgement: Box<dyn Any>,
}

impl ConnectionTls {
    /// The TLS of a handshake that is complete, but perhaps for `early` data; `judgement` is for whom the handshake was
    /// made by, and comes back from [`ConnectionTls::judgement`].
    pub fn new(
        facts: SessionFacts,
        secrets: Option<Box<HandshakeSecrets>>,
        early: Rc<Cell<bool>>,
        judgement: impl Any,
    ) -> ConnectionTls {
        ConnectionTls { facts, secrets, early, judgement: Box::new(judgement) }
    }

    /// What [`ConnectionTls::new`] was given.
    ///
    /// # Panics
    /// It is of another type.
    pub fn judgement<J: Any>(&self) -> &J {
        self.judgement.downcast_ref().expect("one storey accepts connections")
    }

    /// The client's own certificate in DER; `None` if the client sent no certificate.
    pub fn certificate(&self) -> Option<&[u8]> {
        self.facts.peer.first().map(|der| der.as_ref())
    }

    /// The application protocol that was agreed upon.
    pub fn alpn(&self) -> AgreedProtocol {
        match self.facts.alpn.as_deref() {
            Some(b"h2") => AgreedProtocol::Http2,
            _ => AgreedProtocol::Http1,
        }
    }
}
