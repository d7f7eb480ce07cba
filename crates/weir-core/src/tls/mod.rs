//! TLS in the server: what is configured (nginx's `ngx_http_ssl_module`), how a connection begins ([`accept`]), what
//! requests are told of it.
//!
//! The protocol is `weir-tls`; here are its directives ([`settings`]), the files they name ([`files`]), the handshake on a
//! socket, and the layer that a connection keeps afterwards ([`layer`]).

pub(crate) mod accept;
pub(crate) mod accepted;
pub(crate) mod cache;
pub mod client;
mod clients;
mod command;
pub mod connect;
pub(crate) mod files;
mod hook;
pub(crate) mod layer;
mod ocsp;
pub mod replace;
mod server;
mod settings;
mod shared;
mod ssl;
mod state;
#[cfg(test)]
mod tests;
pub(crate) mod toward;
mod variables;

use std::collections::BTreeSet;
use std::path::Path;

use weir_conf::{Error, Source};
use weir_tls::Effort;

use crate::conf::ServerConf;
use crate::conf::listen::Address;
use crate::conf::server_core::ServerCoreConf;

pub use client::Secure;
pub use clients::ClientPolicy;
pub use files::device_certificate;
pub use hook::{Choice, Clients, Greeting, HelloHandler, HelloVerdict, Refusal};
pub use server::ServerTls;
pub use settings::{SslConf, Verify};
pub use ssl::Ssl;
pub use state::{Alpn, Tls};
pub use toward::{Met, Shown, UpstreamHandler};

/// Runs a step of a handshake whose key takes `effort`: here, or where nobody is held up by it.
pub(crate) async fn at<R: Send + 'static>(effort: Effort, step: impl FnOnce() -> R + Send + 'static) -> R {
    match effort {
        Effort::Short => step(),
        Effort::Long => weir_rt::computing(step).await,
        Effort::Device => weir_rt::asking_device(step).await,
    }
}

/// What is wrong with addresses that speak TLS: their servers need certificates. Where the default server has one, the
/// others may do without: then they use its.
pub(crate) fn check(addresses: &[Address], servers: &[ServerConf], source: &Source) -> Vec<Error> {
    let none = SslConf::default();
    let conf = |index: usize| servers[index].confs.find::<SslConf>().unwrap_or(&none);
    let mut errors = Vec::new();
    for address in addresses.iter().filter(|address| address.ssl) {
        let default = conf(address.default);
        if default.has_certificates() {
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
            let begin = servers[index].confs.get::<ServerCoreConf>().span.and_then(|span| source.place(span));
            let place =
                begin.map_or_else(String::new, |place| format!("{}:{}", place.path.display(), place.line));
            let message =
                format!("no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive in {place}");
            errors.push(Error::new(message));
        }
    }
    let on_tls = addresses.iter().filter(|address| address.ssl).flat_map(|address| &address.servers);
    let on_tls: BTreeSet<usize> = on_tls.copied().collect();
    errors.extend(on_tls.into_iter().filter_map(|index| conf(index).doubt()));
    errors
}

/// nginx's message for a file that can't be opened, in OpenSSL's words.
pub(crate) fn cannot_open(path: &Path, error: &std::io::Error) -> String {
    let Some(errno) = error.raw_os_error() else {
        return format!("(SSL: {error}: {})", path.display());
    };
    let (text, path) = (weir_rt::file::errno_text(errno), path.display());
    let end = if errno == 2 {
        " error:10000080:BIO routines::no such file"
    } else {
        " error:10080002:BIO routines::system lib"
    };
    format!(
        "(SSL: error:{:08X}:system library::{text}:calling fopen({path}, r){end})",
        0x8000_0000u32 | errno as u32
    )
}
