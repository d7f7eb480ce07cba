//! Connections kept alive between requests: a worker's own, newest first, and [those of all
//! workers](crate::pool::shared_idle).
//!
//! `keepalive N` counts for the process: half of it is shared out among the workers, and what overflows a worker's share
//! goes to the list of all, where any worker looks before it connects. What a worker has not used for [`PARK_MS`] goes there,
//! too. So a worker that is stuck, or has nothing to do, keeps few from the others: of those it has just used its share at
//! most. They can't be taken from a worker that is stuck: what a server sends meanwhile goes to its ring. With one
//! worker all are its own.
//!
//! A worker's own idle sockets stay registered with its event loop, so that whether the server has closed one is known
//! without a system call when it is to be used again. One task per upstream, alive only while connections are kept
//! alive, closes what was closed there or idle too long.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use weir_rt::HeldMemory;

use crate::connection::keepalive_limits::KeepaliveLimits;
use crate::connection::parked::ParkedSocket;
use crate::connection::upstream_connection::UpstreamConnection;
use crate::h2::session_list::SessionList;
use crate::h2::{SessionConnecting, UpstreamSession};
use crate::peer::Peer;
use crate::peer::idle_time::LOOK;
use crate::pool::shared_idle::{OwnPlace, SharedIdle};
use crate::tls_client::SecureUpstream;
use weir_engine::worker::memory::{COUNTED, MemoryKind, WorkerMemory};
use weir_engine::worker::{UpstreamCloseReason, Worker};

/// A worker's side of the idle connections of one upstream.
pub(crate) struct WorkerPool {
    keep: KeepaliveLimits,
    common: Arc<SharedIdle>,
    idle: RefCell<Vec<IdleConnection>>,
    swept: Cell<bool>,
    /// Places of its share that are empty because their connections are in the list of all.
    lent: Rc<Cell<usize>>,
    /// Connections that speak HTTP/2.
    http2: Rc<SessionList>,
    /// Those that are being made.
    pub(crate) connecting: SessionConnecting,
}

struct IdleConnection {
    connection: Box<UpstreamConnection>,
    peer: Arc<Peer>,
    since: u64,
}

impl WorkerPool {
    pub(crate) fn new(keep: KeepaliveLimits, common: Arc<SharedIdle>) -> WorkerPool {
        WorkerPool {
            keep,
            common,
            idle: RefCell::default(),
            swept: Cell::new(false),
            lent: Rc::default(),
            http2: Rc::default(),
            connecting: SessionConnecting::default(),
        }
    }

    /// Whether connections that speak HTTP/2 are shared by requests, and kept alive.
    pub(crate) fn shares(&self) -> bool {
        self.keep.connections > 0
    }

    /// How connections are kept alive.
    pub(crate) fn keep(&self) -> KeepaliveLimits {
        self.keep
    }

    /// A connection to `peer` that speaks HTTP/2, has this TLS and takes another call: the one that was opened first, so
    /// that the others become idle.
    pub(crate) fn session(
        &self,
        peer: &Peer,
        secure: Option<&SecureUpstream>,
    ) -> Option<Rc<UpstreamSession>> {
        let sessions = self.http2.sessions.borrow();
        sessions.iter().find(|session| session.is_to(peer, secure) && session.has_room()).cloned()
    }

    /// Adds one, if they are shared. Of idle ones as many are kept alive as of other connections.
    pub(crate) fn add(&self, session: &Rc<UpstreamSession>, worker: &Worker) {
        if !self.shares() {
            return;
        }
        self.http2.add(session, PoolShare::of(self.keep.connections, worker.colleagues()).alone);
    }

    /// The worker's own idle connections.
    pub(crate) fn idle(&self) -> u64 {
        self.idle.borrow().len() as u64
    }

    /// Adds what its connections take.
    pub(crate) fn memory(&self, memory: &mut WorkerMemory) {
        let idle = self.idle.borrow();
        memory.add_sampled(idle.len(), idle.iter(), |idle| {
            let kind = match idle.connection.stream.has_layer() {
                false => MemoryKind::UpstreamIdle,
                true => MemoryKind::UpstreamIdleTls,
            };
            Some((kind, size_of::<IdleConnection>() + idle.connection.held_bytes()))
        });
        let sessions = self.http2.sessions.borrow();
        memory.add_sampled(sessions.len(), sessions.iter(), |session| {
            Some((
                MemoryKind::UpstreamHttp2,
                size_of::<Rc<UpstreamSession>>() + COUNTED + session.held_bytes(),
            ))
        });
    }

