//! What a server with TLS has at run time; shared by all workers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_tls::suites;
use weir_tls::{
    Certificate, KeyEffort, ServerConfig, ServerSessions, ServerSettings, SessionCache, TicketKeys, facts,
};

use super::clients::ClientTrust;
use super::ocsp::stapling::{OcspStapling, WantedStaple};
use super::settings::{ClientVerify, KeyPolicy, SessionCacheSetting as Sessions, SslConf, SslSettings};
use super::shared;
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::variable::ValueScript;
use weir_upstream::tls_client::cache::CertificateCache;
use weir_upstream::tls_client::commands::{TlsCommands, TlsSide};
use weir_upstream::tls_client::files::{self, BUILDING, KeyMaking};

/// A virtual server's side of handshakes.
#[derive(Debug)]
pub struct ServerTls {
    common: Arc<CommonTls>,
    /// Names with variables: the certificates of each handshake are others.
    pub(super) computed: Vec<(ValueScript, ValueScript)>,
    /// The certificates' names, as written.
    written: Box<[Arc<str>]>,
    /// Where keys are used; else by what they take.
    policy: Option<KeyPolicy>,
    current: Mutex<CurrentCertificates>,
}

/// What servers of the same settings share.
#[derive(Debug)]
pub(super) struct CommonTls {
    pub(super) settings: Arc<SslSettings>,
    /// Without certificates: for HTTP/1, and where connections may be HTTP/2.
    configs: [ServerConfig; 2],
    /// Keys of tickets; `None`: none are given out.
    tickets: Option<TicketKeys>,
    /// Where sessions are cached that are not in tickets.
    cache: Option<Arc<SessionCache>>,
    /// Names that are sent to clients, as encoded.
    subjects: Vec<Vec<u8>>,
    pub(super) passwords: Vec<Vec<u8>>,
    /// Those with computed names that were read.
    pub(super) kept: CertificateCache,
    /// `ssl_stapling_file`
    pub(super) ocsp: Option<Vec<u8>>,
    /// Whom clients' certificates must come from.
    pub(super) trust: Arc<ClientTrust>,
    /// Where relative names begin.
    pub(super) conf_prefix: PathBuf,
}

/// What handshakes use: for HTTP/1, and where connections may be HTTP/2.
pub(super) type TlsConfigs = Arc<[ServerConfig; 2]>;

/// The certificates in force.
#[derive(Debug, Default)]
pub(super) struct CurrentCertificates {
    pub(super) fixed: Vec<FixedCertificates>,
    /// Made for the first handshake: most of very many servers wait for theirs.
    pub(super) configs: Option<TlsConfigs>,
    /// What issuers say of the certificates, where they are asked.
    pub(super) stapling: Option<Arc<OcspStapling>>,
}

/// A certificate that is the same for all handshakes, and its name.
#[derive(Clone, Debug)]
pub(super) struct FixedCertificates {
    pub(super) certificate: Certificate,
    /// As written; one that was replaced keeps it.
    pub(super) name: Arc<str>,
    pub(super) replaced: bool,
}

/// What handshakes use.
pub(super) struct HandshakeConfigs {
    /// For HTTP/1, and where connections may be HTTP/2.
    pub(super) configs: TlsConfigs,
    /// The status of the certificates, where it is sent.
    pub(super) stapling: Option<Arc<OcspStapling>>,
}

impl ServerTls {
    /// What it shares with others.
    pub(super) fn common(&self) -> &CommonTls {
        &self.common
    }

    /// Handshakes can be completed.
    pub(super) fn has_certificates(&self) -> bool {
        !self.written.is_empty()
    }

    /// Handshakes are refused (`ssl_reject_handshake`).
    pub(super) fn rejects(&self) -> bool {
        self.common.settings.reject_handshake.unwrap_or(false)
    }

    /// Whom clients' certificates must come from.
    pub(super) fn trust(&self) -> &Arc<ClientTrust> {
        &self.common.trust
    }

    /// Clients are asked for certificates.
    pub(super) fn asks_clients(&self) -> bool {
        !matches!(self.common.settings.verify, None | Some(ClientVerify::Off))
    }

    /// For how long the handshake of a session may take, in milliseconds.
    pub(super) fn handshake_timeout(&self) -> u64 {
        self.common.settings.handshake_timeout.unwrap_or(HANDSHAKE_TIMEOUT)
    }

    /// `ssl_buffer_size`: bytes of a record.
    pub(super) fn record(&self) -> u64 {
        self.common.settings.buffer_size.unwrap_or(RECORD)
    }

    /// The certificates that are not computed.
    pub(super) fn fixed(&self) -> Vec<Certificate> {
        self.current().fixed.iter().map(|it| it.certificate.clone()).collect()
    }

