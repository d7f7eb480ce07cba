//! Connections without a socket, for what runs without a request.

use std::cell::OnceCell;
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

    pub(crate) fn unconnected(
        hosts: Rc<Hosts>,
        peer: SockAddr,
        local: SockAddr,
        worker: &Worker,
    ) -> Connection {
        Connection {
            local: OnceCell::from(local),
            ..Connection::new(worker.connection_number(), peer, -1, hosts, worker.serial())
        }
    }
}