    /// Adds what the connections take that are all workers'.
    pub(crate) fn shared_memory(&self, memory: &mut WorkerMemory) {
        let count = self.common.count();
        memory.add(MemoryKind::UpstreamShared, HeldMemory::new(count, count * size_of::<ParkedSocket>()));
    }

    /// A connection to `peer` that is still good and has this TLS: the worker's own that was used last, else, without
    /// TLS, one of all workers'.
    pub(crate) fn take(
        &self,
        peer: &Arc<Peer>,
        secure: Option<&SecureUpstream>,
    ) -> Option<Box<UpstreamConnection>> {
        while let Some(IdleConnection { mut connection, peer, since }) = self.own(peer, secure) {
            connection.idle = idle_for(since);
            if !connection.is_good() {
                peer.state.idle.closed_after(connection.idle);
            } else if connection.idle < self.limit(&peer, &connection) {
                return Some(connection);
            } else {
                connection.end.ends(self.overdue(&connection, connection.idle));
            }
        }
        if secure.is_some() || peer.lane.is_some() {
            return None;
        }
        while let Some(parked) = self.common.take(&peer.addr, peer.bind.as_ref()) {
            let idle = idle_for(parked.since);
            if idle >= limit(peer, self.keep.timeout) {
                parked.end.ends(overdue(idle, self.keep.timeout));
                continue;
            }
            let Some(mut connection) = UpstreamConnection::unpark(parked) else { continue };
            if connection.age() < self.keep.time {
                connection.idle = idle;
                return Some(connection);
            }
            connection.end.ends(UpstreamCloseReason::KeepaliveTime);
        }
        None
    }

    fn own(&self, peer: &Peer, secure: Option<&SecureUpstream>) -> Option<IdleConnection> {
        let mut idle = self.idle.borrow_mut();
        let same =
            |idle: &IdleConnection| idle.peer.shares_line(peer) && idle.connection.secure.as_ref() == secure;
        let at = idle.iter().rposition(same)?;
        Some(idle.remove(at))
    }

    /// Keeps alive a connection that has carried a whole response; beyond the limits the oldest is closed.
    pub(crate) fn give(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        peer: &Arc<Peer>,
        connection: Box<UpstreamConnection>,
    ) {
        let keep = &self.keep;
        connection.stream.settle_kernel();
        if let Some(reason) = self.refusal(worker, &connection) {
            return connection.end.ends(reason);
        }
        if !connection.is_good() {
            return;
        }
        let share = PoolShare::of(keep.connections, worker.colleagues());
        let own = if connection.is_bound() || peer.lane.is_some() { share.alone } else { share.own };
        let overflow = {
            let mut idle = self.idle.borrow_mut();
            idle.push(IdleConnection { connection, peer: peer.clone(), since: weir_rt::now_ms() });
            let crowded = peer.lane.as_ref().filter(|lane| lane.size > 0).and_then(|lane| {
                let same = |one: &IdleConnection| one.peer.lane.as_ref() == Some(lane);
                let count = idle.iter().filter(|one| same(one)).count();
                if count > lane.size { idle.iter().position(same) } else { None }
            });
            crowded.or((idle.len() > own).then_some(0)).map(|at| idle.remove(at))
        };
        if let Some(overflow) = overflow {
            self.park(overflow, share.common, OwnPlace::Kept);
        }
        self.repay(share.own);
        if !self.swept.replace(true) {
            weir_rt::spawn(sweep(Rc::downgrade(self), self.look(), worker.clone()));
        }
    }

    /// Why `connection`, which is good, is not kept alive.
    #[inline]
    fn refusal(&self, worker: &Worker, connection: &UpstreamConnection) -> Option<UpstreamCloseReason> {
        let keep = &self.keep;
        let requests = connection.own.map_or(keep.requests, |own| own.requests);
        if keep.connections == 0 {
            Some(UpstreamCloseReason::KeepaliveOff)
        } else if connection.requests >= requests {
            Some(UpstreamCloseReason::KeepaliveRequests)
        } else if connection.age() >= keep.time {
            Some(UpstreamCloseReason::KeepaliveTime)
        } else {
            worker.is_stopping().then_some(UpstreamCloseReason::Shutdown)
        }
    }

    /// Why `connection` is closed that was `idle` for too many milliseconds.
    fn overdue(&self, connection: &UpstreamConnection, idle: u64) -> UpstreamCloseReason {
        overdue(idle, connection.own.map_or(self.keep.timeout, |own| own.timeout))
    }

