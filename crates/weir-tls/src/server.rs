//! The server's side: a configuration, and the handshake that begins when one is chosen.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, StoresServerSessions, UnbufferedServerConnection,
};
use rustls::sign::CertifiedKey;
use rustls::{DistinguishedName, HandshakeKind, SignatureAlgorithm, SupportedCipherSuite};

use crate::alert::{early_fatal_alert, fatal_alert};
use crate::certificate::{Certificate, KeyEffort};
use crate::compress::ZlibCompressor;
use crate::early_data::{EarlyRecordKind, EarlyRecords, TooMuch};
use crate::error::{Error, content};
use crate::external_sessions::{ExternalSessions, NamedSession};
use crate::hello::ReceivedHello;
use crate::hello_fields::HelloFields;
use crate::hello_offer::UnfitHello;
use crate::key_exchange_group::{self, WithGroup};
use crate::secrets::{HandshakeSecrets, NotingKeyLog};
use crate::session::{self, HandshakeNotes, SessionSide, TlsSession};
use crate::signature_limits::{self, SignatureLimits};
use crate::suites::{self, ProtocolVersions};
use crate::tickets::{ServerSessions, ServerTickets, SessionCache};
use crate::verify;

/// What a server offers and requires in its handshakes.
#[derive(Clone)]
pub struct ServerSettings {
    /// Versions that are accepted (`ssl_protocols`).
    pub protocols: ProtocolVersions,
    /// `ssl_ciphers`: suites of TLS 1.2 and 1.3, in order.
    pub suites: Vec<SupportedCipherSuite>,
    /// `ssl_ecdh_curve`: key exchange groups, in order of preference.
    pub groups: Vec<&'static dyn SupportedKxGroup>,
    /// True when the server's order of ciphers counts, not the client's (`ssl_prefer_server_ciphers`).
    pub prefer_own_order: bool,
    /// True when nevertheless the order of a client counts that begins with ChaCha20, since it has no AES in
    /// hardware.
    pub prioritize_chacha: bool,
    /// Application protocols, in order; none: what the client offers is not looked at.
    pub alpn: Vec<Vec<u8>>,
    /// Where sessions are stored that are not in tickets; `None`: they are not stored.
    pub cache: Option<Arc<SessionCache>>,
    /// Keys of tickets; `None`: none are given out.
    pub tickets: Option<ServerTickets>,
    /// Bytes of early data that are taken; 0: none.
    pub early_data: u32,
    /// True when certificates may be sent compressed (`ssl_certificate_compression`).
    pub compress: bool,
    /// Names of issuers, as encoded, sent with the request for a client certificate; `None`: clients are not asked
    /// for one.
    pub client_subjects: Option<Vec<Vec<u8>>>,
    /// `ssl_conf_command SignatureAlgorithms` and `ClientSignatureAlgorithms`
    pub signatures: SignatureLimits,
    /// `ssl_conf_command NumTickets`: tickets that a client of TLS 1.3 gets; `None`: as many as rustls likes.
    pub tickets_sent: Option<usize>,
}

/// A server's configuration with its certificates, as handshakes use it.
#[derive(Clone)]
pub struct ServerConfig {
    pub(crate) rustls: Arc<rustls::ServerConfig>,
    effort: KeyEffort,
    protocols: ProtocolVersions,
    pub(crate) prioritize_chacha: bool,
    /// Where sessions are stored that are not in tickets.
    sessions: Arc<dyn StoresServerSessions>,
    /// Verifies clients' certificates, if clients are asked for them; `None`: they are not.
    clients: Option<Arc<verify::AnyClient>>,
    signatures: SignatureLimits,
}

/// What one handshake does otherwise than its server.
#[derive(Debug, Default)]
pub struct HandshakeWishes {
    /// Versions other than the server's; `None`: the server's.
    pub protocols: Option<ProtocolVersions>,
    /// Names of issuers, as encoded, sent with the request for a client certificate; `None`: as the server's settings
    /// say.
    pub client_subjects: Option<Vec<Vec<u8>>>,
    /// Where its session is stored, outside of the server's cache; `None`: the server's.
    pub sessions: Option<Arc<ExternalSessions>>,
    /// No session is resumed, and none is to be resumed later.
    pub unresumable: bool,
}

