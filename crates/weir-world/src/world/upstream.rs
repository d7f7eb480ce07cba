//! Upstream servers: each request says in its path how it is responded to.

use std::collections::VecDeque;

use weir_sim::plan::{MANNERS, OBJECT_NUMBERS, OBJECTS, UPSTREAM_PORTS, UpstreamManner, content};
use weir_sim::upstream_tls::TLS_UPSTREAM_PORTS;
use weir_sim::wire::{MessageKind, MessageReader, WireMessage, in_chunks};

use crate::addresses::SocketAddresses;
use crate::kernel::{self, unix};

use super::channel::TlsChannel;
use super::{MICROSECOND, OF_CONNECTION, OF_UPSTREAM, World, WorldEvent};

/// A connection of the server to an upstream server.
#[derive(Debug)]
pub(super) struct UpstreamConnection {
    fd: i32,
    server: usize,
    reader: MessageReader,
    channel: TlsChannel,
    /// A fault of the connection is in the journal.
    is_noted: bool,
    /// What is to be said, of which the channel has nothing yet.
    out: VecDeque<u8>,
    /// Bytes of a piece, and the longest pause after it, microseconds.
    pace: (u64, u64),
    /// Bytes that go out at once: the head of a response, which has to come within one time-out.
    head: u64,
    closes: bool,
    is_sending: bool,
}

impl UpstreamConnection {
    pub(super) fn is_open(&self) -> bool {
        self.fd >= 0
    }

    /// Sends what the channel has; what send(2) has said.
    fn flush(&mut self) -> kernel::KernelResult {
        let piece = self.channel.piece(u64::MAX);
        let sent = if piece.is_empty() { 0 } else { unix::send(self.fd, &piece) };
        self.channel.took(usize::try_from(sent).unwrap_or(0));
        sent
    }
}

impl World {
    /// A server listens, if it does not yet.
    pub(super) fn upstream_rises(&mut self, server: usize, addresses: &mut SocketAddresses) {
        if self.upstreams[server] >= 0 {
            return;
        }
        let port = UPSTREAM_PORTS.iter().chain(&TLS_UPSTREAM_PORTS).nth(server).copied().unwrap_or(0);
        let fd = World::listens(port, addresses);
        self.upstreams[server] = fd;
        self.watch(fd, OF_UPSTREAM | server as u64, 0, libc::EPOLL_CTL_ADD);
    }

