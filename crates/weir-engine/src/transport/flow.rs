//! The datagrams of one client to one address: what a session over UDP has in place of a connection.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use weir_rt::datagrams::{self, DatagramRoute, SentDatagrams};
use weir_rt::net::SockAddr;
use weir_rt::{HeldMemory, Stream};

use super::ClientConnection;
use super::slots::IndexSlots;
use crate::worker::memory::{MemoryKind, WorkerMemory};
use crate::worker::{CloseReason, Worker, WorkerCounters, WorkerPart, WorkerSlot};

/// A flow: what a client has sent and nothing has taken yet, and the way back to it.
pub struct ClientFlow {
    /// The socket that the client sends to, which others share.
    socket: Rc<Stream>,
    route: DatagramRoute,
    counters: Arc<WorkerCounters>,
    queue: RefCell<VecDeque<Vec<u8>>>,
    /// Bytes in the queue.
    queued: Cell<usize>,
    /// A datagram was taken.
    taken: Cell<bool>,
    /// So many of the first in the queue were taken before.
    again: Cell<usize>,
    waker: RefCell<Option<Waker>>,
    /// Bytes and datagrams that were sent to the client.
    written: Cell<(u64, u64)>,
    /// Datagrams of the client belong to it.
    bound: Cell<bool>,
    /// A datagram that is not the first has come since this was looked at.
    lively: Cell<bool>,
    /// No more comes of the client: the worker does not read its socket any more.
    finishing: Cell<bool>,
    end: Cell<Option<CloseReason>>,
}

impl ClientFlow {
    /// The flow of `client`, which sends to `socket`. `here`: the address of this machine that it sends to, where the socket is
    /// bound to all of them.
    pub fn new(
        socket: &Rc<Stream>,
        client: &SockAddr,
        here: Option<IpAddr>,
        counters: &Arc<WorkerCounters>,
    ) -> ClientFlow {
        ClientFlow {
            socket: socket.clone(),
            route: DatagramRoute::new(client, here),
            counters: counters.clone(),
            queue: RefCell::default(),
            queued: Cell::new(0),
            taken: Cell::new(false),
            again: Cell::new(0),
            waker: RefCell::new(None),
            written: Cell::new((0, 0)),
            bound: Cell::new(true),
            lively: Cell::new(false),
            finishing: Cell::new(false),
            end: Cell::new(None),
        }
    }

    /// The client has sent `bytes`. They are dropped, and counted, where too much waits.
    pub fn receive(&self, bytes: &[u8]) {
        let mut queue = self.queue.borrow_mut();
        if queue.len() >= MOST_QUEUED || self.queued.get() + bytes.len() > MOST_BYTES {
            return self.counters.flows.dropped.add(1);
        }
        self.queued.set(self.queued.get() + bytes.len());
        queue.push_back(bytes.to_vec());
        drop(queue);
        self.wake();
    }

    /// As [`ClientFlow::receive`], of one that is not the first.
    pub fn receive_more(&self, bytes: &[u8]) {
        self.lively.set(true);
        self.receive(bytes);
    }

    /// Datagrams that were taken may be taken again, before those that wait. They stay the session's.
    pub fn put_back(&self, taken: Vec<Vec<u8>>) {
        self.again.set(self.again.get() + taken.len());
        let mut queue = self.queue.borrow_mut();
        for bytes in taken.into_iter().rev() {
            self.queued.set(self.queued.get() + bytes.len());
            queue.push_front(bytes);
        }
    }

    /// Whether no datagram waits.
    pub fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// What waits and is not the session's, for another. Its own are those that were taken, and the first in any case.
    pub fn take_rest(&self) -> VecDeque<Vec<u8>> {
        let mut queue = self.queue.borrow_mut();
        let own = if self.taken.get() { self.again.get() } else { 1 };
        let own = own.min(queue.len());
        let rest = queue.split_off(own);
        let bytes = rest.iter().map(Vec::len).sum::<usize>();
        self.queued.set(self.queued.get() - bytes);
        rest
    }

    /// Appends the next datagrams of the client, `most` at most, to `taken`; `false`: it is over. Registers the polling task when
    /// pending.
    pub fn poll_datagrams(&self, cx: &mut Context<'_>, most: usize, taken: &mut Vec<Vec<u8>>) -> Poll<bool> {
        let mut queue = self.queue.borrow_mut();
        let count = most.min(queue.len());
        if count == 0 {
            return self.poll_gone(cx).map(|()| false);
        }
        let before = taken.len();
        taken.extend(queue.drain(..count));
        let bytes = taken[before..].iter().map(Vec::len).sum::<usize>();
        self.queued.set(self.queued.get() - bytes);
        self.again.set(self.again.get().saturating_sub(count));
        self.taken.set(true);
        Poll::Ready(true)
    }

