//! TLS to upstream servers: `proxy_ssl_...` and what others call the same.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_conf::{Error, LineCx, Result};
use weir_tls::chain::{self, CertificatePurpose};
use weir_tls::suites::{self, ProtocolVersions};
use weir_tls::{
    Certificate, ClientConfig, ClientSettings, KeyLogFile, SessionFacts, SignatureLimits, TrustStore,
    VerifyProblem,
};

use super::cache::{CertificateCache, CertificateCacheLimits, CertificateFiles};
use super::commands::{TlsCommands, TlsSide};
use super::files::{self, BUILDING, CertificateSource, KeyMaking};

use super::overrides::{self, TlsOverrides};
use super::toward::ShownCertificate;
use super::values::{self, absolute};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::exchange::Exchange;
use weir_engine::inherit;
use weir_engine::variable::ValueScript;

/// The settings of one block as written, but for their prefix; `None` where the directive is absent.
#[derive(Clone, Default)]
#[allow(missing_docs, reason = "each is the directive of the same name behind _ssl_")]
pub struct ClientConf {
    pub session_reuse: Option<bool>,
    pub protocols: Option<ProtocolVersions>,
    pub ciphers: Option<String>,
    pub name: Option<ValueScript>,
    pub server_name: Option<bool>,
    pub verify: Option<bool>,
    pub verify_depth: Option<usize>,
    pub trusted_certificate: Option<PathBuf>,
    pub crl: Option<PathBuf>,
    certificate: Option<(ValueScript, String)>,
    certificate_key: Option<(ValueScript, String)>,
    pub password_file: Option<PathBuf>,
    certificate_cache: Option<Option<CertificateCacheLimits>>,
    /// `_ssl_conf_command`
    commands: Option<TlsCommands>,
    /// True when servers are offered HTTP/2 (ALPN).
    pub http2: bool,
    /// `_ssl_key_log`: the path of the file of secrets.
    pub key_log: Option<PathBuf>,
    resolved: Option<Arc<ClientTls>>,
}

impl ClientConf {
    /// Takes from the block around what is not set.
    pub fn inherit(&mut self, parent: &ClientConf) {
        inherit!(self, parent, session_reuse, protocols, ciphers, name, server_name, verify, verify_depth);
        inherit!(self, parent, trusted_certificate, crl, certificate, certificate_key, password_file);
        inherit!(self, parent, certificate_cache, commands, key_log);
    }

    /// Reads the files of a block whose servers speak TLS. `prefix`: `proxy`.
    ///
    /// # Errors
    /// What is wrong, in nginx's words.
    pub fn resolve(&mut self, prefix: &str, registry: &ConfRegistry) -> Result {
        let verifies = self.commands.as_ref().is_some_and(|commands| commands.verifies_peer);
        if verifies && self.verify != Some(true) {
            let message =
                format!("\"{prefix}_ssl_conf_command VerifyMode Peer\" needs \"{prefix}_ssl_verify on\"");
            return Err(Error::new(message));
        }
        let conf_prefix = registry.paths.conf_prefix.clone();
        let tls = ClientTls::new(self, prefix, conf_prefix).map_err(Error::new)?;
        self.resolved = Some(Arc::new(tls));
        Ok(())
    }

    /// What a block without any of the directives has: no authority is trusted.
    pub fn plain() -> Arc<ClientTls> {
        let conf = ClientConf { session_reuse: Some(false), ..ClientConf::default() };
        let tls = ClientTls::new(&conf, "", PathBuf::new());
        Arc::new(tls.expect("the suites that are chosen without directives are there"))
    }

    /// What [`ClientConf::resolve`] made; `None` if it did not run, as for a block whose servers do not speak TLS.
    pub fn tls(&self) -> Option<Arc<ClientTls>> {
        self.resolved.clone()
    }

