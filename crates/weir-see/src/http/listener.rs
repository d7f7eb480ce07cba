//! A listening address of the admin listener, and the thread that waits at it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_engine::log::{self, LogLevel};
use weir_rt::SockAddr;

use super::{DoorSources, connection};

/// Connections that have not been authorized yet.
#[derive(Default)]
struct Strangers {
    /// Threads that serve them, also those whose connection has been closed and that have not noticed it yet.
    threads: usize,
    /// How they are closed, oldest first.
    closers: VecDeque<(u64, Box<dyn StreamCloser>)>,
}

/// An address that is listened on until this is dropped.
pub(super) struct AdminListener {
    shared: Arc<ListenerState>,
    /// It could be listened on at once.
    bound: bool,
}

/// What the door's threads know.
pub(super) struct ListenerState {
    address: SockAddr,
    token: Mutex<Option<String>>,
    closed: AtomicBool,
    /// Connections that have shown that they may ask.
    known: AtomicUsize,
    strangers: Mutex<Strangers>,
    /// A thread of one of the strangers has ended, or serves a connection that is known now.
    left: Condvar,
    pub(super) sources: DoorSources,
}

impl AdminListener {
    /// Listens at `address`, with `first` if that is a listener, else as soon as it can be had.
    pub(super) fn open(
        address: SockAddr,
        first: io::Result<AdminSocket>,
        token: Option<String>,
        sources: DoorSources,
    ) -> AdminListener {
        let shared = Arc::new(ListenerState {
            address,
            token: Mutex::new(token),
            closed: AtomicBool::new(false),
            known: AtomicUsize::new(0),
            strangers: Mutex::default(),
            left: Condvar::new(),
            sources,
        });
        let (waiting, bound) = (shared.clone(), first.is_ok());
        let thread = std::thread::Builder::new().name("weir admin".to_owned());
        if let Err(error) = thread.spawn(move || waiting.listen(first)) {
            log::cycle(LogLevel::Alert, &format_args!("no thread for admin {}: {error}", shared.address));
        }
        AdminListener { shared, bound }
    }

    pub(super) fn address(&self) -> &SockAddr {
        &self.shared.address
    }

    /// The address for browsers; `None` of a unix socket, and of one that could not be listened on at once.
    pub(super) fn page(&self) -> Option<String> {
        (self.bound && self.shared.is_tcp()).then(|| format!("http://{}/", self.shared.address))
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
        let mut reported = false;
        loop {
            match bound {
                Ok(listener) => return self.serve(&listener),
                Err(error) if !reported => {
                    log::cycle(
                        LogLevel::Warn,
                        &format_args!("bind() of admin {} failed: {error}", self.address),
                    );
                    reported = true;
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

    fn strangers(&self) -> MutexGuard<'_, Strangers> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread of connection `id` has ended, or the connection is known.
    fn forget(&self, id: u64) {
        let mut strangers = self.strangers();
        strangers.threads -= 1;
        strangers.closers.retain(|(stranger, _)| *stranger != id);
        drop(strangers);
        self.left.notify_one();
    }

    /// Counts a stranger; `false` if there are too many. The oldest of [`MOST`] is closed for it: it has had its time,
    /// and a head that is sent at once is read at once. Threads whose connections were closed end at once, too, when
    /// they get a processor: on a busy machine that is waited for, so that a burst of connections does not have the
    /// client refused that comes after it.
    fn admit(&self, id: u64, closer: Box<dyn StreamCloser>) -> bool {
        let mut strangers = self.strangers();
        if strangers.closers.len() >= MOST
            && let Some((_, oldest)) = strangers.closers.pop_front()
        {
            oldest.close();
        }
        let full = |strangers: &mut Strangers| strangers.threads >= 2 * MOST;
        let waited = self.left.wait_timeout_while(strangers, WAIT, full);
        let (mut strangers, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return false;
        }
        strangers.threads += 1;
        strangers.closers.push_back((id, closer));
        true
    }

    fn start(self: &Arc<Self>, mut stream: Box<dyn AdminStream>) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let closer = match stream.closer() {
            Ok(closer) => closer,
            Err(error) => return log::cycle(LogLevel::Info, &format_args!("admin connection: {error}")),
        };
        if !self.admit(id, closer) {
            // A client that does not even read this is just closed.
            let _ = stream.write_all(
                b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
            return;
        }
        let permit = AdminPermit { door: self.clone(), id, known: Cell::new(false) };
        let serve = move || {
            if let Err(error) = connection::run(stream, &permit.door, &permit) {
                log::cycle(LogLevel::Info, &format_args!("admin connection: {error}"));
            }
            drop(permit);
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
        self.door.forget(self.id);
        self.known.set(true);
        true
    }
}

impl Drop for AdminPermit {
    fn drop(&mut self) {
        if self.known.get() {
            self.door.known.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.door.forget(self.id);
        }
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

/// How long a new connection waits for a thread to end.
const WAIT: Duration = Duration::from_secs(1);
/// Connections of a door at once, of those that may ask and of the others; more are refused with 503.
pub(super) const MOST: usize = 32;
/// How long it may take to reach oneself.
const SHORTLY: Duration = Duration::from_millis(100);
/// Between two attempts to open a door.
const AGAIN: Duration = Duration::from_millis(500);
/// How long a client may take to make room for the response.
const WRITE: Duration = Duration::from_secs(10);
