//! Whom a server takes clients' certificates from.
//!
//! Each server judges by its own settings, also one that has no `ssl_certificate` of its own and completes handshakes with
//! the default server's. There is no absent policy: a server that names no authority trusts no client.

use std::sync::{Arc, OnceLock};

use weir_tls::TrustStore;

use super::ocsp::clients::ClientCertificateCheck as Issuers;
use super::settings::{ClientVerify, OcspMode, SslSettings};
use super::shared;
use weir_upstream::tls_client::files::{self, BUILDING};

/// What a server asks of clients' certificates.
#[derive(Clone, Debug)]
pub struct ClientPolicy {
    /// Whether clients are asked for certificates, and what a bad one means (`ssl_verify_client`).
    pub verify: ClientVerify,
    /// `ssl_verify_depth`: certificates a chain may have between the client's and a trusted one.
    pub depth: usize,
    /// Whom certificates must come from. Of a server that does not ask for any: whatever its directives name, if it has
    /// certificates of its own, else none.
    pub(super) trust: Arc<ClientTrust>,
}

impl ClientPolicy {
    /// No certificates are asked for.
    pub(crate) fn off() -> ClientPolicy {
        ClientPolicy { verify: ClientVerify::Off, depth: DEPTH, trust: ClientTrust::nobody() }
    }

    /// Clients are asked for certificates.
    pub fn asks(&self) -> bool {
        self.verify != ClientVerify::Off
    }
}

/// Whom certificates must come from, and what else is looked at; shared by servers of the same settings.
#[derive(Debug)]
pub(crate) struct ClientTrust {
    settings: Arc<SslSettings>,
    /// `ssl_client_certificate`, `ssl_trusted_certificate`, `ssl_crl`
    pub(super) trust: TrustStore,
    /// How issuers are asked about certificates, if they are (`ssl_ocsp`).
    pub(super) issuers: Option<Issuers>,
}

impl ClientTrust {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with them, in nginx's words.
    pub(super) fn read(settings: &Arc<SslSettings>) -> Result<ClientTrust, String> {
        Ok(ClientTrust { settings: settings.clone(), trust: trust(settings)?, issuers: issuers(settings) })
    }

    /// No client is trusted.
    pub(super) fn nobody() -> Arc<ClientTrust> {
        static NOBODY: OnceLock<Arc<ClientTrust>> = OnceLock::new();
        let nobody = || {
            let (settings, trust) = Default::default();
            Arc::new(ClientTrust { settings, trust, issuers: None })
        };
        NOBODY.get_or_init(nobody).clone()
    }

    /// `ssl_verify_depth`
    pub(super) fn depth(&self) -> usize {
        self.settings.verify_depth.unwrap_or(DEPTH)
    }

    /// Certificates are judged alike by both: it is the same, or was read from the same settings before a reload.
    pub(super) fn is_like(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other) || self.settings == other.settings
    }
}

/// nginx's default of `ssl_verify_depth`.
const DEPTH: usize = 1;

fn issuers(conf: &SslSettings) -> Option<Issuers> {
    conf.asks_issuers().then(|| Issuers {
        leaf: conf.ocsp == Some(OcspMode::Leaf),
        responder: conf.ocsp_responder.clone(),
        cache: conf.ocsp_cache.iter().flatten().next().map(|(name, bytes)| shared::answers(name, *bytes)),
    })
}

fn trust(conf: &SslSettings) -> Result<TrustStore, String> {
    let mut trust = TrustStore::default();
    for path in conf.client_certificate.iter().chain(&conf.trusted_certificate) {
        trust.certificates.extend(files::trusted(BUILDING, path)?);
    }
    if let Some(path) = &conf.crl {
        trust.crls = files::crls(BUILDING, path)?;
    }
    Ok(trust)
}