    /// Sets `_ssl_protocols`.
    ///
    /// # Errors
    /// None of them can be had.
    pub fn set_protocols(&mut self, line: &mut LineCx<'_>) -> Result {
        values::protocols(&mut self.protocols, line)
    }

    /// Sets `_ssl_ciphers`.
    ///
    /// # Errors
    /// None is selected.
    pub fn set_ciphers(&mut self, line: &mut LineCx<'_>) -> Result {
        values::ciphers(&mut self.ciphers, line)
    }

    /// Sets `_ssl_name`.
    ///
    /// # Errors
    /// A wrong name of a variable.
    pub fn set_name(&mut self, line: &mut LineCx<'_>) -> Result {
        let name = ValueScript::compile(line, 0)?;
        line.once(&mut self.name, name)
    }

    /// Sets `_ssl_certificate`.
    ///
    /// # Errors
    /// As [`ClientConf::set_name`].
    pub fn set_certificate(&mut self, line: &mut LineCx<'_>) -> Result {
        let file = file(line)?;
        line.once(&mut self.certificate, file)
    }

    /// Sets `_ssl_certificate_key`.
    ///
    /// # Errors
    /// As [`ClientConf::set_name`].
    pub fn set_certificate_key(&mut self, line: &mut LineCx<'_>) -> Result {
        let file = file(line)?;
        line.once(&mut self.certificate_key, file)
    }

    /// Sets `_ssl_certificate_cache`.
    ///
    /// # Errors
    /// A parameter is wrong.
    pub fn set_certificate_cache(&mut self, line: &mut LineCx<'_>) -> Result {
        values::certificate_cache(&mut self.certificate_cache, line)
    }

    /// Sets `_ssl_conf_command`.
    ///
    /// # Errors
    /// There is no such command, or its value is wrong.
    pub fn set_conf_command(&mut self, line: &mut LineCx<'_>) -> Result {
        // With `VerifyMode Peer` and `_ssl_verify on` it is as if the handshake had failed: certificates are judged before a
        // byte is sent.
        self.commands.get_or_insert_default().add(TlsSide::Client, line)
    }
}

fn file(line: &mut LineCx<'_>) -> Result<(ValueScript, String)> {
    let name = if line.arg(0).contains('$') { line.arg(0).to_owned() } else { absolute(line, 0) };
    Ok((ValueScript::compile_text(line, 0, name.as_bytes())?, name))
}

/// How a location's servers are spoken to; shared by all workers.
#[derive(Debug)]
pub struct ClientTls {
    settings: ClientSettings,
    config: ClientConfig,
    name: Option<ValueScript>,
    /// The certificate's and the key's name, where they have variables.
    computed: Option<(ValueScript, ValueScript)>,
    /// Those that were read.
    kept: CertificateCache,
    passwords: Arc<Vec<Vec<u8>>>,
    conf_prefix: PathBuf,
    /// Whom servers' certificates must come from, and over how many others.
    verify: Option<(Arc<TrustStore>, usize)>,
    /// Names of hosts and URIs, separated by spaces, one of which a server's certificate may have instead of the own name.
    others: [Option<Arc<str>>; 2],
    /// A name that is an address may be one of the certificate's, which nginx does not look at.
    addresses: bool,
}