impl ServerConfig {
    /// Puts settings and certificates together.
    ///
    /// # Errors
    /// The settings leave nothing to offer.
    pub fn new(settings: &ServerSettings, certificates: Vec<Certificate>) -> Result<ServerConfig, Error> {
        let provider =
            Arc::new(suites::provider(&settings.suites, &key_exchange_group::noted(&settings.groups)));
        let signatures = settings.signatures.clone();
        let clients = settings.client_subjects.as_deref().map(|names| any_client(names, &signatures));
        let effort = longest(&certificates);
        let resolver = Arc::new(CertificateResolver::new(&certificates, &signatures));
        let mut config = plain(provider, settings.protocols, clients.clone(), resolver)?;
        config.ignore_client_order = settings.prefer_own_order;
        config.alpn_protocols.clone_from(&settings.alpn);
        config.max_early_data_size = settings.early_data;
        // Requests in early data may have a response before the client's Finished, but not where a client certificate
        // was requested.
        config.send_half_rtt_data = settings.early_data > 0 && settings.client_subjects.is_none();
        if settings.compress {
            config.cert_compressors = vec![&ZlibCompressor];
        }
        let sessions: Arc<dyn StoresServerSessions> = match &settings.cache {
            Some(cache) => cache.clone(),
            None => Arc::new(NoServerSessionStorage {}),
        };
        config.session_storage = Arc::new(WithGroup(sessions.clone()));
        match &settings.tickets {
            Some(tickets) => config.ticketer = Arc::new(WithGroup(Arc::new(tickets.clone()))),
            None if settings.cache.is_none() => config.send_tls13_tickets = 0,
            None => {}
        }
        if let Some(count) = settings.tickets_sent.filter(|_| config.send_tls13_tickets > 0) {
            config.send_tls13_tickets = count;
        }
        let protocols = settings.protocols;
        let has = suites::of_versions(&config.crypto_provider().cipher_suites, protocols);
        let has_chacha = has.iter().any(|suite| suites::is_chacha(u16::from(suite.suite())));
        let prioritize_chacha = settings.prioritize_chacha && settings.prefer_own_order && has_chacha;
        Ok(ServerConfig {
            rustls: Arc::new(config),
            effort,
            protocols,
            prioritize_chacha,
            sessions,
            clients,
            signatures,
        })
    }

    /// The configuration for connections that may be HTTP/2: it is preferred where the client offers it.
    #[must_use]
    pub fn with_http2(&self) -> ServerConfig {
        let mut config = (*self.rustls).clone();
        config.alpn_protocols.insert(0, b"h2".to_vec());
        ServerConfig { rustls: Arc::new(config), ..self.clone() }
    }

    /// The configuration with other certificates, for one handshake.
    #[must_use]
    pub fn with_certificates(&self, certificates: Vec<Certificate>) -> ServerConfig {
        self.of_server(certificates, None, None)
    }

    /// The configuration for another server: with its certificates, its tickets if any are given out, and its part of
    /// the cache if it has one.
    #[must_use]
    pub fn of_server(
        &self,
        certificates: Vec<Certificate>,
        tickets: Option<ServerTickets>,
        sessions: Option<ServerSessions>,
    ) -> ServerConfig {
        let mut config = (*self.rustls).clone();
        let effort = longest(&certificates);
        config.cert_resolver = Arc::new(CertificateResolver::new(&certificates, &self.signatures));
        if let Some(tickets) = tickets {
            config.ticketer = Arc::new(WithGroup(Arc::new(tickets)));
        }
        let mut own = self.sessions.clone();
        if let Some(sessions) = sessions {
            own = Arc::new(sessions);
            config.session_storage = Arc::new(WithGroup(own.clone()));
        }
        ServerConfig { rustls: Arc::new(config), effort, sessions: own, ..self.clone() }
    }

