//! Certificates of servers in force, shown, and replaced without a reload. The next reload takes what is in the files.

use std::fmt;
use std::sync::Arc;

use weir_tls::{Certificate, certificate, facts, key};

use super::inventory::shown as shown_file;
use super::server::{CurrentCertificates, FixedCertificates, ServerTls};
use super::settings::SslConf;
use weir_engine::conf::server_core::ServerCoreConf;
use weir_engine::conf::{Configuration, ServerConf};
use weir_upstream::tls_client::files;

/// Why a certificate is not replaced.
#[derive(Debug, PartialEq, Eq)]
pub enum ReplaceRefusal {
    /// No server of that name speaks TLS with a certificate of its own.
    Unknown,
    /// Its certificates have variables in their names: they are those of each handshake.
    Computed,
    /// What is wrong with the certificate or the key.
    Wrong(String),
}

impl fmt::Display for ReplaceRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplaceRefusal::Unknown => f.write_str("no server of this name has a certificate"),
            ReplaceRefusal::Computed => f.write_str(
                "the certificates of this server have variables in their names: they change with their files",
            ),
            ReplaceRefusal::Wrong(why) => f.write_str(why),
        }
    }
}

/// A certificate in force.
pub struct ShownExpiry {
    /// As the configuration names it; of `data:` nothing more.
    pub file: String,
    /// The certificate itself, in DER.
    certificate: Vec<u8>,
    /// True when the certificate came by the admin listener and not from its file.
    pub replaced: bool,
}

impl ShownExpiry {
    /// What the certificate says, by names of our own; what can't be read is empty.
    pub fn facts(&self) -> [(&'static str, String); 5] {
        let der = &self.certificate;
        [
            ("subject", facts::subject(der).unwrap_or_default()),
            ("issuer", facts::issuer(der).unwrap_or_default()),
            ("serial", facts::serial(der).unwrap_or_default()),
            ("until", facts::valid_until(der).unwrap_or_default()),
            ("sha1", facts::fingerprint(der)),
        ]
    }
}

/// The certificates of the first server with `name` among its names, as written; `None`: there is no such server with
/// TLS.
pub fn shown(configuration: &Configuration, name: &str) -> Option<Vec<ShownExpiry>> {
    let tls = servers(configuration, name).next()?;
    let current = tls.current();
    let shown = current.fixed.iter().filter_map(|fixed| {
        let own = fixed.certificate.chain().first()?;
        Some(ShownExpiry {
            file: shown_file(&fixed.name),
            certificate: own.to_vec(),
            replaced: fixed.replaced,
        })
    });
    Some(shown.collect())
}

/// Gives all servers with `name` among their names this certificate: instead of one whose key is of the same kind (RSA,
/// ECDSA), else beside the others. `chain` and `key` are PEM; passwords are the server's. The next handshake of any worker
/// uses it.
///
/// # Errors
/// Nothing has changed.
pub fn replace(
    configuration: &Configuration,
    name: &str,
    chain: &str,
    key: &str,
) -> Result<(), ReplaceRefusal> {
    let wrong =
        |what: &str, error: weir_tls::Error| ReplaceRefusal::Wrong(format!("{what}: {}", files::ssl(&error)));
    let servers: Vec<&Arc<ServerTls>> = servers(configuration, name).collect();
    if servers.is_empty() {
        return Err(ReplaceRefusal::Unknown);
    }
    if servers.iter().any(|tls| !tls.computed.is_empty()) {
        return Err(ReplaceRefusal::Computed);
    }
    let chain = certificate::chain(chain.as_bytes()).map_err(|error| wrong("certificate", error))?;
    let mut made = Vec::new();
    for tls in &servers {
        let common = tls.common();
        let key = key::read(key.as_bytes(), &common.passwords).map_err(|error| wrong("key", error))?;
        let new = Certificate::new(chain.clone(), key, common.ocsp.clone());
        made.push(new.map_err(|error| wrong("key", error))?);
    }
    for (tls, certificate) in servers.into_iter().zip(made) {
        tls.take(certificate);
    }
    Ok(())
}

impl ServerTls {
    fn take(&self, certificate: Certificate) {
        let mut fixed = self.current().fixed.clone();
        let same = |it: &FixedCertificates| it.certificate.key().algorithm() == certificate.key().algorithm();
        let at = fixed.iter().position(same);
        let name =
            at.or(fixed.len().checked_sub(1)).map_or_else(|| Arc::from(""), |at| fixed[at].name.clone());
        let new = FixedCertificates { certificate, name, replaced: true };
        match at {
            Some(at) => fixed[at] = new,
            None => fixed.push(new),
        }
        // A certificate without a responder's address is given that way on purpose.
        let stapling = self.common().stapling(&fixed, &mut |_| {});
        *self.current() = CurrentCertificates { fixed, configs: None, stapling };
    }
}

/// The TLS of servers with `name` among their names that have certificates.
fn servers<'c>(configuration: &'c Configuration, name: &str) -> impl Iterator<Item = &'c Arc<ServerTls>> {
    let name = name.to_ascii_lowercase();
    let named = move |server: &&ServerConf| {
        let names = &server.confs.get::<ServerCoreConf>().written;
        names.iter().any(|(written, _)| *written == name.as_bytes())
    };
    let tls = |server: &'c ServerConf| server.confs.find::<SslConf>()?.resolved.as_ref();
    configuration.all_servers().filter(named).filter_map(tls).filter(|tls| tls.has_certificates())
}