impl ClientTls {
    fn new(conf: &ClientConf, prefix: &str, conf_prefix: PathBuf) -> std::result::Result<ClientTls, String> {
        let text = |error: weir_tls::Error| error.to_string();
        let passwords = match &conf.password_file {
            Some(path) => files::passwords(BUILDING, path)?,
            None => Vec::new(),
        };
        let ClientCertificate { fixed, computed } = certificate(conf, prefix, &passwords)?;
        let commands = conf.commands.clone().unwrap_or_default();
        let ciphers = commands.ciphers.as_ref().or(conf.ciphers.as_ref());
        let list =
            suites::chosen(ciphers.map(String::as_str), commands.ciphersuites.as_deref()).map_err(text)?;
        let groups = commands.groups.as_deref().map_or(Ok(suites::default_groups()), suites::select_groups);
        let settings = ClientSettings {
            protocols: commands.protocols(conf.protocols)?,
            suites: list,
            groups: groups.map_err(text)?,
            certificate: fixed,
            alpn: if conf.http2 { vec![b"h2".to_vec()] } else { Vec::new() },
            tell_name: conf.server_name.unwrap_or(false),
            sessions: if conf.session_reuse.unwrap_or(true) { SESSIONS } else { 0 },
            key_log: conf.key_log.clone().map(|path| Arc::new(KeyLogFile::new(path))),
            signatures: commands.signatures(TlsSide::Client),
            session_tickets: commands.session_tickets.unwrap_or(true),
        };
        let config = ClientConfig::new(&settings).map_err(text)?;
        Ok(ClientTls {
            settings,
            config,
            name: conf.name.clone(),
            computed,
            kept: CertificateCache::new(conf.certificate_cache.flatten()),
            passwords: Arc::new(passwords),
            conf_prefix,
            verify: verify(conf, prefix)?,
            others: [None, None],
            addresses: false,
        })
    }

    /// What is offered; without sessions of its own where those are not reused.
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// The settings with another client certificate.
    ///
    /// # Errors
    /// The certificate and the settings don't fit together.
    pub fn config_with(&self, certificate: Certificate) -> std::result::Result<ClientConfig, String> {
        let settings = ClientSettings { certificate: Some(certificate), ..self.settings.clone() };
        ClientConfig::new(&settings).map_err(|error| error.to_string())
    }

    /// As it is where these protocols are offered (ALPN).
    ///
    /// # Panics
    /// Never: what was a good configuration is one with other protocols.
    #[must_use]
    pub fn offering(&self, protocols: Vec<Vec<u8>>) -> ClientTls {
        let settings = ClientSettings { alpn: protocols, ..self.settings.clone() };
        let config = ClientConfig::new(&settings).expect("the rest was accepted before");
        let others = self.others.clone();
        ClientTls {
            settings,
            config,
            name: self.name.clone(),
            computed: self.computed.clone(),
            kept: CertificateCache::new(None),
            passwords: self.passwords.clone(),
            conf_prefix: self.conf_prefix.clone(),
            verify: self.verify.clone(),
            others,
            addresses: self.addresses,
        }
    }

    /// As it is where a script has these wishes.
    ///
    /// # Errors
    /// The certificate and the settings don't fit together.
    pub(super) fn with(&self, overrides: &TlsOverrides) -> std::result::Result<ClientTls, String> {
        let TlsOverrides { certificate, trust, verify, depth, hosts, uris, plain: _ } = overrides;
        let (own, around) = match &self.verify {
            Some((trust, depth)) => (Some(trust.clone()), *depth),
            None => (None, DEEPEST),
        };
        // As in nginx nobody is trusted where nobody is named.
        let verify = verify.unwrap_or(self.verify.is_some()).then(|| {
            let trust = trust.clone().or(own).unwrap_or_default();
            (trust, depth.unwrap_or(around))
        });
        let (settings, config) = match certificate {
            None => (self.settings.clone(), self.config.clone()),
            Some(certificate) => {
                let certificate = Some(certificate.clone());
                let settings = ClientSettings { certificate, ..self.settings.clone() };
                let config = ClientConfig::new(&settings).map_err(|error| error.to_string())?;
                (settings, config)
            }
        };
        Ok(ClientTls {
            settings,
            config,
            name: self.name.clone(),
            computed: self.computed.clone().filter(|_| certificate.is_none()),
            kept: CertificateCache::new(None),
            passwords: self.passwords.clone(),
            conf_prefix: self.conf_prefix.clone(),
            verify,
            others: [hosts.clone(), uris.clone()],
            addresses: self.addresses,
        })
    }