    /// The configuration for one handshake that differs from its server's by `wishes`.
    ///
    /// # Errors
    /// Nothing is left to offer.
    pub fn otherwise(&self, wishes: HandshakeWishes) -> Result<ServerConfig, Error> {
        let own = &*self.rustls;
        let protocols = wishes.protocols.unwrap_or(self.protocols);
        let asked = wishes.client_subjects.as_deref().map(|names| any_client(names, &self.signatures));
        let clients = asked.or_else(|| self.clients.clone());
        let resolver = own.cert_resolver.clone();
        let mut config = plain(own.crypto_provider().clone(), protocols, clients.clone(), resolver)?;
        config.ignore_client_order = own.ignore_client_order;
        config.alpn_protocols.clone_from(&own.alpn_protocols);
        config.max_early_data_size = own.max_early_data_size;
        config.send_half_rtt_data = own.send_half_rtt_data && clients.is_none();
        config.cert_compressors.clone_from(&own.cert_compressors);
        if wishes.unresumable {
            // The rest is as `plain` has it: no tickets.
            config.send_tls13_tickets = 0;
            config.session_storage = Arc::new(NoServerSessionStorage {});
            return Ok(ServerConfig { rustls: Arc::new(config), protocols, clients, ..self.clone() });
        }
        config.ticketer = own.ticketer.clone();
        config.send_tls13_tickets = own.send_tls13_tickets;
        config.session_storage = match wishes.sessions {
            Some(external) => Arc::new(WithGroup(external)),
            None => own.session_storage.clone(),
        };
        Ok(ServerConfig { rustls: Arc::new(config), protocols, clients, ..self.clone() })
    }

    /// What a handshake with this client uses. A copy is made for few clients, and costs little beside the keys' use.
    fn for_client(&self, hello: &HelloFields) -> Arc<rustls::ServerConfig> {
        if !self.prioritize_chacha || !hello.begins_with_chacha() {
            return self.rustls.clone();
        }
        let mut config = (*self.rustls).clone();
        config.ignore_client_order = false;
        Arc::new(config)
    }

    /// Whether early data may be taken: rustls takes none with tickets.
    fn takes_early_data(&self) -> bool {
        self.rustls.max_early_data_size > 0 && !self.rustls.ticketer.enabled()
    }

    /// The sessions of one handshake that the caller stores: the one that the client has asked for, if it was `found`, and
    /// whether those that are made are `wanted`.
    pub fn external_sessions(&self, found: Option<NamedSession>, wanted: bool) -> ExternalSessions {
        ExternalSessions::new(found, wanted, self.sessions.clone())
    }

    /// The versions that are offered.
    pub fn protocols(&self) -> ProtocolVersions {
        self.protocols
    }

    /// The cipher suites that are offered, in order, by their numbers.
    pub fn suites(&self) -> Vec<u16> {
        let suites = suites::of_versions(&self.rustls.crypto_provider().cipher_suites, self.protocols);
        suites.iter().map(|suite| u16::from(suite.suite())).collect()
    }

    /// How long using the keys takes, the slowest of them.
    pub fn effort(&self) -> KeyEffort {
        self.effort
    }
}

/// A configuration in which all else is rustls' default.
fn plain(
    provider: Arc<CryptoProvider>,
    protocols: ProtocolVersions,
    clients: Option<Arc<verify::AnyClient>>,
    resolver: Arc<dyn ResolvesServerCert>,
) -> Result<rustls::ServerConfig, Error> {
    let builder = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&protocols.versions())?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(any) => builder.with_client_cert_verifier(any),
    };
    let mut config = builder.with_cert_resolver(resolver);
    config.key_log = Arc::new(NotingKeyLog);
    Ok(config)
}

fn any_client(subjects: &[Vec<u8>], signatures: &SignatureLimits) -> Arc<verify::AnyClient> {
    let subjects = subjects.iter().map(|name| DistinguishedName::from(name.clone())).collect();
    Arc::new(verify::AnyClient::new(subjects, signatures.peer.clone()))
}

