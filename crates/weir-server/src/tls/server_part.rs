//! What TLS keeps with each server: its side of handshakes, and what it asks of clients.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use super::clients::ClientPolicy;
use super::server::ServerTls;
use super::settings::SslConf;
use weir_engine::plan::server::VirtualServer;

/// The part of a server that is about TLS.
struct ServerTlsPart {
    tls: Option<Arc<ServerTls>>,
    policy: ClientPolicy,
}

/// The part of a server with these settings.
pub(super) fn make(conf: &SslConf) -> Box<dyn Any> {
    Box::new(ServerTlsPart { tls: conf.resolved.clone(), policy: conf.client_policy() })
}

/// The server's side of TLS handshakes, if it has one.
pub fn server_tls(server: &VirtualServer) -> Option<&Arc<ServerTls>> {
    server.part::<ServerTlsPart>()?.tls.as_ref()
}

/// What the server asks of clients' certificates; also of a server that uses another's side of handshakes.
/// Without the module `ssl` there is no address with TLS, and no handshake.
pub fn client_policy(server: &VirtualServer) -> &ClientPolicy {
    static OFF: OnceLock<ClientPolicy> = OnceLock::new();
    match server.part::<ServerTlsPart>() {
        Some(part) => &part.policy,
        None => OFF.get_or_init(ClientPolicy::off),
    }
}