    /// What went wrong with the file of secrets (`lua_ssl_key_log`), in nginx's words. `None` if nothing did, if an
    /// earlier call has returned it, or if there is no such file.
    pub fn take_key_log_error(&self) -> Option<String> {
        self.settings.key_log.as_ref()?.take_error()
    }

    /// The authorities that servers' certificates must come from, and how many certificates a chain may have between
    /// them (`*_ssl_verify_depth`); `None` where servers are not verified (`*_ssl_verify off`).
    pub fn trust(&self) -> Option<(&TrustStore, usize)> {
        self.verify.as_ref().map(|(trust, depth)| (&**trust, *depth))
    }

    /// What a connection for `x` needs; `host`: the name and perhaps port that the server is known by.
    pub fn secure(self: &Arc<Self>, x: &mut Exchange, host: &str) -> SecureUpstream {
        let mut value = |script: &ValueScript| {
            let value = script.value(x);
            String::from_utf8_lossy(x.text(&value)).into_owned()
        };
        let name = self.name.as_ref().map_or_else(|| host.to_owned(), &mut value);
        let files = self.computed.as_ref().map(|(certificate, key)| (value(certificate), value(key)));
        let tls = overrides::of(self, x);
        let files = files.filter(|_| tls.computed.is_some());
        SecureUpstream { tls, name: without_port(&name).to_owned(), files, chosen: None }
    }
}

impl ClientTls {
    /// Whether the certificate has one of the other names.
    fn is_other(&self, certificate: &[u8]) -> bool {
        let any = |names: &Option<Arc<str>>, fits: fn(&[u8], &str) -> bool| {
            names.as_deref().is_some_and(|names| names.split(' ').any(|name| fits(certificate, name)))
        };
        let [hosts, uris] = &self.others;
        any(hosts, weir_tls::matches_host) || any(uris, weir_tls::matches_uri)
    }
}

/// The certificate of a client of servers; it has one of the two, or none.
#[derive(Default)]
struct ClientCertificate {
    /// Read already.
    fixed: Option<Certificate>,
    /// Its name and its key's, which have variables.
    computed: Option<(ValueScript, ValueScript)>,
}

fn certificate(
    conf: &ClientConf,
    prefix: &str,
    passwords: &[Vec<u8>],
) -> std::result::Result<ClientCertificate, String> {
    let commands = conf.commands.as_ref().map_or(Ok(None), TlsCommands::certificate)?;
    if let Some((certificate, key)) = commands {
        let source = CertificateSource { certificate, key, passwords };
        let fixed = source.certificate(BUILDING, KeyMaking::Now, None)?;
        return Ok(ClientCertificate { fixed: Some(fixed), computed: None });
    }
    let Some((certificate, name)) = conf.certificate.as_ref().filter(|(_, name)| !name.is_empty()) else {
        return Ok(ClientCertificate::default());
    };
    let Some((key, key_name)) = &conf.certificate_key else {
        return Err(format!("no \"{prefix}_ssl_certificate_key\" is defined for certificate \"{name}\""));
    };
    if certificate.constant().is_none() || key.constant().is_none() {
        let computed = Some((certificate.clone(), key.clone()));
        return Ok(ClientCertificate { fixed: None, computed });
    }
    let source = CertificateSource { certificate: name, key: key_name, passwords };
    let fixed = source.certificate(BUILDING, KeyMaking::Now, None)?;
    Ok(ClientCertificate { fixed: Some(fixed), computed: None })
}

fn verify(conf: &ClientConf, prefix: &str) -> std::result::Result<Option<(Arc<TrustStore>, usize)>, String> {
    if conf.verify != Some(true) {
        return Ok(None);
    }
    let Some(path) = &conf.trusted_certificate else {
        return Err(format!("no {prefix}_ssl_trusted_certificate for {prefix}_ssl_verify"));
    };
    let mut trust = TrustStore { certificates: files::trusted(BUILDING, path)?, crls: Vec::new() };
    if let Some(path) = &conf.crl {
        trust.crls = files::crls(BUILDING, path)?;
    }
    Ok(Some((Arc::new(trust), conf.verify_depth.unwrap_or(1))))
}