fn longest(certificates: &[Certificate]) -> KeyEffort {
    certificates.iter().map(Certificate::effort).max().unwrap_or(KeyEffort::Short)
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerConfig")
    }
}

/// Certificates of different kinds side by side: the client gets the cheapest that it can verify.
#[derive(Debug)]
struct CertificateResolver(Vec<Arc<CertifiedKey>>);

impl CertificateResolver {
    fn new(certificates: &[Certificate], signatures: &SignatureLimits) -> CertificateResolver {
        let own = signatures.own.as_ref();
        CertificateResolver(certificates.iter().map(|it| signature_limits::limited(&it.0, own)).collect())
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let usable = || self.0.iter().filter_map(|it| Some((it, it.key.choose_scheme(schemes)?.scheme())));
        let cheap = |(it, _): &(&Arc<CertifiedKey>, _)| it.key.algorithm() != SignatureAlgorithm::RSA;
        let Some((certificate, scheme)) = usable().find(cheap).or_else(|| usable().next()) else {
            // rustls notices itself that nothing fits, and says handshake_failure as TLS has it; without any
            // certificate it says access_denied, by which scanners take the server for broken.
            return self.0.first().cloned();
        };
        HandshakeNotes::note_own(scheme);
        Some(certificate.clone())
    }
}

/// How far a handshake got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeProgress {
    /// More bytes of the peer are needed.
    NeedsInput,
    /// It is complete, or as good: responses may be sent.
    Complete,
}

/// A server's handshake from the choice of a configuration on.
pub struct ServerHandshake {
    conn: Box<UnbufferedServerConnection>,
    input: Vec<u8>,
    /// Early data that has come.
    early: Vec<u8>,
    /// The response goes out before the handshake is over.
    answers_early: bool,
    /// Records, while some may be early data that is not taken.
    early_records: Option<Box<EarlyRecords>>,
    notes: HandshakeNotes,
    secrets: Option<Box<HandshakeSecrets>>,
    /// Its random bytes, if they were chosen before.
    random: Option<[u8; 32]>,
    /// Why it cannot begin.
    unfit: Option<UnfitHello>,
}

impl ServerHandshake {
    /// Begins with what the client said. [`ServerHandshake::handle`] with nothing received goes on.
    ///
    /// # Errors
    /// The configuration does not fit together.
    pub fn new(hello: ReceivedHello, config: &ServerConfig) -> Result<ServerHandshake, Error> {
        let conn = Box::new(UnbufferedServerConnection::new(config.for_client(&hello.fields))?);
        let answers_early = config.rustls.send_half_rtt_data;
        let notes = HandshakeNotes::default();
        let (early, secrets) = (Vec::new(), Some(HandshakeSecrets::new()));
        let unfit = hello.offer.unfit(config.protocols);
        let mut input = hello.records;
        let early_records = hello.offer.early_data(config.protocols).then(|| {
            let mut records = Box::new(EarlyRecords::new(&mut input));
            records.refused = !config.takes_early_data();
            records
        });
        Ok(ServerHandshake {
            conn,
            input,
            early,
            answers_early,
            early_records,
            notes,
            secrets,
            random: None,
            unfit,
        })
    }

    /// Sets random bytes of the ServerHello that were chosen before; `None` leaves them to rustls. Where TLS 1.3 is
    /// offered and 1.2 agreed upon, the last eight are those of RFC 8446, section 4.1.3, whatever they are here.
    #[must_use]
    pub fn with_random(self, random: Option<[u8; 32]>) -> ServerHandshake {
        ServerHandshake { random, ..self }
    }