    /// Gives a connection to all workers, which may keep this many alive, and those whose places are lent; one that
    /// can't leave its worker is closed.
    fn park(&self, idle: IdleConnection, most: usize, place: OwnPlace) {
        if (most == 0 && place == OwnPlace::Kept) || !idle.can_leave() {
            return idle.connection.end.ends(UpstreamCloseReason::KeepaliveFull);
        }
        let (common, places) = (self.common.clone(), self.lent.clone());
        weir_rt::spawn(async move {
            let IdleConnection { connection, peer, since } = idle;
            let Some(mut parked) = connection.park(&peer, since).await else { return };
            for _ in 0..PARK_TRIES {
                match common.push(parked, most, place) {
                    Ok(()) => return places.set(places.get() + usize::from(place == OwnPlace::Lent)),
                    Err(back) => parked = back,
                }
                // The worker that holds the list has no processor, perhaps.
                weir_rt::sleep(Duration::from_millis(1)).await;
            }
            parked.end.ends(UpstreamCloseReason::KeepaliveFull);
        });
    }

    /// Gives what was not used for a while to all workers.
    fn lend(&self, workers: usize) {
        if workers == 1 {
            return;
        }
        let unused = |idle: &mut IdleConnection| idle_for(idle.since) >= PARK_MS && idle.can_leave();
        let unused: Vec<_> = self.idle.borrow_mut().extract_if(.., unused).collect();
        let share = PoolShare::of(self.keep.connections, workers);
        unused.into_iter().for_each(|idle| self.park(idle, share.common, OwnPlace::Lent));
    }

    /// Of `own` places those are used again that are not empty.
    fn repay(&self, own: usize) {
        let lent = self.lent.get();
        let excess = (self.idle.borrow().len() + lent).saturating_sub(own).min(lent);
        if excess > 0 && self.common.repay(excess) {
            self.lent.set(lent - excess);
        }
    }

    /// Closes connections to peers that are no members any more.
    pub(crate) fn keep_only<'p>(&self, members: impl Iterator<Item = &'p Arc<Peer>> + Clone) {
        let idle = self.idle.take();
        let (stay, go): (Vec<_>, Vec<_>) = idle
            .into_iter()
            .partition(|idle| members.clone().any(|peer| Arc::ptr_eq(&peer.state, &idle.peer.state)));
        *self.idle.borrow_mut() = stay;
        go.iter().for_each(|idle| idle.connection.end.ends(UpstreamCloseReason::Removed));
        drop(go);
        let is_member = |session: &UpstreamSession| {
            members.clone().any(|peer| Arc::ptr_eq(&peer.state, &session.peer().state))
        };
        self.http2.sessions.borrow_mut().retain(|session| {
            let stays = is_member(session);
            if !stays {
                session.retire(UpstreamCloseReason::Removed);
            }
            stays
        });
        if !self.common.is_empty() {
            self.common.close_where(|parked| {
                let stays = members.clone().any(|peer| peer.addr == parked.addr);
                (!stays).then_some(UpstreamCloseReason::Removed)
            });
        }
    }

    /// Milliseconds that a connection to `peer` may be idle.
    fn limit(&self, peer: &Peer, connection: &UpstreamConnection) -> u64 {
        limit(peer, connection.own.map_or(self.keep.timeout, |own| own.timeout))
    }

    /// Closes what is of no use to any worker.
    fn sweep_common(&self, stopping: bool) {
        let common = &self.common;
        if common.is_empty() || !(stopping || common.is_to_be_swept(weir_rt::now_ms(), self.look())) {
            return;
        }
        let limit = |parked: &ParkedSocket| {
            let learned = parked.state.idle.limit().unwrap_or(u64::MAX);
            learned.min(self.keep.timeout)
        };
        common.close_where(|parked| {
            let idle = idle_for(parked.since);
            if stopping {
                return Some(UpstreamCloseReason::Shutdown);
            }
            (idle >= limit(parked)).then(|| overdue(idle, self.keep.timeout))
        });
        if let [one] = &common.sweep()[..] {
            one.state.idle.closed_after(idle_for(one.since));
        }
    }

    /// Milliseconds between two looks at what is idle.
    fn look(&self) -> u64 {
        self.keep.timeout.clamp(10, LOOK)
    }

    /// Closes what is of no use; `false`: nothing is left.
    fn clean(&self, stopping: bool) -> bool {
        let old = {
            let mut idle = self.idle.borrow_mut();
            let all = std::mem::take(&mut *idle);
            let good = |idle: &IdleConnection| {
                if stopping {
                    idle.connection.end.ends(UpstreamCloseReason::Shutdown);
                    return false;
                }
                if !idle.connection.is_good() {
                    return false;
                }
                let since = idle_for(idle.since);
                let stays = since < self.limit(&idle.peer, &idle.connection);
                if !stays {
                    idle.connection.end.ends(self.overdue(&idle.connection, since));
                }
                stays
            };
            let (good, old): (Vec<_>, Vec<_>) = all.into_iter().partition(good);
            *idle = good;
            old
        };
        let mut closed = old.iter().filter(|idle| !idle.connection.is_good());
        // Many at once are a server that went away, not its clock.
        if let (Some(one), None) = (closed.next(), closed.next()) {
            one.peer.state.idle.closed_after(idle_for(one.since));
        }
        drop(old);
        self.sweep_common(stopping);
        !self.idle.borrow().is_empty() || !self.common.is_empty()
    }
}

