//! The directives of TLS servers, as written.

pub(super) mod directives;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use weir_conf::{Error, Result, Span};
use weir_tls::suites::ProtocolVersions;

use super::clients::{ClientPolicy, ClientTrust};
use super::ocsp::OcspResponder;
use super::server::{KnownTls, ServerTls, ServerTlsBuild};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::inherit;
use weir_engine::variable::ValueScript;
use weir_upstream::tls_client::cache::CertificateCacheLimits;
use weir_upstream::tls_client::commands::TlsCommands;
use weir_upstream::tls_client::files::{self, BUILDING};

/// The settings of one block as written.
#[derive(Default)]
pub struct SslConf {
    /// The `server` word, set by the builder: only servers are resolved.
    pub(crate) span: Option<Span>,
    pub(super) certificates: Option<Vec<(ValueScript, String)>>,
    pub(super) keys: Option<Vec<(ValueScript, String)>>,
    /// Where the key is used; of one block's keys the last that says so counts.
    pub(super) key_policy: Option<KeyPolicy>,
    /// All others; `None`: nothing is said.
    settings: Option<Arc<SslSettings>>,
    dhparam: Option<PathBuf>,
    /// What handshakes use; of a server with certificates or `ssl_reject_handshake`.
    pub resolved: Option<Arc<ServerTls>>,
    /// Whom a server without certificates takes clients' certificates from, if it asks for them; or why that can't be
    /// known.
    trust: Option<std::result::Result<Arc<ClientTrust>, String>>,
}

/// What very many servers may have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SslSettings {
    pub(super) password_file: Option<PathBuf>,
    pub(super) protocols: Option<ProtocolVersions>,
    pub(super) ciphers: Option<String>,
    pub(super) curves: Option<String>,
    pub(super) prefer_server_ciphers: Option<bool>,
    pub(super) buffer_size: Option<u64>,
    pub(super) verify: Option<ClientVerify>,
    pub(super) verify_depth: Option<usize>,
    pub(super) client_certificate: Option<PathBuf>,
    pub(super) trusted_certificate: Option<PathBuf>,
    pub(super) crl: Option<PathBuf>,
    pub(super) session_cache: Option<SessionCacheSetting>,
    pub(super) session_tickets: Option<bool>,
    pub(super) ticket_keys: Option<Vec<PathBuf>>,
    pub(super) session_timeout: Option<u64>,
    pub(super) stapling: Option<bool>,
    pub(super) stapling_file: Option<PathBuf>,
    pub(super) stapling_responder: Option<String>,
    pub(super) stapling_verify: Option<bool>,
    pub(super) ocsp: Option<OcspMode>,
    pub(super) ocsp_responder: Option<OcspResponder>,
    /// Name and bytes; `None` inside: no cache.
    pub(super) ocsp_cache: Option<Option<(String, u64)>>,
    pub(super) early_data: Option<bool>,
    pub(super) reject_handshake: Option<bool>,
    pub(super) certificate_cache: Option<Option<CertificateCacheLimits>>,
    pub(super) compression: Option<bool>,
    /// `ssl_conf_command`
    pub(super) commands: Option<TlsCommands>,
    /// Protocols that clients must offer one of if they offer any; `None` in `http`, whose versions are offered.
    pub(super) alpn: Option<Vec<Vec<u8>>>,
    /// In milliseconds (`ssl_handshake_timeout`).
    pub(super) handshake_timeout: Option<u64>,
}

/// `ssl_verify_client`: whether clients are asked for certificates, and what a bad one means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientVerify {
    /// Clients are not asked.
    Off,
    /// Clients need a certificate that is trusted.
    On,
    /// Clients may have one; if they do, it must be trusted.
    Optional,
    /// Clients may have one; whether it is trusted is reported.
    OptionalNoCa,
}

/// `ssl_ocsp`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum OcspMode {
    /// No responder is asked about clients' certificates.
    Off,
    /// About all of the path but the trusted end.
    On,
    /// About the client's own only.
    Leaf,
}

/// Where a server's keys are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyPolicy {
    /// On the worker's own thread.
    Inline,
    /// On threads that give way to workers.
    Pool,
}

/// `ssl_session_cache`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum SessionCacheSetting {
    /// `off`, `none`: no sessions are cached here.
    None,
    /// `builtin`: this server's own, of this many bytes.
    Own(u64),
    /// `shared:name:size`
    Shared(String, u64),
}

impl SslConf {
    pub(super) fn inherit(&mut self, parent: &SslConf) {
        inherit!(self, parent, certificates, keys, key_policy);
        match (&mut self.settings, &parent.settings) {
            (Some(own), Some(parent)) => Arc::make_mut(own).inherit(parent),
            (Some(_), None) => {}
            (own, parent) => own.clone_from(parent),
        }
    }

    /// All but certificates and keys.
    pub(super) fn settings(&self) -> &SslSettings {
        static NONE: OnceLock<SslSettings> = OnceLock::new();
        self.settings.as_deref().unwrap_or_else(|| NONE.get_or_init(SslSettings::default))
    }

    pub(super) fn set(&mut self) -> &mut SslSettings {
        Arc::make_mut(self.settings.get_or_insert_default())
    }

    /// Whether handshakes can be completed.
    pub(super) fn has_certificates(&self) -> bool {
        self.certificates.is_some()
    }

