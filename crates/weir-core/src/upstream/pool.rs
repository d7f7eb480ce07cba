//! Connections kept between requests: a worker's own, newest first.
//!
//! Idle sockets stay registered with the event loop, so that whether the server has closed one is known without a
//! system call when it is to be used again. One task per group, alive only while connections are kept, closes what
//! was closed there or idle too long.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::group::Keep;
use super::peer::Peer;
use crate::worker::Worker;

/// A worker's idle connections of one group.
pub(crate) struct Pool {
    keep: Keep,
    idle: RefCell<Vec<Idle>>,
    swept: Cell<bool>,
}

struct Idle {
    connection: Connection,
    peer: Arc<Peer>,
    since: u64,
}

impl Pool {
    pub(crate) fn new(keep: Keep) -> Pool {
        Pool { keep, idle: RefCell::default(), swept: Cell::new(false) }
    }

    /// A connection to `peer` that is still good, the one used last.
    pub(crate) fn take(&self, peer: &Arc<Peer>) -> Option<Connection> {
        loop {
            let found = {
                let mut idle = self.idle.borrow_mut();
                let at = idle.iter().rposition(|idle| idle.peer.addr == peer.addr)?;
                idle.remove(at)
            };
            if found.connection.is_good() {
                return Some(found.connection);
            }
        }
    }

    /// Keeps a connection that has answered whole; beyond the limit the oldest is closed.
    pub(crate) fn give(self: &Rc<Self>, worker: &Rc<Worker>, peer: &Arc<Peer>, connection: Connection) {
        let keep = &self.keep;
        if keep.connections == 0
            || connection.requests >= keep.requests
            || connection.age() >= keep.time
            || worker.is_stopping()
            || !connection.is_good()
        {
            return;
        }
        let evicted = {
            let mut idle = self.idle.borrow_mut();
            let evicted = if idle.len() >= keep.connections { Some(idle.remove(0)) } else { None };
            idle.push(Idle { connection, peer: peer.clone(), since: weir_rt::now_ms() });
            evicted
        };
        drop(evicted);
        if !self.swept.replace(true) {
            weir_rt::spawn(sweep(self.clone(), worker.clone()));
        }
    }

    /// Closes connections to peers that `stays` does not name.
    pub(crate) fn keep_only(&self, stays: impl Fn(&Peer) -> bool) {
        let idle = self.idle.take();
        let (stay, go): (Vec<_>, Vec<_>) = idle.into_iter().partition(|idle| stays(&idle.peer));
        *self.idle.borrow_mut() = stay;
        drop(go);
    }

    /// Closes what is of no use; `false`: nothing is left.
    fn clean(&self, stopping: bool) -> bool {
        let now = weir_rt::now_ms();
        let limit = self.keep.timeout;
        let old = {
            let mut idle = self.idle.borrow_mut();
            let all = std::mem::take(&mut *idle);
            let (good, old): (Vec<_>, Vec<_>) = all.into_iter().partition(|idle| {
                !stopping && idle.connection.is_good() && now.saturating_sub(idle.since) < limit
            });
            *idle = good;
            old
        };
        drop(old);
        !self.idle.borrow().is_empty()
    }
}

async fn sweep(pool: Rc<Pool>, worker: Rc<Worker>) {
    let every = Duration::from_millis(pool.keep.timeout.clamp(10, 500));
    loop {
        weir_rt::sleep(every).await;
        if !pool.clean(worker.is_stopping()) {
            pool.swept.set(false);
            return;
        }
    }
}
