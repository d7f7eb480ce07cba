//! Connections: what is known of one, and where a request's response goes.

pub mod client;
pub mod closing;
pub(crate) mod encode;
pub mod flow;
pub mod h2;
pub mod h3;
pub(crate) mod heads;
mod held;
pub mod input;
pub mod keepalive;
pub(crate) mod multiplexed;
mod nobody;
mod open;
pub mod passed;
mod rate;
mod section;
mod send_rate;
pub mod sharing;
mod slots;
mod streams;
mod task_call;
pub mod tls;
mod tunnel_bytes;
pub mod wire;
pub mod write;

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use weir_rt::SocketAccount;
use weir_rt::net::SockAddr;
use weir_tls::HelloFields;

use crate::exchange::family::ChildOutlet;
use crate::plan::hosts::AddressServers;
use crate::plan::included::ResponseCapture;
use crate::plan::server::VirtualServer;
use crate::worker::generation::WorkerGeneration;
use crate::worker::{CloseReason, Worker};
use closing::ConnectionEnd;
use tls::ConnectionTls;

pub use client::ClientSide;
pub(crate) use encode::redirect_target;
pub use h2::H2Stream;
pub use h3::H3Stream;
pub use multiplexed::ExchangeOutcome;
pub use open::ConnectionEntry;
pub(crate) use send_rate::is_paced;
pub use streams::ClientStream;

/// A client's connection, shared by the requests that come on it.
pub struct ClientConnection {
    /// Its number in this process (`$connection`).
    pub number: u64,
    /// The client's address as the socket reports it.
    pub peer: SockAddr,
    /// The descriptor, for what must ask the socket itself (`$tcpinfo_rtt`).
    pub fd: i32,
    /// The servers of the address the client connected to.
    pub hosts: RefCell<Rc<AddressServers>>,
    /// The worker's serial when the connection took its hosts; a reload changes it.
    pub(crate) serial: Cell<u64>,
    /// The worker's serial when it was accepted.
    pub(crate) born: u64,
    /// Requests so far; the current one counts from when its head was read.
    pub requests: Cell<u64>,
    /// When it was accepted: milliseconds of the worker's monotonic clock.
    pub started_ms: u64,
    /// Where it is written what the kernel does for it, and for servers that are asked for it; `None` without a socket.
    pub account: Option<SocketAccount>,
    /// How long it waited to be accepted, in ticks; 0 also where that was not asked.
    pub accept_wait: u64,
    /// What a PROXY protocol header said.
    pub proxied: OnceCell<ProxiedAddresses>,
    /// True when everything about it is logged, whatever the levels of logs are (`debug_connection`).
    pub debug: bool,
    /// True when the connection came to an address with `ssl`.
    pub expects_tls: bool,
    /// What the client said to begin TLS, without its extensions.
    pub hello: OnceCell<Rc<HelloFields>>,
    /// Its TLS, once the handshake is complete.
    pub tls: OnceCell<Rc<ConnectionTls>>,
    /// The server that the name in the handshake chose.
    pub(crate) named: RefCell<Option<Rc<VirtualServer>>>,
    /// Why no further request is accepted on it; `None` while some may come.
    pub(crate) retired: Cell<Option<CloseReason>>,
    pub(crate) end: ConnectionEnd,
    pub(crate) local: OnceCell<SockAddr>,
    /// What modules keep for it.
    pub states: OnceCell<Box<ModuleStates>>,
    /// Bytes of the futures that its task is made of, as far as they are there from its beginning to its end.
    pub task_bytes: Cell<u32>,
    /// What its protocol knows of it, for a look at its memory; HTTP/1 has nothing.
    pub(crate) protocol: OnceCell<Weak<dyn ProtocolState>>,
}

/// What a protocol knows of a connection.
pub(crate) trait ProtocolState {
    /// Bytes of memory that it takes, itself among it.
    fn held_bytes(&self) -> usize;

    /// Has the connection's task look whether it is to end. Its timer goes on: a client that is slow, or whose request has come in
    /// part, has the time that it had.
    fn look(&self);
}

/// Modules' states, by their types.
pub(crate) type ModuleStates = RefCell<Vec<Rc<dyn Any>>>;

/// The addresses of a PROXY protocol header.
#[derive(Clone, Debug)]
pub struct ProxiedAddresses {
    /// The client's address (`$proxy_protocol_addr`, `_port`).
    pub source: SockAddr,
    /// The address it connected to (`$proxy_protocol_server_addr`, `_port`).
    pub destination: SockAddr,
    /// The type-length-value records of version 2, as received (`$proxy_protocol_tlv_...`); empty without any.
    pub tlvs: Box<[u8]>,
}