/// Certificates between a server's and a trusted one, where no directive says how many: OpenSSL's default.
const DEEPEST: usize = 100;
/// Names of hosts that sessions are cached for.
const SESSIONS: usize = 256;

/// nginx takes the port off, which `$proxy_host` and `$http_host` may have.
fn without_port(name: &str) -> &str {
    if let Some(inner) = name.strip_prefix('[') {
        return inner.split(']').next().unwrap_or(inner);
    }
    match name.split_once(':') {
        Some((host, port)) if !port.contains(':') => host,
        _ => name,
    }
}

/// The TLS of one connection to a server. Connections are shared among requests for which it is the same.
#[derive(Clone, Debug)]
pub struct SecureUpstream {
    tls: Arc<ClientTls>,
    name: String,
    /// The names of certificate and key, where they are computed.
    files: Option<(String, String)>,
    /// The name that a chooser knows the server by, where the location has another one for it.
    chosen: Option<Box<str>>,
}

impl PartialEq for SecureUpstream {
    fn eq(&self, other: &SecureUpstream) -> bool {
        Arc::ptr_eq(&self.tls, &other.tls)
            && self.name == other.name
            && self.files == other.files
            && self.chosen == other.chosen
    }
}

impl SecureUpstream {
    /// TLS that belongs to no location: the server is sent its name (SNI), and must have a certificate for it that
    /// comes from one of the file `trusted`, over however many others; without such a file any certificate is accepted.
    ///
    /// # Errors
    /// What is wrong with the file, in nginx's words.
    pub(crate) fn to(name: &str, trusted: Option<&Path>) -> std::result::Result<SecureUpstream, String> {
        let text = |error: weir_tls::Error| error.to_string();
        let settings = ClientSettings {
            protocols: ProtocolVersions::default(),
            suites: suites::chosen(None, None).map_err(text)?,
            groups: suites::default_groups(),
            certificate: None,
            alpn: Vec::new(),
            tell_name: true,
            sessions: 1,
            key_log: None,
            signatures: SignatureLimits::default(),
            session_tickets: true,
        };
        let verify = match trusted {
            Some(path) => {
                let trust = TrustStore { certificates: files::trusted(BUILDING, path)?, crls: Vec::new() };
                Some((Arc::new(trust), DEEPEST))
            }
            None => None,
        };
        let tls = ClientTls {
            config: ClientConfig::new(&settings).map_err(text)?,
            settings,
            name: None,
            computed: None,
            kept: CertificateCache::new(None),
            passwords: Arc::default(),
            conf_prefix: PathBuf::new(),
            verify,
            others: [None, None],
            addresses: true,
        };
        Ok(SecureUpstream { tls: Arc::new(tls), name: name.to_owned(), files: None, chosen: None })
    }

    /// Gives the server another name. As in OpenResty the location's `_ssl_name` goes before it: then connections are shared by
    /// those alone that give the same name.
    pub(crate) fn rename(&mut self, name: &str) {
        match &self.tls.name {
            Some(_) => self.chosen = Some(name.into()),
            None => self.name = without_port(name).to_owned(),
        }
    }

    /// The name that the server is sent (SNI) and must have.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What the handshake uses; files with computed names are read by a pool thread.
    ///
    /// # Errors
    /// What is wrong with the files, in nginx's words.
    pub(crate) async fn config(&self) -> std::result::Result<ClientConfig, String> {
        let Some((certificate, key)) = self.files.clone().filter(|(certificate, _)| !certificate.is_empty())
        else {
            return Ok(self.tls.config.clone());
        };
        let tls = self.tls.clone();
        weir_rt::blocking(move || {
            let path = |name: String| match files::is_no_path(&name) {
                true => name,
                false => tls.conf_prefix.join(name).to_string_lossy().into_owned(),
            };
            let files = CertificateFiles { certificate: path(certificate), key: path(key) };
            let certificate = tls.kept.certificate(files, &tls.passwords)?;
            // Sessions of one certificate are not another's.
            let settings =
                ClientSettings { certificate: Some(certificate), sessions: 0, ..tls.settings.clone() };
            ClientConfig::new(&settings).map_err(|error| error.to_string())
        })
        .await
    }

