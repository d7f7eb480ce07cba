//! The open connections of a worker: what it does with them when it stops, is full, or takes another configuration.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use weir_rt::HeldMemory;

use super::ClientConnection;
use super::slots::IndexSlots;
use super::wire::ClientWire;
use crate::descriptors::ConnectionLimit;
use crate::exchange::Exchange;
use crate::worker::memory::{MemoryKind, WorkerMemory};
use crate::worker::{CloseReason, REUSED_AFTER_MS, Worker, WorkerPart, WorkerSlot};

/// The part that connections have of a worker: those that are open.
#[derive(Default)]
struct WorkerConnections {
    wires: RefCell<IndexSlots<OpenConnection>>,
}

/// An open connection, as its worker knows it.
pub(super) type OpenConnection = (Weak<ClientWire>, Rc<ClientConnection>);

impl WorkerConnections {
    fn of(worker: &Worker) -> &WorkerConnections {
        worker.part(WorkerSlot::Connections)
    }

    fn open(&self) -> Vec<(Rc<ClientWire>, Rc<ClientConnection>)> {
        let wires = self.wires.borrow();
        wires.iter().filter_map(|(wire, connection)| Some((wire.upgrade()?, connection.clone()))).collect()
    }
}

impl WorkerPart for WorkerConnections {
    /// Those whose address the configuration does not have, or has otherwise, end with the request they are in.
    fn switched(&self, worker: &Worker) {
        for (wire, connection) in self.open() {
            if !wire.idle.get() {
                connection.foresee(worker);
                connection.look();
                continue;
            }
            if connection.adopt(worker) && wire.multiplexed.get() && connection.requests.get() > 0 {
                // Its client is notified, so that no request of its is lost.
                connection.retire(CloseReason::Reload);
            }
            if connection.takes_no_more() {
                wire.timer.arm(0);
            }
        }
    }

    fn stopped(&self) {
        for (wire, connection) in self.open() {
            if wire.idle.get() && connection.requests.get() > 0 {
                wire.timer.arm(wire.kept_until.get().saturating_sub(weir_rt::now_ms()));
            } else {
                connection.look();
            }
        }
    }

    fn end_all(&self) {
        for (wire, connection) in self.open() {
            if wire.idle.get() {
                retire(&wire, &connection, CloseReason::ShutdownTimeout);
            } else {
                connection.retire(CloseReason::ShutdownTimeout);
                connection.ends(CloseReason::ShutdownTimeout);
                wire.stream.abort();
            }
        }
    }

    fn end_before(&self, serial: u64) {
        for (wire, connection) in self.open() {
            if wire.idle.get() {
                if connection.requests.get() == 0 && connection.born < serial {
                    retire(&wire, &connection, CloseReason::ShutdownTimeout);
                }
            } else if connection.serial.get() < serial {
                connection.ends(CloseReason::ShutdownTimeout);
                wire.stream.abort();
            }
        }
    }

    fn memory(&self, worker: &Worker, memory: &mut WorkerMemory) {
        let wires = self.wires.borrow();
        memory.add_sampled(wires.len(), wires.iter(), |(wire, connection)| {
            let wire = wire.upgrade()?;
            Some((connection.memory_kind(&wire), connection.held_bytes() + wire.held_bytes()))
        });
        memory.add(MemoryKind::UnusedPlaces, wires.unused());
        let requests = usize::try_from(worker.counters.writing.get()).unwrap_or(0);
        memory.add(MemoryKind::Request, HeldMemory::new(requests, requests * REQUEST_BYTES));
    }

    /// Closes an eighth of the connections that wait for a request, 32 at most, those first that wait longest.
    /// None whose request has come and was not read yet: its client would see a reset. For want of descriptors, which nginx
    /// closes nothing for, none that has not asked yet, or may be about to ask again.
    fn close_idle(&self, limit: &ConnectionLimit) -> Option<usize> {
        let mut idle = self.open();
        let since = weir_rt::now_ms().saturating_sub(REUSED_AFTER_MS);
        idle.retain(|(wire, connection)| {
            let unused = connection.requests.get() > 0 && wire.idle_since.get() <= since;
            wire.idle.get() && !connection.is_retired() && (unused || !limit.by_descriptors)
        });
        idle.sort_by_key(|(wire, _)| wire.idle_since.get());
        let count = (idle.len() / 8).clamp(1, 32);
        let quiet = idle.iter().filter(|(wire, _)| wire.stream.is_quiet()).take(count);
        let closed = quiet.map(|(wire, connection)| retire(wire, connection, CloseReason::Room));
        let closed = closed.count();
        (!idle.is_empty()).then_some(closed)
    }
}

