//! Upstream servers that fail and recover as the plan says, and what the server makes of it: each thing is noted with the length of
//! the error log, which the oracle needs for their order.

use std::collections::VecDeque;

use weir_sim::health::{CHECK_PATH, HEALTH_PORTS, IllnessKind};
use weir_sim::plan::{Target, content};
use weir_sim::wire::{MessageKind, MessageReader, WireMessage};

use crate::addresses::SocketAddresses;
use crate::kernel::{self, unix};

use super::{BEGIN, MICROSECOND, OF_HEALTH_SERVER, OF_HEALTH_VISIT, World, WorldEvent};

/// What happens to servers that fail and recover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HealthEvent {
    /// One of them may be gone, or back.
    Changes,
    Reads(usize),
    Responds(usize),
}

/// When something was, and how long the error log was then.
type NotedTime = (u64, u64);

/// The servers.
#[derive(Debug, Default)]
pub(super) struct HealthServers {
    /// -1: it is gone.
    listeners: Vec<i32>,
    /// The connections to each that it has not accepted yet.
    made: Vec<VecDeque<NotedTime>>,
    visits: Vec<HealthVisit>,
    /// The path of the error log, with a NUL.
    log: Vec<u8>,
}

/// A connection to one of them.
#[derive(Debug)]
struct HealthVisit {
    fd: i32,
    server: usize,
    made: NotedTime,
    reader: MessageReader,
    /// The number of its request, 0 for a check.
    request: u64,
}

impl HealthServers {
    pub(super) fn new(directory: &str) -> HealthServers {
        HealthServers { log: format!("{directory}/error.log\0").into_bytes(), ..HealthServers::default() }
    }

    /// Descriptors that it has.
    pub(super) fn files(&self) -> usize {
        self.listeners.iter().chain(self.visits.iter().map(|visit| &visit.fd)).filter(|fd| **fd >= 0).count()
    }

    /// Bytes of the error log.
    fn log_length(&self) -> u64 {
        // SAFETY: a structure of numbers.
        let mut meta: libc::stat = unsafe { std::mem::zeroed() };
        let a = [libc::AT_FDCWD as usize, self.log.as_ptr() as usize, &raw mut meta as usize, 0, 0, 0];
        // SAFETY: a path that ends with a NUL, and room for what is said of it.
        unsafe { kernel::call(libc::SYS_newfstatat, a) };
        meta.st_size as u64
    }
}

impl World {
    pub(super) fn open_health(&mut self, addresses: &mut SocketAddresses) {
        if self.plan.health.is_empty() {
            return;
        }
        for ill in self.plan.health.ills.clone().into_iter().filter(|ill| ill.kind == IllnessKind::Gone) {
            for at in [ill.from, ill.to] {
                self.at(BEGIN + at * MICROSECOND, WorldEvent::Health(HealthEvent::Changes));
            }
        }
        self.health.listeners = vec![-1; HEALTH_PORTS.len()];
        self.health.made = vec![VecDeque::new(); HEALTH_PORTS.len()];
        self.health_changes(BEGIN, addresses);
    }

    pub(super) fn health_happens(&mut self, now: u64, event: HealthEvent, addresses: &mut SocketAddresses) {
        match event {
            HealthEvent::Changes => self.health_changes(now, addresses),
            HealthEvent::Reads(which) => self.health_reads(now, which),
            HealthEvent::Responds(which) => self.health_responds(now, which),
        }
    }

    fn illness(&self, now: u64, server: usize) -> Option<IllnessKind> {
        self.plan.health.illness(server, now.saturating_sub(BEGIN) / MICROSECOND)
    }

    /// Servers that are gone do not listen, and have no connections.
    fn health_changes(&mut self, now: u64, addresses: &mut SocketAddresses) {
        for (server, port) in HEALTH_PORTS.into_iter().enumerate() {
            let is_gone = self.illness(now, server) == Some(IllnessKind::Gone);
            let fd = self.health.listeners[server];
            if !is_gone && fd < 0 {
                let fd = World::listens(port, addresses);
                self.health.listeners[server] = fd;
                self.watch(fd, OF_HEALTH_SERVER | server as u64, 0, libc::EPOLL_CTL_ADD);
            }
            if is_gone && fd >= 0 {
                addresses.remove(fd);
                kernel::close(fd);
                self.health.listeners[server] = -1;
                self.health.made[server].clear();
                for which in 0..self.health.visits.len() {
                    if self.health.visits[which].server == server {
                        self.health_closes(which);
                    }
                }
            }
        }
    }

