//! `keepalive` and its companions: which connections are kept alive between requests, and for how long.

/// What is kept alive between requests: `keepalive` and its companions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepaliveLimits {
    /// Idle connections kept alive by all workers together; 0: none.
    pub connections: usize,
    /// Requests after which a connection is closed (`keepalive_requests`).
    pub requests: u64,
    /// Milliseconds after its opening from which on a connection takes no further request (`keepalive_time`).
    pub time: u64,
    /// Milliseconds an idle connection is kept alive (`keepalive_timeout`).
    pub timeout: u64,
}

impl Default for KeepaliveLimits {
    /// nginx's defaults of 1.29.7 and later, where connections are kept alive unless configured otherwise.
    fn default() -> KeepaliveLimits {
        KeepaliveLimits { connections: 32, requests: 1000, time: 3_600_000, timeout: 60_000 }
    }
}