    /// What handshakes use, for HTTP/1 and where connections may be HTTP/2; `None`: there are no certificates, and
    /// handshakes are refused.
    pub(super) fn configs(&self) -> Option<HandshakeConfigs> {
        let mut current = self.current();
        let CurrentCertificates { fixed, configs, stapling } = &mut *current;
        if !self.has_certificates() {
            return None;
        }
        let configs = configs.get_or_insert_with(|| {
            let context = self.context(fixed, &[]);
            let certificates: Vec<Certificate> = fixed.iter().map(|it| it.certificate.clone()).collect();
            Arc::new(
                self.common.configs.each_ref().map(|it| self.common.with(it, certificates.clone(), &context)),
            )
        });
        Some(HandshakeConfigs { configs: configs.clone(), stapling: stapling.clone() })
    }

    /// `config` with certificates whose names were computed, beside those that are fixed. Its sessions are theirs.
    pub(super) fn with_computed(&self, config: &ServerConfig, loaded: Vec<Certificate>) -> ServerConfig {
        let current = self.current();
        let context = self.context(&current.fixed, &loaded);
        let fixed = current.fixed.iter().map(|it| it.certificate.clone());
        self.common.with(config, loaded.into_iter().chain(fixed).collect(), &context)
    }

    /// What a session belongs to, as for nginx: the certificates, and whose clients' are taken. What clients are asked for
    /// is beyond nginx.
    fn context(&self, fixed: &[FixedCertificates], computed: &[Certificate]) -> Vec<u8> {
        let protocol = if self.common.settings.alpn.is_some() { "STREAM" } else { "HTTP" };
        let mut context = format!("{protocol} {:?} ", self.common.settings.verify).into_bytes();
        let own = fixed.iter().map(|it| &it.certificate).chain(computed);
        let own = own.filter_map(|it| it.chain().first()).map(|der| der.as_ref());
        for part in own.chain(self.common.subjects.iter().map(Vec::as_slice)) {
            context.extend_from_slice(&(part.len() as u64).to_be_bytes());
            context.extend_from_slice(part);
        }
        for name in &self.written {
            context.extend_from_slice(name.as_bytes());
        }
        context
    }

    /// What is offered, without certificates.
    pub(super) fn plain(&self) -> &ServerConfig {
        &self.common.configs[0]
    }

    /// Where the keys of `config` are used.
    pub(super) fn effort(&self, config: &ServerConfig) -> KeyEffort {
        match (self.policy, config.effort()) {
            // A device is waited for whatever is wanted: that may take any time.
            (_, KeyEffort::Device) => KeyEffort::Device,
            (Some(KeyPolicy::Inline), _) => KeyEffort::Short,
            (Some(KeyPolicy::Pool), _) => KeyEffort::Long,
            (None, effort) => effort,
        }
    }

    pub(super) fn current(&self) -> MutexGuard<'_, CurrentCertificates> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommonTls {
    fn new(
        settings: &Arc<SslSettings>,
        trust: Arc<ClientTrust>,
        conf_prefix: &Path,
    ) -> Result<CommonTls, String> {
        let conf = &**settings;
        let subjects = subjects(conf)?;
        let commands = conf.commands.as_ref();
        let wanted =
            commands.and_then(|commands| commands.session_tickets).or(conf.session_tickets).unwrap_or(true);
        let tickets = match wanted && !conf.early_data.unwrap_or(false) {
            true => Some(ticket_keys(conf)?),
            false => None,
        };
        let offered = offered(conf, tickets.as_ref(), &subjects)?;
        let plain = ServerConfig::new(&offered, Vec::new()).map_err(|error| error.to_string())?;
        let http2 = plain.with_http2();
        let ocsp = match (&conf.stapling_file, conf.stapling) {
            (Some(path), Some(true)) => Some(BUILDING(path).map_err(|error| {
                format!("BIO_new_file(\"{}\") failed {}", path.display(), files::cannot_open(path, &error))
            })?),
            _ => None,
        };
        Ok(CommonTls {
            settings: settings.clone(),
            configs: [plain, http2],
            tickets,
            cache: offered.cache,
            subjects,
            passwords: conf.passwords()?,
            kept: CertificateCache::new(conf.certificate_cache.flatten()),
            ocsp,
            trust,
            conf_prefix: conf_prefix.to_path_buf(),
        })
    }

    /// `config` with these certificates, and sessions that belong to `context`.
    fn with(&self, config: &ServerConfig, certificates: Vec<Certificate>, context: &[u8]) -> ServerConfig {
        let lifetime = lifetime(&self.settings);
        let tickets = self.tickets.as_ref().map(|keys| keys.tickets(context, lifetime));
        let sessions = self.cache.as_ref().map(|cache| ServerSessions::new(cache, context, lifetime));
        config.of_server(certificates, tickets, sessions)
    }

