//! A listening address of the admin listener, and the thread that waits at it.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weir_core::log::{self, Level};
use weir_rt::SockAddr;

use super::connection;
use crate::source::Source;

/// An address that is listened on until this is dropped.
pub(super) struct Door {
    shared: Arc<Shared>,
}

/// What the door's threads know.
pub(super) struct Shared {
    address: SockAddr,
    token: Mutex<Option<String>>,
    closed: AtomicBool,
    /// Connections open.
    open: AtomicUsize,
    pub(super) source: Arc<Source>,
}

impl Door {
    /// Listens at `address`, with `first` if that is a listener, else as soon as it can be had.
    pub(super) fn open(
        address: SockAddr,
        first: io::Result<Listener>,
        token: Option<String>,
        source: Arc<Source>,
    ) -> Door {
        let shared = Arc::new(Shared {
            address,
            token: Mutex::new(token),
            closed: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            source,
        });
        let waiting = shared.clone();
        let thread = std::thread::Builder::new().name("weir admin".to_owned());
        if let Err(error) = thread.spawn(move || waiting.listen(first)) {
            log::cycle(Level::Alert, &format_args!("no thread for admin {}: {error}", shared.address));
        }
        Door { shared }
    }

    pub(super) fn address(&self) -> &SockAddr {
        &self.shared.address
    }

    /// Requests from now on must show this token.
    pub(super) fn set_token(&self, token: Option<String>) {
        *self.shared.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        // The thread waits in accept(2): a connection wakes it. If none can be made, there is no listener.
        match Target::of(&self.shared.address) {
            Ok(Target::Tcp(address)) => drop(TcpStream::connect_timeout(&address, SHORTLY)),
            Ok(Target::Unix(address)) => {
                drop(UnixStream::connect_addr(&address));
                // Where this user may not, the next server finds that nobody listens behind the name.
                let _ = address.as_pathname().map(std::fs::remove_file);
            }
            Err(_) => {}
        }
    }
}

impl Shared {
    /// The token a request must show, if one is set.
    pub(super) fn token(&self) -> Option<String> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it is an address of the network, if only of this machine.
    pub(super) fn is_tcp(&self) -> bool {
        self.address.ip().is_some()
    }

    fn listen(self: &Arc<Self>, first: io::Result<Listener>) {
        let mut bound = first;
        let mut told = false;
        loop {
            match bound {
                Ok(listener) => return self.serve(&listener),
                Err(error) if !told => {
                    log::cycle(
                        Level::Warn,
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
            bound = Listener::bind(&self.address, None);
        }
    }

    fn serve(self: &Arc<Self>, listener: &Listener) {
        loop {
            let stream = listener.accept();
            if self.closed.load(Ordering::Relaxed) {
                return;
            }
            let stream = match stream {
                Ok(stream) => stream,
                Err(error) => {
                    log::cycle(
                        Level::Alert,
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

    fn start(self: &Arc<Self>, mut stream: Box<dyn Stream>) {
        let place = Place(self.clone());
        if self.open.fetch_add(1, Ordering::Relaxed) >= MOST {
            // Who does not even read this has nothing to complain about.
            let _ = stream.write_all(
                b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
            return;
        }
        let serve = move || {
            if let Err(error) = connection::run(stream, &place.0) {
                log::cycle(Level::Info, &format_args!("admin connection: {error}"));
            }
            drop(place);
        };
        if let Err(error) = std::thread::Builder::new().name("weir admin".to_owned()).spawn(serve) {
            log::cycle(Level::Warn, &format_args!("admin connection: {error}"));
        }
    }
}

/// One of the places for connections; given back when dropped.
struct Place(Arc<Shared>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection of either family.
pub(super) trait Stream: Read + Write + Send {
    /// How long a read may take; `None`: it does not wait at all.
    fn set_patience(&self, time: Option<Duration>) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_patience(&self, time: Option<Duration>) -> io::Result<()> {
        self.set_nonblocking(time.is_none())?;
        time.map_or(Ok(()), |time| self.set_read_timeout(Some(time)))
    }
}

impl Stream for UnixStream {
    fn set_patience(&self, time: Option<Duration>) -> io::Result<()> {
        self.set_nonblocking(time.is_none())?;
        time.map_or(Ok(()), |time| self.set_read_timeout(Some(time)))
    }
}

/// A listening socket of either family.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Binds; a unix socket is `owner`'s then, if one is named, and nobody else's.
    pub(super) fn bind(address: &SockAddr, owner: Option<u32>) -> io::Result<Listener> {
        // One that nobody listens on was left by a server that was killed.
        weir_rt::net::remove_stale(address)?;
        let address = match Target::of(address)? {
            Target::Tcp(address) => return TcpListener::bind(address).map(Listener::Tcp),
            Target::Unix(address) => address,
        };
        match address.as_pathname() {
            Some(path) => weir_rt::file::bind_private(path, owner),
            None => UnixListener::bind_addr(&address),
        }
        .map(Listener::Unix)
    }

    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(WRITE))?;
                Box::new(stream)
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_write_timeout(Some(WRITE))?;
                Box::new(stream)
            }
        })
    }
}

/// The address as `std` has it.
enum Target {
    Tcp(std::net::SocketAddr),
    Unix(std::os::unix::net::SocketAddr),
}

impl Target {
    fn of(address: &SockAddr) -> io::Result<Target> {
        match address {
            SockAddr::V4(address) => Ok(Target::Tcp((*address).into())),
            SockAddr::V6(address) => Ok(Target::Tcp((*address).into())),
            SockAddr::Unix(address) => match (address.path(), address.abstract_name()) {
                (Some(path), _) => std::os::unix::net::SocketAddr::from_pathname(path),
                (None, name) => std::os::unix::net::SocketAddr::from_abstract_name(name.unwrap_or_default()),
            }
            .map(Target::Unix),
        }
    }
}

/// Connections of a door at once; more are told to come later.
pub(super) const MOST: usize = 32;
/// How long it may take to reach oneself.
const SHORTLY: Duration = Duration::from_millis(100);
/// Between two attempts to open a door.
const AGAIN: Duration = Duration::from_millis(500);
/// How long a client may take to make room for the answer.
const WRITE: Duration = Duration::from_secs(10);
