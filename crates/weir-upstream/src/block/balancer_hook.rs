//! Choosers from outside: a module is asked for the server of each try of an upstream's requests (`balancer_by_lua`).
//!
//! A [`WorkerBalancerHook`] is asked before each try, decides at once, and leaves what it decided in a [`BalancerChoice`]. The servers it names
//! need not be members of the upstream; each worker remembers those that it has seen ([`BalancerServers`]), so that the
//! usual try parses no address and allocates nothing. Where it names none, the upstream's own method chooses.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::Arc;

use weir_rt::net::SockAddr;

use weir_engine::exchange::Exchange;
use weir_engine::phase::Verdict;

pub(crate) use crate::connection::upstream_connection::OwnKeepalive;
use crate::discovery::server_address::ADDRESSES;
pub(crate) use crate::peer::ConnectionLane;
use crate::peer::Peer;
use weir_conf::split_port;

/// A chooser as configured.
pub trait BalancerHook: Debug + Send + Sync {
    /// What asks on one worker.
    fn on_worker(&self) -> Box<dyn WorkerBalancerHook>;
}

/// A chooser on one worker.
pub trait WorkerBalancerHook {
    /// Decides about the next try of `x`.
    ///
    /// # Errors
    /// What the request ends with; it is logged.
    fn choose(&self, x: &mut Exchange, choice: &mut BalancerChoice<'_>) -> Result<(), Verdict>;
}

/// What modules other than that of `upstream` say about the block that is being read; by `ConfRegistry::shared`.
#[derive(Debug, Default)]
pub struct UpstreamDraft {
    /// True when a method was chosen, or `keepalive` set.
    pub chosen: bool,
    /// What is asked before the balancing method is; `None` without a balancer of a module.
    pub guide: Option<Arc<dyn BalancerHook>>,
    /// Idle connections kept alive, where `keepalive` does not say.
    pub keepalive: Option<usize>,
}

/// What a chooser receives, and what it decides about a try.
pub struct BalancerChoice<'a> {
    pub(crate) servers: &'a BalancerServers,
    /// Number of times it was asked for this request, this time included.
    pub asked: u64,
    /// How many tries are left, this one included.
    pub left: u64,
    /// `*_next_upstream_tries`; 0: any number.
    pub limit: u64,
    /// True when the upstream has servers of its own, one of which is asked where none is named.
    pub has_servers: bool,
    /// What became of the last try at a server that it named; `None` before the first.
    pub failure: Option<BalancerFailure>,
    pub(crate) peer: Option<Arc<Peer>>,
    /// The name that is sent to the server (SNI) and its certificate must have; `None`: as the location says.
    pub host: Option<Box<str>>,
    /// How many more tries may follow.
    pub more_tries: i64,
    /// Milliseconds for connecting, sending, reading, of this try and those after it.
    pub timeouts: [Option<u64>; 3],
    /// How the connection is kept alive; `None`: as the upstream says.
    pub keep: Option<OwnKeepalive>,
    /// Whether TLS is used; `None`: as the location says.
    pub tls: Option<bool>,
    /// True when the location has the settings of TLS: `proxy_pass https://`.
    pub can_tls: bool,
    /// The local address of the connection; `None`: as the location says.
    pub local: Option<SockAddr>,
    /// Where the connection is pooled, if not with others to the same server.
    pub lane: Option<ConnectionLane>,
    /// True when the request must be composed again.
    pub recreate: bool,
}

/// How a try at a server failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalancerFailure {
    /// True when the server's health is as before: it has refused a client, or not had a resource.
    pub next: bool,
    /// The status of the response, or the one that stands in for a missing one.
    pub status: u16,
}

impl BalancerChoice<'_> {
    /// Names the server of this try: an address, with a port or with `port`, or `unix:path`.
    ///
    /// # Errors
    /// nginx's words for what is not an address, as a name is not.
    pub fn set_peer(&mut self, text: &[u8], port: u16) -> Result<(), &'static str> {
        self.peer = Some(self.servers.find(text, port)?);
        Ok(())
    }

    /// Whether the chooser has named a server for this try.
    pub fn has_peer(&self) -> bool {
        self.peer.is_some()
    }
}

/// A local address: with or without a port; `None` if it is not one.
pub fn local(text: &str) -> Option<SockAddr> {
    crate::discovery::server_list::local(text).flatten()
}

/// The servers that a chooser has named, on one worker.
#[derive(Default)]
pub(crate) struct BalancerServers {
    /// By their text; several where ports are distinguished.
    known: RefCell<KnownPeers>,
    /// The one that was named last: mostly the next one, too.
    last: RefCell<Option<Rc<NamedPeer>>>,
    /// Those that are asked from an address of this machine's, or by connections pooled separately, as the chooser has
    /// said.
    bound: RefCell<Vec<Arc<Peer>>>,
}

type KnownPeers = HashMap<Box<[u8]>, Vec<Rc<NamedPeer>>>;

/// A server and how it was named.
struct NamedPeer {
    text: Box<[u8]>,
    port: u16,
    peer: Arc<Peer>,
}