    /// Keys of tickets; `None`: none are given out.
    pub(super) fn ticket_keys(&self) -> Option<&TicketKeys> {
        self.tickets.as_ref()
    }

    /// Where sessions are cached that are not in tickets.
    pub(super) fn session_cache(&self) -> Option<&Arc<SessionCache>> {
        self.cache.as_ref()
    }

    /// Fetched stapling; where there is a file, that is stapled.
    pub(super) fn stapling(
        &self,
        fixed: &[FixedCertificates],
        warn: &mut dyn FnMut(String),
    ) -> Option<Arc<OcspStapling>> {
        let conf = &self.settings;
        if conf.stapling != Some(true) || conf.stapling_file.is_some() {
            return None;
        }
        let wanted = WantedStaple {
            responder: conf.stapling_responder.as_deref().filter(|url| !url.is_empty()),
            verify: conf.stapling_verify.unwrap_or(false),
            trusted: &self.trust.trust.certificates,
        };
        OcspStapling::new(fixed, &wanted, warn).map(Arc::new)
    }
}

/// What the servers of a configuration have read so far.
#[derive(Default)]
pub(super) struct KnownTls {
    commons: HashMap<Arc<SslSettings>, Arc<CommonTls>>,
    trusts: HashMap<Arc<SslSettings>, Arc<ClientTrust>>,
    keys: usize,
}

impl KnownTls {
    /// What servers with `settings` share.
    fn common(&mut self, settings: &SslSettings, conf_prefix: &Path) -> Result<Arc<CommonTls>, String> {
        if let Some(common) = self.commons.get(settings) {
            return Ok(common.clone());
        }
        let settings = Arc::new(settings.clone());
        let trust = self.trust(&settings)?;
        let common = Arc::new(CommonTls::new(&settings, trust, conf_prefix)?);
        // Sessions that are cached here are each server's own, unless the cache has a name.
        let own =
            matches!(settings.session_cache, Some(Sessions::Own(_))) || settings.early_data == Some(true);
        if !own {
            self.commons.insert(settings, common.clone());
        }
        Ok(common)
    }

    /// Whom servers with `settings` take clients' certificates from.
    pub(super) fn trust(&mut self, settings: &SslSettings) -> Result<Arc<ClientTrust>, String> {
        if let Some(trust) = self.trusts.get(settings) {
            return Ok(trust.clone());
        }
        let settings = Arc::new(settings.clone());
        let trust = Arc::new(ClientTrust::read(&settings)?);
        self.trusts.insert(settings, trust.clone());
        Ok(trust)
    }

    /// How the next key is to be made.
    fn making(&mut self) -> KeyMaking {
        self.keys += 1;
        if self.keys > AT_ONCE { KeyMaking::Late } else { KeyMaking::Now }
    }
}

/// Keys that are made when they are read, so that all that is wrong with them is reported then: a tenth of a second's
/// work.
const AT_ONCE: usize = 1000;

/// Puts a [`ServerTls`] together.
pub(super) struct ServerTlsBuild;

impl ServerTlsBuild {
    /// # Errors
    /// What is wrong with the files, in nginx's words.
    #[allow(clippy::new_ret_no_self, reason = "there is one step")]
    pub(super) fn new(
        conf: &SslConf,
        registry: &mut ConfRegistry,
        warn: &mut dyn FnMut(String),
    ) -> Result<ServerTls, String> {
        let prefix = registry.paths.conf_prefix.clone();
        let known = registry.shared::<KnownTls>();
        let common = known.common(conf.settings(), &prefix)?;
        let mut written = Vec::new();
        let (mut fixed, mut computed): (Vec<FixedCertificates>, Vec<(ValueScript, ValueScript)>) =
            Default::default();
        let keys = conf.keys.as_deref().unwrap_or_default();
        for ((certificate, name), (key, key_name)) in conf.certificates.iter().flatten().zip(keys) {
            let name: Arc<str> = Arc::from(&**name);
            written.push(name.clone());
            if certificate.constant().is_some() && key.constant().is_some() {
                let source = files::CertificateSource {
                    certificate: &name,
                    key: key_name,
                    passwords: &common.passwords,
                };
                let certificate = source.certificate(BUILDING, known.making(), common.ocsp.clone())?;
                // As for OpenSSL: of several of one kind the last counts.
                fixed.retain(|it| it.certificate.key().algorithm() != certificate.key().algorithm());
                fixed.push(FixedCertificates { certificate, name, replaced: false });
            } else {
                computed.push((certificate.clone(), key.clone()));
            }
        }
        let commands = common.settings.commands.as_ref().map_or(Ok(None), TlsCommands::certificate)?;
        if let Some((certificate, key)) = commands {
            let source = files::CertificateSource { certificate, key, passwords: &common.passwords };
            let replacing = source.certificate(BUILDING, known.making(), common.ocsp.clone())?;
            fixed.retain(|it| it.certificate.key().algorithm() != replacing.key().algorithm());
            fixed.push(FixedCertificates {
                certificate: replacing,
                name: Arc::from(certificate),
                replaced: false,
            });
        }
        if common.settings.stapling == Some(true) && !computed.is_empty() {
            warn("\"ssl_stapling\" ignored for certificates with variables in their names".to_owned());
        }
        // There may be a hundred thousand servers.
        fixed.shrink_to_fit();
        let stapling = common.stapling(&fixed, warn);
        Ok(ServerTls {
            common,
            computed,
            written: written.into(),
            policy: conf.key_policy,
            current: Mutex::new(CurrentCertificates { fixed, configs: None, stapling }),
        })
    }
}