    /// The server has connected to a port.
    pub(crate) fn is_connected_to(&mut self, now: u64, port: u16) {
        let server = HEALTH_PORTS.iter().position(|one| *one == port);
        let log = server.map(|_| self.health.log_length());
        if let Some((made, log)) = server.and_then(|server| self.health.made.get_mut(server)).zip(log) {
            made.push_back((now, log));
        }
    }

    pub(super) fn health_accepts(&mut self, server: usize) {
        let listener = self.health.listeners[server];
        let fd = unix::accept(listener, libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as i32;
        if fd < 0 {
            return;
        }
        let made = self.health.made[server].pop_front().unwrap_or_default();
        let reader = MessageReader::new(MessageKind::Request);
        self.health.visits.push(HealthVisit { fd, server, made, reader, request: 0 });
        let what = OF_HEALTH_VISIT | (self.health.visits.len() - 1) as u64;
        self.watch(fd, what, libc::EPOLLONESHOT, libc::EPOLL_CTL_ADD);
    }

    pub(super) fn health_notices(&mut self, now: u64, which: usize) {
        let delay = self.draw.below(200);
        self.at(now + delay * MICROSECOND, WorldEvent::Health(HealthEvent::Reads(which)));
    }

    fn health_reads(&mut self, now: u64, which: usize) {
        let visit = &mut self.health.visits[which];
        if visit.fd < 0 {
            return;
        }
        let mut bytes = vec![0; 1 << 12];
        let got = unix::receive(visit.fd, &mut bytes);
        if got == 0 || got < 0 && -got as i32 != libc::EAGAIN {
            return self.health_closes(which);
        }
        bytes.truncate(usize::try_from(got).unwrap_or(0));
        self.hash.add(&bytes);
        visit.reader.add(&bytes);
        match visit.reader.next(false) {
            Ok(Some(request)) => self.health_asked(now, which, &request),
            Ok(None) => (),
            Err(bad) => self.note(format_args!("bad upstream {}", bad.0)),
        }
        let fd = self.health.visits[which].fd;
        if fd >= 0 {
            self.watch(fd, OF_HEALTH_VISIT | which as u64, libc::EPOLLONESHOT, libc::EPOLL_CTL_MOD);
        }
    }

    fn health_asked(&mut self, now: u64, which: usize, request: &WireMessage) {
        let target = request.line.split(' ').nth(1).unwrap_or_default();
        let number = target.strip_prefix("/watched?n=").and_then(|number| number.parse().ok());
        let HealthVisit { server, made: (time, log), .. } = self.health.visits[which];
        match number {
            Some(number) => {
                self.health.visits[which].request = number;
                let t = time / MICROSECOND;
                self.note(format_args!("ha n={number} server={server} t={t} log={log}"));
            }
            None if target == CHECK_PATH => (),
            None => self.note(format_args!("bad upstream request {:?}", request.line)),
        }
        match self.illness(now, server) {
            None => {
                let delay = self.draw.below(20_000);
                self.at(now + delay * MICROSECOND, WorldEvent::Health(HealthEvent::Responds(which)));
            }
            Some(IllnessKind::Stalls) => (),
            Some(_) => self.health_closes(which),
        }
    }

    fn health_responds(&mut self, now: u64, which: usize) {
        let HealthVisit { fd, server, request, .. } = self.health.visits[which];
        if fd < 0 {
            return;
        }
        let body = Target::Watched.body(request).unwrap_or_else(|| content(request, 0));
        let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        let (t, log) = (now / MICROSECOND, self.health.log_length());
        if unix::send(fd, &[head.as_bytes(), &body].concat()) > 0 {
            match request {
                0 => self.note(format_args!("hc server={server} t={t} log={log}")),
                _ => self.note(format_args!("hs n={request} server={server} t={t} log={log}")),
            }
        }
        self.health_closes(which);
    }

    /// A client has the whole response of a server.
    pub(super) fn note_received(&mut self, now: u64, request: u64) {
        let (t, log) = (now / MICROSECOND, self.health.log_length());
        self.note(format_args!("hr n={request} t={t} log={log}"));
    }

    fn health_closes(&mut self, which: usize) {
        let fd = std::mem::replace(&mut self.health.visits[which].fd, -1);
        if fd >= 0 {
            kernel::close(fd);
        }
    }
}
