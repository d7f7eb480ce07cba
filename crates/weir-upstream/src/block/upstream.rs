//! Upstreams: lists of servers, as `upstream { }` or the argument of a `*_pass` names them.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::block::balancer_hook::BalancerHook;
use crate::block::change_notice::ChangeNotice;
use crate::block::queue::RequestQueue;
use crate::block::retry_budget::RetryBudget;
use crate::connection::keepalive_limits::KeepaliveLimits;
use crate::discovery::dns::UpstreamNames;
use crate::discovery::server_list;
use crate::discovery::server_list::{ServerEntry, ServerList};
use crate::discovery::source::ServerSource;
use crate::health::HealthCheck;
use crate::peer::Peer;
use crate::peer::balance::BalanceMethod;
use crate::peer::members::UpstreamMembers;
use crate::peer::outlier::OutlierLimits;
use crate::peer::sticky::StickyMethod;
use crate::pool::shared_idle::SharedIdle;
use weir_engine::variable::ValueScript;

/// An upstream and its peers, shared by all workers.
#[derive(Debug)]
pub struct Upstream {
    /// The name in `upstream NAME`, or the host of an address that a `*_pass` names.
    pub name: Box<str>,
    /// How one of its servers is chosen.
    pub method: BalanceMethod,
    /// The idle connections that are kept alive.
    pub keep: KeepaliveLimits,
    /// The name of the pool in which a request's connection is kept alive; `None` without `keepalive_pool`.
    pub(crate) keepalive_pool: Option<ValueScript>,
    /// What binds clients to servers; `None` without `sticky`.
    pub sticky: Option<StickyMethod>,
    /// How servers are checked; `None` without `health_check`.
    pub health_check: Option<HealthCheck>,
    /// Where requests wait for a server; `None` without `queue`.
    pub queue: Option<RequestQueue>,
    /// When a server is left out for its slowness.
    pub(crate) outlier: Option<OutlierLimits>,
    /// How many requests may be tried again.
    pub(crate) retry_budget: Option<RetryBudget>,
    /// What it was made for.
    pub origin: UpstreamOrigin,
    /// Made for a request, from a value that is computed.
    pub(crate) computed: bool,
    /// Counts changes of the members, so that workers know when to look.
    version: AtomicU64,
    /// Notifies of what changes about its servers.
    pub(crate) changes: ChangeNotice,
    members: Mutex<Arc<UpstreamMembers>>,
    /// What the members are made of. Its holder may take the lock of `members`, not the other way round.
    origins: Mutex<ServerList>,
    /// Held from before the list is read until it was changed.
    pub(crate) changing: Mutex<()>,
    /// Its idle connections that any worker may take.
    pub(crate) idle: Arc<SharedIdle>,
    /// The resolver that is asked for names.
    pub(crate) names: UpstreamNames,
    /// Where its list comes from at run time.
    pub(crate) source: Option<Arc<ServerSource>>,
    /// The file in which its list is stored between runs.
    pub(crate) kept: Option<PathBuf>,
    /// What is asked before the balancing method is.
    pub(crate) guide: Option<Arc<dyn BalancerHook>>,
}

/// What an upstream was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamOrigin {
    /// An `upstream` block.
    Block,
    /// An address or a host name that a directive names.
    Address,
}

impl Upstream {
    /// An upstream of these members, which do not change.
    pub fn new(
        name: &str,
        method: BalanceMethod,
        keep: KeepaliveLimits,
        members: UpstreamMembers,
        origin: UpstreamOrigin,
    ) -> Upstream {
        Upstream {
            name: name.into(),
            method,
            keep,
            keepalive_pool: None,
            sticky: None,
            health_check: None,
            queue: None,
            outlier: None,
            retry_budget: None,
            origin,
            computed: false,
            version: AtomicU64::new(1),
            changes: ChangeNotice::default(),
            members: Mutex::new(Arc::new(members)),
            origins: Mutex::default(),
            changing: Mutex::default(),
            idle: Arc::default(),
            names: UpstreamNames::default(),
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

    /// The servers of the upstream as they are now; later changes make another set.
    pub fn members(&self) -> Arc<UpstreamMembers> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the members are made of.
    pub(crate) fn origins(&self) -> MutexGuard<'_, ServerList> {
        self.origins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the list of servers comes from at run time; `None` if it comes from the configuration alone.
    pub fn source(&self) -> Option<&ServerSource> {
        self.source.as_deref()
    }

    /// Takes `list` for what the configuration says.
    pub(crate) fn begin(&self, list: Vec<ServerEntry>) {
        let mut origins = self.origins();
        origins.written = server_list::write(&list);
        origins.list = self.kept_list().unwrap_or(list);
        self.rebuild(&origins, &UpstreamMembers::default());
    }

    /// Makes the members again; those of `before` that are still there stay the same, with what is known of them.
    /// Requests that begin from now on see the new ones.
    pub(crate) fn rebuild(&self, origins: &ServerList, before: &UpstreamMembers) {
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

    /// Takes over what `old`, the upstream of this name in the configuration before, knows: of servers, of names, and
    /// the list that was made at run time, if the configuration says of the upstream what it said then.
    pub(crate) fn adopt(&self, old: &Upstream) {
        let mut origins = self.origins();
        let theirs = old.origins();
        let same = theirs.written == origins.written && self.source == old.source;
        if theirs.moved && same && self.fits(&theirs.list).is_ok() {
            origins.list = theirs.list.iter().map(ServerEntry::anew).collect();
            origins.moved = true;
        } else {
            origins.list.iter().for_each(|origin| origin.adopt_name(&theirs.list));
        }
        drop(theirs);
        self.rebuild(&origins, &old.members());
    }
}
