//! What a server with TLS has at run time; shared by all workers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_tls::suites;
use weir_tls::{Certificate, Effort, ServerConfig, ServerSettings, SessionCache, TicketKeys, Trust, facts};

use super::cache::Cache;
use super::files::{self, BUILDING};
use super::ocsp::clients::Clients;
use super::ocsp::stapling::{Stapling, Wanted};
use super::settings::{Cache as Sessions, KeyPolicy, Ocsp, SslConf, Verify};
use super::shared;
use crate::variable::Script;

/// A virtual server's side of handshakes.
#[derive(Debug)]
pub struct ServerTls {
    /// `None`: there are no certificates, and handshakes are rejected.
    pub(super) config: Option<ServerConfig>,
    /// The same where connections may be HTTP/2.
    pub(super) http2: Option<ServerConfig>,
    /// `ssl_reject_handshake`
    pub(super) rejects: bool,
    /// Names with variables: the certificates of each handshake are others.
    pub(super) computed: Vec<(Script, Script)>,
    /// Those beside them.
    pub(super) fixed: Vec<Certificate>,
    pub(super) passwords: Arc<Vec<Vec<u8>>>,
    /// Those with computed names that were read.
    pub(super) kept: Cache,
    /// Where relative names begin.
    pub(super) conf_prefix: PathBuf,
    /// What issuers say of the certificates, where they are asked.
    pub(super) stapling: Option<Arc<Stapling>>,
    /// How issuers are asked about clients' certificates, if they are.
    pub(super) clients: Option<Clients>,
    /// `ssl_buffer_size`: bytes of a record.
    pub(super) record: u64,
    /// Where keys are used; else by what they take.
    policy: Option<KeyPolicy>,
    /// `ssl_verify_client`
    pub verify: Verify,
    /// `ssl_verify_depth`
    pub depth: usize,
    /// Whom clients' certificates must come from.
    pub trust: Trust,
}

impl ServerTls {
    /// Where the keys of `config` are used.
    pub(super) fn effort(&self, config: &ServerConfig) -> Effort {
        match (self.policy, config.effort()) {
            // A device is waited for whatever is wanted: that may take any time.
            (_, Effort::Device) => Effort::Device,
            (Some(KeyPolicy::Inline), _) => Effort::Short,
            (Some(KeyPolicy::Pool), _) => Effort::Long,
            (None, effort) => effort,
        }
    }
}

/// Puts a [`ServerTls`] together.
pub(super) struct Build;

impl Build {
    /// # Errors
    /// What is wrong with the files, in nginx's words.
    #[allow(clippy::new_ret_no_self, reason = "there is one step")]
    pub(super) fn new(
        conf: &SslConf,
        conf_prefix: &Path,
        warn: &mut dyn FnMut(String),
    ) -> Result<ServerTls, String> {
        let passwords = Arc::new(conf.passwords()?);
        let (fixed, computed) = certificates(conf, &passwords)?;
        let trust = trust(conf)?;
        if conf.stapling == Some(true) && !computed.is_empty() {
            warn("\"ssl_stapling\" ignored for certificates with variables in their names".to_owned());
        }
        let stapling = stapling(conf, &fixed, &trust, warn);
        let fixed: Vec<Certificate> = fixed.into_iter().map(|(certificate, _)| certificate).collect();
        let verify = conf.verify.unwrap_or(Verify::Off);
        let config = match fixed.is_empty() && computed.is_empty() {
            true => None,
            false => {
                let settings = settings(conf, &fixed)?;
                Some(ServerConfig::new(&settings, fixed.clone()).map_err(|error| error.to_string())?)
            }
        };
        let http2 = config.as_ref().map(ServerConfig::with_http2);
        let rejects = conf.rejects();
        let depth = conf.verify_depth.unwrap_or(1);
        let conf_prefix = conf_prefix.to_path_buf();
        Ok(ServerTls {
            config,
            http2,
            rejects,
            computed,
            fixed,
            passwords,
            kept: Cache::new(conf.certificate_cache.flatten()),
            conf_prefix,
            stapling: stapling.map(Arc::new),
            clients: clients(conf),
            record: conf.buffer_size.unwrap_or(RECORD),
            policy: conf.key_policy,
            verify,
            depth,
            trust,
        })
    }
}

/// Those that are known, each with its file, and those whose names are computed.
type Certificates = (Vec<(Certificate, String)>, Vec<(Script, Script)>);

fn certificates(conf: &SslConf, passwords: &[Vec<u8>]) -> Result<Certificates, String> {
    let (mut fixed, mut computed) = (Vec::new(), Vec::new());
    let ocsp = match (&conf.stapling_file, conf.stapling) {
        (Some(path), Some(true)) => Some(BUILDING(path).map_err(|error| {
            format!("BIO_new_file(\"{}\") failed {}", path.display(), super::cannot_open(path, &error))
        })?),
        _ => None,
    };
    let keys = conf.keys.as_deref().unwrap_or_default();
    for ((certificate, name), (key, key_name)) in conf.certificates.iter().flatten().zip(keys) {
        if certificate.constant().is_some() && key.constant().is_some() {
            let new = files::certificate(BUILDING, name, key_name, passwords, ocsp.clone())?;
            // As for OpenSSL: of several of one kind the last counts.
            fixed.retain(|(it, _): &(Certificate, String)| it.key().algorithm() != new.key().algorithm());
            fixed.push((new, name.clone()));
        } else {
            computed.push((certificate.clone(), key.clone()));
        }
    }
    Ok((fixed, computed))
}

