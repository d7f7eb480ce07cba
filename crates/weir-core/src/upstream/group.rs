//! Groups of servers, as `upstream { }` or the argument of a `*_pass` names them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use weir_rt::net::SockAddr;
use weir_trace::Cause;

use super::balance::Method;
use super::health::HealthCheck;
use super::names::Names;
use super::queue::Queue;
use super::sticky::Sticky;
use crate::resolver::Resolver;

/// A group of servers, shared by all workers.
#[derive(Debug)]
pub struct Group {
    /// The name in `upstream NAME`, or the host of an address that a `*_pass` names.
    pub name: Box<str>,
    /// How one of its servers is chosen.
    pub method: Method,
    /// The idle connections that are kept.
    pub keep: Keep,
    /// What binds clients to servers.
    pub sticky: Option<Sticky>,
    /// How servers are checked.
    pub health_check: Option<HealthCheck>,
    /// Where requests wait for a server.
    pub queue: Option<Queue>,
    /// Made from an address, not by an `upstream` block.
    pub implicit: bool,
    /// Counts changes of the members, so that workers know when to look.
    version: AtomicU64,
    members: Mutex<Arc<Members>>,
    /// Where its members come from, when some are names.
    pub(crate) names: OnceLock<Names>,
}

/// The servers of a group at one moment.
#[derive(Debug, Default)]
pub struct Members {
    /// Those that are asked.
    pub primary: Vec<Arc<Peer>>,
    /// Those that are asked when all others are unavailable.
    pub backup: Vec<Arc<Peer>>,
}

/// What is kept open between requests: `keepalive` and its companions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Idle connections kept by each worker; 0: none.
    pub connections: usize,
    /// Requests after which a connection is closed (`keepalive_requests`).
    pub requests: u64,
    /// Milliseconds after its opening from which on a connection takes no further request (`keepalive_time`).
    pub time: u64,
    /// Milliseconds an idle connection is kept (`keepalive_timeout`).
    pub timeout: u64,
}

impl Default for Keep {
    /// nginx's defaults of 1.29.7 and later, where connections are kept unless told otherwise.
    fn default() -> Keep {
        Keep { connections: 32, requests: 1000, time: 3_600_000, timeout: 60_000 }
    }
}

impl Group {
    /// A group of these members.
    pub fn new(name: &str, method: Method, keep: Keep, members: Members, implicit: bool) -> Group {
        Group {
            name: name.into(),
            method,
            keep,
            sticky: None,
            health_check: None,
            queue: None,
            implicit,
            version: AtomicU64::new(1),
            members: Mutex::new(Arc::new(members)),
            names: OnceLock::new(),
        }
    }

    /// Changes with every change of the members.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    /// The members now.
    pub fn members(&self) -> Arc<Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the members; requests that begin from now on see the new ones.
    pub fn set_members(&self, members: Members) {
        *self.members.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(members);
        self.version.fetch_add(1, Relaxed);
    }
}

/// One address of one server of a group.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where it is.
    pub addr: SockAddr,
    /// The address as nginx writes it in `$upstream_addr` and in messages.
    pub name: Box<str>,
    /// The server as written in the configuration (`$upstream_...` of sticky routes, the admin listener).
    pub server: Box<str>,
    /// Its share, 1 and up.
    pub weight: u32,
    /// Most connections at a time; 0: any number.
    pub max_conns: u32,
    /// Failures within `fail_timeout` that take it out; 0: never.
    pub max_fails: u32,
    /// Seconds within which failures count, and for which it is then left out.
    pub fail_timeout: u64,
    /// `down`
    pub down: bool,
    /// `drain`: asked for clients that are bound to it only.
    pub drain: bool,
    /// Milliseconds in which its share grows to `weight` once it is back (`slow_start`).
    pub slow_start: u64,
    /// `route=`
    pub route: Box<str>,
    /// What changes.
    pub state: Arc<PeerState>,
}

