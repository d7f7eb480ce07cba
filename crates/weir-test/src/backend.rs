//! Servers that do what a test says: respond, fall silent, break off, speak nonsense.
//!
//! ```no_run
//! let backend = weir_test::Backend::start(|visit| {
//!     while visit.head().is_some() {
//!         visit.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
//!     }
//! });
//! println!("{}", backend.port());
//! ```

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::port::free_listener;
use crate::wait::{DEADLINE, wait_for};

/// A listening server of a test; each connection has a thread in which the test's closure runs.
pub struct Backend {
    address: SocketAddr,
    shared: Arc<BackendState>,
}

struct BackendState {
    visits: AtomicUsize,
    heads: AtomicUsize,
    down: AtomicBool,
    /// Connections that are open, by the numbers of their visits.
    open: Mutex<HashMap<usize, TcpStream>>,
}

impl Backend {
    /// Listens on a free port of 127.0.0.1, and runs `behave` for every connection, which is closed when it returns.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn start(behave: impl Fn(&mut BackendVisit) + Send + Sync + 'static) -> Backend {
        Backend::over(free_listener(), behave)
    }

    /// As [`Backend::start`], on a port that was this test's before.
    ///
    /// # Panics
    /// When the port is taken.
    #[must_use]
    pub fn start_at(port: u16, behave: impl Fn(&mut BackendVisit) + Send + Sync + 'static) -> Backend {
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok();
        Backend::over(wait_for("free port", bind), behave)
    }

    fn over(listener: TcpListener, behave: impl Fn(&mut BackendVisit) + Send + Sync + 'static) -> Backend {
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(BackendState {
            visits: AtomicUsize::new(0),
            heads: AtomicUsize::new(0),
            down: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let (behave, accepting) = (Arc::new(behave), shared.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.down.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (behave, shared) = (behave.clone(), accepting.clone());
                let number = shared.visits.fetch_add(1, Ordering::SeqCst) + 1;
                shared.add(number, &stream);
                thread::spawn(move || {
                    behave(&mut BackendVisit { number, stream: Some(stream), read: Vec::new(), shared });
                });
            }
        });
        Backend { address, shared }
    }

    /// A backend that responds to every request with 200 and `body`, and keeps connections.
    #[must_use]
    pub fn answering(body: &str) -> Backend {
        Backend::start(answer(body))
    }

    /// [`Backend::answering`] on a port that was this test's before.
    #[must_use]
    pub fn answering_at(port: u16, body: &str) -> Backend {
        Backend::start_at(port, answer(body))
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many connections have come.
    #[must_use]
    pub fn visits(&self) -> usize {
        self.shared.visits.load(Ordering::SeqCst)
    }

    /// How many heads of requests were read.
    #[must_use]
    pub fn heads(&self) -> usize {
        self.shared.heads.load(Ordering::SeqCst)
    }

    /// Stops: nothing listens any more, and what is open is closed.
    pub fn kill(&self) {
        self.shared.down.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts, which ends and closes the socket.
        let _ = TcpStream::connect(self.address);
        wait_for("refusal", || TcpStream::connect(self.address).is_err().then_some(()));
        for (_, stream) in self.shared.open().drain() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        if !self.shared.down.load(Ordering::SeqCst) && !thread::panicking() {
            self.kill();
        }
    }
}

impl BackendState {
    fn add(&self, number: usize, stream: &TcpStream) {
        if let Ok(stream) = stream.try_clone() {
            self.open().insert(number, stream);
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<usize, TcpStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection to a [`Backend`].
pub struct BackendVisit {
    /// The how-manieth it is, from 1.
    pub number: usize,
    stream: Option<TcpStream>,
    read: Vec<u8>,
    shared: Arc<BackendState>,
}

impl BackendVisit {
    /// Where the connection comes from; `None` once it was reset.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.stream.as_ref().and_then(|stream| stream.peer_addr().ok())
    }

    /// The next request's head, with its empty line; `None` when the connection ends before.
    pub fn head(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                let rest = self.read.split_off(end + 4);
                let head = std::mem::replace(&mut self.read, rest);
                self.shared.heads.fetch_add(1, Ordering::SeqCst);
                return Some(String::from_utf8_lossy(&head).into_owned());
            }
            self.more()?;
        }
    }

    /// The next `count` bytes; `None` when the connection ends before.
    pub fn bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.read.len() < count {
            self.more()?;
        }
        let rest = self.read.split_off(count);
        Some(std::mem::replace(&mut self.read, rest))
    }

    /// Sends; `false` when the other side is gone.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.as_mut().is_some_and(|stream| stream.write_all(bytes.as_ref()).is_ok())
    }

    /// Sends 200 with `body`.
    pub fn answer(&mut self, body: &str) -> bool {
        self.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
    }

    /// Says nothing until the other side closes, or [`DEADLINE`] is over.
    pub fn hang(&mut self) {
        while self.more().is_some() {}
    }

    /// Resets the connection; nothing can be done with it afterwards.
    pub fn reset(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        weir_sys::socket::set_linger_zero(&stream).unwrap_or_else(|error| panic!("SO_LINGER: {error}"));
        // The other handle would keep the connection open.
        self.shared.open().remove(&self.number);
    }

    fn more(&mut self) -> Option<()> {
        let mut piece = [0; 64 * 1024];
        let stream = self.stream.as_mut()?;
        // A socket that takes no timeout reads without one.
        let _ = stream.set_read_timeout(Some(DEADLINE));
        loop {
            match stream.read(&mut piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return None,
                Ok(count) => {
                    self.read.extend_from_slice(&piece[..count]);
                    return Some(());
                }
            }
        }
    }
}

impl Drop for BackendVisit {
    fn drop(&mut self) {
        self.shared.open().remove(&self.number);
        if let Some(stream) = &self.stream {
            // The other side may have closed before.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn answer(body: &str) -> impl Fn(&mut BackendVisit) + Send + Sync + 'static + use<> {
    let body = body.to_owned();
    move |visit| {
        while visit.head().is_some() {
            if !visit.answer(&body) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;

    #[test]
    fn it_answers_counts_resets_and_dies() {
        let backend = Backend::start(|visit| {
            while let Some(head) = visit.head() {
                match head.starts_with("GET /reset") {
                    true => return visit.reset(),
                    false => visit.answer("hello"),
                };
            }
        });
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, backend.port()));
        let mut client = Client::connect(address);
        assert_eq!(client.get("/").text(), "hello");
        client.send("GET /reset HTTP/1.1\r\n\r\n");
        assert!(matches!(client.rest().1, crate::ConnectionEnd::Reset), "a reset");
        assert_eq!((backend.visits(), backend.heads()), (1, 2));
        let mut other = Client::connect(address);
        assert_eq!(other.get("/").text(), "hello");
        assert_eq!(backend.shared.open().len(), 1, "what was reset is not held");
        drop(other);
        wait_for("the end of the visit", || backend.shared.open().is_empty().then_some(()));
        backend.kill();
        assert!(TcpStream::connect(address).is_err());
    }
}