    /// Ready once it is over; registers the polling task else.
    pub fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.end.get().is_some() {
            return Poll::Ready(());
        }
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Sends each of `datagrams` to the client. What the system does not take is counted as dropped: nothing waits for room,
    /// as nothing would in a network.
    pub fn send<'a>(&self, datagrams: impl Iterator<Item = &'a [u8]>) -> SentDatagrams {
        let sent = datagrams::send(self.socket.fd(), Some(&self.route), datagrams);
        let (bytes, count) = self.written.get();
        self.written.set((bytes + sent.bytes as u64, count + sent.sent as u64));
        self.counters.flows.dropped.add(sent.dropped as u64);
        sent
    }

    /// So many datagrams were not passed on.
    pub fn dropped(&self, count: usize) {
        self.counters.flows.dropped.add(count as u64);
    }

    /// Bytes sent to the client.
    pub fn written(&self) -> u64 {
        self.written.get().0
    }

    /// Datagrams sent to the client.
    pub fn sent(&self) -> u64 {
        self.written.get().1
    }

    /// From here on datagrams of the client begin another flow.
    pub fn unbind(&self) {
        self.bound.set(false);
    }

    /// Whether datagrams of the client belong to it.
    pub fn is_bound(&self) -> bool {
        self.bound.get()
    }

    /// Whether more datagrams have come since this was asked last.
    pub fn take_lively(&self) -> bool {
        self.lively.take()
    }

    /// It ends, for this reason.
    pub fn end(&self, reason: CloseReason) {
        self.unbind();
        if self.end.get().is_none() {
            self.end.set(Some(reason));
        }
        self.wake();
    }

    /// Why it ends, if something has ended it.
    pub fn ended(&self) -> Option<CloseReason> {
        self.end.get()
    }

    /// No more datagrams of the client are read: the flow is over after what is on its way.
    pub fn finish(&self) {
        self.unbind();
        self.finishing.set(true);
        self.wake();
    }

    /// Whether no more datagrams of the client are read.
    pub fn is_finishing(&self) -> bool {
        self.finishing.get()
    }

    /// Bytes of memory that it takes.
    pub fn held_bytes(&self) -> usize {
        size_of::<ClientFlow>() + self.queued.get()
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// The open flows of a worker.
#[derive(Default)]
struct WorkerFlows(RefCell<IndexSlots<OpenFlow>>);

type OpenFlow = (Weak<ClientFlow>, Rc<ClientConnection>);

impl WorkerFlows {
    fn each(&self, mut f: impl FnMut(&ClientFlow, &ClientConnection)) {
        let open: Vec<_> = self.0.borrow().iter().cloned().collect();
        for (flow, connection) in open {
            if let Some(flow) = flow.upgrade() {
                f(&flow, &connection);
            }
        }
    }
}

impl WorkerPart for WorkerFlows {
    fn stopped(&self) {
        self.each(|flow, _| flow.finish());
    }

    fn end_all(&self) {
        self.each(|flow, _| flow.end(CloseReason::ShutdownTimeout));
    }

    fn end_before(&self, serial: u64) {
        self.each(|flow, connection| {
            if connection.born < serial {
                flow.end(CloseReason::ShutdownTimeout);
            }
        });
    }

    fn memory(&self, _worker: &Worker, memory: &mut WorkerMemory) {
        let flows = self.0.borrow();
        let held = flows
            .iter()
            .filter_map(|(flow, connection)| Some(flow.upgrade()?.held_bytes() + connection.held_bytes()));
        let bytes = held.sum();
        memory.add(MemoryKind::Flow, HeldMemory::new(flows.len(), bytes));
        memory.add(MemoryKind::UnusedPlaces, flows.unused());
    }
}

impl Worker {
    /// Registers a flow, which counts as a connection until what is returned is dropped.
    pub fn open_flow(self: &Rc<Self>, flow: &Rc<ClientFlow>, connection: &Rc<ClientConnection>) -> FlowEntry {
        self.counters.accepted.add(1);
        self.counters.active.add(1);
        self.counters.flows.opened.add(1);
        let flows = &self.part::<WorkerFlows>(WorkerSlot::Flows).0;
        let at = flows.borrow_mut().insert((Rc::downgrade(flow), connection.clone()));
        FlowEntry { worker: self.clone(), at }
    }
}

/// A flow's entry with its worker.
pub struct FlowEntry {
    worker: Rc<Worker>,
    at: usize,
}

impl Drop for FlowEntry {
    fn drop(&mut self) {
        let flows = &self.worker.part::<WorkerFlows>(WorkerSlot::Flows).0;
        let removed = flows.borrow_mut().remove(self.at);
        self.worker.count_closed(removed.map(|(_, connection)| connection));
    }
}

/// Datagrams of a client that may wait, while its server is looked for or a rate is kept.
const MOST_QUEUED: usize = 256;
/// Their bytes.
const MOST_BYTES: usize = 512 * 1024;