/// What is known of a peer, by all workers together.
#[derive(Debug, Default)]
pub struct PeerState {
    /// Connections in use.
    pub conns: AtomicU32,
    /// Failures in the current interval.
    pub fails: AtomicU32,
    /// The second of the last failure.
    pub accessed: AtomicU64,
    /// The second in which an interval of failures began.
    pub checked: AtomicU64,
    /// The millisecond of the system's monotonic clock in which it came back; 0: it was never away.
    pub recovered: AtomicU64,
    /// A check has found it so, or has yet to find it well.
    pub unhealthy: AtomicBool,
    /// Checks in a row whose result was not what is known.
    pub(super) streak: AtomicU32,
    /// What went wrong last.
    pub last: LastFault,
}

/// What went wrong last with a peer, and when: written only when something does.
#[derive(Debug, Default)]
pub struct LastFault {
    /// The second since 1970 in the upper bits, the [`Cause`] in the lowest eight; 0: nothing went wrong yet.
    packed: AtomicU64,
}

impl LastFault {
    pub(super) fn note(&self, cause: Cause) {
        let (seconds, _) = weir_rt::unix_time();
        self.packed.store(seconds << 8 | u64::from(cause as u8), Relaxed);
    }

    /// The cause and the second since 1970.
    pub fn read(&self) -> Option<(Cause, u64)> {
        let packed = self.packed.load(Relaxed);
        let cause = Cause::ALL.into_iter().find(|cause| *cause as u64 == packed & 0xff)?;
        (cause != Cause::None).then_some((cause, packed >> 8))
    }
}

impl Peer {
    /// A server with nginx's defaults.
    pub fn plain(addr: SockAddr, server: &str) -> Peer {
        Peer {
            name: addr.to_string().into(),
            addr,
            server: server.into(),
            weight: 1,
            max_conns: 0,
            max_fails: 1,
            fail_timeout: 10,
            down: false,
            drain: false,
            slow_start: 0,
            route: "".into(),
            state: Arc::default(),
        }
    }

    /// Whether anybody may ask it at second `now`.
    pub fn is_available(&self, now: u64) -> bool {
        !self.drain && self.is_reachable(now)
    }

    /// Whether one that is bound to it may ask it at second `now`: not down, not failing, with room for a connection.
    pub fn is_reachable(&self, now: u64) -> bool {
        if self.down || self.state.unhealthy.load(Relaxed) {
            return false;
        }
        let state = &self.state;
        if self.max_fails > 0
            && state.fails.load(Relaxed) >= self.max_fails
            && now.saturating_sub(state.checked.load(Relaxed)) <= self.fail_timeout
        {
            return false;
        }
        self.max_conns == 0 || state.conns.load(Relaxed) < self.max_conns
    }

    /// Begins a new interval when the last one is over: called when the peer is chosen.
    pub fn chosen(&self, now: u64) {
        let state = &self.state;
        state.conns.fetch_add(1, Relaxed);
        if now.saturating_sub(state.checked.load(Relaxed)) > self.fail_timeout {
            state.checked.store(now, Relaxed);
        }
    }

    /// A try has failed. `true`: this failure takes the peer out.
    pub fn fail(&self, now: u64) -> bool {
        let state = &self.state;
        let fails = state.fails.fetch_add(1, Relaxed) + 1;
        state.accessed.store(now, Relaxed);
        state.checked.store(now, Relaxed);
        self.max_fails > 0 && fails >= self.max_fails
    }

    /// A try has ended; one that [`failed`](Peer::fail) has been counted.
    pub fn done(&self, failed: bool) {
        let state = &self.state;
        state.conns.fetch_sub(1, Relaxed);
        // It answered in an interval that began after its last failure: that one is forgotten.
        if !failed
            && state.fails.load(Relaxed) > 0
            && state.accessed.load(Relaxed) < state.checked.load(Relaxed)
        {
            let fails = state.fails.swap(0, Relaxed);
            if self.max_fails > 0 && fails >= self.max_fails {
                self.recovered();
            }
        }
    }

    /// It was away, and is back: what it did before is forgotten.
    pub(super) fn recovered(&self) {
        self.state.fails.store(0, Relaxed);
        if self.slow_start > 0 {
            self.state.recovered.store(clock_ms().max(1), Relaxed);
        }
    }

