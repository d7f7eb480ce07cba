//! What quinn-proto is configured with.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use quinn_proto::{EndpointConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};
use weir_rt::process::inherit::SECRET_BYTES;
use weir_tls::quic::{InitialCrypto, QuicKeys, QuicServerConfig};

use super::routes::{RouteNumber, RoutedIds};
use super::tokens;
use crate::conn::accept::ListenerDoor;
use weir_engine::plan::server::VirtualServer;
use weir_engine::settings::http3::Http3Settings;

/// The settings of the default server of the address that `door` leads to.
pub(super) fn of_address(door: &ListenerDoor) -> Option<Http3Settings> {
    let (generation, _, address) = door.leads_to();
    Some(generation.hosts().get(address)?.default().http3.clone())
}

/// The keys of `settings`, or those of this process and of those that have its secret.
fn keys(settings: Option<&Http3Settings>) -> QuicKeys {
    let given = settings.and_then(|settings| settings.host_key.clone());
    given.unwrap_or_else(|| own_keys().clone())
}

/// Out of which the keys of this process are made.
static SECRET: OnceLock<[u8; SECRET_BYTES]> = OnceLock::new();

/// The secret of this process, drawn when it is asked for first, unless one was [inherited](inherit_secret).
pub(in crate::conn) fn own_secret() -> &'static [u8; SECRET_BYTES] {
    SECRET.get_or_init(|| weir_tls::random_bytes().expect("a system without random bytes has no TLS either"))
}

/// From here on `secret` is this process' secret, if none was drawn.
pub(in crate::conn) fn inherit_secret(secret: [u8; SECRET_BYTES]) {
    SECRET.get_or_init(|| secret);
}

fn own_keys() -> &'static QuicKeys {
    static OWN: OnceLock<QuicKeys> = OnceLock::new();
    OWN.get_or_init(|| QuicKeys::from_host_key(own_secret()))
}

/// Of an endpoint.
pub(super) fn of_endpoint(settings: Option<&Http3Settings>, number: RouteNumber) -> Arc<EndpointConfig> {
    let mut config = EndpointConfig::new(keys(settings).reset_key());
    config.cid_generator(move || Box::new(RoutedIds::new(number)));
    Arc::new(config)
}

/// Of connections whose server is not known yet: what Initial packets are protected with is the same for all.
pub(super) fn before_hello(settings: Option<&Http3Settings>) -> Arc<ServerConfig> {
    let mut config = ServerConfig::new(Arc::new(InitialCrypto), keys(settings).token_key());
    config.validation_token_config(tokens::given_out(settings.is_some_and(|settings| settings.retry)));
    config
        .max_incoming(MOST_INCOMING)
        .incoming_buffer_size(INCOMING)
        .incoming_buffer_size_total(ALL_INCOMING);
    Arc::new(config)
}

/// Of a connection to `server`.
pub(super) fn of_connection(server: &VirtualServer, crypto: Arc<QuicServerConfig>) -> Arc<ServerConfig> {
    let mut config = ServerConfig::new(crypto, keys(Some(&server.http3)).token_key());
    config.validation_token_config(tokens::given_out(server.http3.retry));
    config.transport_config(Arc::new(transport(server)));
    Arc::new(config)
}

fn transport(server: &VirtualServer) -> TransportConfig {
    let settings = &server.http3;
    let number = |value: u64| VarInt::from_u64(value).unwrap_or(VarInt::MAX);
    let streams = number(settings.max_concurrent_streams.into());
    let buffer = settings.stream_buffer_size;
    let idle = server.plan.core.keepalive_timeout.max(server.settings.client_header_timeout);
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(streams)
        .max_concurrent_uni_streams(number(UNIDIRECTIONAL))
        .stream_receive_window(number(buffer))
        .receive_window(number(buffer.saturating_mul(settings.max_concurrent_streams.into())))
        .max_idle_timeout(IdleTimeout::try_from(Duration::from_millis(idle)).ok())
        .datagram_receive_buffer_size(None)
        .mtu_discovery_config(None)
        .enable_segmentation_offload(true);
    transport
}

/// Unidirectional streams that a client may have: control, encoder, decoder.
const UNIDIRECTIONAL: u64 = 3;
/// Clients whose handshake has not begun, at most.
const MOST_INCOMING: usize = 4096;
/// Bytes that one of them may send before that.
const INCOMING: u64 = 64 * 1024;
/// ... and all of them together.
const ALL_INCOMING: u64 = 16 << 20;
