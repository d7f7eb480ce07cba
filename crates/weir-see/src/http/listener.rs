//! A listening address of the admin listener, and the thread that waits at it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_engine::log::{self, LogLevel};
use weir_rt::SockAddr;

use super::connection;
use crate::source::ServerSource;

/// An address that is listened on until this is dropped.
pub(super) struct AdminListener {
    shared: Arc<ListenerState>,
}

/// What the door's threads know.
pub(super) struct ListenerState {
    address: SockAddr,
    token: Mutex<Option<String>>,
    closed: AtomicBool,
    /// Open connections that have not been authorized yet.
    open: AtomicUsize,
    /// Those that have shown that they may.
    known: AtomicUsize,
    /// How the former are closed, oldest first.
    strangers: Mutex<VecDeque<(u64, Box<dyn StreamCloser>)>>,
    pub(super) source: Arc<ServerSource>,
}

impl AdminListener {
    /// Listens at `address`, with `first` if that is a listener, else as soon as it can be had.
    pub(super) fn open(
        address: SockAddr,
        first: io::Result<AdminSocket>,
        token: Option<String>,
        source: Arc<ServerSource>,
    ) -> AdminListener {
        let shared = Arc::new(ListenerState {
            address,
            token: Mutex::new(token),
            closed: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            known: AtomicUsize::new(0),
            strangers: Mutex::default(),
            source,
        });
        let waiting = shared.clone();
        let thread = std::thread::Builder::new().name("weir admin".to_owned());
        if let Err(error) = thread.spawn(move || waiting.listen(first)) {
            log::cycle(LogLevel::Alert, &format_args!("no thread for admin {}: {error}", shared.address));
        }
        AdminListener { shared }
    }

    pub(super) fn address(&self) -> &SockAddr {
        &self.shared.address
    }

    /// Requests from now on must show this token.
    pub(super) fn set_token(&self, token: Option<String>) {
        *self.shared.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }
}

impl Drop for AdminListener {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        // The thread waits in accept(2): a connection wakes it. If none can be made, there is no listener.
        match AdminAddress::of(&self.shared.address) {
            Ok(AdminAddress::Tcp(address)) => drop(TcpStream::connect_timeout(&address, SHORTLY)),
            Ok(AdminAddress::Unix(address)) => {
                drop(UnixStream::connect_addr(&address));
                // Where this user may not, the next server finds that nothing listens on that path.
                let _ = address.as_pathname().map(std::fs::remove_file);
            }
            Err(_) => {}
        }
    }
}

impl ListenerState {
    /// The token a request must show, if one is set.
    pub(super) fn token(&self) -> Option<String> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it is an address of the network, if only of this machine.
    pub(super) fn is_tcp(&self) -> bool {
        self.address.ip().is_some()
    }

    fn listen(self: &Arc<Self>, first: io::Result<AdminSocket>) {
        let mut bound = first;
        let mut told = false;
        loop {
            match bound {
                Ok(listener) => return self.serve(&listener),
                Err(error) if !told => {
                    log::cycle(
                        LogLevel::Warn,
                        &format_args!("bind() of admin {} failed: {error}", self.address),
                    );
                    told = true;
                }
                Err(_) => {}
            }
            std::thread::sleep(AGAIN);
            if self.closed.load(Ordering::Relaxed) {
                return;
            }
            bound = AdminSocket::bind(&self.address, None);
        }
    }

    fn serve(self: &Arc<Self>, listener: &AdminSocket) {
        loop {
            let stream = listener.accept();
            if self.closed.load(Ordering::Relaxed) {
                return;
            }
            let stream = match stream {
                Ok(stream) => stream,
                Err(error) => {
                    log::cycle(
                        LogLevel::Alert,
                        &format_args!("accept() on admin {} failed: {error}", self.address),
                    );
                    // Without descriptors or memory the next one fails, too.
                    std::thread::sleep(AGAIN);
                    continue;
                }
            };
            self.start(stream);
        }
    }

    fn strangers(&self) -> MutexGuard<'_, VecDeque<(u64, Box<dyn StreamCloser>)>> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection `id` is closed, or known.
    fn forget(&self, id: u64) {
        self.strangers().retain(|(stranger, _)| *stranger != id);
    }

    fn start(self: &Arc<Self>, mut stream: Box<dyn AdminStream>) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let place = AdminPermit { door: self.clone(), id, known: Cell::new(false) };
        let open = self.open.fetch_add(1, Ordering::Relaxed);
        let mut strangers = self.strangers();
        // The oldest of them goes: it has had its time, and a head that is sent at once is read at once.
        if strangers.len() >= MOST
            && let Some((_, oldest)) = strangers.pop_front()
        {
            oldest.close();
        }
        match stream.closer() {
            Ok(closer) => strangers.push_back((id, closer)),
            Err(error) => return log::cycle(LogLevel::Info, &format_args!("admin connection: {error}")),
        }
        drop(strangers);
        if open >= 2 * MOST {
            // A client that does not even read this is just closed.
            let _ = stream.write_all(
                b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
            return;
        }
        let serve = move || {
            if let Err(error) = connection::run(stream, &place.door, &place) {
                log::cycle(LogLevel::Info, &format_args!("admin connection: {error}"));
            }
            drop(place);
        };
        if let Err(error) = std::thread::Builder::new().name("weir admin".to_owned()).spawn(serve) {
            log::cycle(LogLevel::Warn, &format_args!("admin connection: {error}"));
        }
    }
}