    /// Its weight at the moment in 1024ths: less than the whole while it starts slowly.
    pub fn share(&self) -> i64 {
        let whole = i64::from(self.weight) * 1024;
        if self.slow_start == 0 {
            return whole;
        }
        match self.state.recovered.load(Relaxed) {
            0 => whole,
            since => {
                let age = clock_ms().saturating_sub(since).min(self.slow_start);
                (whole as u64 * age / self.slow_start).max(1) as i64
            }
        }
    }
}

/// The clock that all threads share.
fn clock_ms() -> u64 {
    weir_rt::clock::monotonic_ns() / 1_000_000
}

/// The groups of one configuration; lent by `Registry::shared`.
#[derive(Debug, Default)]
pub struct Upstreams {
    groups: Vec<Arc<Group>>,
}

impl Upstreams {
    /// Adds a group that an `upstream` block defines.
    ///
    /// # Errors
    /// nginx's words for a second one of that name.
    pub fn define(&mut self, group: Group) -> Result<(), String> {
        if self.groups.iter().any(|known| !known.implicit && known.name.eq_ignore_ascii_case(&group.name)) {
            return Err(format!("duplicate upstream \"{}\"", group.name));
        }
        self.groups.push(Arc::new(group));
        Ok(())
    }

    /// The group that an `upstream` block defines under this name.
    pub fn find(&self, name: &str) -> Option<&Arc<Group>> {
        self.groups.iter().find(|group| !group.implicit && group.name.eq_ignore_ascii_case(name))
    }

    /// All groups.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.groups.iter()
    }

    /// The group of one server that a `*_pass` names by address, made when it is not known yet.
    ///
    /// # Errors
    /// nginx's words for a host that has no address.
    pub fn implicit(&mut self, host: &str, default_port: u16) -> Result<Arc<Group>, String> {
        let known = self.groups.iter().find(|group| group.implicit && *group.name == *host);
        if let Some(known) = known {
            return Ok(known.clone());
        }
        let addrs = resolve(host, default_port)?;
        let primary = addrs.into_iter().map(|addr| Arc::new(Peer::plain(addr, host))).collect();
        let members = Members { primary, backup: Vec::new() };
        // nginx keeps connections of `upstream` blocks only.
        let keep = Keep { connections: 0, ..Keep::default() };
        let group = Arc::new(Group::new(host, Method::RoundRobin, keep, members, true));
        self.groups.push(group.clone());
        Ok(group)
    }

    /// The group that a `*_pass` names, or the one of the address that it is. Without a `default_port` an address must
    /// have one.
    ///
    /// # Errors
    /// As [`Upstreams::implicit`], or `no port in upstream "..."`.
    pub fn named(&mut self, host: &str, default_port: Option<u16>) -> Result<Arc<Group>, String> {
        match (self.find(host), default_port) {
            (Some(found), _) => Ok(found.clone()),
            (None, None) if lacks_port(host) => Err(format!("no port in upstream \"{host}\"")),
            (None, port) => self.implicit(host, port.unwrap_or(0)),
        }
    }

    /// Settles who is asked for names of servers: whom the group has, else whom `http` has.
    ///
    /// # Errors
    /// nginx's words for each that has none.
    pub(crate) fn use_resolver(&self, http: Option<&Arc<Resolver>>, timeout: u64) -> Vec<weir_conf::Error> {
        self.groups.iter().filter_map(|group| group.use_resolver(http, timeout).err()).collect()
    }

    /// Begins to follow names of servers.
    pub(crate) fn follow(&self) {
        self.groups.iter().for_each(Group::follow);
    }

    /// Takes over what `before` knows of servers that are still there.
    pub fn adopt(&self, before: &Upstreams) {
        for group in &self.groups {
            let Some(old) = before.groups.iter().find(|old| old.name == group.name) else { continue };
            group.adopt_names(old);
            let old = old.members();
            let with_state = |peer: &Arc<Peer>| {
                let known = old.primary.iter().chain(&old.backup).find(|known| known.name == peer.name);
                match known {
                    Some(known) => Arc::new(Peer { state: known.state.clone(), ..(**peer).clone() }),
                    None => peer.clone(),
                }
            };
            let new = group.members();
            group.set_members(Members {
                primary: new.primary.iter().map(with_state).collect(),
                backup: new.backup.iter().map(with_state).collect(),
            });
            if group.health_check.is_none() {
                // Nobody checks any more: nobody would find them well.
                let members = group.members();
                let all = members.primary.iter().chain(&members.backup);
                all.for_each(|peer| peer.state.unhealthy.store(false, Relaxed));
            }
        }
    }
}

