//! Connections without a socket, for what runs without a request.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use weir_rt::net::SockAddr;

use super::Connection;
use crate::conf::server::Hosts;
use crate::worker::Worker;

impl Connection {
    /// The connection of what was not caused by a client.
    pub(crate) fn nobodys(hosts: &Rc<Hosts>, worker: &Worker) -> Connection {
        Connection::unconnected(hosts.clone(), SockAddr::UNSPECIFIED, SockAddr::UNSPECIFIED, worker)
    }

    /// Whether no client stands behind it.
    pub fn is_nobodys(&self) -> bool {
        self.peer == SockAddr::UNSPECIFIED
    }

    /// A connection of the same client for what outlives this one.
    pub(crate) fn copy(&self, worker: &Worker) -> Connection {
        let (hosts, local) = (self.hosts.borrow().clone(), self.local().clone());
        Connection::unconnected(hosts, self.peer.clone(), local, worker)
    }

    pub(super) fn unconnected(
        hosts: Rc<Hosts>,
        peer: SockAddr,
        local: SockAddr,
        worker: &Worker,
    ) -> Connection {
        Connection {
            number: worker.connection_number(),
            peer,
            fd: -1,
            hosts: RefCell::new(hosts),
            serial: Cell::new(worker.serial()),
            born: worker.serial(),
            requests: Cell::new(0),
            started_ms: weir_rt::now_ms(),
            accept_wait: 0,
            proxied: OnceCell::new(),
            debug: false,
            expects_tls: false,
            hello: OnceCell::new(),
            tls: OnceCell::new(),
            named: RefCell::default(),
            retired: Cell::new(false),
            local: OnceCell::from(local),
            states: OnceCell::new(),
        }
    }
}
