//! A socket that a worker reads by itself, whatever comes on it.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use weir_rt::{Listener, Stream};

use super::accept::{self, ListenerDoor};
use super::flows;
use super::quic::endpoint;
use weir_engine::settings::listen::ListenAddress;
use weir_engine::worker::Worker;

/// What sockets bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SocketUse {
    Connections,
    /// Flows of `stream`.
    Datagrams,
    /// Packets of QUIC.
    Quic,
}

impl SocketUse {
    pub(crate) fn of(address: &ListenAddress) -> SocketUse {
        match address.options.udp {
            _ if address.quic => SocketUse::Quic,
            true => SocketUse::Datagrams,
            false => SocketUse::Connections,
        }
    }
}

/// A socket of one worker.
pub(crate) enum OwnSocket {
    Connections(Listener),
    Datagrams(Stream),
    /// Of QUIC, with the cookie of the address' first socket.
    Quic(Stream, u64),
}

impl OwnSocket {
    /// Of a socket that brings datagrams, of this kind; `group` is the cookie of the address' first socket.
    ///
    /// # Errors
    /// The runtime does not take it.
    pub(crate) fn of_datagrams(fd: OwnedFd, brings: SocketUse, group: u64) -> std::io::Result<OwnSocket> {
        let socket = Stream::of_datagrams(fd)?;
        Ok(if brings == SocketUse::Quic {
            OwnSocket::Quic(socket, group)
        } else {
            OwnSocket::Datagrams(socket)
        })
    }

    /// Starts its task, which goes on until `door` is closed.
    pub(crate) fn run(self, worker: &Rc<Worker>, door: &Rc<ListenerDoor>) {
        let (worker, door) = (worker.clone(), door.clone());
        match self {
            OwnSocket::Connections(listener) => weir_rt::spawn(accept::run(worker, listener, door)),
            OwnSocket::Datagrams(socket) => weir_rt::spawn(flows::run(worker, Rc::new(socket), door)),
            OwnSocket::Quic(socket, group) => {
                weir_rt::spawn(endpoint::run(worker, Rc::new(socket), group, door))
            }
        };
    }
}
