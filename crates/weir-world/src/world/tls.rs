//! TLS of clients: rustls, with a clock and random numbers of the simulation's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::client::{ClientSessionMemoryCache, Resumption};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use weir_sim::tls::{self, ClientIdentity, TlsPlan, TlsVersion};

use crate::start::WALL_START;

/// Seconds of the simulation, for checks of certificates.
static SECONDS: AtomicU64 = AtomicU64::new(0);

/// The clock of the world's TLS.
#[derive(Debug)]
pub(super) struct SimTime;

impl SimTime {
    /// It is `now` of the simulation's nanoseconds.
    pub(super) fn set(now: u64) {
        SECONDS.store(WALL_START + now / 1_000_000_000, Ordering::Relaxed);
    }
}

impl TimeProvider for SimTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(SECONDS.load(Ordering::Relaxed))))
    }
}

/// The configurations of the world's TLS clients: those of one kind resume each other's sessions.
#[derive(Debug, Default)]
pub(super) struct TlsClients {
    kinds: Vec<((TlsVersion, ClientIdentity, bool), Arc<ClientConfig>)>,
}

impl TlsClients {
    /// A connection of a client; `is_http2`: what it asks for with ALPN.
    pub(super) fn connect(&mut self, plan: &TlsPlan, is_http2: bool) -> Option<ClientConnection> {
        let kind = (plan.version, plan.identity, is_http2);
        let known = self.kinds.iter().find(|(one, _)| *one == kind).map(|(_, config)| config.clone());
        let config = match known {
            Some(config) if plan.resumes => config,
            _ => {
                let config = Arc::new(configuration(kind)?);
                self.kinds.retain(|(one, _)| *one != kind);
                self.kinds.push((kind, config.clone()));
                config
            }
        };
        let name = ServerName::try_from(plan.name).ok()?;
        let mut connection = ClientConnection::new(config, name).ok()?;
        connection.set_buffer_limit(None);
        Some(connection)
    }
}

fn configuration((version, identity, is_http2): (TlsVersion, ClientIdentity, bool)) -> Option<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(tls::AUTHORITY).ok()?).ok()?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_details(provider, Arc::new(SimTime));
    let builder = builder.with_protocol_versions(&versions(version)).ok()?.with_root_certificates(roots);
    let mut config = match identity.pair() {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate).ok()?];
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key).ok()?).ok()?
        }
    };
    config.resumption = Resumption::store(Arc::new(ClientSessionMemoryCache::new(32)));
    config.alpn_protocols = vec![if is_http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Some(config)
}

/// The versions in rustls's words.
pub(super) fn versions(version: TlsVersion) -> Vec<&'static rustls::SupportedProtocolVersion> {
    match version {
        TlsVersion::Old => vec![&rustls::version::TLS12],
        TlsVersion::New => vec![&rustls::version::TLS13],
        TlsVersion::Any => vec![&rustls::version::TLS13, &rustls::version::TLS12],
    }
}
