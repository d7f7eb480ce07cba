//! A worker's side of an upstream: its chooser and its idle connections.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use weir_rt::clock;
use weir_trace::{Cause, Site};

use crate::block::queue::QueueLine;
use crate::block::retry_budget::RetryAllowance;
use crate::block::upstream::{Upstream, UpstreamOrigin};
use crate::config::failure_reason::AttemptFault;
use crate::connection::keepalive_limits::KeepaliveLimits;
use crate::discovery::server_address::ADDRESSES;
use crate::location::peer_sites::PeerSites;
use crate::peer::balance::{BalanceMethod, Balancer, TriedPeers, long_body};
use crate::peer::members::UpstreamMembers;
use crate::peer::peer_figures::PeerFigures;
use crate::peer::response_time::TimeMeasure;
use crate::peer::sticky::{LearnedSessions, StickyIds};
use crate::peer::{ConnectionLane, Peer, PeerOutcome, PeerState};
use crate::pool::worker_pool::WorkerPool;
use crate::worker_side::guided_choice::HookedBalancer;
use weir_engine::exchange::Exchange;
use weir_engine::resolver::{DnsAnswer, Resolver};
use weir_engine::worker::Worker;
use weir_engine::worker::memory::WorkerMemory;

/// The upstreams that a worker uses.
#[derive(Default)]
pub struct WorkerUpstreams {
    /// By the address of what they belong to.
    upstreams: RefCell<HashMap<*const Upstream, Weak<LocalUpstream>>>,
    /// How many there may be of them before those that nothing holds any more are looked for: there are as many as
    /// `upstream` blocks, and a look for each would be their square.
    room: Cell<usize>,
    /// Those of them that requests have named; no plan holds them.
    named: RefCell<HashMap<*const Upstream, Rc<LocalUpstream>>>,
    /// Of addresses that were computed for a request, by their text.
    addresses: RefCell<HashMap<Box<str>, Rc<LocalUpstream>>>,
    /// What names were resolved to, and by whom.
    pub(crate) names: RefCell<HashMap<Box<str>, ResolvedName>>,
}

/// A response of a resolver.
pub(crate) type ResolvedName = (std::sync::Weak<Resolver>, Arc<DnsAnswer>);

impl WorkerUpstreams {
    /// The worker's side of `group`, the same for all that hold it.
    pub fn upstream(&self, upstream: &Arc<Upstream>) -> Rc<LocalUpstream> {
        let mut known = self.upstreams.borrow_mut();
        let key = Arc::as_ptr(upstream);
        // An address may have been another upstream's before.
        let alive =
            known.get(&key).and_then(Weak::upgrade).filter(|local| Arc::ptr_eq(&local.upstream, upstream));
        alive.unwrap_or_else(|| {
            if known.len() >= self.room.get() {
                known.retain(|_, upstream| upstream.strong_count() > 0);
                self.room.set(2 * known.len() + MOST_GONE);
            }
            let new = Rc::new(LocalUpstream::new(upstream));
            known.insert(key, Rc::downgrade(&new));
            new
        })
    }

    /// [`WorkerUpstreams::group`] for an upstream that a request has named: it stays as long as the configuration.
    pub(crate) fn named(&self, upstream: &Arc<Upstream>) -> Rc<LocalUpstream> {
        let mut named = self.named.borrow_mut();
        named.entry(Arc::as_ptr(upstream)).or_insert_with(|| self.upstream(upstream)).clone()
    }

    /// Connections to servers that this worker keeps for later requests.
    pub fn idle(&self) -> u64 {
        let upstreams = self.upstreams.borrow();
        upstreams.values().filter_map(Weak::upgrade).map(|upstream| upstream.pool.idle()).sum()
    }

    /// Adds what connections take that are kept alive, and those that speak HTTP/2. Those of all workers are counted by
    /// the first.
    pub(crate) fn memory(&self, worker: &Worker, memory: &mut WorkerMemory) {
        for upstream in self.upstreams.borrow().values().filter_map(Weak::upgrade) {
            upstream.pool.memory(memory);
            if worker.id == 0 {
                upstream.pool.shared_memory(memory);
            }
        }
    }

    /// Another configuration is in force from now on. Requests of the one before hold what they use.
    pub(crate) fn switched(&self) {
        let named = self.named.take();
        drop(named);
    }

    /// The upstream of the computed `address` if [`WorkerUpstreams::add_address`] made it before; `None` otherwise.
    pub fn address(&self, address: &str) -> Option<Rc<LocalUpstream>> {
        self.addresses.borrow().get(address).cloned()
    }

