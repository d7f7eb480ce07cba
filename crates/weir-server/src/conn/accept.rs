//! Accepting connections.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_rt::net::{self, SockAddr};
use weir_rt::notify::{Notify, either};
use weir_rt::{Listener, Stream};

use super::{begin, proxy, session};
use crate::tls;
use weir_engine::log::{self, LogLevel};
use weir_engine::request_log;
use weir_engine::settings::listen::ListenAddress;
use weir_engine::transport::wire::ClientWire;
use weir_engine::transport::{ClientConnection, ConnectionEntry};
use weir_engine::worker::Worker;
use weir_engine::worker::generation::WorkerGeneration;

/// Where the connections of a listener lead to.
pub(crate) struct ListenerDoor {
    /// The configuration, the worker's serial of it, and the index of the address in it. That of a socket that is
    /// closed because its line is gone stays the last that had the line.
    to: RefCell<(Rc<WorkerGeneration>, u64, usize)>,
    closed: Notify,
}

impl ListenerDoor {
    pub(crate) fn new(generation: &Rc<WorkerGeneration>, serial: u64, address: usize) -> ListenerDoor {
        ListenerDoor { to: RefCell::new((generation.clone(), serial, address)), closed: Notify::default() }
    }

    /// From here on connections belong to another configuration.
    pub(crate) fn lead(&self, generation: &Rc<WorkerGeneration>, serial: u64, address: usize) {
        *self.to.borrow_mut() = (generation.clone(), serial, address);
    }

    /// The configuration, its serial, and the index of the address in it, for what comes now.
    pub(super) fn leads_to(&self) -> (Rc<WorkerGeneration>, u64, usize) {
        self.to.borrow().clone()
    }

    /// Waits until it is closed.
    pub(super) async fn closed(&self) {
        self.closed.forever().await;
    }

    /// Ends the listener: what waits in its queue is still served.
    pub(crate) fn close(&self) {
        self.closed.notify();
    }
}

/// Accepts from `listener` until `door` is closed. What the kernel had accepted by then is still served, and what waits
/// in the queue: a wake-up that was meant for this worker would be lost to the others that share the socket, and
/// closing the last one resets the rest in it.
pub(crate) async fn run(worker: Rc<Worker>, listener: Listener, door: Rc<ListenerDoor>) {
    let held = worker.hold();
    let reported = AcceptLog::default();
    while !door.closed.is_set() {
        listener.accept_ahead(worker.accepts_ahead());
        match either(listener.accept(), door.closed.forever()).await {
            Some(Ok(stream)) => {
                if worker.is_full() {
                    // Others that share the socket get the connections after this one.
                    listener.pause();
                    either(worker.room(), door.closed.forever()).await;
                    listener.resume();
                }
                take_accepted(&worker, stream, &door);
            }
            Some(Err(error)) => reported.failed(&error),
            None => break,
        }
    }
    let (left, error) = listener.drain().await;
    left.into_iter().for_each(|stream| take_accepted(&worker, stream, &door));
    if let Some(error) = error {
        reported.failed(&error);
    }
    drop(held);
}

/// When it was logged last that accepting fails.
#[derive(Default)]
pub(crate) struct AcceptLog(Cell<Option<u64>>);

impl AcceptLog {
    pub(crate) fn failed(&self, error: &std::io::Error) {
        self.failed_in("accept4()", error);
    }

    /// `call` has failed.
    pub(super) fn failed_in(&self, call: &str, error: &std::io::Error) {
        if !self.may_log() {
            return;
        }
        let errno = error.raw_os_error().unwrap_or(0);
        let text = weir_rt::file::errno_text(errno);
        log::cycle(LogLevel::Crit, &format_args!("{call} failed ({errno}: {text})"));
    }

    /// Whether nothing was logged for a while.
    pub(super) fn may_log(&self) -> bool {
        let now = weir_rt::now_ms();
        let may = self.0.get().is_none_or(|reported| now >= reported + TELL_MS);
        if may {
            self.0.set(Some(now));
        }
        may
    }
}

/// [`take`] of what this worker has accepted by itself.
fn take_accepted(worker: &Rc<Worker>, stream: Stream, door: &ListenerDoor) {
    let peer = net::peer_addr(stream.fd()).unwrap_or(SockAddr::UNSPECIFIED);
    take(worker, stream, peer, door);
}

/// Makes a connection of an accepted socket and starts its task.
pub(crate) fn take(worker: &Rc<Worker>, stream: Stream, peer: SockAddr, door: &ListenerDoor) {
    let (generation, serial, address) = door.leads_to();
    let fd = stream.fd();
    let Some(hosts) = generation.hosts().get(address).cloned() else { return };
    let watched = &generation.configuration.main.debug_connections;
    let debug = !watched.is_empty() && watched.iter().any(|cidr| cidr.contains(&peer));
    let expects_tls = generation.configuration.addresses[address].ssl;
    let mut connection = ClientConnection::new(worker.connection_number(), peer, fd, hosts, serial);
    connection.accept_wait = weir_engine::trace::accepted(worker, fd);
    connection.account = Some(stream.account());
    connection.debug = debug;
    connection.expects_tls = expects_tls;
    let connection = Rc::new(connection);
    connection.narrow(&generation);
    request_log::debug::accepted(&connection);
    let wire = Rc::new(ClientWire::new(stream));
    let open = worker.open(&wire, &connection);
    serve(worker, connection, wire, open, &generation.configuration.addresses[address]);
}

/// Starts the task of a connection to `address`.
pub(super) fn serve(
    worker: &Rc<Worker>,
    connection: Rc<ClientConnection>,
    wire: Rc<ClientWire>,
    open: ConnectionEntry,
    address: &ListenAddress,
) {
    let (expects_tls, proxy_protocol) = (address.ssl, address.proxy_protocol);
    let (worker, owner) = (worker.clone(), connection.clone());
    if address.stream {
        return session::start(worker, connection, wire, open, proxy_protocol);
    }
    let task = async move {
        let timeout = connection.hosts.borrow().default().settings.client_header_timeout;
        if !proxy_protocol || proxy::read(&connection, &wire, timeout).await {
            // Boxed: most connections have none of it.
            let alpn = match expects_tls {
                false => Some(None),
                true => {
                    let http = tls::accept::HandshakeOwner::Http;
                    Box::pin(tls::accept::run(&worker, &connection, &wire, http)).await.map(Some)
                }
            };
            if let Some(alpn) = alpn {
                begin::serve(worker.clone(), connection, wire, alpn).await;
            }
        }
        drop(open);
    };
    super::spawn(&owner, task);
}

/// Accepting is tried every 50 ms when descriptors run out; a log line each time would fill the disk as well. nginx
/// tries, and logs, every half a second.
const TELL_MS: u64 = 500;