    /// A socket of the world that listens at a port.
    pub(super) fn listens(port: u16, addresses: &mut SocketAddresses) -> i32 {
        let fd = unix::socket(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as i32;
        addresses.add(fd);
        let bound = addresses.bind(fd, ([127, 0, 0, 1], port));
        if bound.is_err() || unix::listen(fd, 511) < 0 {
            kernel::exit(73);
        }
        addresses.listen(fd);
        fd
    }

    /// A server is gone with all its connections.
    pub(super) fn upstream_falls(&mut self, server: usize, addresses: &mut SocketAddresses) {
        let fd = std::mem::replace(&mut self.upstreams[server], -1);
        if fd < 0 {
            return;
        }
        addresses.remove(fd);
        kernel::close(fd);
        for which in 0..self.connections.len() {
            if self.connections[which].server == server {
                self.upstream_closes(which);
            }
        }
    }

    pub(super) fn accept(&mut self, now: u64, which: usize) {
        let fd = unix::accept(self.upstreams[which], libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as i32;
        if fd < 0 {
            return;
        }
        let reader = MessageReader::new(MessageKind::Request);
        let secret = which.checked_sub(UPSTREAM_PORTS.len());
        let channel = secret.and_then(|server| self.tls_servers.accept(server, now, &mut self.draw));
        let out = VecDeque::new();
        self.connections.push(UpstreamConnection {
            fd,
            server: which,
            reader,
            channel: channel.unwrap_or_default(),
            is_noted: false,
            out,
            pace: (1 << 20, 0),
            head: 0,
            closes: false,
            is_sending: false,
        });
        let what = OF_CONNECTION | (self.connections.len() - 1) as u64;
        self.watch(fd, what, libc::EPOLLONESHOT, libc::EPOLL_CTL_ADD);
    }

    pub(super) fn upstream_reads(&mut self, now: u64, which: usize) {
        let connection = &mut self.connections[which];
        if connection.fd < 0 {
            return;
        }
        let mut bytes = vec![0; 1 << 16];
        let got = unix::receive(connection.fd, &mut bytes);
        if got == 0 || got < 0 && -got as i32 != libc::EAGAIN {
            return self.upstream_closes(which);
        }
        bytes.truncate(usize::try_from(got).unwrap_or(0));
        self.hash.add(&bytes);
        let plain = connection.channel.receive(now, &bytes);
        connection.reader.add(&plain);
        if !connection.channel.out.is_empty() {
            self.upstream_sends_later(now, which);
        }
        let connection = &mut self.connections[which];
        match connection.reader.next(false) {
            Ok(Some(request)) => self.upstream_responds(now, which, &request),
            Ok(None) => (),
            Err(bad) => self.note(format_args!("bad upstream {}", bad.0)),
        }
        if self.connections[which].fd >= 0 {
            let fd = self.connections[which].fd;
            self.watch(fd, OF_CONNECTION | which as u64, libc::EPOLLONESHOT, libc::EPOLL_CTL_MOD);
        }
    }

    fn upstream_responds(&mut self, now: u64, which: usize, request: &WireMessage) {
        let target = request.line.split(' ').nth(1).unwrap_or_default();
        let argument = |name: &str| -> u64 {
            let pairs = target.split(['?', '&']);
            pairs
                .filter_map(|pair| pair.split_once('='))
                .find(|pair| pair.0 == name)
                .map_or(0, |(_, value)| value.parse().unwrap_or(0))
        };
        let number = argument("n");
        let object = target.starts_with("/cached/").then(|| argument("o"));
        let length = request.body.len();
        let is_right = request.body == content(number, length as u64);
        self.note(format_args!("u n={number} body={length} {}", if is_right { "right" } else { "wrong" }));
        self.note_secret(which, number, target);
        let place = target.strip_prefix("/up/").or_else(|| target.strip_prefix("/cached/"));
        let place = place.or_else(|| target.strip_prefix("/tls/")?.split_once('/').map(|(_, rest)| rest));
        let word = place.and_then(|rest| rest.split('?').next()).unwrap_or_default();
        let Some((manner, _)) = MANNERS.iter().find(|(_, one)| *one == word).copied() else {
            return self.note(format_args!("bad upstream request {:?}", request.line));
        };
        if manner == UpstreamManner::Silent {
            return;
        }
        if manner == UpstreamManner::Closes {
            return self.upstream_closes(which);
        }
        let (named, size) = match object {
            Some(object) => (OBJECT_NUMBERS + object, OBJECTS.get(object as usize).map_or(0, |one| one.1)),
            None => (number, argument("size")),
        };
        let tag = object.map(|object| format!("\"{object}\""));
        let is_same = tag.is_some() && request.field("if-none-match") == tag.as_deref();
        let connection = &mut self.connections[which];
        connection.out.extend(match is_same {
            true => format!("HTTP/1.1 304 Not Modified\r\nETag: {}\r\n\r\n", tag.unwrap_or_default()).into(),
            false => response(manner, named, size, tag.as_deref()),
        });
        connection.closes =
            request.closes() || matches!(manner, UpstreamManner::ToClose | UpstreamManner::CutShort);
        connection.pace = match manner {
            UpstreamManner::Slow => {
                connection.head = HEAD;
                (1 + size / 20, 300_000)
            }
            _ => (1 + self.draw.below(1 << 16), self.draw.below(3000)),
        };
        self.upstream_sends_later(now, which);
    }

    /// A server that speaks TLS has got a request.
    fn note_secret(&mut self, which: usize, number: u64, target: &str) {
        let connection = &self.connections[which];
        let Some(server) = connection.server.checked_sub(UPSTREAM_PORTS.len()) else { return };
        let door = target.strip_prefix("/tls/").and_then(|rest| rest.split('/').next()).unwrap_or("-");
        let line = format!(
            "k n={number} server={server} door={door} name={} tls={}",
            connection.channel.asked_name(),
            connection.channel.agreed()
        );
        self.note(format_args!("{line}"));
    }

    /// What there is to send begins to go out.
    fn upstream_sends_later(&mut self, now: u64, which: usize) {
        let connection = &mut self.connections[which];
        if !connection.is_sending {
            connection.is_sending = true;
            let delay = self.draw.below(2000);
            self.at(now + delay * MICROSECOND, WorldEvent::UpstreamSends(which));
        }
    }

    pub(super) fn upstream_sends(&mut self, now: u64, which: usize) {
        let connection = &mut self.connections[which];
        if connection.fd < 0 {
            return;
        }
        let (piece, pause) = connection.pace;
        if connection.channel.out.is_empty() {
            let length = piece + std::mem::take(&mut connection.head);
            let length = connection.out.len().min(length as usize);
            let piece: Vec<u8> = connection.out.drain(..length).collect();
            connection.channel.send(&piece);
        }
        let sent = connection.flush();
        if sent < 0 && -sent as i32 != libc::EAGAIN {
            return self.upstream_closes(which);
        }
        if sent < 0 {
            return self.at(now + 1000 * MICROSECOND, WorldEvent::UpstreamSends(which));
        }
        self.note_fault(which);
        let connection = &mut self.connections[which];
        if connection.channel.is_cut() {
            return self.upstream_closes(which);
        }
        if sent > 0 && !(connection.out.is_empty() && connection.channel.out.is_empty()) {
            let pause = self.draw.below(pause + 1);
            return self.at(now + pause * MICROSECOND, WorldEvent::UpstreamSends(which));
        }
        connection.is_sending = false;
        if connection.closes && connection.out.is_empty() && connection.channel.has_sent() {
            connection.channel.notify_end();
            // Where there is no room the end comes without a word.
            connection.flush();
            self.upstream_closes(which);
        }
    }

    /// A fault of the connection that has come by now is noted, once.
    fn note_fault(&mut self, which: usize) {
        let connection = &mut self.connections[which];
        let Some(fault) = connection.channel.fault_so_far().filter(|_| !connection.is_noted) else { return };
        connection.is_noted = true;
        let server = connection.server;
        self.note(format_args!("t server={server} fault={fault}"));
    }

    fn upstream_closes(&mut self, which: usize) {
        let connection = &mut self.connections[which];
        if connection.fd >= 0 {
            kernel::close(connection.fd);
            connection.fd = -1;
        }
    }
}

/// More than the head of a response.
const HEAD: u64 = 100;

/// The bytes of a response.
fn response(manner: UpstreamManner, number: u64, size: u64, tag: Option<&str>) -> Vec<u8> {
    let body = content(number, size);
    let status = if manner == UpstreamManner::NotFound { "404 Not Found" } else { "200 OK" };
    let tag = tag.map_or(String::new(), |tag| format!("ETag: {tag}\r\n"));
    let head = |fields: &str| format!("HTTP/1.1 {status}\r\n{tag}{fields}\r\n").into_bytes();
    match manner {
        UpstreamManner::ToClose => [head("Connection: close\r\n"), body].concat(),
        UpstreamManner::Chunked => [head("Transfer-Encoding: chunked\r\n"), in_chunks(&body, 7000)].concat(),
        UpstreamManner::CutShort => {
            let half = body.get(..body.len() / 2).unwrap_or_default();
            [head(&format!("Content-Length: {size}\r\n")).as_slice(), half].concat()
        }
        _ => [head(&format!("Content-Length: {size}\r\n")), body].concat(),
    }
}