impl ClientConnection {
    /// A connection of which only is known where it came from, and that it begins now.
    pub fn new(
        number: u64,
        peer: SockAddr,
        fd: i32,
        hosts: Rc<AddressServers>,
        serial: u64,
    ) -> ClientConnection {
        ClientConnection {
            number,
            peer,
            fd,
            hosts: RefCell::new(hosts),
            serial: Cell::new(serial),
            born: serial,
            requests: Cell::new(0),
            started_ms: weir_rt::now_ms(),
            account: None,
            accept_wait: 0,
            proxied: OnceCell::new(),
            debug: false,
            expects_tls: false,
            hello: OnceCell::new(),
            tls: OnceCell::new(),
            named: RefCell::default(),
            retired: Cell::new(None),
            end: ConnectionEnd::default(),
            local: OnceCell::new(),
            states: OnceCell::new(),
            task_bytes: Cell::new(0),
            protocol: OnceCell::new(),
        }
    }

    /// The address the client connected to; asks the socket once.
    pub fn local(&self) -> &SockAddr {
        self.local.get_or_init(|| weir_rt::net::local_addr(self.fd).unwrap_or(SockAddr::UNSPECIFIED))
    }

    /// Whether the connection came over TLS.
    #[inline]
    pub fn is_tls(&self) -> bool {
        self.tls.get().is_some()
    }

    /// Whether it is no connection but a flow of datagrams.
    #[inline]
    pub fn is_flow(&self) -> bool {
        self.hosts.borrow().protocols.flows
    }

    /// Gives the address that the client has sent to, where the socket does not know it.
    pub fn set_local(&self, local: SockAddr) {
        // It is set before it is asked for.
        let _known = self.local.set(local);
    }

    /// A module's state for as long as the connection is there, made by `Default` when asked for first.
    pub fn state<T: Default + 'static>(&self) -> Rc<T> {
        if let Some(state) = self.state_if() {
            return state;
        }
        let state = Rc::<T>::default();
        self.states.get_or_init(Box::default).borrow_mut().push(state.clone());
        state
    }

    /// As [`ClientConnection::state`], if it was made.
    pub fn state_if<T: 'static>(&self) -> Option<Rc<T>> {
        self.states.get()?.borrow().iter().find_map(|state| state.clone().downcast().ok())
    }

    /// The server whose settings hold until a request names another: that of the handshake's name, or the default one.
    pub fn server(&self) -> Rc<VirtualServer> {
        match &*self.named.borrow() {
            Some(server) => server.clone(),
            None => self.hosts.borrow().default().clone(),
        }
    }

    /// The server that the name in the TLS handshake (SNI) chose, with that name; `None` if the client sent no name, or
    /// no server was chosen by it.
    pub fn named(&self) -> Option<(Rc<VirtualServer>, &str)> {
        let server = self.named.borrow().clone()?;
        Some((server, self.hello.get()?.server_name.as_deref()?))
    }

    /// Chooses the virtual server by the name in the handshake (SNI); `None`: the client sent no name, and the
    /// default server stays.
    ///
    /// # Errors
    /// Why the pattern of a server's name was given up: which server is meant is not known.
    pub fn choose_by_name(&self, name: Option<&str>) -> Result<(), String> {
        let found = match name {
            Some(name) => self.hosts.borrow().by_any_name(name.as_bytes()),
            None => Ok(None),
        };
        *self.named.borrow_mut() = found?;
        Ok(())
    }
}

impl ClientConnection {
    /// A connection to a wildcard listener belongs to the servers of the very address it came to, if that has any.
    pub fn narrow(&self, generation: &WorkerGeneration) {
        let here = self.hosts.borrow().clone();
        let at = generation.hosts().iter().position(|hosts| Rc::ptr_eq(hosts, &here));
        let special = generation.configuration.addresses.iter().position(|address| {
            address.wildcard_of.is_some() && address.wildcard_of == at && address.addr == *self.local()
        });
        if let Some(index) = special {
            *self.hosts.borrow_mut() = generation.hosts()[index].clone();
        }
    }

    /// After a reload: takes the hosts of the same address in the new configuration. If it is absent, or its
    /// connections are others now (TLS, HTTP/2, PROXY protocol), no further request is taken. Whether the address has other
    /// servers than before, or one says something else.
    pub fn adopt(&self, worker: &Worker) -> bool {
        if self.serial.get() == worker.serial() || self.is_retired() {
            return false;
        }
        let Some(generation) = worker.generation() else { return false };
        match self.successor(&generation) {
            Some(hosts) => {
                self.serial.set(worker.serial());
                let before = self.hosts.replace(hosts);
                let changed = before.words != self.hosts.borrow().words;
                self.narrow(&generation);
                if let Some(hello) = self.hello.get()
                    && let Err(reason) = self.choose_by_name(hello.server_name.as_deref())
                {
                    self.log(crate::log::LogLevel::Alert, &reason);
                    self.retire(CloseReason::Reload);
                    return true;
                }
                changed
            }
            None => {
                self.retire(CloseReason::Reload);
                true
            }
        }
    }