    /// Takes received bytes and does what can be done; what is to be sent is appended to `out`. This is where keys are
    /// used.
    ///
    /// # Errors
    /// What came is no good, or nothing was agreed upon; an alert for the peer is in `out`.
    pub fn handle(&mut self, received: &[u8], out: &mut Vec<u8>) -> Result<HandshakeProgress, Error> {
        if let Some(UnfitHello { alert, text }) = self.unfit {
            out.extend_from_slice(&early_fatal_alert(alert));
            return Err(content(text));
        }
        match self.early_records.take() {
            Some(records) => self.sort_out(records, received, out)?,
            None => {
                self.input.extend_from_slice(received);
                self.step(out)?;
            }
        }
        let complete = !self.conn.is_handshaking() || (self.answers_early && !self.early.is_empty());
        Ok(if complete { HandshakeProgress::Complete } else { HandshakeProgress::NeedsInput })
    }

    /// Goes on with what is in `input`.
    fn step(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        let from = out.len();
        let ServerHandshake { conn, input, early, notes, secrets, .. } = self;
        let random = self.random.filter(|_| secrets.as_ref().is_some_and(|secrets| secrets.is_open()));
        let step = || notes.during(|| session::run(&mut **conn, input, early, out));
        let result = HandshakeSecrets::during(secrets, random, step);
        if let Err(error) = result {
            // rustls says nothing to a client of TLS 1.2 whose ServerKeyExchange could not be signed.
            let tls12 = self.conn.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_2);
            if error.is_own() && tls12 && out.len() == from {
                out.extend_from_slice(&fatal_alert(HANDSHAKE_FAILURE));
            }
            return Err(error);
        }
        if let Some(secrets) = secrets {
            secrets.note_sent(&out[from..]);
        }
        Ok(())
    }

    /// Goes on with those records that are no refused early data.
    fn sort_out(
        &mut self,
        mut records: Box<EarlyRecords>,
        received: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        records.receive(received);
        if self.conn.negotiated_cipher_suite().is_none() {
            records.during(|| self.step(out))?;
            records.refused |= self.conn.handshake_kind() != Some(HandshakeKind::Resumed);
        }
        while let Some(record) = records.next_record() {
            let kind = records.kind(&record, self.conn.negotiated_cipher_suite());
            if kind == EarlyRecordKind::Early && records.refused {
                self.skip(&mut records, &record, out)?;
                continue;
            }
            let before = self.input.len();
            self.input.extend_from_slice(&record);
            records.during(|| self.step(out))?;
            match kind {
                EarlyRecordKind::Plain => {}
                // rustls has left it: it does not take early data, of a session that is too old, say.
                EarlyRecordKind::Early if self.input.len() == before + record.len() => {
                    self.input.truncate(before);
                    records.refused = true;
                    self.skip(&mut records, &record, out)?;
                }
                EarlyRecordKind::Early | EarlyRecordKind::Handshake => {
                    self.input.append(&mut records.into_rest());
                    return self.step(out);
                }
            }
        }
        self.early_records = Some(records);
        Ok(())
    }

    /// Leaves out refused early data. An end because there is too much of it is left to rustls, which has the keys for the
    /// alert: an invalid ChangeCipherSpec brings unexpected_message, as in OpenSSL.
    fn skip(&mut self, records: &mut EarlyRecords, record: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        records.skip(record).map_err(|TooMuch| {
            self.input.extend_from_slice(&[20, 3, 3, 0, 1, 0]);
            let _alerted = self.step(out);
            content("error:0A0000A4:SSL routines::too much early data")
        })
    }

    /// The session, and what the client has sent in it already.
    pub fn into_session(self) -> (TlsSession, Vec<u8>) {
        let ServerHandshake { conn, mut input, early, early_records, notes, mut secrets, .. } = self;
        if let Some(records) = early_records {
            input.append(&mut records.into_rest());
        }
        if let Some(secrets) = &mut secrets {
            secrets.settle(conn.negotiated_cipher_suite());
        }
        (TlsSession { side: SessionSide::Server(conn), input, notes, secrets, is_broken: false }, early)
    }
}

/// The alert of a server that can't agree (RFC 8446, section 6.2).
const HANDSHAKE_FAILURE: u8 = 40;

impl fmt::Debug for ServerHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handshake")
    }
}