impl BalancerServers {
    fn find(&self, text: &[u8], port: u16) -> Result<Arc<Peer>, &'static str> {
        if let Some(last) = &*self.last.borrow()
            && last.port == port
            && *last.text == *text
        {
            return Ok(last.peer.clone());
        }
        let mut known = self.known.borrow_mut();
        let found = known.get(text).and_then(|all| all.iter().find(|named| named.port == port)).cloned();
        let named = match found {
            Some(named) => named,
            None => {
                let addr = address(text, port)?;
                // It may be any number of addresses: beyond this many all are forgotten, which costs little.
                if known.len() >= ADDRESSES {
                    known.clear();
                }
                let name = addr.to_string();
                // A chooser decides for itself whether a server that failed is asked again.
                let peer = Arc::new(Peer { max_fails: 0, ..Peer::plain(addr, &name) });
                let named = Rc::new(NamedPeer { text: text.into(), port, peer });
                let ports = known.entry(text.into()).or_default();
                if ports.len() >= LINES {
                    ports.clear();
                }
                ports.push(named.clone());
                named
            }
        };
        let peer = named.peer.clone();
        *self.last.borrow_mut() = Some(named);
        Ok(peer)
    }

    /// The same server, asked from `local`, by connections that are pooled in `lane`.
    pub(crate) fn bound(
        &self,
        peer: &Arc<Peer>,
        local: Option<SockAddr>,
        lane: Option<ConnectionLane>,
    ) -> Arc<Peer> {
        let mut all = self.bound.borrow_mut();
        let with = |peer: &Peer| peer.bind == local && peer.lane.as_deref() == lane.as_ref();
        if let Some(known) = all.iter().find(|one| Arc::ptr_eq(&one.state, &peer.state) && with(one)) {
            return known.clone();
        }
        let bound = Peer { bind: local, lane: lane.map(Arc::new), ..Peer::clone(peer) };
        if all.len() >= LINES {
            all.clear();
        }
        let bound = Arc::new(bound);
        all.push(bound.clone());
        bound
    }
}

/// Ports of one address, servers with a local address, and locations with time limits that a worker remembers.
const LINES: usize = 64;

/// The address that `text` is, in nginx's words if it is not one.
fn address(text: &[u8], port: u16) -> Result<SockAddr, &'static str> {
    let text = std::str::from_utf8(text).map_err(|_| "invalid host")?;
    if text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("unix:")) {
        return text.parse().map_err(|_| "no path in the unix domain socket");
    }
    if text.contains(['/', '?', '#']) {
        return Err("invalid host");
    }
    if text.starts_with('[') && !text.contains(']') {
        return Err("invalid host");
    }
    let (host, written) = split_port(text).map_err(|_| "invalid port")?;
    if host.is_empty() {
        return Err("no host");
    }
    match weir_engine::resolver::literal(host) {
        Some(ip) => Ok((ip, written.unwrap_or(port)).into()),
        None if host.starts_with('[') => Err("invalid IPv6 address"),
        None => Err("no host allowed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_nginxs_words() {
        let of = |text: &str| address(text.as_bytes(), 80).map(|addr| addr.to_string());
        assert_eq!(of("127.0.0.1"), Ok("127.0.0.1:80".to_owned()));
        assert_eq!(of("127.0.0.1:81"), Ok("127.0.0.1:81".to_owned()));
        assert_eq!(of("[::1]"), Ok("[::1]:80".to_owned()));
        assert_eq!(of("[::1]:81"), Ok("[::1]:81".to_owned()));
        assert_eq!(of("unix:/tmp/s"), Ok("unix:/tmp/s".to_owned()));
        for (text, error) in [
            ("localhost", "no host allowed"),
            ("", "no host"),
            (":80", "no host"),
            ("1.2.3.4:0", "invalid port"),
            ("1.2.3.4:65536", "invalid port"),
            ("1.2.3.4:x", "invalid port"),
            ("1.2.3.4/x", "invalid host"),
            ("[::1", "invalid host"),
            ("[::x]:1", "invalid IPv6 address"),
            ("unix:", "no path in the unix domain socket"),
        ] {
            assert_eq!(of(text), Err(error), "{text}");
        }
        assert_eq!(address(b"\xff", 80), Err("invalid host"));
    }

    #[test]
    fn servers_are_known_again() {
        let servers = BalancerServers::default();
        let first = servers.find(b"127.0.0.1", 80).expect("an address");
        let other = servers.find(b"127.0.0.2", 80).expect("an address");
        let again = servers.find(b"127.0.0.1", 80).expect("an address");
        assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &other));
        let local: SockAddr = "127.0.0.9:0".parse().expect("an address");
        let bound = servers.bound(&first, Some(local.clone()), None);
        assert!(Arc::ptr_eq(&bound, &servers.bound(&first, Some(local.clone()), None)));
        assert!(Arc::ptr_eq(&bound.state, &first.state));
        let lane = |size| Some(ConnectionLane { name: b"a".as_slice().into(), size });
        let apart = servers.bound(&first, Some(local.clone()), lane(1));
        assert!(!apart.shares_line(&bound));
        assert!(Arc::ptr_eq(&apart, &servers.bound(&first, Some(local.clone()), lane(1))));
        assert!(!Arc::ptr_eq(&apart, &servers.bound(&first, Some(local), lane(2))));
    }
}