    /// Whether connections to its address may be HTTP/2.
    pub fn takes_http2(&self) -> bool {
        self.hosts.borrow().protocols.http2 || self.server().http2.on
    }

    /// After a reload, in a request of the configuration before: whether another can follow it.
    pub(crate) fn foresee(&self, worker: &Worker) {
        if worker.generation().is_some_and(|generation| self.successor(&generation).is_none()) {
            self.retire(CloseReason::Reload);
        }
    }

    fn successor(&self, generation: &WorkerGeneration) -> Option<Rc<AddressServers>> {
        let here = self.hosts.borrow();
        let same = |hosts: &&Rc<AddressServers>| hosts.addr == here.addr && hosts.protocols == here.protocols;
        generation.hosts().iter().find(same).cloned()
    }
}

/// Where the response of an exchange goes.
pub enum Transport {
    /// The exchange has no connection.
    None,
    /// An HTTP/1 connection.
    H1(Rc<wire::ClientWire>),
    /// A stream of an HTTP/2 or HTTP/3 connection.
    Stream(ClientStream),
    /// A connection whose bytes are no HTTP: a session of `stream`.
    Session(Rc<wire::ClientWire>),
    /// Datagrams of one client: a session of `stream` over UDP.
    Flow(Rc<flow::ClientFlow>),
    /// Memory: a subrequest whose response its parent wants.
    Capture(ResponseCapture),
    /// The parent's output, in its turn: a subrequest that is included there.
    Splice(Rc<ChildOutlet>),
}

impl Transport {
    /// Bytes handed over so far, of all requests.
    pub(crate) fn bytes_written(&self) -> u64 {
        match self {
            Transport::None => 0,
            Transport::H1(wire) | Transport::Session(wire) => wire.written(),
            Transport::Stream(stream) => stream.written(),
            Transport::Flow(flow) => flow.written(),
            Transport::Capture(capture) => capture.bytes.len() as u64,
            Transport::Splice(outlet) => outlet.total(),
        }
    }

    /// The socket's connection; `None` for a subrequest, which has no socket of its own.
    pub fn wire(&self) -> Option<&Rc<wire::ClientWire>> {
        match self {
            Transport::H1(wire) | Transport::Session(wire) => Some(wire),
            Transport::Stream(ClientStream::H2(stream)) => Some(stream.wire()),
            _ => None,
        }
    }

    /// What the kernel did for the connection and no request has paid, and what it will do to send what is there, in ticks;
    /// 0 of what has no socket.
    #[inline]
    pub(crate) fn take_kernel(&self) -> u64 {
        match self {
            Transport::H1(wire) | Transport::Session(wire) => wire.take_kernel(),
            Transport::Stream(ClientStream::H2(stream)) => stream.wire().take_kernel(),
            _ => 0,
        }
    }

    /// What [`take_kernel`](Transport::take_kernel) would take now.
    pub(crate) fn due_kernel(&self) -> u64 {
        self.wire().map_or(0, |wire| wire.due_kernel())
    }

    /// The stream of HTTP/2, if it is one.
    pub fn h2(&self) -> Option<&H2Stream> {
        match self {
            Transport::Stream(ClientStream::H2(stream)) => Some(stream),
            _ => None,
        }
    }

    /// The stream of HTTP/2 or HTTP/3, if it is one.
    #[inline]
    pub fn stream(&self) -> Option<&ClientStream> {
        match self {
            Transport::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    /// The flow of datagrams, if it is one.
    pub fn flow(&self) -> Option<&Rc<flow::ClientFlow>> {
        match self {
            Transport::Flow(flow) => Some(flow),
            _ => None,
        }
    }

    /// The client at the other end, to be watched; `None` for a subrequest.
    pub fn client(&self) -> Option<ClientSide> {
        match self {
            Transport::H1(wire) | Transport::Session(wire) => Some(ClientSide::H1(wire.clone())),
            Transport::Stream(stream) => Some(ClientSide::Stream(stream.clone())),
            Transport::Flow(flow) => Some(ClientSide::Flow(flow.clone())),
            _ => None,
        }
    }

    /// Ready once the client has left or given the request up; registers the polling task else.
    pub fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Transport::H1(wire) | Transport::Session(wire) => wire.stream.poll_closed(cx).map(|_| ()),
            Transport::Stream(stream) => stream.poll_gone(cx),
            Transport::Flow(flow) => flow.poll_gone(cx),
            _ => Poll::Pending,
        }
    }

    /// The HTTP/1 connection, if it is one.
    pub fn h1(&self) -> Option<&Rc<wire::ClientWire>> {
        match self {
            Transport::H1(wire) => Some(wire),
            _ => None,
        }
    }
}