    /// Whether TLS 1.3 is among the versions.
    pub(super) fn has_tls13(&self) -> bool {
        let settings = self.settings();
        let left = settings.commands.clone().unwrap_or_default().protocols(settings.protocols);
        left.is_ok_and(|left| left.tls13)
    }

    /// `ssl_verify_client`
    fn verify_client(&self) -> ClientVerify {
        self.settings().verify.unwrap_or(ClientVerify::Off)
    }

    /// What the server asks of clients' certificates.
    pub(crate) fn client_policy(&self) -> ClientPolicy {
        let off = ClientPolicy::off();
        let trust = match (&self.resolved, &self.trust) {
            (Some(resolved), _) => resolved.trust().clone(),
            (None, Some(Ok(trust))) => trust.clone(),
            (None, None | Some(Err(_))) => off.trust,
        };
        let depth = self.settings().verify_depth.unwrap_or(off.depth);
        ClientPolicy { verify: self.verify_client(), depth, trust }
    }

    /// What is wrong with a server on an address with TLS that asks for clients' certificates and has none itself.
    pub(super) fn doubt(&self) -> Option<Error> {
        let problem = match self.trust.as_ref()? {
            Err(message) => Error::new(message.clone()),
            Ok(_) if self.settings().lacks_authority() => Error::warning(format!(
                "{NO_AUTHORITY}: every certificate is refused, the default server's authorities are not this server's"
            )),
            Ok(_) => return None,
        };
        Some(match self.span {
            Some(span) => problem.at(span),
            None => problem,
        })
    }

    /// `ssl_reject_handshake`
    pub(super) fn rejects(&self) -> bool {
        self.settings().reject_handshake.unwrap_or(false)
    }

    pub(super) fn resolve(&mut self, registry: &mut ConfRegistry) -> Result {
        let Some(span) = self.span else { return Ok(()) };
        if registry.is_stream {
            self.set().alpn.get_or_insert_default();
        }
        if !self.has_certificates() && !self.rejects() {
            self.resolve_trust(registry);
            return Ok(());
        }
        let at = |message: String| Error::new(message).at(span);
        let keys = self.keys.as_deref().unwrap_or_default().len();
        if let Some((_, name)) = self.certificates.as_deref().unwrap_or_default().get(keys) {
            return Err(at(format!("no \"ssl_certificate_key\" is defined for certificate \"{name}\"")));
        }
        self.settings().check().map_err(|message| at(message.to_owned()))?;
        let mut warnings = Vec::new();
        let built = ServerTlsBuild::new(self, registry, &mut |why| warnings.push(why));
        registry.warnings.extend(warnings.into_iter().map(|why| Error::warning(why).at(span)));
        let built = built.map_err(at)?;
        for names in [&mut self.certificates, &mut self.keys] {
            names.iter_mut().for_each(Vec::shrink_to_fit);
        }
        self.settings = Some(built.common().settings.clone());
        self.resolved = Some(Arc::new(built));
        Ok(())
    }

    /// Handshakes are the default server's, but not its judgement. Whether the server is on an address with TLS is not
    /// known yet: what is wrong is said when it is ([`SslConf::doubt`]).
    fn resolve_trust(&mut self, registry: &mut ConfRegistry) {
        if self.verify_client() == ClientVerify::Off {
            return;
        }
        let read = match self.settings().check_issuers() {
            Ok(()) => registry.shared::<KnownTls>().trust(self.settings()),
            Err(message) => Err(message.to_owned()),
        };
        self.trust = Some(read);
    }
}

impl SslSettings {
    fn inherit(&mut self, parent: &SslSettings) {
        inherit!(
            self,
            parent,
            password_file,
            protocols,
            ciphers,
            curves,
            prefer_server_ciphers,
            buffer_size,
            verify,
            verify_depth,
            client_certificate,
            trusted_certificate,
            crl,
            session_cache,
            session_tickets,
            ticket_keys,
            session_timeout,
            stapling,
            stapling_file,
            stapling_responder,
            stapling_verify,
            ocsp,
            ocsp_responder,
            ocsp_cache,
            early_data,
            reject_handshake,
            certificate_cache,
            compression,
            commands,
            alpn,
            handshake_timeout
        );
    }

    /// What contradicts itself.
    fn check(&self) -> std::result::Result<(), &'static str> {
        if self.lacks_authority() {
            return Err(NO_AUTHORITY);
        }
        self.check_issuers()
    }

    /// Clients need a trusted certificate, but no authority is configured.
    fn lacks_authority(&self) -> bool {
        let asks = !matches!(self.verify, None | Some(ClientVerify::Off | ClientVerify::OptionalNoCa));
        asks && self.client_certificate.is_none() && self.trusted_certificate.is_none()
    }

    fn check_issuers(&self) -> std::result::Result<(), &'static str> {
        if self.asks_issuers() && self.verify == Some(ClientVerify::OptionalNoCa) {
            return Err("\"ssl_ocsp\" is incompatible with \"ssl_verify_client optional_no_ca\"");
        }
        Ok(())
    }

    /// `ssl_ocsp`
    pub(super) fn asks_issuers(&self) -> bool {
        !matches!(self.ocsp, None | Some(OcspMode::Off))
    }

    /// The passwords of keys.
    pub(super) fn passwords(&self) -> std::result::Result<Vec<Vec<u8>>, String> {
        self.password_file.as_ref().map_or(Ok(Vec::new()), |path| files::passwords(BUILDING, path))
    }
}

const NO_AUTHORITY: &str = "no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client";
