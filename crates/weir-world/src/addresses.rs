//! The addresses of simulated sockets: what the process takes for TCP is a UNIX-domain socket with other names.

use std::collections::{BTreeMap, VecDeque};

use crate::kernel::unix::{self, UnixName};

/// An IPv4 address and port.
pub(crate) type SocketName = ([u8; 4], u16);

/// What is known of a descriptor.
#[derive(Clone, Debug, Default)]
struct SocketEnds {
    local: Option<SocketName>,
    peer: Option<SocketName>,
    /// The error that is reported once, when connecting has failed later.
    error: i32,
}

/// Who has connected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) from: SocketName,
    /// There is little room for what is sent to it.
    pub(crate) is_narrow: bool,
}

/// A socket that listens.
#[derive(Debug)]
struct SimListener {
    fd: i32,
    at: SocketName,
    name: UnixName,
    /// It takes connections: listen(2) has been called.
    is_open: bool,
    /// Those who have connected and were not accepted yet.
    waiting: VecDeque<Caller>,
}

/// All sockets of the process, and those of the world that others connect to.
#[derive(Debug, Default)]
pub(crate) struct SocketAddresses {
    ends: BTreeMap<i32, SocketEnds>,
    listeners: Vec<SimListener>,
    /// Ports that were given so far.
    given: u16,
    turns: usize,
}

/// The first port of those who connect.
const EPHEMERAL: u16 = 40_000;

impl SocketAddresses {
    /// A new simulated socket.
    pub(crate) fn add(&mut self, fd: i32) {
        self.ends.insert(fd, SocketEnds::default());
    }

    pub(crate) fn is_simulated(&self, fd: i32) -> bool {
        self.ends.contains_key(&fd)
    }

    /// A descriptor is about to be closed.
    pub(crate) fn remove(&mut self, fd: i32) {
        if self.ends.remove(&fd).is_some() {
            self.listeners.retain(|listener| listener.fd != fd);
        }
    }

    /// `to` is another descriptor of `fd`'s socket.
    pub(crate) fn copy(&mut self, fd: i32, to: i32) {
        if let Some(ends) = self.ends.get(&fd).cloned() {
            self.ends.insert(to, ends);
        }
        if let Some(listener) = self.listeners.iter_mut().find(|listener| listener.fd == fd) {
            // The copy lives longer, as far as anybody has been seen to copy one.
            listener.fd = to;
        }
    }

    pub(crate) fn local(&self, fd: i32) -> Option<SocketName> {
        self.ends.get(&fd).and_then(|ends| ends.local)
    }

    pub(crate) fn peer(&self, fd: i32) -> Option<SocketName> {
        self.ends.get(&fd).and_then(|ends| ends.peer)
    }

    /// SO_ERROR, which is gone then.
    pub(crate) fn take_error(&mut self, fd: i32) -> i32 {
        self.ends.get_mut(&fd).map_or(0, |ends| std::mem::take(&mut ends.error))
    }

    /// Gives a socket the address; port 0 is any.
    pub(crate) fn bind(&mut self, fd: i32, (host, port): SocketName) -> Result<(), i32> {
        let at = (host, if port == 0 { self.next_port() } else { port });
        let name = unix::bind(fd)?;
        self.ends.entry(fd).or_default().local = Some(at);
        self.listeners.push(SimListener { fd, at, name, is_open: false, waiting: VecDeque::new() });
        Ok(())
    }

    pub(crate) fn listen(&mut self, fd: i32) {
        if let Some(listener) = self.listeners.iter_mut().find(|listener| listener.fd == fd) {
            listener.is_open = true;
        }
    }

    /// Connects `fd` to whoever listens there.
    pub(crate) fn connect(&mut self, fd: i32, to: SocketName, is_narrow: bool) -> Result<(), i32> {
        let from = ([127, 0, 0, 1], self.next_port());
        // Those of one address by turns, as the kernel's hash does among sockets with SO_REUSEPORT.
        self.turns = self.turns.wrapping_add(1);
        let mut there: Vec<&mut SimListener> = self
            .listeners
            .iter_mut()
            .filter(|one| one.is_open && one.at.1 == to.1 && (one.at.0 == to.0 || one.at.0 == [0; 4]))
            .collect();
        let count = there.len();
        let Some(listener) = there.get_mut(self.turns % count.max(1)) else { return Err(libc::ECONNREFUSED) };
        let connected = unix::connect(fd, &listener.name);
        if connected < 0 {
            return Err(-connected as i32);
        }
        listener.waiting.push_back(Caller { from, is_narrow });
        let ends = self.ends.entry(fd).or_default();
        (ends.local, ends.peer) = (Some(from), Some(to));
        Ok(())
    }

    /// Connecting has failed, which is reported later.
    pub(crate) fn fail_later(&mut self, fd: i32, error: i32) {
        self.ends.entry(fd).or_default().error = error;
    }

    /// `fd` has been accepted from `listener`; who has connected.
    pub(crate) fn accepted(&mut self, listener: i32, fd: i32) -> Option<Caller> {
        let listener = self.listeners.iter_mut().find(|one| one.fd == listener)?;
        let caller = listener.waiting.pop_front();
        let peer = caller.map(|caller| caller.from);
        self.ends.insert(fd, SocketEnds { local: Some(listener.at), peer, error: 0 });
        caller
    }

    /// Connections that the server has: of clients, who come to one of `ports`, and to upstream servers.
    pub(crate) fn open_connections(&self, ports: &[u16]) -> (usize, usize) {
        let with_peer = |ends: &&SocketEnds| ends.peer.is_some();
        let is_clients = |ends: &&SocketEnds| ends.local.is_some_and(|local| ports.contains(&local.1));
        let all = self.ends.values().filter(with_peer).count();
        let accepted = self.ends.values().filter(with_peer).filter(is_clients).count();
        (accepted, all - accepted)
    }

    fn next_port(&mut self) -> u16 {
        self.given = (self.given + 1) % 20_000;
        EPHEMERAL + self.given
    }
}
