//! What requests leave on their worker for those after them: exchanges, heads, media types.

use std::cell::RefCell;
use std::rc::Rc;

use weir_rt::HeldMemory;

use super::known_heads::KnownHeads;
use super::{Exchange, MediaTypeCache, SectionResponses};
use crate::plan::server::VirtualServer;
use crate::transport::ClientConnection;
use crate::transport::heads::HeadCache;
use crate::worker::memory::{MemoryKind, WorkerMemory};
use crate::worker::{Worker, WorkerPart, WorkerSlot};

/// What requests leave on their worker for those after them. Each virtual server has it, so that no request looks it up.
#[derive(Default)]
pub(crate) struct RequestCaches {
    #[expect(
        clippy::vec_box,
        reason = "an exchange is taken and given back as the box it is in, not copied"
    )]
    free: RefCell<Vec<Box<Exchange>>>,
    /// Heads of requests, read before.
    pub(crate) known: KnownHeads,
    /// Responses to header sections of HTTP/2 that came before.
    pub(crate) sections: SectionResponses,
    /// Heads of responses, composed before.
    pub(crate) heads: RefCell<HeadCache>,
    /// Media types that were looked up.
    pub(crate) kinds: RefCell<MediaTypeCache>,
}

impl RequestCaches {
    /// Those of `worker`.
    pub(crate) fn of(worker: &Worker) -> &Rc<RequestCaches> {
        &worker.part::<WorkerRequests>(WorkerSlot::Requests).0
    }
}

/// The part that requests have of a worker.
#[derive(Default)]
struct WorkerRequests(Rc<RequestCaches>);

impl WorkerPart for WorkerRequests {
    /// Exchanges of the old configuration hold its plans; new ones are made as needed.
    fn switched(&self, _worker: &Worker) {
        self.0.free.borrow_mut().clear();
        self.0.known.clear();
        self.0.sections.clear();
        self.0.heads.borrow_mut().clear();
        self.0.kinds.borrow_mut().clear();
    }

    fn memory(&self, _worker: &Worker, memory: &mut WorkerMemory) {
        let free = self.0.free.borrow();
        let places = free.capacity() * size_of::<Box<Exchange>>();
        memory.add(MemoryKind::Exchanges, HeldMemory::new(free.len(), free.len() * EXCHANGE_BYTES + places));
    }

    fn left(&self) {
        self.0.free.borrow_mut().clear();
        self.0.known.clear();
        self.0.sections.clear();
    }
}

impl Worker {
    /// Forgets what is known of requests before they are looked at: the next ones run all that there is to be seen.
    pub fn forget_known(&self) {
        let caches = RequestCaches::of(self);
        caches.known.clear();
        caches.sections.clear();
    }

    /// An exchange for a request of `connection`: one of the free list, or a new one.
    pub fn take_exchange(
        self: &Rc<Self>,
        connection: &Rc<ClientConnection>,
        server: &Rc<VirtualServer>,
    ) -> Box<Exchange> {
        let free = server.caches.free.borrow_mut().pop();
        match free {
            Some(mut x) => {
                x.renew(connection, server);
                x
            }
            None => Box::new(Exchange::new(self, connection, server)),
        }
    }

    /// How many responses are stored with the heads of their requests, and given to others with the same head without
    /// making them.
    pub fn known_responses(&self) -> usize {
        let caches = RequestCaches::of(self);
        caches.known.responses() + caches.sections.responses()
    }

    /// How many heads are stored whose requests are passed on without being read.
    pub fn known_passes(&self) -> usize {
        RequestCaches::of(self).known.passes()
    }

    /// Lets go of exchanges that only many requests at once need, and of the heads that clients may send again.
    pub fn trim_exchanges(&self) {
        let caches = RequestCaches::of(self);
        caches.free.borrow_mut().truncate(QUIET_EXCHANGES);
        caches.known.clear();
        caches.sections.clear();
    }

    /// Takes an exchange back whose request is over, for others.
    pub fn give_exchange(&self, mut x: Box<Exchange>) {
        // One of an old configuration would keep that from ending.
        if x.connection.serial.get() != self.serial() || x.server.is_retired() {
            return;
        }
        let caches = x.server.caches.clone();
        // Before the list is borrowed: what it lets go of, a script that waits, may have exchanges to give back itself.
        x.release();
        let mut free = caches.free.borrow_mut();
        if free.len() < FREE_EXCHANGES {
            free.push(x);
        }
    }
}

/// What an exchange takes with its texts and lists after ordinary requests.
const EXCHANGE_BYTES: usize = size_of::<Exchange>() + 1536;
/// Number of exchanges kept for reuse; more than this many requests at once on one worker allocate, which costs 1,200
/// instructions for each: sixteen connections of HTTP/2 with 32 streams have 400 whose responses wait for room.
const FREE_EXCHANGES: usize = 1024;
/// ... and this many after a quiet moment: they take some kilobytes each.
const QUIET_EXCHANGES: usize = 256;
