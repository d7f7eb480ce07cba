//! A connection of a socket, while it is used or kept alive.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use weir_engine::log::LogLevel;
use weir_engine::transport::ClientSide;
use weir_engine::worker::{UpstreamCloseProtocol, UpstreamCloseReason, UpstreamEnd};
use weir_rt::{RecvOutcome, Stream, Timer};

use crate::api::socket::pool::{PoolSeat, SocketPool};
use crate::api::socket::tls::SocketTlsSession;
use crate::run::lend;

/// See the module.
pub(super) struct SocketConnection {
    line: SocketStream,
    pub(super) peer: Rc<SocketPeer>,
    /// What was received and not taken.
    pub(super) input: RefCell<SocketInput>,
    pub(super) read_timer: Timer,
    pub(super) write_timer: Timer,
    /// TCP_NODELAY is set, or not to be.
    pub(super) nodelay: Cell<bool>,
    /// How often it was kept alive and reused.
    pub(super) reused: Cell<u32>,
    /// Its place in a pool, idle or in use.
    pub(super) seat: RefCell<Option<PoolSeat>>,
    /// The pool that has it while it is idle.
    pub(super) kept_by: RefCell<Weak<SocketPool>>,
    /// Until when it is kept alive.
    pub(super) idle: Timer,
    /// What TLS can be resumed with.
    pub(super) session: RefCell<Option<Rc<SocketTlsSession>>>,
    watched: Cell<bool>,
    watcher: RefCell<Option<Waker>>,
    /// Why it ends; `None` for the client's, which is counted as such.
    end: Option<UpstreamEnd>,
}

/// Whom a connection is to, as log lines name it.
#[derive(Clone, Debug)]
pub(super) struct SocketPeer {
    /// As the script has it; empty for the client.
    pub(super) host: String,
    /// 0 for a unix socket.
    pub(super) port: u16,
    /// The address, without port.
    pub(super) address: String,
}

impl std::fmt::Display for SocketPeer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.is_empty() {
            return Ok(());
        }
        write!(f, ", upstream: {}", self.host)?;
        if self.port != 0 {
            write!(f, ":{}", self.port)?;
        }
        write!(f, "({})", self.address)
    }
}

/// Whose socket it is.
pub(super) enum SocketStream {
    Own(Stream),
    /// The client's of the request (`ngx.req.socket(true)`).
    Client(ClientSide),
}

impl SocketConnection {
    pub(super) fn new(line: SocketStream, peer: Rc<SocketPeer>) -> SocketConnection {
        let end = matches!(line, SocketStream::Own(_)).then(|| UpstreamEnd::of(UpstreamCloseProtocol::Lua));
        SocketConnection {
            end,
            line,
            peer,
            input: RefCell::default(),
            read_timer: Timer::new(),
            write_timer: Timer::new(),
            nodelay: Cell::new(true),
            reused: Cell::new(0),
            seat: RefCell::default(),
            kept_by: RefCell::default(),
            idle: Timer::new(),
            watched: Cell::new(false),
            watcher: RefCell::default(),
            session: RefCell::default(),
        }
    }

    /// Notes why it ends, unless that is known already.
    pub(super) fn ends(&self, reason: UpstreamCloseReason) {
        if let Some(end) = &self.end {
            end.ends(reason);
        }
    }

    /// Notes that it ends, where `received` says so.
    pub(super) fn ends_by(&self, received: &RecvOutcome) {
        match received {
            RecvOutcome::Eof => self.ends(UpstreamCloseReason::Closed),
            RecvOutcome::Err(errno) => {
                self.ends(UpstreamCloseReason::of_errno(*errno, UpstreamCloseReason::Reset));
            }
            RecvOutcome::Data(_) | RecvOutcome::TimedOut => {}
        }
    }

    pub(super) fn stream(&self) -> &Stream {
        match &self.line {
            SocketStream::Own(stream) => stream,
            SocketStream::Client(client) => client.stream().expect("only clients of HTTP/1 are taken over"),
        }
    }

    /// Sends `bytes`, after what was said to the client before where it is the client's.
    pub(super) fn send(&self, bytes: Vec<u8>) {
        match &self.line {
            SocketStream::Own(stream) => stream.send(bytes),
            SocketStream::Client(client) => client.pass(bytes),
        }
    }

    /// Whether it is the client's of the request.
    pub(super) fn is_client(&self) -> bool {
        matches!(self.line, SocketStream::Client(_))
    }

    /// Sets TCP_NODELAY before the first bytes, if that is wanted.
    pub(super) fn set_nodelay(&self) {
        if !self.nodelay.replace(true) && self.peer.port != 0 {
            lend::log_plain(LogLevel::Debug, &"lua socket tcp_nodelay");
            // It fails for connections that are gone, which sending reports.
            let _ = weir_rt::net::nodelay(self.stream().fd(), true);
        }
    }

    /// From now on, whenever it is idle: takes it out of its pool when the peer closes it or its time is over.
    pub(super) fn watch(self: &Rc<Self>) {
        if self.watched.replace(true) {
            return;
        }
        let weak = Rc::downgrade(self);
        weir_rt::spawn(poll_fn(move |cx| match weak.upgrade() {
            Some(conn) => conn.poll_lost(cx),
            None => Poll::Ready(()),
        }));
    }

    /// Ready when the connection is of no use any more.
    fn poll_lost(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut watcher = self.watcher.borrow_mut();
            if watcher.as_ref().is_none_or(|known| !known.will_wake(cx.waker())) {
                *watcher = Some(cx.waker().clone());
            }
        }
        let closed = self.stream().poll_closed(cx).is_ready();
        let late = self.idle.poll_expired(cx).is_ready();
        if !closed && !late {
            return Poll::Pending;
        }
        if let Some(pool) = self.kept_by.take().upgrade() {
            pool.lose(self, if late { LossReason::IdleTooLong } else { LossReason::ClosedByPeer });
            return Poll::Ready(());
        }
        if closed {
            return Poll::Ready(());
        }
        self.idle.disarm();
        self.idle.poll_expired(cx)
    }
}

impl Drop for SocketConnection {
    fn drop(&mut self) {
        // The task that watches it ends.
        if let Some(watcher) = self.watcher.take() {
            watcher.wake();
        }
    }
}

/// Why a pool gives a connection up.
#[derive(Clone, Copy)]
pub(super) enum LossReason {
    IdleTooLong,
    ClosedByPeer,
}

/// Bytes that were received and not taken.
#[derive(Debug, Default)]
pub(super) struct SocketInput {
    bytes: Vec<u8>,
    /// How many of them are taken.
    taken: usize,
    /// Counts what is taken by others than the search of one pattern, which then begins again.
    pub(super) turn: u64,
    /// How many bytes were taken in all.
    used: u64,
}

impl SocketInput {
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the first `count` bytes.
    pub(super) fn take(&mut self, count: usize) {
        self.used += count as u64;
        self.skip(count);
    }

    /// How many bytes were taken so far.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Another has all that was not taken.
    pub(super) fn forget(&mut self) {
        self.skip(self.rest().len());
        self.turn += 1;
    }

    fn skip(&mut self, count: usize) {
        self.taken += count;
        if self.taken == self.bytes.len() {
            self.taken = 0;
            self.bytes.clear();
            if self.bytes.capacity() > LARGE {
                self.bytes = Vec::new();
            }
        } else if self.taken > LARGE {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
    }
}

/// A connection retains no more memory than this (bytes), and no bytes that were taken in front of others.
const LARGE: usize = 64 * 1024;
