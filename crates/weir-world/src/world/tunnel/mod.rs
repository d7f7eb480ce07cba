//! WebSockets: those who open one, and the servers at their other ends. Both are sides that send and read by their plans.

mod opening;
mod side;

pub(super) use side::TunnelSide;

use weir_sim::tunnels::plan::TUNNEL_SERVERS;

use crate::addresses::SocketAddresses;
use crate::kernel::{self, unix};

use super::{BEGIN, MICROSECOND, OF_TUNNEL, OF_TUNNEL_SERVER, World, WorldEvent};

/// What happens to a side, or to one of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TunnelEvent {
    Connects,
    /// It begins to send its bytes.
    Begins,
    Sends,
    Reads,
    Leaves,
    GivesUp,
    ServerFalls,
    ServerRises,
}

/// All sides: first those of clients, in the order of the plan, then those of servers as they come.
#[derive(Debug, Default)]
pub(super) struct TunnelWorld {
    servers: Vec<i32>,
    sides: Vec<TunnelSide>,
    /// When a byte of a WebSocket came or went last, at either end.
    moved: Vec<u64>,
}

impl TunnelWorld {
    /// Before anybody has connected.
    pub(super) fn new(clients: usize) -> TunnelWorld {
        let sides = (0..clients).map(TunnelSide::of_client).collect();
        TunnelWorld { servers: Vec::new(), sides, moved: vec![0; clients] }
    }

    /// Whether all clients have left.
    pub(super) fn are_over(&self) -> bool {
        self.sides.iter().all(|side| side.server.is_some() || side.is_gone)
    }

    /// Descriptors of the world's.
    pub(super) fn files(&self) -> usize {
        let servers = self.servers.iter().filter(|fd| **fd >= 0).count();
        servers + self.sides.iter().filter(|side| side.server.is_some() && !side.is_gone).count()
    }
}

impl World {
    /// The servers listen, and clients have their times.
    pub(super) fn open_tunnels(&mut self, addresses: &mut SocketAddresses) {
        if self.plan.tunnels.settings.is_none() {
            return;
        }
        for server in 0..TUNNEL_SERVERS.len() {
            self.tunnels.servers.push(-1);
            self.tunnel_server_rises(server, addresses);
        }
        for (which, down) in self.plan.tunnels.downs.clone().into_iter().enumerate() {
            self.tunnel_at(BEGIN + down.from * MICROSECOND, which, TunnelEvent::ServerFalls);
            self.tunnel_at(BEGIN + down.to * MICROSECOND, which, TunnelEvent::ServerRises);
        }
        for which in 0..self.plan.tunnels.tunnels.len() {
            let at = BEGIN + self.plan.tunnels.tunnels[which].at * MICROSECOND;
            self.tunnel_at(at, which, TunnelEvent::Connects);
        }
    }

    fn tunnel_at(&mut self, time: u64, which: usize, event: TunnelEvent) {
        self.at(time, WorldEvent::Tunnel(which, event));
    }

    pub(super) fn tunnel_happens(
        &mut self,
        now: u64,
        which: usize,
        event: TunnelEvent,
        addresses: &mut SocketAddresses,
    ) {
        match event {
            TunnelEvent::ServerFalls => self.tunnel_server_falls(now, which, addresses),
            TunnelEvent::ServerRises => {
                self.tunnel_server_rises(self.plan.tunnels.downs[which].server, addresses);
            }
            TunnelEvent::Connects => self.tunnel_connects(now, which, addresses),
            _ if self.tunnels.sides[which].is_gone => (),
            TunnelEvent::Begins => self.tunnel_begins(now, which),
            TunnelEvent::Sends => self.tunnel_sends(now, which),
            TunnelEvent::Reads => self.tunnel_reads(now, which),
            TunnelEvent::Leaves => self.tunnel_ends(now, which, "left"),
            TunnelEvent::GivesUp => self.tunnel_ends(now, which, "waited"),
        }
    }

    fn tunnel_server_rises(&mut self, server: usize, addresses: &mut SocketAddresses) {
        if self.tunnels.servers[server] < 0 {
            let fd = Self::listens(TUNNEL_SERVERS[server], addresses);
            self.tunnels.servers[server] = fd;
            self.watch(fd, OF_TUNNEL_SERVER | server as u64, 0, libc::EPOLL_CTL_ADD);
        }
    }

    /// A server is gone with all its connections.
    fn tunnel_server_falls(&mut self, now: u64, which: usize, addresses: &mut SocketAddresses) {
        let server = self.plan.tunnels.downs[which].server;
        let fd = std::mem::replace(&mut self.tunnels.servers[server], -1);
        if fd < 0 {
            return;
        }
        addresses.remove(fd);
        kernel::close(fd);
        for side in 0..self.tunnels.sides.len() {
            if self.tunnels.sides[side].server == Some(server) {
                self.tunnel_ends(now, side, "fell");
            }
        }
    }

    pub(super) fn tunnel_server_accepts(&mut self, server: usize) {
        let fd = unix::accept(self.tunnels.servers[server], libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as i32;
        if fd < 0 {
            return;
        }
        let side = self.tunnels.sides.len();
        self.tunnels.sides.push(TunnelSide::of_server(fd, server));
        self.watch(fd, OF_TUNNEL | side as u64, libc::EPOLLONESHOT, libc::EPOLL_CTL_ADD);
    }

    /// What has come so far of those that are still open is noted.
    pub(super) fn note_open_tunnels(&mut self, now: u64) {
        for side in 0..self.tunnels.sides.len() {
            self.tunnel_ends(now, side, "open");
        }
    }
}
