//! Groups of servers, as `upstream { }` or the argument of a `*_pass` names them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_rt::net::SockAddr;

use crate::privileged;

use crate::upstream::block::change_notice::Changes;
use crate::upstream::block::queue::Queue;
use crate::upstream::block::retry_budget::Budget;
use crate::upstream::discovery::dns::Names;
use crate::upstream::discovery::server_list;
use crate::upstream::discovery::server_list::{Origin, Origins};
use crate::upstream::discovery::source::Source;
use crate::upstream::health::HealthCheck;
use crate::upstream::peer::Peer;
use crate::upstream::peer::balance::Method;
use crate::upstream::peer::outlier::Outlier;
use crate::upstream::peer::sticky::Sticky;
use crate::upstream::pool::shared_idle::Common;
use crate::upstream::worker_side::balancer_hook::Guides;
use weir_conf::split_port;

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
    /// When a server is left out for its slowness.
    pub(crate) outlier: Option<Outlier>,
    /// How many requests may be tried again.
    pub(crate) retry_budget: Option<Budget>,
    /// Made from an address, not by an `upstream` block.
    pub implicit: bool,
    /// Made for a request, from a value that is computed.
    pub(crate) computed: bool,
    /// Counts changes of the members, so that workers know when to look.
    version: AtomicU64,
    /// Tells of what changes about its servers.
    pub(crate) changes: Changes,
    members: Mutex<Arc<Members>>,
    /// What the members are made of. Who holds it may take the lock of `members`, not the other way round.
    origins: Mutex<Origins>,
    /// Held from before the list is read until it was changed.
    pub(crate) changing: Mutex<()>,
    /// Its idle connections that any worker may take.
    pub(crate) idle: Arc<Common>,
    /// Who is asked for names.
    pub(crate) names: Names,
    /// Where its list comes from at run time.
    pub(crate) source: Option<Arc<Source>>,
    /// Where its list is kept between runs.
    pub(crate) kept: Option<PathBuf>,
    /// Who is asked before the method is.
    pub(crate) guide: Option<Arc<dyn Guides>>,
}

/// The servers of a group at one moment.
#[derive(Debug, Default)]
pub struct Members {
    /// Those that are asked.
    pub primary: Vec<Arc<Peer>>,
    /// Those that are asked when all others are unavailable.
    pub backup: Vec<Arc<Peer>>,
}

impl Members {
    /// All of them, backups last.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Peer>> + Clone {
        self.primary.iter().chain(&self.backup)
    }

    /// The same for one worker, which counts the references to them alone. What is known of each is all workers'.
    pub(crate) fn own(&self, method: &Method) -> Members {
        let own = |peer: &Arc<Peer>| {
            let is_compared = peer.max_conns > 0 || method.compares_connections();
            Arc::new(Peer { is_compared, ..Peer::clone(peer) })
        };
        Members {
            primary: self.primary.iter().map(own).collect(),
            backup: self.backup.iter().map(own).collect(),
        }
    }

    /// Whether these are the very peers of `other`.
    fn are(&self, other: &Members) -> bool {
        let same = |a: &[Arc<Peer>], b: &[Arc<Peer>]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        same(&self.primary, &other.primary) && same(&self.backup, &other.backup)
    }
}

/// What is kept open between requests: `keepalive` and its companions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Idle connections kept by all workers together; 0: none.
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
    /// A group of these members, which do not change.
    pub fn new(name: &str, method: Method, keep: Keep, members: Members, implicit: bool) -> Group {
        Group {
            name: name.into(),
            method,
            keep,
            sticky: None,
            health_check: None,
            queue: None,
            outlier: None,
            retry_budget: None,
            implicit,
            computed: false,
            version: AtomicU64::new(1),
            changes: Changes::default(),
            members: Mutex::new(Arc::new(members)),
            origins: Mutex::default(),
            changing: Mutex::default(),
            idle: Arc::default(),
            names: Names::default(),
            source: None,
            kept: None,
            guide: None,
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

    /// What the members are made of.
    pub(crate) fn origins(&self) -> MutexGuard<'_, Origins> {
        self.origins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the list comes from at run time.
    pub fn source(&self) -> Option<&Source> {
        self.source.as_deref()
    }

    /// Takes `list` for what the configuration says.
    pub(crate) fn begin(&self, list: Vec<Origin>) {
        let mut origins = self.origins();
        origins.written = server_list::write(&list);
        origins.list = self.kept_list().unwrap_or(list);
        self.rebuild(&origins, &Members::default());
    }

    /// Makes the members anew; those of `before` that are still there stay who they are, with what is known of them.
    /// Requests that begin from now on see the new ones.
    pub(crate) fn rebuild(&self, origins: &Origins, before: &Members) {
        let members = server_list::members(&origins.list, before);
        let mandatory = self.health_check.as_ref().is_some_and(|check| check.mandatory);
        let fresh = |peer: &&Arc<Peer>| !before.all().any(|old| Arc::ptr_eq(&old.state, &peer.state));
        for peer in members.all().filter(|_| mandatory).filter(fresh) {
            peer.state.unhealthy.store(true, Relaxed);
        }
        let mut now = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if !now.are(&members) {
            *now = Arc::new(members);
            self.version.fetch_add(1, Relaxed);
            self.changes.tell();
        }
    }

    /// Takes over what `old`, the group of this name in the configuration before, knows: of servers, of names, and the
    /// list that was made at run time, if the configuration says of the group what it said then.
    pub(crate) fn adopt(&self, old: &Group) {
        let mut origins = self.origins();
        let theirs = old.origins();
        let same = theirs.written == origins.written && self.source == old.source;
        if theirs.moved && same && self.fits(&theirs.list).is_ok() {
            origins.list = theirs.list.iter().map(Origin::anew).collect();
            origins.moved = true;
        } else {
            origins.list.iter().for_each(|origin| origin.adopt_name(&theirs.list));
        }
        drop(theirs);
        self.rebuild(&origins, &old.members());
    }
}

/// The addresses of `host`, `host:port`, `[v6]:port` or `unix:path`, asked of the system: when the configuration is
/// read nginx waits for them, too.
///
/// # Errors
/// nginx's words: `host not found in upstream "..."`, `invalid port in upstream "..."`.
pub fn resolve(host: &str, default_port: u16) -> Result<Vec<SockAddr>, String> {
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
        privileged::look_up(bare, port).map_err(|_| format!("host not found in upstream \"{host}\""))?;
    let addrs: Vec<SockAddr> = found.into_iter().map(SockAddr::from).collect();
    if addrs.is_empty() { Err(format!("host not found in upstream \"{host}\"")) } else { Ok(addrs) }
}

/// The error of what [`resolve`] or [`Upstreams::named`](crate::upstream::Upstreams::named) says. A name that is not known yet is
/// no error where it is looked up later.
pub fn unresolved(message: String) -> weir_conf::Error {
    let error = weir_conf::Error::new(message);
    if !error.message.starts_with("host not found") {
        return error;
    }
    error.hint(
        "\"server NAME resolve;\" in an \"upstream\" with a \"zone\", and a \"resolver\", look it up while the server runs",
    )
}

/// Whether `host` needs a port and has none.
pub fn lacks_port(host: &str) -> bool {
    !host.starts_with("unix:") && split_port(host).is_ok_and(|(_, port)| port.is_none())
}
