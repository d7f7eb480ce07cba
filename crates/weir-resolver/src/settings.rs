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
    /// Milliseconds for which answers are valid, in place of their TTL; `None`: their TTL counts.
    pub valid: Option<u64>,
    /// The least and the most milliseconds for which the TTL of an answer counts.
    pub ttl: (u64, u64),
    /// Whether IPv4 addresses are asked for.
    pub ipv4: bool,
    /// Whether IPv6 addresses are asked for.
    pub ipv6: bool,
    /// Milliseconds for which addresses stay in use after they expired while no server can be asked; 0: not at all.
    pub stale: u64,
    /// How many times in a row name servers must say that a name that worked is gone before it is.
    pub confirm: u32,
    /// Milliseconds between heartbeats to all name servers; `None`: only those that fail get some.
    pub heartbeat: Option<u64>,
    /// Domains that names are looked for in.
    pub search: Vec<DnsName>,
    /// Names of at least that many dots are tried as they are before the search list is.
    pub ndots: usize,
    /// Maximum number of names in the cache.
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
