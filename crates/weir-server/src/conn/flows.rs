//! Sessions over UDP: the datagrams of a socket, dealt to the flows that they belong to.
//!
//! A flow is what comes from one address to one of ours. It is an entry of a table, of which each socket has one on the worker
//! that reads it, and counts as a connection. Where there is no room for another, the one that has been there longest makes
//! room, unless its client goes on sending: so a flood from addresses that are not its own ends its own flows.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::{Rc, Weak};

use weir_rt::Stream;
use weir_rt::datagrams::{BATCH, DatagramBatch, ReceivedDatagram};
use weir_rt::net::{self, SockAddr};
use weir_rt::notify::either;

use super::accept::{AcceptLog, ListenerDoor};
use super::session;
use weir_engine::log::{self, LogLevel};
use weir_engine::request_log;
use weir_engine::transport::ClientConnection;
use weir_engine::transport::flow::ClientFlow;
use weir_engine::worker::{CloseReason, Worker};

/// Reads datagrams from `socket` until `door` is closed; flows end after that with what is on its way.
pub(crate) async fn run(worker: Rc<Worker>, socket: Rc<Stream>, door: Rc<ListenerDoor>) {
    let held = worker.hold();
    let bound = net::local_addr(socket.fd()).unwrap_or(SockAddr::UNSPECIFIED);
    let (table, log) = (FlowTable::default(), AcceptLog::default());
    let reader = Rc::new(DatagramReader { worker, socket, door, bound, table, log });
    loop {
        let receive = poll_fn(|cx| reader.socket.poll_datagrams(cx, BATCH, |batch| reader.take(batch)));
        match either(receive, reader.door.closed()).await {
            Some(Ok(DealtFlows::GoOn)) => {}
            // Among those that run are the tasks of flows that were ended.
            Some(Ok(DealtFlows::Rest)) => weir_rt::yield_now().await,
            Some(Err(error)) => {
                reader.log.failed_in("recvmmsg()", &error);
                weir_rt::sleep(PAUSE).await;
            }
            None => break,
        }
    }
    reader.table.finish();
    drop(held);
}

/// What came of dealing datagrams out, and whether more are received at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DealtFlows {
    GoOn,
    /// Some were ended to make room, or have much to do.
    Rest,
}

struct DatagramReader {
    worker: Rc<Worker>,
    socket: Rc<Stream>,
    door: Rc<ListenerDoor>,
    bound: SockAddr,
    table: FlowTable,
    /// When it was logged last that something fails.
    log: AcceptLog,
}

impl DatagramReader {
    fn take(self: &Rc<Self>, batch: &DatagramBatch) -> DealtFlows {
        // So many may have come that others are to have their turn before the next.
        let mut next = if batch.len() == BATCH { DealtFlows::Rest } else { DealtFlows::GoOn };
        for datagram in batch.iter() {
            let Some(key) = FlowKey::of(&datagram) else { continue };
            if self.deal(key, datagram.bytes) == DealtFlows::Rest {
                next = DealtFlows::Rest;
            }
        }
        next
    }

    /// Gives a datagram to its flow, which begins with it where it is not there.
    fn deal(self: &Rc<Self>, key: FlowKey, bytes: &[u8]) -> DealtFlows {
        if let Some(flow) = self.table.find(&key) {
            flow.receive_more(bytes);
            return DealtFlows::GoOn;
        }
        let is_full = self.worker.is_full();
        if !is_full || self.make_room() {
            self.begin(key, bytes);
        }
        if is_full { DealtFlows::Rest } else { DealtFlows::GoOn }
    }

    /// Ends the flow that has been there longest; `false`: no flow can end, and no room is there.
    fn make_room(&self) -> bool {
        let counters = &self.worker.counters.flows;
        let ended = self.table.end_oldest();
        if self.log.may_log() {
            let most = self.worker.most();
            let then = if ended { "ending the oldest flows of UDP" } else { "datagrams are dropped" };
            let message = format_args!("{most} worker_connections are not enough, {then}");
            log::cycle(if ended { LogLevel::Warn } else { LogLevel::Alert }, &message);
        }
        if ended { &counters.evicted } else { &counters.refused }.add(1);
        ended
    }

    fn begin(self: &Rc<Self>, key: FlowKey, first: &[u8]) {
        let (generation, serial, address) = self.door.leads_to();
        let Some(hosts) = generation.hosts().get(address).cloned() else { return };
        let worker = &self.worker;
        let flow = Rc::new(ClientFlow::new(&self.socket, &key.client, key.here, &worker.counters));
        let client = key.client.clone();
        let mut connection =
            ClientConnection::new(worker.connection_number(), client, self.socket.fd(), hosts, serial);
        let watched = &generation.configuration.main.debug_connections;
        connection.debug = watched.iter().any(|cidr| cidr.contains(&key.client));
        connection.set_local(match key.here {
            Some(ip) => (ip, self.bound.port().unwrap_or(0)).into(),
            None => self.bound.clone(),
        });
        let connection = Rc::new(connection);
        connection.narrow(&generation);
        request_log::debug::accepted(&connection);
        flow.receive(first);
        let open = worker.open_flow(&flow, &connection);
        self.table.add(key.clone(), &flow);
        let entry = TableEntry { reader: self.clone(), key, flow: flow.clone() };
        session::start_flow(worker.clone(), connection, flow, (open, entry));
    }
}

