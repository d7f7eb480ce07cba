//! A socket of QUIC: its datagrams, and the connections that they belong to.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::{
    ConnectionEvent, ConnectionHandle, DatagramEvent, Endpoint, EndpointEvent, Incoming, Transmit,
};
use weir_rt::Stream;
use weir_rt::datagrams::{self, BATCH, DatagramBatch, DatagramRoute};
use weir_rt::net::{self, SockAddr};
use weir_rt::notify::{Notify, either};

use super::incoming::{ComingClient, ComingClients, HeldIncoming};
use super::routes::{self, DatagramAim, RouteNumber};
use super::{connection, settings};
use crate::conn::accept::{AcceptLog, ListenerDoor};
use crate::conn::sharing::{SharedSocket, own_tag};
use weir_engine::log::{self, LogLevel};
use weir_engine::worker::Worker;

/// Reads datagrams from `socket` until `door` is closed and the connections that there are then have ended.
///
/// `group` is the cookie of the address' first socket.
pub(crate) async fn run(worker: Rc<Worker>, socket: Rc<Stream>, group: u64, door: Rc<ListenerDoor>) {
    let held = worker.hold();
    let endpoint = Rc::new(QuicEndpoint::new(worker, socket, group, door));
    endpoint.number.belongs_to(&endpoint);
    endpoint.read_until(endpoint.door.closed()).await;
    // Those that are there go on: their clients know nothing of this server's configuration.
    endpoint.closing.set(true);
    endpoint.number.close();
    endpoint.coming.borrow_mut().clear();
    drop(held);
    endpoint.read_until(endpoint.emptied()).await;
}

/// A socket of a worker.
pub(super) struct QuicEndpoint {
    pub(super) worker: Rc<Worker>,
    socket: Rc<Stream>,
    pub(super) door: Rc<ListenerDoor>,
    pub(super) bound: SockAddr,
    /// With which connection IDs begin.
    number: RouteNumber,
    /// With other processes.
    shared: SharedSocket,
    /// Another process reads from here on, or this one.
    reader_changed: Notify,
    pub(super) protocol: RefCell<Endpoint>,
    /// What has come for each connection, at its handle's index.
    inboxes: RefCell<Vec<Option<Rc<QuicInbox>>>>,
    /// Connections that are open.
    open: Cell<usize>,
    /// A connection has ended.
    ended: Notify,
    coming: RefCell<ComingClients>,
    /// Connections whose handshake is not over.
    pub(super) handshaking: Cell<usize>,
    /// No more connections are taken.
    closing: Cell<bool>,
    /// When it was logged last that something fails.
    log: AcceptLog,
}

/// What cuts many datagrams out of what a connection has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatagramCut {
    /// A message for each.
    Here,
    /// `quic_gso`
    ByKernel,
}

/// What has come for a connection and its task has not seen.
#[derive(Default)]
pub(super) struct QuicInbox {
    events: RefCell<Vec<ConnectionEvent>>,
    task: RefCell<Option<Waker>>,
}

impl QuicInbox {
    fn put(&self, event: ConnectionEvent) {
        self.events.borrow_mut().push(event);
        if let Some(task) = self.task.borrow_mut().take() {
            task.wake();
        }
    }

    /// What has come.
    pub(super) fn take(&self) -> Vec<ConnectionEvent> {
        std::mem::take(&mut *self.events.borrow_mut())
    }

    /// Whether something has come; else the task is woken once something does.
    pub(super) fn has_some(&self, cx: &Context<'_>) -> bool {
        if !self.events.borrow().is_empty() {
            return true;
        }
        *self.task.borrow_mut() = Some(cx.waker().clone());
        false
    }
}

