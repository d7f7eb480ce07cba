//! TLS in the server: what is configured (nginx's `ngx_http_ssl_module`), how a connection begins ([`accept`]), what
//! requests learn of it.
//!
//! The protocol is `weir-tls`; here are its directives ([`settings`]), the files they name ([`server`]), the handshake
//! on a socket, and the layer that a connection keeps afterwards ([`accepted`]).

pub(crate) mod accept;
pub(crate) mod accepted;
mod clients;
mod counted;
mod hook;
pub mod inventory;
mod ocsp;
pub mod preread;
pub(crate) mod quic;
pub mod replace;
mod server;
mod server_part;
mod settings;
mod shared;
mod ssl;
mod state;
#[cfg(test)]
mod tests;
mod variables;

use std::collections::BTreeSet;

use weir_conf::{ConfSource, Error};

use weir_engine::conf::ServerConf;
use weir_engine::conf::server_core::ServerCoreConf;
use weir_engine::settings::listen::ListenAddress;

pub use accepted::rehearsed;
pub use clients::ClientPolicy;
pub use counted::{FailedHandshake, last_failed};
pub use hook::{
    ClientGreeting, HandshakeChoice, HandshakeRefusal, HelloHandler, HelloVerdict, TrustedClients,
    handle_client_hello,
};
pub use preread::SslPreread;
pub use server::ServerTls;
pub use server_part::{client_policy, server_tls};
pub use settings::{ClientVerify, SslConf};
pub use ssl::Ssl;

/// What is wrong with addresses that speak TLS: their servers need certificates. Where the default server has one, the
/// others may do without: then they use its.
pub(crate) fn check(addresses: &[ListenAddress], servers: &[ServerConf], source: &ConfSource) -> Vec<Error> {
    let none = SslConf::default();
    let conf = |index: usize| servers[index].confs.find::<SslConf>().unwrap_or(&none);
    let mut errors = Vec::new();
    let is_tls = |address: &&ListenAddress| address.ssl || address.quic;
    for address in addresses.iter().filter(is_tls) {
        let kind = if address.quic { "quic" } else { "ssl" };
        let place = |index: usize| {
            let begin = servers[index].confs.get::<ServerCoreConf>().span.and_then(|span| source.place(span));
            begin.map_or_else(String::new, |place| format!("{}:{}", place.path.display(), place.line))
        };
        let default = conf(address.default);
        if default.has_certificates() {
            if address.quic && !default.has_tls13() {
                let message = format!(
                    "\"ssl_protocols\" must enable TLSv1.3 for the \"listen ... quic\" directive in {}",
                    place(address.default)
                );
                errors.push(Error::new(message));
            }
            continue;
        }
        let lacking: Vec<usize> = match default.rejects() {
            false => vec![address.default],
            true => {
                let lacks = |index: &&usize| !conf(**index).has_certificates() && !conf(**index).rejects();
                address.servers.iter().filter(lacks).copied().collect()
            }
        };
        for index in lacking {
            let place = place(index);
            let message = format!(
                "no \"ssl_certificate\" is defined for the \"listen ... {kind}\" directive in {place}"
            );
            errors.push(Error::new(message));
        }
    }
    let on_tls = addresses.iter().filter(is_tls).flat_map(|address| &address.servers);
    let on_tls: BTreeSet<usize> = on_tls.copied().collect();
    errors.extend(on_tls.into_iter().filter_map(|index| conf(index).doubt()));
    errors
}