    /// The version that is offered, if it is only one.
    pub(crate) fn only_version(&self) -> Option<&'static str> {
        match self.tls.settings.protocols {
            ProtocolVersions { tls12: true, tls13: false } => Some("TLSv1.2"),
            ProtocolVersions { tls12: false, tls13: true } => Some("TLSv1.3"),
            _ => None,
        }
    }

    /// As [`SecureUpstream::config`], with what a handler has chosen to be shown.
    ///
    /// # Errors
    /// As [`SecureUpstream::config`].
    pub(crate) async fn config_with(
        &self,
        shown: Option<ShownCertificate>,
    ) -> std::result::Result<ClientConfig, String> {
        let Some(ShownCertificate { certificates, .. }) =
            shown.filter(|shown| shown.cleared || !shown.certificates.is_empty())
        else {
            return self.config().await;
        };
        let certificate = certificates.into_iter().next_back();
        let settings = ClientSettings { certificate, sessions: 0, ..self.tls.settings.clone() };
        ClientConfig::new(&settings).map_err(|error| error.to_string())
    }

    /// What is to be thought of the server's certificate, were it looked at; no authority is trusted where none is
    /// named.
    ///
    /// # Errors
    /// OpenSSL's verdict.
    pub(crate) fn verdict(&self, facts: &SessionFacts) -> std::result::Result<(), VerifyProblem> {
        let now = weir_rt::unix_time().0;
        match &self.tls.verify {
            Some((trust, depth)) => chain::check(&facts.peer, trust, *depth, CertificatePurpose::Server, now),
            None => {
                chain::check(&facts.peer, &TrustStore::default(), DEEPEST, CertificatePurpose::Server, now)
            }
        }
    }

    /// Whether the server is the one that is meant.
    ///
    /// # Errors
    /// nginx's message.
    pub(crate) fn check(&self, facts: &SessionFacts) -> std::result::Result<(), String> {
        match &self.tls.verify {
            Some(_) => self.accept(facts, self.verdict(facts)),
            None => Ok(()),
        }
    }

    /// As [`SecureUpstream::check`], for a verdict that the caller has; it counts where verdicts do.
    ///
    /// # Errors
    /// nginx's message.
    pub(crate) fn accept(
        &self,
        facts: &SessionFacts,
        verdict: std::result::Result<(), VerifyProblem>,
    ) -> std::result::Result<(), String> {
        if self.tls.verify.is_none() {
            return Ok(());
        }
        if let Err(VerifyProblem { code, text }) = verdict {
            return Err(format!("upstream SSL certificate verify error: ({code}:{text})"));
        }
        match facts.peer.first() {
            Some(own) if weir_tls::matches_host(own, &self.name) => Ok(()),
            Some(own) if self.tls.addresses && is_for_address(own, &self.name) => Ok(()),
            Some(own) if self.tls.is_other(own) => Ok(()),
            _ => Err(format!("upstream SSL certificate does not match \"{}\"", self.name)),
        }
    }
}

fn is_for_address(certificate: &[u8], name: &str) -> bool {
    name.parse().is_ok_and(|ip| weir_tls::matches_address(certificate, ip))
}

#[cfg(test)]
mod tests {
    use super::without_port;

    #[test]
    fn names_lose_their_ports() {
        for (name, expected) in
            [("a:443", "a"), ("a", "a"), ("[::1]:443", "::1"), ("[::1]", "::1"), ("::1", "::1")]
        {
            assert_eq!(without_port(name), expected);
        }
    }
}
