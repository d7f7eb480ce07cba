//! A resolver's settings.

use std::net::SocketAddr;

use crate::name::DnsName;

/// How a resolver behaves. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolverSettings {
    /// The name servers that are asked, in turn.
    pub servers: Vec<SocketAddr>,
    /// Those that are asked when the others fail.
    pub backups: Vec<SocketAddr>,
    /// How long answers hold, instead of as long as they say.
    pub valid: Option<u64>,
    /// The shortest and the longest that an answer may hold by its own word.
    pub ttl: (u64, u64),
    /// Whether IPv4 addresses are asked for.
    pub ipv4: bool,
    /// Whether IPv6 addresses are asked for.
    pub ipv6: bool,
    /// How long addresses stay in use beyond their time when no server can be asked; 0: not at all.
    pub stale: u64,
    /// How many times in a row name servers must say that a name that worked is gone before it is.
    pub confirm: u32,
    /// The interval of heartbeats to all name servers; `None`: only those that fail get some.
    pub heartbeat: Option<u64>,
    /// Domains that names are looked for in.
    pub search: Vec<DnsName>,
    /// Names of at least that many dots are tried as they are before the search list is.
    pub ndots: usize,
    /// Names that are kept in memory.
    pub names: usize,
}

impl Default for ResolverSettings {
    fn default() -> ResolverSettings {
        ResolverSettings {
            servers: Vec::new(),
            backups: Vec::new(),
            valid: None,
            ttl: (1_000, 7 * 86_400_000),
            ipv4: true,
            ipv6: true,
            // RFC 8767 section 5 suggests one to three days.
            stale: 86_400_000,
            confirm: 3,
            heartbeat: None,
            search: Vec::new(),
            ndots: 1,
            names: 10_000,
        }
    }
}
