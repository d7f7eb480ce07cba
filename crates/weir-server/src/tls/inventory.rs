//! What handshakes are made with: the certificates of all servers, keys of tickets, caches of sessions. Nothing here is
//! secret.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use weir_conf::Span;
use weir_engine::conf::Configuration;
use weir_engine::conf::server_core::ServerCoreConf;
use weir_tls::{Certificate, KeyEffort, SessionCache, TicketKeyAge, TicketKeys, facts};

use super::ocsp::stapling::KnownStatus;
use super::server::ServerTls;
use super::settings::{SessionCacheSetting, SslConf};

/// A certificate in force.
#[derive(Clone, Debug)]
pub struct ServedCertificate {
    /// As the configuration names it; of `data:` nothing more, since a key may follow there.
    pub file: String,
    /// It and those after it.
    pub chain: Certificate,
    /// The `server` word of the first block that has it.
    pub server: Option<Span>,
    /// Names of the servers, as written, [`NAMES`] at most.
    pub names: Vec<String>,
    /// How many servers have it.
    pub servers: usize,
    /// It came by the admin listener and not from its file.
    pub replaced: bool,
    /// A name with variables led to it: it is one of those that are cached.
    pub computed: bool,
    /// What is stapled to it.
    pub staple: StapleState,
}

/// What issuers say of a certificate, given to clients with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StapleState {
    /// `ssl_stapling` is off, or there is no responder to ask.
    Off,
    /// From `ssl_stapling_file`.
    File,
    /// Nothing is known: nobody has asked yet, or the responder did not say it; then why.
    Absent(Option<String>),
    /// Stapled until then, seconds since 1970.
    Until(u64),
}

/// Some certificates, those first that end first, and how many there are.
#[derive(Clone, Debug, Default)]
pub struct ServedCertificates {
    /// Each with the first and the last second of its validity, since 1970.
    pub first: Vec<(i64, i64, ServedCertificate)>,
    /// All that were wanted.
    pub count: usize,
}

/// Certificates of all servers of `configuration` that are `wanted` by the first and the last second of their validity,
/// `most` of them. Equal ones are one, with the names of their servers. There may be a hundred thousand: of those that are
/// not among the first nothing is made.
pub fn certificates(
    configuration: &Configuration,
    wanted: impl Fn(i64, i64) -> bool,
    most: usize,
) -> ServedCertificates {
    let mut found: HashMap<u64, FoundCertificate> = HashMap::new();
    for (number, server) in configuration.all_servers().enumerate() {
        let Some(tls) = server.confs.find::<SslConf>().and_then(|conf| conf.resolved.as_ref()) else {
            continue;
        };
        for (at, fixed) in tls.current().fixed.iter().enumerate() {
            let Some(own) = fixed.certificate.chain().first() else { continue };
            let Some(validity) = facts::validity(own).filter(|&(from, until)| wanted(from, until)) else {
                continue;
            };
            let new = || FoundCertificate { validity, place: (number, at), servers: Vec::new(), count: 0 };
            found.entry(mark(&fixed.name, own)).or_insert_with(new).add(number);
        }
    }
    let mut all: Vec<FoundCertificate> = found.into_values().collect();
    let computed = computed(configuration, wanted);
    let count = all.len() + computed.len();
    all.sort_by_key(|it| (it.validity.1, it.place));
    all.truncate(most);
    let made = all.iter().filter_map(|it| Some((it.validity.0, it.validity.1, it.served(configuration)?)));
    let mut first: Vec<_> = made.chain(computed).collect();
    first.sort_by_key(|(_, until, _)| *until);
    first.truncate(most);
    ServedCertificates { first, count }
}

/// A certificate before it is described.
struct FoundCertificate {
    validity: (i64, i64),
    /// The first server, and its place there.
    place: (usize, usize),
    /// The first servers that have it.
    servers: Vec<usize>,
    count: usize,
}

impl FoundCertificate {
    fn add(&mut self, server: usize) {
        self.count += 1;
        if self.servers.len() < NAMES {
            self.servers.push(server);
        }
    }

    /// `None`: it was replaced meanwhile.
    fn served(&self, configuration: &Configuration) -> Option<ServedCertificate> {
        let server = configuration.all_servers().nth(self.place.0)?;
        let tls = server.confs.find::<SslConf>()?.resolved.as_ref()?;
        let staple = staple(tls, self.place.1);
        let fixed = tls.current().fixed.get(self.place.1)?.clone();
        let mut names: Vec<String> = Vec::new();
        for &number in &self.servers {
            let server = configuration.all_servers().nth(number)?;
            for (name, _) in &server.confs.get::<ServerCoreConf>().written {
                let name = String::from_utf8_lossy(name);
                if names.len() < NAMES && !names.iter().any(|known| *known == name) {
                    names.push(name.into_owned());
                }
            }
        }
        Some(ServedCertificate {
            file: shown(&fixed.name),
            chain: fixed.certificate,
            server: server.confs.get::<ServerCoreConf>().span,
            names,
            servers: self.count,
            replaced: fixed.replaced,
            computed: false,
            staple,
        })
    }
}