impl ClientConnection {
    /// Has the task of an HTTP/2 connection look whether it is to end; one of HTTP/1 does so after its request.
    pub fn look(&self) {
        if let Some(state) = self.protocol.get().and_then(Weak::upgrade) {
            state.look();
        }
    }
}

/// The task of an idle connection ends it.
fn retire(wire: &ClientWire, connection: &ClientConnection, reason: CloseReason) {
    connection.retire(reason);
    wire.timer.arm(0);
}

impl Worker {
    /// The worker's client connections that are open, idle ones too.
    pub fn open_wires(&self) -> Vec<(Rc<ClientWire>, Rc<ClientConnection>)> {
        WorkerConnections::of(self).open()
    }

    /// Registers an open connection; it is counted until what is returned is dropped.
    pub fn open(
        self: &Rc<Self>,
        wire: &Rc<ClientWire>,
        connection: &Rc<ClientConnection>,
    ) -> ConnectionEntry {
        self.counters.accepted.add(1);
        self.reopen(wire, connection)
    }

    /// As [`Worker::open`], of a connection that was counted as accepted before.
    pub fn reopen(
        self: &Rc<Self>,
        wire: &Rc<ClientWire>,
        connection: &Rc<ClientConnection>,
    ) -> ConnectionEntry {
        self.counters.active.add(1);
        let wires = &WorkerConnections::of(self).wires;
        let at = wires.borrow_mut().insert((Rc::downgrade(wire), connection.clone()));
        ConnectionEntry { worker: self.clone(), at, sessions: Vec::new() }
    }

    /// A connection or flow is open no more.
    pub(super) fn count_closed(&self, connection: Option<Rc<ClientConnection>>) {
        self.counters.active.sub(1);
        if let Some(connection) = connection {
            connection.count_end(self);
        }
        self.notify_closed();
    }

    /// Open connections of clients, `most` of them.
    pub(crate) fn each_connection(&self, most: usize, mut f: impl FnMut(&ClientWire, &ClientConnection)) {
        let wires = WorkerConnections::of(self).wires.borrow();
        for (wire, connection) in wires.iter().take(most) {
            if let Some(wire) = wire.upgrade() {
                f(&wire, connection);
            }
        }
    }
}

/// An open connection's entry with its worker.
pub struct ConnectionEntry {
    worker: Rc<Worker>,
    at: usize,
    /// The sessions that have passed the connection on: their places in limits are the connection's.
    #[expect(
        clippy::vec_box,
        reason = "an exchange is taken and given back as the box it is in, not copied"
    )]
    sessions: Vec<Box<Exchange>>,
}

impl ConnectionEntry {
    /// The entry of the connection as it goes on after the session `x`.
    pub fn passed_on(
        mut self,
        x: Box<Exchange>,
        wire: &Rc<ClientWire>,
        connection: &Rc<ClientConnection>,
    ) -> ConnectionEntry {
        let mut next = self.worker.reopen(wire, connection);
        next.sessions = std::mem::take(&mut self.sessions);
        next.sessions.push(x);
        next
    }
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        let removed = WorkerConnections::of(&self.worker).wires.borrow_mut().remove(self.at);
        self.worker.count_closed(removed.map(|(_, connection)| connection));
        self.sessions.drain(..).for_each(|x| self.worker.give_exchange(x));
    }
}

/// What a request takes while it waits: its exchange with texts and lists, the futures that wait, its trace. Measured: 500
/// requests that waited for a server took 8.9 KB each beside their connections (release build, epoll).
const REQUEST_BYTES: usize = size_of::<Exchange>() + 7680;