/// Fetched stapling; where there is a file, that is stapled.
fn stapling(
    conf: &SslConf,
    fixed: &[(Certificate, String)],
    trust: &Trust,
    warn: &mut dyn FnMut(String),
) -> Option<Stapling> {
    if conf.stapling != Some(true) || conf.stapling_file.is_some() {
        return None;
    }
    let wanted = Wanted {
        responder: conf.stapling_responder.as_deref().filter(|url| !url.is_empty()),
        verify: conf.stapling_verify.unwrap_or(false),
        trusted: &trust.certificates,
    };
    Stapling::new(fixed, &wanted, warn)
}

fn clients(conf: &SslConf) -> Option<Clients> {
    conf.asks_issuers().then(|| Clients {
        leaf: conf.ocsp == Some(Ocsp::Leaf),
        responder: conf.ocsp_responder.clone(),
        cache: conf.ocsp_cache.iter().flatten().next().map(|(name, bytes)| shared::answers(name, *bytes)),
    })
}

fn trust(conf: &SslConf) -> Result<Trust, String> {
    let mut trust = Trust::default();
    for path in conf.client_certificate.iter().chain(&conf.trusted_certificate) {
        trust.certificates.extend(files::trusted(BUILDING, path)?);
    }
    if let Some(path) = &conf.crl {
        trust.crls = files::crls(BUILDING, path)?;
    }
    Ok(trust)
}

fn settings(conf: &SslConf, certificates: &[Certificate]) -> Result<ServerSettings, String> {
    let text = |error: weir_tls::Error| error.to_string();
    let list = suites::chosen(conf.ciphers.as_deref(), conf.ciphersuites.as_deref()).map_err(text)?;
    let groups = conf.curves.as_deref().map_or(Ok(suites::default_groups()), suites::select_groups);
    let asks = !matches!(conf.verify, None | Some(Verify::Off));
    let subjects = match &conf.client_certificate {
        Some(path) => {
            let mut subjects: Vec<Vec<u8>> = Vec::new();
            for subject in files::trusted(BUILDING, path)?.iter().filter_map(|der| facts::raw_subject(der)) {
                if !subjects.contains(&subject) {
                    subjects.push(subject);
                }
            }
            subjects
        }
        None => Vec::new(),
    };
    let early = conf.early_data.unwrap_or(false);
    let lifetime = conf.session_timeout.unwrap_or(300);
    let cache = match &conf.session_cache {
        Some(Sessions::Shared(name, bytes)) => Some(shared::cache(name, *bytes, lifetime)),
        Some(Sessions::Own(bytes)) => Some(Arc::new(SessionCache::new(*bytes, lifetime))),
        // Early data that was seen must not be taken again, so each session is kept here until it is used.
        Some(Sessions::None) | None if early => Some(Arc::new(SessionCache::new(1 << 20, lifetime))),
        Some(Sessions::None) | None => None,
    };
    let tickets = match conf.session_tickets.unwrap_or(true) && !early {
        true => {
            let context = context(conf, certificates, &subjects);
            Some(ticket_keys(conf, lifetime)?.tickets(&context, lifetime))
        }
        false => None,
    };
    Ok(ServerSettings {
        protocols: conf.protocols.unwrap_or_default(),
        suites: list,
        groups: groups.map_err(text)?,
        prefer_own_order: conf.prefer_server_ciphers.unwrap_or(false),
        alpn: vec![b"http/1.1".to_vec(), b"http/1.0".to_vec(), b"http/0.9".to_vec()],
        cache,
        tickets,
        compress: conf.compression.unwrap_or(false),
        early_data: if early { EARLY_DATA } else { 0 },
        client_subjects: asks.then_some(subjects),
    })
}

fn ticket_keys(conf: &SslConf, lifetime: u64) -> Result<TicketKeys, String> {
    let Some(paths) = &conf.ticket_keys else {
        return shared::ticket_keys(lifetime).map_err(|error| error.to_string());
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

/// What a session belongs to, as for nginx: the certificates, and whose clients' are taken.
fn context(conf: &SslConf, certificates: &[Certificate], subjects: &[Vec<u8>]) -> Vec<u8> {
    let mut context = b"HTTP".to_vec();
    let own = certificates.iter().filter_map(|it| it.chain().first()).map(|der| der.to_vec());
    for part in own.chain(subjects.iter().cloned()) {
        context.extend_from_slice(&(part.len() as u64).to_be_bytes());
        context.extend_from_slice(&part);
    }
    for (_, name) in conf.certificates.iter().flatten() {
        context.extend_from_slice(name.as_bytes());
    }
    context
}

/// nginx's default of `ssl_buffer_size`.
const RECORD: u64 = 16 * 1024;
/// nginx's OpenSSL takes as much.
const EARLY_DATA: u32 = 16 * 1024;
