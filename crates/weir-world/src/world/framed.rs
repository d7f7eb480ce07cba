//! Upstream servers that speak HTTP/2: their sockets; what they do is in [`Http2Server`].

use std::collections::{BTreeMap, VecDeque};

use weir_sim::framed::FRAMED_PORTS;
use weir_sim::http2::server::{Http2Server, ServerWish};
use weir_sim::http2::server_plan::Http2ServerPlan;

use crate::addresses::SocketAddresses;
use crate::kernel::{self, unix};

use super::{MICROSECOND, OF_FRAMED, OF_FRAMED_SERVER, World, WorldEvent};

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FramedEvent {
    Steps,
    Reads,
}

/// The servers, and their connections as they come.
#[derive(Debug, Default)]
pub(super) struct FramedServers {
    servers: Vec<i32>,
    connections: Vec<FramedConnection>,
    /// How often a request has come.
    tries: BTreeMap<u64, u32>,
}

/// A connection of Weir's.
#[derive(Debug)]
struct FramedConnection {
    fd: i32,
    server: Http2Server,
    out: VecDeque<u8>,
    /// When it steps next, as far as that is planned.
    step: Option<u64>,
}

impl FramedServers {
    /// Descriptors of the world's.
    pub(super) fn files(&self) -> usize {
        self.servers.len() + self.connections.iter().filter(|connection| connection.fd >= 0).count()
    }
}

impl World {
    pub(super) fn open_framed(&mut self, addresses: &mut SocketAddresses) {
        if self.plan.framed.is_none() {
            return;
        }
        for (server, port) in FRAMED_PORTS.into_iter().enumerate() {
            let fd = Self::listens(port, addresses);
            self.framed.servers.push(fd);
            self.watch(fd, OF_FRAMED_SERVER | server as u64, 0, libc::EPOLL_CTL_ADD);
        }
    }

    pub(super) fn framed_accepts(&mut self, now: u64, server: usize) {
        let fd = unix::accept(self.framed.servers[server], libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as i32;
        if fd < 0 {
            return;
        }
        let cuts = self.plan.framed.map_or(0, |framed| framed.cuts);
        let server = Http2Server::new(Http2ServerPlan::drawn(&mut self.draw, cuts), now / MICROSECOND);
        let which = self.framed.connections.len();
        let connection = FramedConnection { fd, server, out: VecDeque::new(), step: None };
        self.framed.connections.push(connection);
        self.watch(fd, OF_FRAMED | which as u64, libc::EPOLLONESHOT, libc::EPOLL_CTL_ADD);
        self.framed_steps(now, which);
    }

    /// When the server reads what has come.
    pub(super) fn framed_notices(&mut self, now: u64, which: usize) {
        let delay = self.draw.below(200);
        self.at(now + delay * MICROSECOND, WorldEvent::Framed(which, FramedEvent::Reads));
    }

    pub(super) fn framed_happens(&mut self, now: u64, which: usize, event: FramedEvent) {
        match event {
            _ if self.framed.connections[which].fd < 0 => (),
            FramedEvent::Steps => self.framed_steps(now, which),
            FramedEvent::Reads => self.framed_reads(now, which),
        }
    }

    fn framed_reads(&mut self, now: u64, which: usize) {
        let connection = &mut self.framed.connections[which];
        let mut bytes = vec![0; 1 << 16];
        let got = unix::receive(connection.fd, &mut bytes);
        if got == 0 || got < 0 && -got as i32 != libc::EAGAIN {
            return self.framed_closes(which);
        }
        bytes.truncate(usize::try_from(got).unwrap_or(0));
        self.hash.add(&bytes);
        connection.server.receive(now / MICROSECOND, &bytes);
        let fd = connection.fd;
        self.watch(fd, OF_FRAMED | which as u64, libc::EPOLLONESHOT, libc::EPOLL_CTL_MOD);
        self.framed_steps(now, which);
    }

    /// The server does what it is time for, and sends what its socket takes.
    fn framed_steps(&mut self, now: u64, which: usize) {
        let FramedServers { connections, tries, .. } = &mut self.framed;
        let connection = &mut connections[which];
        connection.server.step(now / MICROSECOND, tries);
        let (next, wish) = (connection.server.next_time(), connection.server.wish());
        let lines = connection.server.take_lines();
        connection.out.extend(connection.server.output().drain(..));
        for line in lines {
            self.note(format_args!("{line}"));
        }
        let is_full = self.framed_sends(which);
        let connection = &mut self.framed.connections[which];
        if wish == ServerWish::Cut || wish == ServerWish::Close && connection.out.is_empty() {
            return self.framed_closes(which);
        }
        let again = is_full.then_some(now + 1000 * MICROSECOND);
        let next = next.map(|next| (next * MICROSECOND).max(now)).into_iter().chain(again).min();
        let planned = connection.step.filter(|step| *step > now);
        if let Some(next) = next.filter(|next| planned.is_none_or(|planned| *next < planned)) {
            connection.step = Some(next);
            self.at(next, WorldEvent::Framed(which, FramedEvent::Steps));
        }
    }

    /// Whether there was no room for all.
    fn framed_sends(&mut self, which: usize) -> bool {
        let connection = &mut self.framed.connections[which];
        if connection.out.is_empty() || connection.fd < 0 {
            return false;
        }
        let sent = unix::send(connection.fd, connection.out.make_contiguous());
        match sent {
            0.. => drop(connection.out.drain(..sent as usize)),
            // Who has closed will be seen by reading.
            _ if -sent as i32 != libc::EAGAIN => connection.out.clear(),
            _ => (),
        }
        !connection.out.is_empty()
    }

    fn framed_closes(&mut self, which: usize) {
        let fd = std::mem::replace(&mut self.framed.connections[which].fd, -1);
        if fd >= 0 {
            kernel::close(fd);
        }
    }
}
