//! A server's configuration, as quinn-proto asks for it.

use std::fmt;
use std::sync::Arc;

use quinn_proto::crypto::{self, Keys, UnsupportedVersion};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side};

use crate::error::{Error, content};
use crate::hello_fields::HelloFields;
use crate::server::ServerConfig;

use super::session::QuicSession;
use super::{retry, version};

/// What handshakes of QUIC use of a [`ServerConfig`]: its certificates, groups, suites of TLS 1.3, tickets and sessions, with
/// application protocols of their own.
#[derive(Clone)]
pub struct QuicServerConfig {
    pub(super) rustls: Arc<rustls::ServerConfig>,
    prioritize_chacha: bool,
    /// Connection IDs of the client that are stored.
    pub(super) connection_ids: u64,
}

impl QuicServerConfig {
    /// Takes over `config`, for clients that speak one of `alpn`, in order of preference; others are refused (RFC 9001, section
    /// 8.1).
    ///
    /// # Errors
    /// It has no TLS 1.3, which is the only version that QUIC has; or `alpn` is empty.
    pub fn new(config: &ServerConfig, alpn: &[&[u8]]) -> Result<Arc<QuicServerConfig>, Error> {
        let mut rustls = (*config.rustls).clone();
        let suites = &rustls.crypto_provider().cipher_suites;
        if !config.protocols().tls13
            || !suites.iter().any(|suite| suite.tls13().is_some_and(|it| it.quic.is_some()))
        {
            return Err(content("QUIC requires TLSv1.3"));
        }
        if alpn.is_empty() {
            return Err(content("QUIC requires an application protocol"));
        }
        rustls.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        // All or nothing (RFC 9001, section 4.6.1); how much comes is limited as streams are.
        rustls.max_early_data_size = if rustls.max_early_data_size > 0 { u32::MAX } else { 0 };
        rustls.send_half_rtt_data = false;
        let prioritize_chacha = config.prioritize_chacha;
        Ok(Arc::new(QuicServerConfig {
            rustls: Arc::new(rustls),
            prioritize_chacha,
            connection_ids: u64::MAX,
        }))
    }

    /// The same, where `count` connection IDs of the client are stored, between 2 and as many as quinn-proto stores.
    #[must_use]
    pub fn with_connection_ids(self: &Arc<QuicServerConfig>, count: u64) -> Arc<QuicServerConfig> {
        Arc::new(QuicServerConfig { connection_ids: count, ..(**self).clone() })
    }

    /// What a handshake with this client uses; a copy only where its order of ciphers counts
    /// ([`crate::ServerSettings::prioritize_chacha`]).
    #[must_use]
    pub fn for_client(self: &Arc<QuicServerConfig>, hello: &HelloFields) -> Arc<QuicServerConfig> {
        if !self.prioritize_chacha || !hello.begins_with_chacha() {
            return self.clone();
        }
        let mut rustls = (*self.rustls).clone();
        rustls.ignore_client_order = false;
        Arc::new(QuicServerConfig { rustls: Arc::new(rustls), ..(**self).clone() })
    }
}

/// What clients' first packets are read with while it is not known which server they are for: their keys are the same for all. No
/// connection is accepted with it.
#[derive(Clone, Copy, Debug)]
pub struct InitialCrypto;

impl crypto::ServerConfig for InitialCrypto {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        Ok(version::packet_keys(version::version_of(version)?, id, Side::Server))
    }

    fn retry_tag(&self, version: u32, id: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        let version = version::version_of(version).expect("initial_keys() has taken it");
        retry::tag(version, id, packet)
    }

    fn start_session(self: Arc<Self>, _version: u32, _own: &TransportParameters) -> Box<dyn crypto::Session> {
        unreachable!("a connection is accepted with a QuicServerConfig")
    }
}

impl crypto::ServerConfig for QuicServerConfig {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        InitialCrypto.initial_keys(version, id)
    }

    fn retry_tag(&self, version: u32, id: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        InitialCrypto.retry_tag(version, id, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        parameters: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        let version = version::version_of(version).expect("initial_keys() has taken it");
        Box::new(QuicSession::new(&self, version, parameters))
    }
}

impl fmt::Debug for QuicServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuicServerConfig")
    }
}
