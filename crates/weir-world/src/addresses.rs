//! The addresses of simulated sockets: what the process takes for TCP is a UNIX-domain socket with other names.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::kernel::{
    self,
    unix::{self, UnixName},
};

/// An IPv4 address and port.
pub(crate) type SocketName = ([u8; 4], u16);

/// What is known of a descriptor.
#[derive(Clone, Debug, Default)]
struct SocketEnds {
    local: Option<SocketName>,
    peer: Option<SocketName>,
    /// The error that is reported once, when connecting has failed later.
    error: i32,
    /// Of datagrams: the world's end of the line over which they come.
    far: Option<i32>,
    /// Datagrams come with the address that they were sent to.
    reports: bool,
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
        let Some(ends) = self.ends.remove(&fd) else { return };
        self.listeners.retain(|listener| listener.fd != fd);
        if let Some(far) = ends.far
            && self.ends.values().all(|other| other.far != Some(far))
        {
            kernel::close(far);
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
        if self.is_of_datagrams(fd) {
            self.ends.entry(fd).or_default().local = Some(at);
            return Ok(());
        }
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
        self.ends.insert(fd, SocketEnds { local: Some(listener.at), peer, ..SocketEnds::default() });
        caller
    }

    /// A new socket of datagrams, which come from the descriptor `far`.
    pub(crate) fn add_datagrams(&mut self, fd: i32, far: i32) {
        self.ends.insert(fd, SocketEnds { far: Some(far), ..SocketEnds::default() });
    }

    pub(crate) fn is_of_datagrams(&self, fd: i32) -> bool {
        self.ends.get(&fd).is_some_and(|ends| ends.far.is_some())
    }

    /// Descriptors of the world's, over which datagrams come.
    pub(crate) fn lines(&self) -> usize {
        let far: BTreeSet<i32> = self.ends.values().filter_map(|ends| ends.far).collect();
        far.len()
    }

    pub(crate) fn report_destinations(&mut self, fd: i32) {
        self.ends.entry(fd).or_default().reports = true;
    }

    pub(crate) fn reports_destinations(&self, fd: i32) -> bool {
        self.ends.get(&fd).is_some_and(|ends| ends.reports)
    }

    /// What is sent by `fd` goes there, and nothing else comes to it.
    pub(crate) fn connect_datagrams(&mut self, fd: i32, to: SocketName) {
        let port = self.next_port();
        let ends = self.ends.entry(fd).or_default();
        ends.local.get_or_insert(([127, 0, 0, 1], port));
        ends.peer = Some(to);
    }

    /// Puts a datagram into the socket that it is for; whether there is one, and room.
    pub(crate) fn deliver(&self, from: SocketName, to: SocketName, bytes: &[u8]) -> bool {
        let head = DatagramHead { length: bytes.len() as u32, error: 0, from, to };
        self.line_to(from, to).is_some_and(|far| put(far, &head, bytes))
    }

    /// Reports to the socket at `to`, which is connected to `from`, that nothing is there; whether it is open.
    pub(crate) fn refuse(&self, from: SocketName, to: SocketName) -> bool {
        let connected = |ends: &&SocketEnds| ends.local == Some(to) && ends.peer == Some(from);
        let far = self.ends.values().find(connected).and_then(|ends| ends.far);
        let head = DatagramHead { length: 0, error: libc::ECONNREFUSED, from, to };
        far.is_some_and(|far| put(far, &head, &[]))
    }

    fn line_to(&self, from: SocketName, to: SocketName) -> Option<i32> {
        let is_there = |ends: &&SocketEnds| {
            let local = ends.local.unwrap_or(([0; 4], 0));
            ends.far.is_some() && local.1 == to.1 && (local.0 == to.0 || local.0 == [0; 4])
        };
        let there: Vec<&SocketEnds> = self.ends.values().filter(is_there).collect();
        if let Some(own) = there.iter().find(|ends| ends.peer == Some(from)) {
            return own.far;
        }
        // Those with SO_REUSEPORT, by who sends.
        let open: BTreeSet<i32> =
            there.iter().filter(|ends| ends.peer.is_none()).filter_map(|ends| ends.far).collect();
        open.iter().nth(usize::from(from.1) % open.len().max(1)).copied()
    }

    /// Connections that the server has: of clients, who come to one of `ports`, and to upstream servers.
    pub(crate) fn open_connections(&self, ports: &[u16]) -> (usize, usize) {
        let with_peer = |ends: &&SocketEnds| ends.peer.is_some();
        let is_clients = |ends: &&SocketEnds| ends.local.is_some_and(|local| ports.contains(&local.1));
        let all = self.ends.values().filter(with_peer).count();
        let accepted = self.ends.values().filter(with_peer).filter(is_clients).count();
        (accepted, all - accepted)
    }

    /// The ports of the servers that the server is connected to, those of clients of `ports` left out.
    pub(crate) fn connected_ports(&self, ports: &[u16]) -> Vec<u16> {
        let is_clients = |ends: &&SocketEnds| ends.local.is_some_and(|local| ports.contains(&local.1));
        let mut all: Vec<u16> = self
            .ends
            .values()
            .filter(|ends| !is_clients(ends))
            .filter_map(|ends| Some(ends.peer?.1))
            .collect();
        all.sort_unstable();
        all
    }

    fn next_port(&mut self) -> u16 {
        self.given = (self.given + 1) % 20_000;
        EPHEMERAL + self.given
    }
}

/// Bytes of the head of a datagram on its line.
pub(crate) const FRAME: usize = 20;
/// No more waits on a line: sockets have so much room.
const MOST_WAITING: i32 = 100_000;

/// What precedes a datagram on the line to its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramHead {
    pub(crate) length: u32,
    /// It is no datagram but this error.
    pub(crate) error: i32,
    pub(crate) from: SocketName,
    pub(crate) to: SocketName,
}

impl DatagramHead {
    fn write(&self) -> [u8; FRAME] {
        let mut bytes = [0; FRAME];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.error.to_le_bytes());
        for (at, (host, port)) in [(8, self.from), (14, self.to)] {
            bytes[at..at + 4].copy_from_slice(&host);
            bytes[at + 4..at + 6].copy_from_slice(&port.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn read(bytes: &[u8; FRAME]) -> DatagramHead {
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let name = |at: usize| (word(at), u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
        DatagramHead {
            length: u32::from_le_bytes(word(0)),
            error: i32::from_le_bytes(word(4)),
            from: name(8),
            to: name(14),
        }
    }
}

/// Writes a datagram to a line, in whole or not at all.
fn put(far: i32, head: &DatagramHead, bytes: &[u8]) -> bool {
    if kernel::waiting_bytes(far) > MOST_WAITING {
        return false;
    }
    unix::send(far, &[&head.write()[..], bytes].concat()) == (FRAME + bytes.len()) as isize
}