impl IdleConnection {
    /// It has no state of its worker's.
    fn can_leave(&self) -> bool {
        !self.connection.is_bound() && self.peer.lane.is_none()
    }
}

/// How long a connection to `peer` may be idle that may be so for `timeout`: not as long as the server lets it be.
fn limit(peer: &Peer, timeout: u64) -> u64 {
    peer.state.idle.limit().unwrap_or(u64::MAX).min(timeout)
}

/// Why a connection is closed that was `idle` for too many milliseconds, where `timeout` are allowed.
fn overdue(idle: u64, timeout: u64) -> UpstreamCloseReason {
    match idle >= timeout {
        true => UpstreamCloseReason::KeepaliveTimeout,
        false => UpstreamCloseReason::KeepaliveHabit,
    }
}

/// Milliseconds since then.
fn idle_for(since: u64) -> u64 {
    weir_rt::now_ms().saturating_sub(since)
}

impl Drop for WorkerPool {
    /// No request can find its sessions any more: each ends with its last call.
    fn drop(&mut self) {
        self.common.repay(self.lent.get());
        for session in self.http2.sessions.borrow().iter() {
            session.retire(UpstreamCloseReason::Reload);
        }
        self.idle.get_mut().iter().for_each(|idle| idle.connection.end.ends(UpstreamCloseReason::Reload));
    }
}

/// How a number of connections is shared out.
#[derive(Debug, PartialEq, Eq)]
struct PoolShare {
    /// For each worker.
    own: usize,
    /// For all together.
    common: usize,
    /// For each worker of those connections that can't leave theirs.
    alone: usize,
}

impl PoolShare {
    fn of(connections: usize, workers: usize) -> PoolShare {
        let alone = connections.div_ceil(workers);
        if workers == 1 {
            return PoolShare { own: connections, common: 0, alone };
        }
        let own = connections / (2 * workers);
        PoolShare { own, common: connections - own * workers, alone }
    }
}

/// Looks at a pool every `every` milliseconds for as long as it holds something. It does not keep the pool: with its
/// configuration the connections go.
async fn sweep(pool: Weak<WorkerPool>, every: u64, worker: Rc<Worker>) {
    loop {
        weir_rt::sleep(Duration::from_millis(every)).await;
        let Some(pool) = pool.upgrade() else { return };
        pool.lend(worker.colleagues());
        if !pool.clean(worker.is_stopping()) {
            pool.swept.set(false);
            return;
        }
    }
}

/// For this many milliseconds a connection is its worker's that does not use it. One that is used more often pays
/// nothing.
const PARK_MS: u64 = 1000;
/// How often a connection is offered to the list of all, a millisecond apart, while other threads hold it.
const PARK_TRIES: usize = 20;

#[cfg(test)]
mod tests {
    use super::PoolShare;

    #[test]
    fn shares_add_up() {
        assert_eq!(PoolShare::of(32, 1), PoolShare { own: 32, common: 0, alone: 32 });
        assert_eq!(PoolShare::of(32, 4), PoolShare { own: 4, common: 16, alone: 8 });
        assert_eq!(PoolShare::of(3, 4), PoolShare { own: 0, common: 3, alone: 1 });
        for (connections, workers) in (1..70).flat_map(|n| (1..9).map(move |w| (n, w))) {
            let share = PoolShare::of(connections, workers);
            assert_eq!(share.own * workers + share.common, connections);
        }
    }
}