    /// The upstream of the addresses that a name resolves to at this moment: for one request, as in nginx, so that what
    /// one learns of them does not concern others.
    pub(crate) fn passing(&self, host: &str, primary: Vec<Arc<Peer>>) -> Rc<LocalUpstream> {
        Rc::new(LocalUpstream::new(&computed(host, primary)))
    }

    /// Makes the upstream of an address that was computed. Beyond [`ADDRESSES`] all are forgotten: they cost little to
    /// make, and clients may name as many as they like.
    pub(crate) fn add_address(&self, address: &str, primary: Vec<Arc<Peer>>) -> Rc<LocalUpstream> {
        let local = Rc::new(LocalUpstream::new(&computed(address, primary)));
        let mut addresses = self.addresses.borrow_mut();
        if addresses.len() >= ADDRESSES {
            addresses.clear();
        }
        addresses.insert(address.into(), local.clone());
        local
    }
}

/// An upstream that no configuration knows: without connections to keep.
fn computed(name: &str, primary: Vec<Arc<Peer>>) -> Arc<Upstream> {
    let keep = KeepaliveLimits { connections: 0, ..KeepaliveLimits::default() };
    let members = UpstreamMembers { primary, backup: Vec::new() };
    let mut upstream = Upstream::new(name, BalanceMethod::RoundRobin, keep, members, UpstreamOrigin::Address);
    upstream.computed = true;
    Arc::new(upstream)
}

/// A worker's side of one upstream.
pub struct LocalUpstream {
    /// The upstream, which all workers share.
    pub upstream: Arc<Upstream>,
    chooser: RefCell<PeerChooser>,
    pub(crate) pool: Rc<WorkerPool>,
    /// Those of this worker that wait for a server.
    pub(crate) line: QueueLine,
    accounts: RefCell<HashMap<*const PeerState, Rc<PeerAccount>>>,
    /// The one that was asked for last: mostly the next one, too.
    last: RefCell<Option<Rc<PeerAccount>>>,
    pub(crate) purse: RetryAllowance,
    /// The chooser that is asked before the upstream's method.
    pub(crate) guided: Option<HookedBalancer>,
}

/// What this worker has to say of a peer.
struct PeerAccount {
    /// Keeps the address it is found by.
    state: Arc<PeerState>,
    figures: Arc<PeerFigures>,
}

struct PeerChooser {
    version: u64,
    count: usize,
    /// Those of them that are not `down`.
    tries: usize,
    balancer: Box<dyn Balancer>,
    /// By what names peers in requests; empty without `sticky`.
    ids: StickyIds,
}

impl PeerChooser {
    fn new(upstream: &Upstream) -> PeerChooser {
        let version = upstream.version();
        let members = Arc::new(upstream.method.members_of_worker(&upstream.members()));
        let count = members.all().count();
        let tries = members.all().filter(|peer| !peer.is_down()).count();
        let ids = upstream.sticky.as_ref().map(|sticky| sticky.ids(&members)).unwrap_or_default();
        PeerChooser { version, count, tries, balancer: upstream.method.balancer(&members), ids }
    }
}

impl LocalUpstream {
    fn new(upstream: &Arc<Upstream>) -> LocalUpstream {
        LocalUpstream {
            chooser: RefCell::new(PeerChooser::new(upstream)),
            pool: Rc::new(WorkerPool::new(upstream.keep, upstream.idle.clone())),
            line: QueueLine::default(),
            accounts: RefCell::default(),
            last: RefCell::default(),
            purse: RetryAllowance::default(),
            guided: upstream.guide.as_deref().map(HookedBalancer::new),
            upstream: upstream.clone(),
        }
    }

    /// A request begins, for the `retry_budget`.
    #[inline]
    pub(crate) fn earn(&self) {
        if let Some(budget) = &self.upstream.retry_budget {
            self.purse.earn(budget);
        }
    }

    /// The next peer for `x`.
    pub(crate) fn pick(self: &Rc<Self>, x: &mut Exchange, tried: &mut TriedPeers) -> Option<PeerLease> {
        let mut chooser = self.chooser();
        let PeerChooser { balancer, ids, .. } = &mut *chooser;
        let bound = match &self.upstream.sticky {
            Some(sticky) if tried.is_empty() => sticky.bound(x, ids, tried),
            _ => None,
        };
        let peer = match bound {
            Some(peer) => peer,
            None => balancer.pick(x, tried)?,
        };
        drop(chooser);
        let peer = match self.lane(x) {
            None => peer,
            // As long as the request: a name may be of one request alone.
            lane => Arc::new(Peer { lane: lane.map(Arc::new), ..Peer::clone(&peer) }),
        };
        Some(self.lease(peer))
    }