impl QuicEndpoint {
    fn new(worker: Rc<Worker>, socket: Rc<Stream>, group: u64, door: Rc<ListenerDoor>) -> QuicEndpoint {
        let bound = net::local_addr(socket.fd()).unwrap_or(SockAddr::UNSPECIFIED);
        let number = RouteNumber::take(&bound);
        let reader_changed = move || {
            number.run_there(|endpoint| endpoint.reader_changed.notify());
        };
        let shared = SharedSocket::enter(group, &bound, routes::deliver, reader_changed);
        let settings = settings::of_address(&door);
        let (own, first) =
            (settings::of_endpoint(settings.as_ref(), number), settings::before_hello(settings.as_ref()));
        let protocol = Endpoint::new(own, Some(first), false, None);
        QuicEndpoint {
            worker,
            socket,
            door,
            bound,
            number,
            shared,
            reader_changed: Notify::default(),
            protocol: RefCell::new(protocol),
            inboxes: RefCell::default(),
            open: Cell::new(0),
            ended: Notify::default(),
            coming: RefCell::default(),
            handshaking: Cell::new(0),
            closing: Cell::new(false),
            log: AcceptLog::default(),
        }
    }

    async fn read_until(self: &Rc<Self>, end: impl Future<Output = ()>) {
        let mut end = std::pin::pin!(end);
        loop {
            match either(self.read(), end.as_mut()).await {
                // So many may have come that the connections' tasks are to have their turn before the next.
                Some(Ok(full)) if full => weir_rt::yield_now().await,
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    self.log.failed_in("recvmmsg()", &error);
                    weir_rt::sleep(PAUSE).await;
                }
                None => return,
            }
        }
    }

    /// Whether as many have come as can at once. Where another process reads, nothing comes here until it does no more.
    async fn read(self: &Rc<Self>) -> std::io::Result<bool> {
        if !self.shared.reads() {
            self.reader_changed.notified().await;
            return Ok(false);
        }
        let receive = poll_fn(|cx| self.socket.poll_datagrams(cx, BATCH, |batch| self.take(batch)));
        either(receive, self.reader_changed.notified()).await.unwrap_or(Ok(false))
    }

    async fn emptied(&self) {
        while self.open.get() > 0 {
            self.ended.notified().await;
        }
    }

    /// Whether as many have come as can at once.
    fn take(self: &Rc<Self>, batch: &DatagramBatch) -> bool {
        let now = Instant::now();
        for datagram in batch.iter() {
            let from = datagram.from().and_then(|from| from.to_socket_addr());
            let Some(from) = from else { continue };
            let (here, bytes) = (datagram.to(), datagram.bytes);
            if !self.is_elsewhere(from, here, bytes) {
                self.handle(now, from, here, bytes);
            }
        }
        batch.len() == BATCH
    }

    /// Whether a datagram is for another socket, or another process; it is on its way then.
    fn is_elsewhere(&self, from: SocketAddr, here: Option<IpAddr>, bytes: &[u8]) -> bool {
        let Some(aim) = DatagramAim::of(bytes) else { return false };
        let counters = &self.worker.counters.quic;
        if aim.process != own_tag() && self.shared.forward(aim.process, from, here, bytes) {
            counters.forwarded.add(1);
            return true;
        }
        let is_handed_over = aim.socket != self.number && aim.socket.hand_over(from, here, bytes);
        if is_handed_over {
            counters.handed_over.add(1);
        }
        is_handed_over
    }

    /// A datagram has come, to this socket or to another one.
    pub(super) fn handle(
        self: &Rc<Self>,
        now: Instant,
        from: SocketAddr,
        here: Option<IpAddr>,
        bytes: &[u8],
    ) {
        let mut out = Vec::new();
        let event = self.protocol.borrow_mut().handle(now, from, here, None, BytesMut::from(bytes), &mut out);
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => self.deliver(handle, event),
            Some(DatagramEvent::NewConnection(incoming)) => self.greet(incoming, here, bytes),
            // A socket that takes no new clients has nothing for those that it does not know.
            Some(DatagramEvent::Response(_)) if self.closing.get() => {}
            Some(DatagramEvent::Response(transmit)) => self.send(&transmit, &out),
            // It may be the rest of a ClientHello.
            None => self.hear_more(from, bytes),
        }
    }

    fn deliver(&self, handle: ConnectionHandle, event: ConnectionEvent) {
        if let Some(Some(inbox)) = self.inboxes.borrow().get(handle.0) {
            inbox.put(event);
        }
    }

    /// A client has sent its first datagram.
    fn greet(self: &Rc<Self>, incoming: Incoming, here: Option<IpAddr>, bytes: &[u8]) {
        let held = HeldIncoming::new(self, incoming);
        if self.closing.get() {
            // Fewer workers than before: who takes new connections has this client's, too.
            if let (Some(from), Some(other)) = (held.from(), self.number.successor()) {
                other.hand_over(from, here, bytes);
            }
            return;
        }
        if self.worker.is_full() {
            self.worker.counters.quic.refused.add(1);
            if self.log.may_log() {
                let most = self.worker.most();
                let message =
                    format_args!("{most} worker_connections are not enough, a connection of QUIC is refused");
                log::cycle(LogLevel::Alert, &message);
            }
            return held.refuse();
        }
        let wanted = self.handshaking.get() >= RETRY_FROM
            || settings::of_address(&self.door).is_some_and(|settings| settings.retry);
        if wanted && held.may_retry() {
            self.worker.counters.quic.retried.add(1);
            return held.retry();
        }
        let greeted = self.coming.borrow_mut().greet(held, bytes);
        self.begin(greeted);
    }

    fn hear_more(self: &Rc<Self>, from: SocketAddr, bytes: &[u8]) {
        let mut coming = self.coming.borrow_mut();
        let heard = if coming.is_empty() { None } else { coming.hear_more(from, bytes) };
        drop(coming);
        self.begin(heard);
    }

    fn begin(self: &Rc<Self>, client: Option<ComingClient>) {
        if let Some(client) = client {
            connection::start(self, client);
        }
    }

    /// A connection was accepted: what comes for it from here on.
    pub(super) fn open(&self, handle: ConnectionHandle) -> Rc<QuicInbox> {
        let mut inboxes = self.inboxes.borrow_mut();
        if inboxes.len() <= handle.0 {
            inboxes.resize_with(handle.0 + 1, || None);
        }
        let inbox = Rc::<QuicInbox>::default();
        inboxes[handle.0] = Some(inbox.clone());
        self.open.set(self.open.get() + 1);
        inbox
    }

    /// A connection is over, and its task ends.
    pub(super) fn close(&self, handle: ConnectionHandle) {
        if let Some(inbox) = self.inboxes.borrow_mut().get_mut(handle.0) {
            *inbox = None;
            self.open.set(self.open.get() - 1);
        }
        self.ended.notify();
    }

    /// What a connection has for its endpoint, and what that says to it.
    pub(super) fn exchange(&self, handle: ConnectionHandle, event: EndpointEvent) -> Option<ConnectionEvent> {
        self.protocol.borrow_mut().handle_event(handle, event)
    }

    /// Sends the datagram that begins `bytes`, outside of a connection.
    pub(super) fn send(&self, transmit: &Transmit, bytes: &[u8]) {
        self.send_many(transmit, bytes, DatagramCut::Here);
    }

    /// Sends the datagrams that begin `bytes`. What the system does not take is lost, as in a network, and sent again as QUIC has it.
    pub(super) fn send_many(&self, transmit: &Transmit, bytes: &[u8], cut: DatagramCut) {
        let route = DatagramRoute::new(&SockAddr::from(transmit.destination), transmit.src_ip);
        let bytes = bytes.get(..transmit.size).unwrap_or(bytes);
        let segment = transmit.segment_size.unwrap_or(bytes.len()).max(1);
        let fd = self.socket.fd();
        let sent = match (cut, u16::try_from(segment)) {
            (DatagramCut::ByKernel, Ok(segment)) => datagrams::send_cut(fd, &route, bytes, segment),
            _ => datagrams::send(fd, Some(&route), bytes.chunks(segment)),
        };
        self.worker.counters.quic.dropped.add(sent.dropped as u64);
    }

    /// The descriptor of the socket.
    pub(super) fn fd(&self) -> i32 {
        self.socket.fd()
    }
}

impl Drop for QuicEndpoint {
    fn drop(&mut self) {
        self.number.give_back();
    }
}

/// With so many handshakes under way at a socket each client has to show that it is where it says, whatever `quic_retry` says:
/// addresses that are not the senders' own can't take all places.
const RETRY_FROM: usize = 128;
/// How long nothing is received after a failure of the system.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
