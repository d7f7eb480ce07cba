//! Connections that wait for a request outside of any worker: a plain record, which the thread that deals connections
//! keeps, and gives to a worker that has time when the client asks again. So a worker that is stuck holds up no client
//! but those whose requests it has begun, and what idles for long becomes even with the rest.
//!
//! Parked are connections of plain HTTP/1 that have had a request, [`PARK_MS`] after it. The state of TLS and HTTP/2 is
//! the thread's, and so is what modules keep for a connection.

use std::cell::{Cell, OnceCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use weir_rt::net::SockAddr;
use weir_rt::{RecvOutcome, Stream};

use super::dealer;
use super::h1;
use weir_engine::settings::listen::ListenProtocols;
use weir_engine::transport::wire::ClientWire;
use weir_engine::transport::{ClientConnection, ProxiedAddresses};
use weir_engine::worker::{CloseProtocol, CloseReason, Worker};

/// A connection that is no worker's.
pub(crate) struct ParkedConnection {
    pub(crate) fd: OwnedFd,
    /// What the client sent while it was given up by its worker.
    unread: Vec<u8>,
    /// The worker that had it last.
    pub(crate) from: u8,
    /// Until when it may wait, in milliseconds of the monotonic clock.
    pub(crate) deadline: u64,
    record: ConnectionRecord,
}

/// What is known of a connection, whichever worker has it.
struct ConnectionRecord {
    number: u64,
    peer: SockAddr,
    addr: SockAddr,
    protocols: ListenProtocols,
    requests: u64,
    started_ms: u64,
    accept_wait: u64,
    proxied: Option<ProxiedAddresses>,
    debug: bool,
    written: u64,
    kept_until: u64,
}

impl ParkedConnection {
    /// What one takes: itself, and its places in the two ordered lists of those that are parked.
    pub(crate) const BYTES: usize =
        size_of::<ParkedConnection>() + size_of::<(u64, Box<ParkedConnection>)>() + size_of::<(u64, u64)>();

    /// Whether its client has asked already: what came while it was given up wakes no poller.
    pub(crate) fn has_asked(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Whether its address is one of `addresses`, and connections to it begin as this one did.
    pub(crate) fn belongs_to(&self, addresses: &[(SockAddr, ListenProtocols)]) -> bool {
        addresses
            .iter()
            .any(|(addr, protocols)| *addr == self.record.addr && *protocols == self.record.protocols)
    }
}

/// Whether a connection that waits for `idle` milliseconds is to be parked before they are over.
pub(super) fn is_wanted(worker: &Worker, connection: &ClientConnection, idle: u64) -> bool {
    idle > PARK_MS && can_leave(worker, connection)
}

/// Whether a connection can go to another worker between two requests.
pub(crate) fn can_leave(worker: &Worker, connection: &ClientConnection) -> bool {
    dealer::has_dealer(worker)
        && connection.requests.get() > 0
        && connection.states.get().is_none()
        && connection.tls.get().is_none()
}

/// Gives the connection away until `deadline`, or until its client asks. What was given back is still the worker's: it
/// can't be parked, or not any more.
pub(super) async fn park(
    worker: &Rc<Worker>,
    connection: &ClientConnection,
    wire: Rc<ClientWire>,
    deadline: u64,
) -> Result<(), Rc<ClientWire>> {
    let Some(dealer) = dealer::dealer(worker) else { return Err(wire) };
    if worker.is_stopping()
        || connection.is_retired()
        || wire.stream.is_eof()
        || wire.stream.error().is_some()
    {
        return Err(wire);
    }
    let record = ConnectionRecord {
        number: connection.number,
        peer: connection.peer.clone(),
        addr: connection.hosts.borrow().addr.clone(),
        protocols: connection.hosts.borrow().protocols,
        requests: connection.requests.get(),
        started_ms: connection.started_ms,
        accept_wait: connection.accept_wait,
        proxied: connection.proxied.get().cloned(),
        debug: connection.debug,
        written: wire.written(),
        kept_until: wire.kept_until.get(),
    };
    let wire = Rc::try_unwrap(wire)?;
    // It breaks only while it is being given up, and then there is nothing to park.
    let Ok((fd, unread)) = wire.stream.into_fd().await else {
        connection.ends(CloseReason::ResetIdle);
        return Ok(());
    };
    connection.moves_on();
    let parked = Box::new(ParkedConnection { fd, unread, from: worker.id, deadline, record });
    if let Err(parked) = dealer.park(parked) {
        resume(worker, parked);
    }
    Ok(())
}

/// Goes on with a connection that was parked, as this worker's.
pub(crate) fn resume(worker: &Rc<Worker>, parked: Box<ParkedConnection>) {
    let ParkedConnection { fd, unread, deadline, record, .. } = *parked;
    let dropped = |reason| worker.counters.closes.count(CloseProtocol::Http1, reason);
    let Some(generation) = worker.generation() else { return dropped(CloseReason::Shutdown) };
    let same = |hosts: &&Rc<_>| {
        let hosts: &weir_engine::plan::hosts::AddressServers = hosts;
        hosts.addr == record.addr && hosts.protocols == record.protocols
    };
    // Its address is gone since: an idle connection is closed then.
    let Some(hosts) = generation.hosts().iter().find(same).cloned() else {
        return dropped(CloseReason::Reload);
    };
    let Ok(stream) = Stream::from_fd(fd) else { return dropped(CloseReason::Dropped) };
    let mut connection =
        ClientConnection::new(record.number, record.peer, stream.fd(), hosts, worker.serial());
    connection.account = Some(stream.account());
    connection.requests = Cell::new(record.requests);
    connection.started_ms = record.started_ms;
    connection.accept_wait = record.accept_wait;
    connection.proxied = record.proxied.map(OnceCell::from).unwrap_or_default();
    connection.debug = record.debug;
    let connection = Rc::new(connection);
    connection.narrow(&generation);
    let wire = Rc::new(ClientWire::resumed(stream, record.written, record.kept_until));
    if !unread.is_empty() {
        wire.input.borrow_mut().give(unread);
    }
    // What has come is seen before the time that may be over.
    if let Some(RecvOutcome::Data(buf)) = wire.stream.try_recv_first() {
        wire.input.borrow_mut().push(buf);
    }
    let until = if worker.is_stopping() { record.kept_until } else { deadline };
    let idle = until.saturating_sub(weir_rt::now_ms());
    let open = worker.reopen(&wire, &connection);
    let (worker, owner) = (worker.clone(), connection.clone());
    let task = async move {
        h1::run(worker, connection, wire, idle).await;
        drop(open);
    };
    super::spawn(&owner, task);
}

/// How long a connection waits for a request before it is parked. Most that ask again do so sooner, and pay nothing.
pub(super) const PARK_MS: u64 = 1000;
