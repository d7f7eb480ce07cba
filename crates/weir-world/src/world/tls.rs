//! TLS of clients: rustls, with a clock and random numbers of the simulation's.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::client::{ClientSessionMemoryCache, Resumption};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, ProtocolVersion, RootCertStore};

use weir_sim::tls::{self, ClientIdentity, TlsPlan, TlsVersion};

use crate::start::WALL_START;

/// Seconds of the simulation, for checks of certificates.
static SECONDS: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
struct SimTime;

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
    pub(super) fn connect(&mut self, plan: &TlsPlan, is_http2: bool) -> Option<Box<ClientConnection>> {
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
        Some(Box::new(connection))
    }
}

fn configuration((version, identity, is_http2): (TlsVersion, ClientIdentity, bool)) -> Option<ClientConfig> {
    let versions: &[&rustls::SupportedProtocolVersion] = match version {
        TlsVersion::Old => &[&rustls::version::TLS12],
        TlsVersion::New => &[&rustls::version::TLS13],
        TlsVersion::Any => &[&rustls::version::TLS13, &rustls::version::TLS12],
    };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(tls::AUTHORITY).ok()?).ok()?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_details(provider, Arc::new(SimTime));
    let builder = builder.with_protocol_versions(versions).ok()?.with_root_certificates(roots);
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

/// What is between a client and its socket: nothing, or TLS.
#[derive(Debug, Default)]
pub(super) struct ClientChannel {
    tls: Option<Box<ClientConnection>>,
    plan: Option<TlsPlan>,
    /// What the socket is to take, and how much it has taken.
    pub(super) out: VecDeque<u8>,
    pub(super) sent: u64,
    /// TLS has failed, and why.
    pub(super) failure: Option<String>,
}

impl ClientChannel {
    /// The channel of a client that has just connected.
    pub(super) fn new(plan: Option<TlsPlan>, is_http2: bool, clients: &mut TlsClients) -> ClientChannel {
        let tls = plan.as_ref().and_then(|plan| clients.connect(plan, is_http2));
        let mut channel = ClientChannel { tls, plan, ..ClientChannel::default() };
        channel.collect();
        channel
    }

    /// The next bytes for the socket, `most` at most: of those that the plan has changed on their way, and up to its cut.
    pub(super) fn piece(&self, most: u64) -> Vec<u8> {
        let cut = self.plan.and_then(|plan| plan.cut).map_or(u64::MAX, |cut| cut.saturating_sub(self.sent));
        let mut piece: Vec<u8> = self.out.iter().take(most.min(cut) as usize).copied().collect();
        let garbled = self.plan.and_then(|plan| plan.garbled).and_then(|at| at.checked_sub(self.sent));
        if let Some(byte) = garbled.and_then(|at| piece.get_mut(at as usize)) {
            *byte ^= 0x20;
        }
        piece
    }

    /// The socket has taken so many bytes.
    pub(super) fn took(&mut self, count: usize) {
        self.sent += count as u64;
        drop(self.out.drain(..count));
    }

    /// Whether what the client has sent is sent, and does not wait for the end of the handshake.
    pub(super) fn has_sent(&self) -> bool {
        self.out.is_empty() && self.tls.as_ref().is_none_or(|tls| !tls.is_handshaking())
    }

    /// Whether it is to be closed where it is.
    pub(super) fn is_cut(&self) -> bool {
        self.plan.and_then(|plan| plan.cut).is_some_and(|cut| self.sent >= cut)
    }

    /// The client sends these bytes.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        match &mut self.tls {
            None => self.out.extend(bytes),
            // Its buffer has no bound: it takes all.
            Some(tls) => drop(tls.writer().write_all(bytes)),
        }
        self.collect();
    }

    /// The client sends no more: an alert says so.
    pub(super) fn notify_end(&mut self) {
        if let Some(tls) = self.tls.as_mut().filter(|_| self.plan.is_some_and(|plan| plan.notifies)) {
            tls.send_close_notify();
        }
        self.collect();
    }

    /// What the client gets of the bytes that have come from its socket at `now` of the simulation's nanoseconds.
    pub(super) fn receive(&mut self, now: u64, bytes: &[u8]) -> Vec<u8> {
        SECONDS.store(WALL_START + now / 1_000_000_000, Ordering::Relaxed);
        let Some(tls) = &mut self.tls else { return bytes.to_vec() };
        let (mut rest, mut plain) = (bytes, Vec::new());
        while !rest.is_empty() && self.failure.is_none() {
            if tls.read_tls(&mut rest).is_err() {
                break;
            }
            if let Err(error) = tls.process_new_packets() {
                self.failure = Some(error.to_string());
            }
            // It ends with "would block", or with the end.
            let _more = tls.reader().read_to_end(&mut plain);
        }
        self.collect();
        plain
    }

    /// What was agreed on, in a word for the journal; `-`: nothing, or there is no TLS.
    pub(super) fn agreed(&self) -> String {
        let Some(tls) = &self.tls else { return "-".to_owned() };
        let version = match tls.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "1.3",
            Some(ProtocolVersion::TLSv1_2) => "1.2",
            _ => "-",
        };
        let kind = if tls.is_handshaking() {
            "unfinished".to_owned()
        } else {
            format!("{:?}", tls.handshake_kind())
        };
        let kind = kind.trim_start_matches("Some(").trim_end_matches(')').to_owned();
        format!("{version}/{kind}/{}", String::from_utf8_lossy(tls.alpn_protocol().unwrap_or(b"-")))
    }

    fn collect(&mut self) {
        let Some(tls) = &mut self.tls else { return };
        let mut bytes = Vec::new();
        while tls.wants_write() && tls.write_tls(&mut bytes).is_ok() {}
        self.out.extend(bytes);
    }
}