/// What distinguishes a certificate of a file from others: the end of it is a signature, which no two have in common.
fn mark(file: &str, certificate: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (file, certificate.len(), &certificate[certificate.len().saturating_sub(SIGNED)..]).hash(&mut hasher);
    hasher.finish()
}

/// Those of names with variables, as far as they are cached.
fn computed(
    configuration: &Configuration,
    wanted: impl Fn(i64, i64) -> bool,
) -> Vec<(i64, i64, ServedCertificate)> {
    let kept = commons(configuration).into_iter().flat_map(|tls| tls.common().kept.all());
    kept.filter_map(|(file, chain)| {
        let (from, until) = facts::validity(chain.chain().first()?)?;
        let served = ServedCertificate {
            file: shown(&file),
            chain,
            server: None,
            names: Vec::new(),
            servers: 0,
            replaced: false,
            computed: true,
            staple: StapleState::Off,
        };
        wanted(from, until).then_some((from, until, served))
    })
    .collect()
}

fn staple(tls: &ServerTls, at: usize) -> StapleState {
    if tls.common().ocsp.is_some() {
        return StapleState::File;
    }
    let stapling = tls.current().stapling.clone();
    match stapling.and_then(|stapling| stapling.known(at)) {
        None => StapleState::Off,
        Some(KnownStatus::Held { until }) => StapleState::Until(until),
        Some(KnownStatus::Absent { why }) => StapleState::Absent(why),
    }
}

/// What follows `data:` may be a key, too.
pub(super) fn shown(file: &str) -> String {
    if file.starts_with("data:") { "data:".to_owned() } else { file.to_owned() }
}

/// One server of each that share settings.
fn commons(configuration: &Configuration) -> Vec<&Arc<ServerTls>> {
    let mut seen = Vec::new();
    let tls = configuration.all_servers().filter_map(|server| {
        server.confs.find::<SslConf>()?.resolved.as_ref().filter(|tls| tls.has_certificates())
    });
    // Many servers in a row have the same.
    tls.filter(|tls| {
        let common = std::ptr::from_ref(tls.common());
        let new = seen.last() != Some(&common) && !seen.contains(&common);
        if new && seen.len() < COMMONS {
            seen.push(common);
        }
        new && seen.len() <= COMMONS
    })
    .collect()
}

/// Keys of tickets: their age, never themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketKeyUse {
    /// The names of the files; empty of those of the process.
    pub files: Vec<String>,
    /// How old they are.
    pub age: TicketKeyAge,
}

/// The keys of tickets that are used.
pub fn ticket_keys(configuration: &Configuration) -> Vec<TicketKeyUse> {
    let mut seen: Vec<&TicketKeys> = Vec::new();
    let mut all = Vec::new();
    for tls in commons(configuration) {
        let Some(keys) = tls.common().ticket_keys().filter(|keys| !seen.iter().any(|it| it.is_same(keys)))
        else {
            continue;
        };
        seen.push(keys);
        let files = tls.common().settings.ticket_keys.iter().flatten();
        let files = files.map(|path| path.display().to_string()).collect();
        all.push(TicketKeyUse { files, age: keys.age() });
    }
    all
}

/// A cache of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCacheUse {
    /// As in `shared:NAME`; empty of a server's own.
    pub name: String,
    /// Sessions in it, those too that are over and have not made room yet.
    pub sessions: usize,
    /// How many it holds.
    pub room: usize,
}

/// The caches of sessions.
pub fn session_caches(configuration: &Configuration) -> Vec<SessionCacheUse> {
    let mut seen: Vec<&Arc<SessionCache>> = Vec::new();
    let mut all = Vec::new();
    for tls in commons(configuration) {
        let new = |cache: &&Arc<SessionCache>| !seen.iter().any(|it| Arc::ptr_eq(it, cache));
        let Some(cache) = tls.common().session_cache().filter(new) else { continue };
        seen.push(cache);
        let name = match &tls.common().settings.session_cache {
            Some(SessionCacheSetting::Shared(name, _)) => name.clone(),
            _ => String::new(),
        };
        let (sessions, room) = cache.used();
        all.push(SessionCacheUse { name, sessions, room });
    }
    all
}

/// Where the key of a certificate is used, in words.
pub fn key_place(certificate: &Certificate) -> &'static str {
    match certificate.effort() {
        KeyEffort::Short => "worker",
        KeyEffort::Long => "key threads",
        KeyEffort::Device => "device",
    }
}

/// Names of servers that are kept of a certificate.
pub const NAMES: usize = 8;
/// Bytes of a certificate's end that are looked at to tell it from others.
const SIGNED: usize = 64;
/// Sets of settings that are looked at for keys and caches.
const COMMONS: usize = 1000;
