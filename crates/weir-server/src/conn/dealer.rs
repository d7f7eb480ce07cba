//! What the server keeps with each worker: what deals connections to it, and which of them leave it.

use std::cell::RefCell;
use std::sync::Arc;

use weir_rt::HeldMemory;

use super::parked::{self, ParkedConnection};
use weir_engine::worker::memory::{MemoryKind, WorkerMemory};
use weir_engine::worker::{CloseReason, Worker, WorkerPart, WorkerSlot};

/// Deals connections to workers.
pub(crate) trait ConnectionDealer: Send + Sync {
    /// A worker has taken a connection from its queue.
    fn taken(&self);

    /// Keeps an idle connection until its client asks or its time is over.
    ///
    /// # Errors
    /// It is given back where no dealer is registered: the server ends, or has a single worker.
    fn park(&self, parked: Box<ParkedConnection>) -> Result<(), Box<ParkedConnection>>;
}

/// The server's part of a worker.
#[derive(Default)]
struct ServerWorker {
    /// Deals connections to the workers, where there are several.
    dealer: RefCell<Option<Arc<dyn ConnectionDealer>>>,
}

impl WorkerPart for ServerWorker {
    fn memory(&self, worker: &Worker, memory: &mut WorkerMemory) {
        let parked = usize::try_from(worker.counters.dealing.parked.get()).unwrap_or(0);
        memory.add(MemoryKind::Parked, HeldMemory::new(parked, parked * ParkedConnection::BYTES));
    }
}

fn part(worker: &Worker) -> &ServerWorker {
    worker.part(WorkerSlot::Server)
}

/// From here on connections are dealt to `worker` by `dealer`, or accepted by it.
pub(crate) fn set_dealer(worker: &Worker, dealer: Option<Arc<dyn ConnectionDealer>>) {
    *part(worker).dealer.borrow_mut() = dealer;
}

/// What deals connections to `worker`.
pub(crate) fn dealer(worker: &Worker) -> Option<Arc<dyn ConnectionDealer>> {
    part(worker).dealer.borrow().clone()
}

/// Whether connections are dealt to `worker`.
#[inline]
pub(crate) fn has_dealer(worker: &Worker) -> bool {
    part(worker).dealer.borrow().is_some()
}

/// Has `count` connections leave, those first that wait for a request: plain ones of HTTP/1 go to another worker,
/// clients of HTTP/2 are sent GOAWAY, those of HTTP/1 over TLS get `Connection: close` with their next response. What
/// has become another protocol goes on.
pub(crate) fn even_out(worker: &Worker, count: u64) {
    let mut wires = worker.open_wires();
    wires.retain(|(wire, connection)| {
        let may = wire.multiplexed.get() || connection.is_tls() || parked::can_leave(worker, connection);
        may && connection.requests.get() > 0 && !connection.is_retired() && !wire.moves.get()
    });
    wires.sort_by_key(|(wire, _)| !wire.idle.get());
    for (wire, connection) in wires.iter().take(count as usize) {
        let stays_open = !wire.multiplexed.get() && parked::can_leave(worker, connection);
        if stays_open {
            wire.moves.set(true);
        } else {
            connection.retire(CloseReason::EvenedOut);
            worker.counters.dealing.evened_out.add(1);
        }
        if stays_open && wire.idle.get() {
            wire.timer.arm(0);
        }
        connection.look();
    }
}