/// One of the places for connections; given back when dropped. There are [`MOST`] for those that have not shown yet that they
/// may ask, each for [`connection`]'s time of a head at most, and as many others for those that have: a client without
/// authorization takes no place from one that has it.
pub(super) struct AdminPermit {
    door: Arc<ListenerState>,
    id: u64,
    known: Cell<bool>,
}

impl AdminPermit {
    /// The connection's client may ask. `false`: too many of those are open.
    pub(super) fn keep(&self) -> bool {
        if self.known.get() {
            return true;
        }
        if self.door.known.fetch_add(1, Ordering::Relaxed) >= MOST {
            self.door.known.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.door.open.fetch_sub(1, Ordering::Relaxed);
        self.door.forget(self.id);
        self.known.set(true);
        true
    }
}

impl Drop for AdminPermit {
    fn drop(&mut self) {
        self.door.forget(self.id);
        let places = if self.known.get() { &self.door.known } else { &self.door.open };
        places.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection of either family.
pub(super) trait AdminStream: Read + Write + Send {
    /// How long a read may take; `None`: it does not wait at all.
    fn set_patience(&self, time: Option<Duration>) -> io::Result<()>;

    /// What closes it while its own thread reads.
    fn closer(&self) -> io::Result<Box<dyn StreamCloser>>;
}

/// Closes a connection from another thread.
pub(super) trait StreamCloser: Send {
    /// Both ways: a read that waits ends.
    fn close(&self);
}

impl StreamCloser for TcpStream {
    fn close(&self) {
        // Fails where the client has done it before.
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl StreamCloser for UnixStream {
    fn close(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl AdminStream for TcpStream {
    fn set_patience(&self, time: Option<Duration>) -> io::Result<()> {
        self.set_nonblocking(time.is_none())?;
        time.map_or(Ok(()), |time| self.set_read_timeout(Some(time)))
    }

    fn closer(&self) -> io::Result<Box<dyn StreamCloser>> {
        Ok(Box::new(self.try_clone()?))
    }
}

impl AdminStream for UnixStream {
    fn set_patience(&self, time: Option<Duration>) -> io::Result<()> {
        self.set_nonblocking(time.is_none())?;
        time.map_or(Ok(()), |time| self.set_read_timeout(Some(time)))
    }

    fn closer(&self) -> io::Result<Box<dyn StreamCloser>> {
        Ok(Box::new(self.try_clone()?))
    }
}

/// A listening socket of either family.
pub(super) enum AdminSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AdminSocket {
    /// Binds; a unix socket is `owner`'s then, if one is named, and no other user's.
    pub(super) fn bind(address: &SockAddr, owner: Option<u32>) -> io::Result<AdminSocket> {
        // One that nothing listens on was left by a server that was killed.
        weir_rt::net::remove_stale(address)?;
        let address = match AdminAddress::of(address)? {
            AdminAddress::Tcp(address) => return TcpListener::bind(address).map(AdminSocket::Tcp),
            AdminAddress::Unix(address) => address,
        };
        match address.as_pathname() {
            Some(path) => weir_rt::file::bind_private(path, owner),
            None => UnixListener::bind_addr(&address),
        }
        .map(AdminSocket::Unix)
    }

    fn accept(&self) -> io::Result<Box<dyn AdminStream>> {
        Ok(match self {
            AdminSocket::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(WRITE))?;
                Box::new(stream)
            }
            AdminSocket::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_write_timeout(Some(WRITE))?;
                Box::new(stream)
            }
        })
    }
}

/// The address as `std` has it.
enum AdminAddress {
    Tcp(std::net::SocketAddr),
    Unix(std::os::unix::net::SocketAddr),
}

impl AdminAddress {
    fn of(address: &SockAddr) -> io::Result<AdminAddress> {
        match address {
            SockAddr::V4(address) => Ok(AdminAddress::Tcp((*address).into())),
            SockAddr::V6(address) => Ok(AdminAddress::Tcp((*address).into())),
            SockAddr::Unix(address) => match (address.path(), address.abstract_name()) {
                (Some(path), _) => std::os::unix::net::SocketAddr::from_pathname(path),
                (None, name) => std::os::unix::net::SocketAddr::from_abstract_name(name.unwrap_or_default()),
            }
            .map(AdminAddress::Unix),
        }
    }
}

/// Connections of a door at once; more are refused with 503.
pub(super) const MOST: usize = 32;
/// How long it may take to reach oneself.
const SHORTLY: Duration = Duration::from_millis(100);
/// Between two attempts to open a door.
const AGAIN: Duration = Duration::from_millis(500);
/// How long a client may take to make room for the response.
const WRITE: Duration = Duration::from_secs(10);