/// The names of accepted issuers, which are sent to clients.
fn subjects(conf: &SslSettings) -> Result<Vec<Vec<u8>>, String> {
    let mut subjects: Vec<Vec<u8>> = Vec::new();
    if let Some(path) = &conf.client_certificate {
        for subject in files::trusted(BUILDING, path)?.iter().filter_map(|der| facts::raw_subject(der)) {
            if !subjects.contains(&subject) {
                subjects.push(subject);
            }
        }
    }
    Ok(subjects)
}

fn lifetime(conf: &SslSettings) -> u64 {
    conf.session_timeout.unwrap_or(300)
}

fn offered(
    conf: &SslSettings,
    tickets: Option<&TicketKeys>,
    subjects: &[Vec<u8>],
) -> Result<ServerSettings, String> {
    let text = |error: weir_tls::Error| error.to_string();
    let commands = conf.commands.clone().unwrap_or_default();
    let ciphers = commands.ciphers.as_ref().or(conf.ciphers.as_ref());
    let list = suites::chosen(ciphers.map(String::as_str), commands.ciphersuites.as_deref()).map_err(text)?;
    let groups = commands.groups.as_ref().or(conf.curves.as_ref());
    let groups = groups.map_or(Ok(suites::default_groups()), |list| suites::select_groups(list));
    let asks = !matches!(conf.verify, None | Some(ClientVerify::Off));
    let early = conf.early_data.unwrap_or(false);
    let lifetime = lifetime(conf);
    let cache = match &conf.session_cache {
        Some(Sessions::Shared(name, bytes)) => Some(shared::cache(name, *bytes, lifetime)),
        Some(Sessions::Own(bytes)) => Some(Arc::new(SessionCache::new(*bytes, lifetime))),
        // Early data that was seen must not be taken again, so each session is cached here until it is used.
        Some(Sessions::None) | None if early => Some(Arc::new(SessionCache::new(1 << 20, lifetime))),
        Some(Sessions::None) | None => None,
    };
    Ok(ServerSettings {
        protocols: commands.protocols(conf.protocols)?,
        suites: list,
        groups: groups.map_err(text)?,
        prefer_own_order: commands.server_preference.or(conf.prefer_server_ciphers).unwrap_or(false),
        prioritize_chacha: commands.prioritize_chacha.unwrap_or(false),
        alpn: conf.alpn.clone().unwrap_or_else(|| HTTP_VERSIONS.map(<[u8]>::to_vec).to_vec()),
        cache,
        tickets: tickets.map(|keys| keys.tickets(&[], lifetime)),
        compress: conf.compression.unwrap_or(false),
        early_data: if early { EARLY_DATA } else { 0 },
        client_subjects: asks.then(|| subjects.to_vec()),
        signatures: commands.signatures(TlsSide::Server),
        tickets_sent: commands.tickets_sent,
    })
}

fn ticket_keys(conf: &SslSettings) -> Result<TicketKeys, String> {
    let Some(paths) = &conf.ticket_keys else {
        return shared::ticket_keys(lifetime(conf)).map_err(|error| error.to_string());
    };
    let mut keys = Vec::new();
    for path in paths {
        let key = BUILDING(path).map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(0);
            format!("open() \"{}\" failed ({errno}: {})", path.display(), weir_rt::file::errno_text(errno))
        })?;
        if !matches!(key.len(), 48 | 80) {
            return Err(format!("\"{}\" must be 48 or 80 bytes", path.display()));
        }
        keys.push(key);
    }
    TicketKeys::given(&keys).map_err(|error| error.to_string())
}

/// Versions of HTTP/1 by ALPN.
const HTTP_VERSIONS: [&[u8]; 3] = [b"http/1.1", b"http/1.0", b"http/0.9"];
/// `ssl_handshake_timeout`, in milliseconds.
pub(super) const HANDSHAKE_TIMEOUT: u64 = 60_000;
/// nginx's default of `ssl_buffer_size`.
const RECORD: u64 = 16 * 1024;
/// nginx's OpenSSL takes as much.
const EARLY_DATA: u32 = 16 * 1024;