    /// The pool that `x` takes its connection from, where that is one of its own (`keepalive_pool`).
    pub(crate) fn lane(&self, x: &mut Exchange) -> Option<ConnectionLane> {
        let name = self.upstream.keepalive_pool.as_ref()?.value(x);
        let name = x.text(&name);
        (!name.is_empty()).then(|| ConnectionLane { name: name.into(), size: 0 })
    }

    /// The use of a peer that counts as chosen.
    pub(crate) fn lease(self: &Rc<Self>, peer: Arc<Peer>) -> PeerLease {
        let account = self.account(&peer);
        if !peer.is_compared {
            account.figures.begin();
        }
        PeerLease {
            account,
            peer,
            upstream: self.clone(),
            outcome: PeerOutcome::Fine,
            learned: None,
            began: clock::ticks(),
            timed: false,
        }
    }

    fn account(&self, peer: &Peer) -> Rc<PeerAccount> {
        if let Some(last) = &*self.last.borrow()
            && Arc::ptr_eq(&last.state, &peer.state)
        {
            return last.clone();
        }
        let mut accounts = self.accounts.borrow_mut();
        if self.guided.is_some() && accounts.len() >= ADDRESSES {
            // Those in use are held by their leases.
            accounts.clear();
        }
        let new = || {
            let state = peer.state.clone();
            Rc::new(PeerAccount { figures: state.account(), state })
        };
        let account = accounts.entry(Arc::as_ptr(&peer.state)).or_insert_with(new).clone();
        *self.last.borrow_mut() = Some(account.clone());
        account
    }

    /// How many peers there are.
    pub(crate) fn count(&self) -> usize {
        self.chooser().count
    }

    /// The chooser among the members of now.
    fn chooser(&self) -> RefMut<'_, PeerChooser> {
        let mut chooser = self.chooser.borrow_mut();
        if chooser.version != self.upstream.version() {
            *chooser = PeerChooser::new(&self.upstream);
            self.forget();
        }
        chooser
    }

    /// Members have changed: what belongs to those that left goes.
    #[cold]
    fn forget(&self) {
        let members = self.upstream.members();
        let stays = |state: *const PeerState| members.all().any(|peer| Arc::as_ptr(&peer.state) == state);
        *self.last.borrow_mut() = None;
        self.accounts.borrow_mut().retain(|state, _| stays(*state));
        self.pool.keep_only(members.all());
    }

    /// How many of them may be asked at all.
    pub(crate) fn tries(&self) -> usize {
        self.chooser().tries
    }

    fn done(&self, peer: &Arc<Peer>, outcome: PeerOutcome) {
        self.chooser.borrow_mut().balancer.done(peer, outcome);
    }
}

/// A peer in use; it is given back when this is dropped.
pub(crate) struct PeerLease {
    pub(crate) peer: Arc<Peer>,
    pub(crate) upstream: Rc<LocalUpstream>,
    outcome: PeerOutcome,
    learned: Option<LearnedSessions>,
    account: Rc<PeerAccount>,
    /// Ticks of the clock when the peer was chosen.
    began: u64,
    /// What its upstream's method wants to know of it was noted.
    timed: bool,
}

impl PeerLease {
    /// The peer has responded: `sticky` binds the client to it.
    pub(crate) fn answered(&mut self, x: &mut Exchange) {
        let elapsed = clock::scale().ticks_to_ns(clock::ticks().saturating_sub(self.began));
        self.account.figures.answered(elapsed / 1_000);
        if let Some(outlier) = &self.upstream.upstream.outlier {
            self.upstream.upstream.judge_slowness(outlier, &self.peer, elapsed / 1_000);
        }
        if let Some(timed) = self.upstream.upstream.method.timed()
            && !timed.last_byte
        {
            // How long an upload takes says nothing of the time that responses take.
            if !timed.upload || long_body(x).is_none() {
                self.peer.state.time.add(timed, elapsed, clock::monotonic_ns());
            }
            self.timed = true;
        }
        if let Some(sticky) = &self.upstream.upstream.sticky {
            self.learned = sticky.answered(x, &self.peer);
        }
    }

    /// The peer has taken the connection of a session, which may last for days: that is all that is asked of it.
    pub(crate) fn connected(&self) {
        if self.peer.succeeded() {
            self.upstream.upstream.changes.tell();
        }
    }

