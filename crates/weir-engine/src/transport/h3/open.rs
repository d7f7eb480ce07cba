//! The open connections of HTTP/3 of a worker: what it does with them when it stops, is full, or takes another configuration.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use weir_rt::HeldMemory;

use super::mux::H3Mux;
use crate::descriptors::ConnectionLimit;
use crate::transport::ClientConnection;
use crate::transport::slots::IndexSlots;
use crate::worker::memory::{MemoryKind, WorkerMemory};
use crate::worker::{CloseReason, REUSED_AFTER_MS, Worker, WorkerPart, WorkerSlot};

/// The open connections of a worker.
#[derive(Default)]
struct WorkerQuic(RefCell<IndexSlots<OpenQuic>>);

/// A connection, with its streams once its handshake is over.
type OpenQuic = (Rc<ClientConnection>, RefCell<Weak<H3Mux>>);

impl WorkerQuic {
    fn open(&self) -> Vec<(Rc<ClientConnection>, Option<Rc<H3Mux>>)> {
        let open = self.0.borrow();
        open.iter().map(|(connection, mux)| (connection.clone(), mux.borrow().upgrade())).collect()
    }

    fn end(&self, meant: impl Fn(&ClientConnection, Option<&H3Mux>) -> bool, reason: CloseReason) {
        for (connection, mux) in self.open() {
            if meant(&connection, mux.as_deref()) {
                connection.retire(reason);
                connection.ends(reason);
                if let Some(mux) = mux {
                    mux.end();
                    mux.wake();
                }
            }
        }
    }
}

impl WorkerPart for WorkerQuic {
    /// Those whose address the configuration does not have, or has otherwise, end with the requests they are in.
    fn switched(&self, worker: &Worker) {
        for (connection, mux) in self.open() {
            let idle = mux.is_some_and(|mux| mux.streams() == 0);
            if idle {
                // It goes on with the new servers, whatever they are.
                connection.adopt(worker);
            } else {
                connection.foresee(worker);
            }
            connection.look();
        }
    }

    fn stopped(&self) {
        self.open().iter().for_each(|(connection, _)| connection.look());
    }

    fn end_all(&self) {
        self.end(|_, _| true, CloseReason::ShutdownTimeout);
    }

    fn end_before(&self, serial: u64) {
        self.end(|connection, _| connection.serial.get() < serial, CloseReason::ShutdownTimeout);
    }

    fn memory(&self, _worker: &Worker, memory: &mut WorkerMemory) {
        let open = self.0.borrow();
        let bytes = open.iter().map(|(connection, _)| connection.held_bytes()).sum();
        memory.add(MemoryKind::Quic, HeldMemory::new(open.len(), bytes));
        memory.add(MemoryKind::UnusedPlaces, open.unused());
    }

    /// Closes an eighth of the connections without requests, 32 at most.
    fn close_idle(&self, limit: &ConnectionLimit) -> Option<usize> {
        if limit.by_descriptors {
            // They have none of their own.
            return None;
        }
        let old = weir_rt::now_ms().saturating_sub(REUSED_AFTER_MS);
        let mut idle = self.open();
        idle.retain(|(connection, mux)| {
            let unused = connection.requests.get() > 0 && connection.started_ms <= old;
            unused && !connection.is_retired() && mux.as_ref().is_some_and(|mux| mux.streams() == 0)
        });
        let count = (idle.len() / 8).clamp(1, 32);
        for (connection, _) in idle.iter().take(count) {
            connection.retire(CloseReason::Room);
            connection.look();
        }
        (!idle.is_empty()).then_some(count.min(idle.len()))
    }
}

impl Worker {
    /// Registers a connection of QUIC, which counts until what is returned is dropped.
    pub fn open_quic(self: &Rc<Self>, connection: &Rc<ClientConnection>) -> QuicEntry {
        self.counters.accepted.add(1);
        self.counters.active.add(1);
        let open = &self.part::<WorkerQuic>(WorkerSlot::Quic).0;
        let at = open.borrow_mut().insert((connection.clone(), RefCell::default()));
        QuicEntry { worker: self.clone(), at }
    }
}

/// A connection's entry with its worker.
pub struct QuicEntry {
    worker: Rc<Worker>,
    at: usize,
}

impl QuicEntry {
    /// The connection's handshake is over, and this is what it serves.
    pub fn serves(&self, mux: &Rc<H3Mux>) {
        if let Some((_, known)) = self.worker.part::<WorkerQuic>(WorkerSlot::Quic).0.borrow().get(self.at) {
            *known.borrow_mut() = Rc::downgrade(mux);
        }
    }
}

impl Drop for QuicEntry {
    fn drop(&mut self) {
        let removed = self.worker.part::<WorkerQuic>(WorkerSlot::Quic).0.borrow_mut().remove(self.at);
        self.worker.count_closed(removed.map(|(connection, _)| connection));
    }
}