/// The addresses of `host`, `host:port`, `[v6]:port` or `unix:path`, asked of the system: when the configuration is
/// read nginx waits for them, too.
///
/// # Errors
/// nginx's words: `host not found in upstream "..."`, `invalid port in upstream "..."`.
pub fn resolve(host: &str, default_port: u16) -> Result<Vec<SockAddr>, String> {
    use std::net::ToSocketAddrs;
    if host.starts_with("unix:") {
        let address =
            host.parse().map_err(|_| format!("no path in the unix domain socket in upstream \"{host}\""))?;
        return Ok(vec![address]);
    }
    let (name, port) = split_port(host).map_err(|_| format!("invalid port in upstream \"{host}\""))?;
    if name.is_empty() {
        return Err(format!("no host in upstream \"{host}\""));
    }
    let port = port.unwrap_or(default_port);
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let found =
        (bare, port).to_socket_addrs().map_err(|_| format!("host not found in upstream \"{host}\""))?;
    let addrs: Vec<SockAddr> = found.map(SockAddr::from).collect();
    if addrs.is_empty() { Err(format!("host not found in upstream \"{host}\"")) } else { Ok(addrs) }
}

/// Whether `host` needs a port and has none.
pub fn lacks_port(host: &str) -> bool {
    !host.starts_with("unix:") && split_port(host).is_ok_and(|(_, port)| port.is_none())
}

/// The host and the port of `host[:port]`.
pub fn split_port(text: &str) -> Result<(&str, Option<u16>), std::num::ParseIntError> {
    let after = text.rfind(']').map_or(0, |at| at + 1);
    match text[after..].find(':') {
        None => Ok((text, None)),
        Some(at) => {
            let (name, port) = text.split_at(after + at);
            let number: std::num::NonZeroU16 = port[1..].parse()?;
            Ok((name, Some(number.get())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_failed_is_left_out_for_its_time_and_forgiven_later() {
        let peer = Peer::plain("127.0.0.1:80".parse().expect("an address"), "a");
        assert!(peer.is_available(100));
        peer.chosen(100);
        assert!(peer.fail(100), "one failure is enough by default");
        peer.done(true);
        assert!(!peer.is_available(105));
        assert!(peer.is_available(111));
        peer.chosen(111);
        assert!(!peer.is_available(111) || peer.state.fails.load(Relaxed) == 1);
        peer.done(false);
        assert_eq!(peer.state.fails.load(Relaxed), 0);
        assert_eq!(peer.state.conns.load(Relaxed), 0);
    }

    #[test]
    fn a_slow_start_begins_with_little_and_ends_with_the_weight() {
        let plain = Peer::plain("127.0.0.1:80".parse().expect("an address"), "a");
        let peer = Peer { weight: 4, slow_start: 3_600_000, ..plain };
        assert_eq!(peer.share(), 4096, "it was never away");
        for failed in [true, false] {
            peer.chosen(100);
            if failed {
                peer.fail(100);
                peer.state.checked.store(111, Relaxed);
            }
            peer.done(failed);
        }
        assert!(peer.share() < 100, "{}", peer.share());
        let drained = Peer { drain: true, ..peer };
        assert!(drained.is_reachable(200) && !drained.is_available(200));
    }

    #[test]
    fn names_are_taken_once() {
        let group =
            |name: &str| Group::new(name, Method::RoundRobin, Keep::default(), Members::default(), false);
        let mut upstreams = Upstreams::default();
        assert_eq!(upstreams.define(group("u")), Ok(()));
        assert_eq!(upstreams.define(group("U")), Err("duplicate upstream \"U\"".to_owned()));
        assert!(upstreams.find("u").is_some() && upstreams.find("v").is_none());
    }
}
