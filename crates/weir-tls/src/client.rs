//! The client's side: what connections to upstream servers use.

use std::fmt;
use std::sync::Arc;

use rustls::SupportedCipherSuite;
use rustls::client::{ResolvesClientCert, Resumption, Tls12Resumption, UnbufferedClientConnection};
use rustls::crypto::SupportedKxGroup;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;

use crate::certificate::{Certificate, KeyEffort};
use crate::error::Error;
use crate::key_log::KeyLogFile;
use crate::server::HandshakeProgress;
use crate::session::{self, HandshakeNotes, SessionSide, TlsSession};
use crate::signature_limits::{self, SignatureLimits};
use crate::stored_session::KeptSession;
use crate::suites::{self, ProtocolVersions};
use crate::verify::AnyServer;

/// What a client offers and requires in its handshakes.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Versions that are offered (`proxy_ssl_protocols`).
    pub protocols: ProtocolVersions,
    /// Cipher suites that are offered, in order of preference (`proxy_ssl_ciphers`).
    pub suites: Vec<SupportedCipherSuite>,
    /// Key exchange groups, in order of preference.
    pub groups: Vec<&'static dyn SupportedKxGroup>,
    /// The client certificate (`proxy_ssl_certificate`); `None`: the client has none.
    pub certificate: Option<Certificate>,
    /// Application protocols, in order.
    pub alpn: Vec<Vec<u8>>,
    /// `proxy_ssl_server_name`: the server gets the name (SNI).
    pub tell_name: bool,
    /// `proxy_ssl_session_reuse`: number of sessions stored, by name of the server; 0: none.
    pub sessions: usize,
    /// The file of secrets (`lua_ssl_key_log`); `None`: secrets are not logged.
    pub key_log: Option<Arc<KeyLogFile>>,
    /// `proxy_ssl_conf_command SignatureAlgorithms`
    pub signatures: SignatureLimits,
    /// False: servers of TLS 1.2 are not asked for tickets (`proxy_ssl_conf_command Options -SessionTicket`). In TLS 1.3
    /// nothing asks for them.
    pub session_tickets: bool,
}

/// A client's configuration with the sessions it has.
#[derive(Clone)]
pub struct ClientConfig {
    rustls: Arc<rustls::ClientConfig>,
    effort: KeyEffort,
    /// By what sessions of TLS 1.2 are resumed.
    tls12: Tls12Resumption,
}

impl ClientConfig {
    /// A configuration. The peer's certificate is *not* verified during the handshake, beyond that it has its key:
    /// the user of the session does that before a byte is sent, with [`crate::TrustStore`], as OpenSSL's users do.
    ///
    /// # Errors
    /// The settings leave nothing to offer.
    pub fn new(settings: &ClientSettings) -> Result<ClientConfig, Error> {
        let offered = suites::of_versions(&settings.suites, settings.protocols);
        let provider = Arc::new(suites::provider(&offered, &settings.groups));
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&settings.protocols.versions())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer {
                schemes: settings.signatures.peer.clone(),
            }));
        let mut config = match &settings.certificate {
            None => builder.with_no_client_auth(),
            Some(certificate) => {
                let key = signature_limits::limited(&certificate.0, settings.signatures.own.as_ref());
                builder.with_client_cert_resolver(Arc::new(ClientCertificate(key)))
            }
        };
        config.alpn_protocols.clone_from(&settings.alpn);
        config.enable_sni = settings.tell_name;
        if let Some(file) = &settings.key_log {
            config.key_log = file.clone();
        }
        let tls12 = match settings.session_tickets {
            true => Tls12Resumption::SessionIdOrTickets,
            false => Tls12Resumption::SessionIdOnly,
        };
        config.resumption = match settings.sessions {
            0 => Resumption::disabled(),
            n => Resumption::in_memory_sessions(n).tls12_resumption(tls12),
        };
        let effort = settings.certificate.as_ref().map_or(KeyEffort::Short, Certificate::effort);
        Ok(ClientConfig { rustls: Arc::new(config), effort, tls12 })
    }

    /// The configuration for one connection, which resumes `session` where possible, and stores there what later ones
    /// may resume; `tell_name`: the server gets the name (SNI).
    pub fn with_session(&self, session: &KeptSession, tell_name: bool) -> ClientConfig {
        let mut config = (*self.rustls).clone();
        config.enable_sni = tell_name;
        config.resumption = Resumption::store(session.store()).tls12_resumption(self.tls12);
        ClientConfig { rustls: Arc::new(config), ..*self }
    }

    /// How long using the client's key takes.
    pub fn effort(&self) -> KeyEffort {
        self.effort
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientConfig")
    }
}

/// The one certificate a client has, for all servers.
#[derive(Debug)]
struct ClientCertificate(Arc<CertifiedKey>);

impl ResolvesClientCert for ClientCertificate {
    fn resolve(&self, _: &[&[u8]], schemes: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.key.choose_scheme(schemes).map(|_| self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// The client's side of a handshake, in progress.
pub struct ClientHandshake {
    conn: Box<UnbufferedClientConnection>,
    input: Vec<u8>,
    early: Vec<u8>,
    notes: HandshakeNotes,
}

impl ClientHandshake {
    /// Begins a handshake with the server `name`. A name that is no host's is not sent to the server and keeps
    /// sessions apart only.
    ///
    /// # Errors
    /// The configuration does not fit together.
    pub fn new(config: &ClientConfig, name: &str) -> Result<ClientHandshake, Error> {
        let name = ServerName::try_from(name.to_owned()).ok().unwrap_or_else(nameless);
        let conn = Box::new(UnbufferedClientConnection::new(config.rustls.clone(), name)?);
        Ok(ClientHandshake { conn, input: Vec::new(), early: Vec::new(), notes: HandshakeNotes::default() })
    }

    /// Takes received bytes (none at first); what is to be sent is appended to `out`.
    ///
    /// # Errors
    /// What came is no good, or nothing was agreed upon; an alert for the peer is in `out`.
    pub fn handle(&mut self, received: &[u8], out: &mut Vec<u8>) -> Result<HandshakeProgress, Error> {
        self.input.extend_from_slice(received);
        let ClientHandshake { conn, input, early, notes } = self;
        notes.during(|| session::run(&mut **conn, input, early, out))?;
        Ok(if self.conn.is_handshaking() {
            HandshakeProgress::NeedsInput
        } else {
            HandshakeProgress::Complete
        })
    }

    /// The session, and what the server has sent in it already.
    pub fn into_session(self) -> (TlsSession, Vec<u8>) {
        let ClientHandshake { conn, input, early, notes } = self;
        (TlsSession { side: SessionSide::Client(conn), input, notes, secrets: None, is_broken: false }, early)
    }
}

impl fmt::Debug for ClientHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connect")
    }
}

/// An address says no name to the server.
fn nameless() -> ServerName<'static> {
    ServerName::IpAddress(std::net::IpAddr::from([0, 0, 0, 0]).into())
}