    /// Where the time of its use goes, among the sites of a location.
    pub(crate) fn site(&self, sites: &PeerSites) -> Site {
        if self.upstream.upstream.computed { sites.of_computed() } else { sites.of(&self.peer) }
    }

    /// What is to be measured of the server's line, if anything is.
    pub(crate) fn measured(&self) -> Option<&TimeMeasure> {
        self.upstream.upstream.method.timed().filter(|timed| timed.upload)
    }

    /// The peer ended a connection that was kept alive, while a request was on its way, which is sent again.
    #[cold]
    pub(crate) fn repeated(&self) {
        self.account.figures.repeated();
    }

    /// The peer ended such a connection, and the request may not be sent again.
    #[cold]
    pub(crate) fn lost(&self) {
        self.account.figures.faulted(Cause::KeepaliveRace);
    }

    /// What was tried, as nginx's messages name it, counts against the peer, unless it is no peer's fault. A lone
    /// server is asked whatever happened.
    pub(crate) fn fail(&mut self, x: &Exchange, fault: AttemptFault, doing: &str) {
        self.peer.state.last.note(fault.cause);
        self.account.figures.faulted(fault.cause);
        if self.outcome == PeerOutcome::Failed || !fault.reason.counts() || self.upstream.count() < 2 {
            return;
        }
        self.outcome = PeerOutcome::Failed;
        if self.peer.fail(crate::peer::balance::now()) {
            self.upstream.upstream.changes.tell();
            crate::error_log::disabled(x, doing);
        }
    }
}

impl Drop for PeerLease {
    fn drop(&mut self) {
        if let Some(timed) = self.upstream.upstream.method.timed()
            && !self.timed
            && (timed.last_byte || self.outcome == PeerOutcome::Failed)
        {
            let elapsed = clock::scale().ticks_to_ns(clock::ticks().saturating_sub(self.began));
            let (time, now) = (&self.peer.state.time, clock::monotonic_ns());
            match self.outcome {
                PeerOutcome::Failed => time.add_failure(timed, elapsed, now),
                PeerOutcome::Fine => time.add(timed, elapsed, now),
            }
        }
        self.account.figures.done(self.outcome);
        if !self.peer.is_compared {
            self.account.figures.end();
        }
        if self.peer.done(self.outcome) {
            self.upstream.upstream.changes.tell();
        }
        self.upstream.done(&self.peer, self.outcome);
        if let Some(learned) = self.learned.take() {
            learned.store();
        }
        self.upstream.line.next();
    }
}

/// So many upstreams that nothing holds any more may be listed, or as many as are held.
const MOST_GONE: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::peer::balance::RoundRobin;

    fn upstream(method: BalanceMethod, max_conns: u32) -> Arc<Upstream> {
        let peer = Peer { max_conns, ..Peer::plain("127.0.0.1:80".parse().expect("an address"), "a") };
        let members = UpstreamMembers { primary: vec![Arc::new(peer)], backup: Vec::new() };
        Arc::new(Upstream::new("u", method, KeepaliveLimits::default(), members, UpstreamOrigin::Address))
    }

    /// References to the upstream's peer, and connections that are counted for all and by this worker, while a request
    /// uses it.
    fn in_use(upstream: &Arc<Upstream>) -> (usize, u32, u32) {
        let local = Rc::new(LocalUpstream::new(upstream));
        let members = upstream.members();
        let peer = &members.primary[0];
        let own = Arc::new(upstream.method.members_of_worker(&members));
        let before = Arc::strong_count(peer);
        let chosen = RoundRobin::new(&own).next(&mut TriedPeers::default(), |_| true).expect("a peer");
        let lease = local.lease(chosen);
        let references = Arc::strong_count(peer) - before;
        let counted = (references, peer.state.conns.load(Relaxed), peer.state.in_flight());
        drop(lease);
        assert_eq!((peer.state.conns.load(Relaxed), peer.state.in_flight()), (0, 0));
        counted
    }

    /// Round robin without `max_conns`: no cache line that another worker writes, neither for references nor for counts.
    #[test]
    fn a_request_writes_its_worker_s_own_lines() {
        assert_eq!(in_use(&upstream(BalanceMethod::RoundRobin, 0)), (0, 0, 1));
        assert_eq!(
            in_use(&upstream(BalanceMethod::RoundRobin, 5)),
            (0, 1, 1),
            "the limit is for all workers together"
        );
        assert_eq!(
            in_use(&upstream(BalanceMethod::LeastConn, 0)),
            (0, 1, 1),
            "it compares what all workers use"
        );
    }
}