/// Who sends, and to which of our addresses.
#[derive(Clone, PartialEq, Eq, Hash)]
struct FlowKey {
    client: SockAddr,
    /// `None`: the only one that the socket is bound to.
    here: Option<IpAddr>,
}

impl FlowKey {
    fn of(datagram: &ReceivedDatagram<'_>) -> Option<FlowKey> {
        Some(FlowKey { client: datagram.from()?, here: datagram.to() })
    }
}

/// The flows of a socket.
#[derive(Default)]
struct FlowTable {
    flows: RefCell<HashMap<FlowKey, Rc<ClientFlow>>>,
    /// As they began; those that have ended are among them for a while.
    order: RefCell<VecDeque<Weak<ClientFlow>>>,
    /// Of these, those that were looked at when there was no room, and take no more datagrams.
    full: RefCell<VecDeque<Weak<ClientFlow>>>,
}

impl FlowTable {
    /// The flow that datagrams of `key` belong to.
    fn find(&self, key: &FlowKey) -> Option<Rc<ClientFlow>> {
        self.flows.borrow().get(key).filter(|flow| flow.is_bound()).cloned()
    }

    fn add(&self, key: FlowKey, flow: &Rc<ClientFlow>) {
        // One that takes no more is replaced.
        self.flows.borrow_mut().insert(key, flow.clone());
        push(&mut self.order.borrow_mut(), Rc::downgrade(flow));
    }

    /// Ends the oldest flow whose client has sent nothing more since it was looked at; `false`: no flow is there. After some that
    /// have, the next is ended all the same.
    fn end_oldest(&self) -> bool {
        let mut order = self.order.borrow_mut();
        let mut spared = 0;
        while let Some(oldest) = order.pop_front() {
            let Some(flow) = oldest.upgrade() else { continue };
            if !flow.is_bound() {
                push(&mut self.full.borrow_mut(), oldest);
                continue;
            }
            if flow.take_lively() && spared < MOST_SPARED {
                spared += 1;
                order.push_back(oldest);
                continue;
            }
            flow.end(CloseReason::Room);
            return true;
        }
        false
    }

    fn remove(&self, key: &FlowKey, ended: &Rc<ClientFlow>) {
        let mut flows = self.flows.borrow_mut();
        if flows.get(key).is_some_and(|flow| Rc::ptr_eq(flow, ended)) {
            flows.remove(key);
        }
    }

    /// No more datagrams come. Those that have all of theirs, and that others have replaced, are to know it, too.
    fn finish(&self) {
        let open: Vec<_> = [&self.order, &self.full]
            .iter()
            .flat_map(|list| list.borrow().iter().filter_map(Weak::upgrade).collect::<Vec<_>>())
            .collect();
        open.iter().for_each(|flow| flow.finish());
    }
}

/// Adds a flow. Before the list grows, those that have ended are dropped.
fn push(list: &mut VecDeque<Weak<ClientFlow>>, flow: Weak<ClientFlow>) {
    if list.len() == list.capacity() {
        list.retain(|flow| flow.strong_count() > 0);
        // So much that this is not done for each.
        list.reserve(list.len().max(64));
    }
    list.push_back(flow);
}

/// A flow's entry in its table, until its session is over. What the session leaves of its client's datagrams begins another.
pub(super) struct TableEntry {
    reader: Rc<DatagramReader>,
    key: FlowKey,
    flow: Rc<ClientFlow>,
}

impl TableEntry {
    /// The end of the session's `content`. Once the flow has as many datagrams as are a session, what waits beyond these begins
    /// the next one, while this one may have long to go.
    pub(super) async fn until_end<R>(&self, content: impl Future<Output = R>) -> R {
        let mut content = pin!(content);
        poll_fn(|cx| {
            let polled = content.as_mut().poll(cx);
            if !self.flow.is_bound() {
                self.deal_rest();
            }
            polled
        })
        .await
    }

    fn deal_rest(&self) {
        if self.flow.ended().is_none() && !self.flow.is_finishing() {
            for bytes in self.flow.take_rest() {
                self.reader.deal(self.key.clone(), &bytes);
            }
        }
    }
}

impl Drop for TableEntry {
    fn drop(&mut self) {
        self.flow.unbind();
        self.reader.table.remove(&self.key, &self.flow);
        self.deal_rest();
    }
}

/// So many flows are looked at, for one that is to make room, before any is good enough.
const MOST_SPARED: usize = 32;
/// How long nothing is received after a failure of the system.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
