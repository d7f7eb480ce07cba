//! What a connection remembers of its handshake with a server.

use weir_tls::SessionFacts;
use weir_tls::certificate::CertificateDer;

/// See the module.
pub(crate) struct UpstreamTlsFacts {
    /// As OpenSSL names it: `TLSv1.3`.
    pub(crate) version: &'static str,
    /// The server's own certificate.
    pub(crate) certificate: Option<CertificateDer<'static>>,
}

impl UpstreamTlsFacts {
    pub(crate) fn new(facts: SessionFacts) -> UpstreamTlsFacts {
        UpstreamTlsFacts { version: facts.version, certificate: facts.peer.into_iter().next() }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn held_bytes(&self) -> usize {
        // With the two counts of references.
        size_of::<UpstreamTlsFacts>()
            + 2 * size_of::<usize>()
            + self.certificate.as_ref().map_or(0, |der| der.len())
    }
}
