//! A socket that a worker reads by itself, whatever comes on it.

use std::rc::Rc;

use weir_rt::{Listener, Stream};

use super::accept::{self, ListenerDoor};
use super::flows;
use weir_engine::worker::Worker;

/// A socket of one worker.
pub(crate) enum OwnSocket {
    Connections(Listener),
    Datagrams(Stream),
}

impl OwnSocket {
    /// Starts its task, which goes on until `door` is closed.
    pub(crate) fn run(self, worker: &Rc<Worker>, door: &Rc<ListenerDoor>) {
        let (worker, door) = (worker.clone(), door.clone());
        match self {
            OwnSocket::Connections(listener) => weir_rt::spawn(accept::run(worker, listener, door)),
            OwnSocket::Datagrams(socket) => weir_rt::spawn(flows::run(worker, Rc::new(socket), door)),
        };
    }
}
