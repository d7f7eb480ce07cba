//! Connections without a socket, for what runs without a request.

use std::cell::OnceCell;
use std::rc::Rc;

use weir_rt::net::SockAddr;

use super::ClientConnection;
use crate::plan::hosts::AddressServers;
use crate::worker::Worker;

impl ClientConnection {
    /// The connection of what was not caused by a client.
    pub(crate) fn nobodys(hosts: &Rc<AddressServers>, worker: &Worker) -> ClientConnection {
        ClientConnection::unconnected(hosts.clone(), SockAddr::UNSPECIFIED, SockAddr::UNSPECIFIED, worker)
    }

    /// Whether it has no client.
    pub(crate) fn is_nobodys(&self) -> bool {
        self.peer == SockAddr::UNSPECIFIED
    }

    /// A connection of the same client for what outlives this one.
    pub(crate) fn copy(&self, worker: &Worker) -> ClientConnection {
        let (hosts, local) = (self.hosts.borrow().clone(), self.local().clone());
        ClientConnection::unconnected(hosts, self.peer.clone(), local, worker)
    }

    /// A connection of these addresses without a socket.
    pub fn unconnected(
        hosts: Rc<AddressServers>,
        peer: SockAddr,
        local: SockAddr,
        worker: &Worker,
    ) -> ClientConnection {
        ClientConnection {
            local: OnceCell::from(local),
            ..ClientConnection::new(worker.connection_number(), peer, -1, hosts, worker.serial())
        }
    }
}
