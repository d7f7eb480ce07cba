//! An HTTP/1 connection: one task, one request after the other, pipelined answers leaving together.
//!
//! While idle the task holds a timer and its socket, no buffer and no exchange (its future is a few hundred bytes);
//! at the first byte it boxes [`active`], which answers requests until no byte is left.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_http::h1::{chunk_head, last_chunk};
use weir_rt::{Chunk, Recv, Stream, Timer, clock};

use super::head::{self, NoHead};
use super::input::Input;
use super::{Connection, Transport};
use crate::body::{Buf, Chain};
use crate::error::Error;
use crate::exchange::Exchange;
use crate::worker::Worker;
use crate::{engine, read};

/// The socket of a connection with what is between it and the exchange.
pub struct Wire {
    /// The socket.
    pub stream: Stream,
    /// Bytes received and not used.
    pub input: RefCell<Input>,
    /// Armed while something is waited for.
    pub timer: Timer,
    /// Answers composed and not handed over: those of one batch of requests leave in one system call.
    out: RefCell<Vec<u8>>,
    /// All bytes handed over or composed.
    written: Cell<u64>,
    /// Between two requests.
    pub(crate) idle: Cell<bool>,
}

impl Wire {
    /// A connection's wire.
    pub(crate) fn new(stream: Stream) -> Wire {
        Wire {
            stream,
            input: RefCell::default(),
            timer: Timer::new(),
            out: RefCell::default(),
            written: Cell::new(0),
            idle: Cell::new(true),
        }
    }

    /// Bytes handed over so far; once the connection broke, those that reached the kernel.
    pub fn written(&self) -> u64 {
        match self.stream.error() {
            Some(_) => self.stream.sent(),
            None => self.written.get(),
        }
    }

    /// Hands over what was composed.
    pub(crate) fn flush(&self) {
        let mut out = self.out.borrow_mut();
        if !out.is_empty() {
            let bytes = std::mem::take(&mut *out);
            self.stream.queue(Chunk::Bytes(bytes));
            self.stream.flush();
        }
    }

    /// Composes into the output; the bytes leave with the next [`Wire::flush`].
    pub(crate) fn compose(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut out = self.out.borrow_mut();
        if out.capacity() == 0 {
            *out = self.stream.spare();
        }
        let before = out.len();
        write(&mut out);
        self.written.set(self.written.get() + (out.len() - before) as u64);
    }

    /// Bytes composed or queued and not yet taken by the kernel.
    fn pending(&self) -> u64 {
        self.out.borrow().len() as u64 + self.stream.unsent()
    }

    /// Queues a piece of a body behind what was composed.
    pub(crate) fn queue(&self, buf: Buf) {
        self.put(buf);
    }

    /// Adds a piece of a body: small ones are copied behind the head, others follow it uncopied.
    fn put(&self, buf: Buf) {
        if let Some(bytes) = buf.memory()
            && bytes.len() <= COPIED
        {
            return self.compose(|out| out.extend_from_slice(bytes));
        }
        let head = std::mem::take(&mut *self.out.borrow_mut());
        if !head.is_empty() {
            self.stream.queue(Chunk::Bytes(head));
        }
        self.written.set(self.written.get() + buf.len());
        self.stream.queue(match buf {
            Buf::Bytes(bytes) => Chunk::Bytes(bytes),
            Buf::Static(bytes) => Chunk::Static(bytes),
            Buf::Shared { bytes, start, end } if start == 0 && end == bytes.len() => Chunk::Shared(bytes),
            Buf::Shared { bytes, start, end } => Chunk::Bytes(bytes[start..end].to_vec()),
            Buf::File { file, offset, len } => Chunk::File { file: file.handle(), offset, len },
        });
    }
}

/// A connection from its first byte to its last.
pub(crate) async fn run(worker: Rc<Worker>, connection: Rc<Connection>, wire: Rc<Wire>) {
    let mut idle = connection.hosts.borrow().default().settings.client_header_timeout;
    loop {
        wire.idle.set(true);
        // Bytes of the first request may have come with a PROXY protocol header.
        let waits = wire.input.borrow().is_empty();
        if waits {
            wire.timer.arm(idle);
            worker.counters.waiting.add(1);
            let received = wire.stream.recv(Some(&wire.timer)).await;
            worker.counters.waiting.sub(1);
            let Recv::Data(buf) = received else { break };
            wire.input.borrow_mut().push(buf);
        }
        wire.idle.set(false);
        match Box::pin(active(&worker, &connection, &wire)).await {
            Some(timeout) => idle = timeout,
            None => break,
        }
        if worker.is_stopping() {
            break;
        }
    }
}

/// Answers requests until there is nothing left to read; then how long to wait for more, or `None` to close.
async fn active(worker: &Rc<Worker>, connection: &Rc<Connection>, wire: &Rc<Wire>) -> Option<u64> {
    let mut batch = 0u32;
    loop {
        connection.adopt(worker);
        let server = connection.hosts.borrow().default().clone();
        let mut x = worker.take_exchange(connection, &server);
        x.pipelined = batch > 0;
        let next = one(&mut x, wire).await;
        worker.give_exchange(x);
        let idle = next?;
        batch += 1;
        if wire.input.borrow().is_empty() {
            wire.flush();
            return if wire.stream.unsent() > HIGH {
                wait_room(wire, &server.plan.core, idle).await
            } else {
                Some(idle)
            };
        }
        if wire.pending() > HIGH {
            wire.flush();
            wait_room(wire, &server.plan.core, idle).await?;
        }
        if batch.is_multiple_of(64) {
            wire.flush();
            weir_rt::yield_now().await;
        }
    }
}

async fn wait_room(wire: &Wire, core: &crate::conf::core::Core, idle: u64) -> Option<u64> {
    wire.timer.arm(core.send_timeout);
    wire.stream.drained(HIGH / 2, Some(&wire.timer)).await.ok().map(|()| idle)
}

/// One request. `None`: the connection is closed (what was sent is still delivered).
async fn one(x: &mut Exchange, wire: &Rc<Wire>) -> Option<u64> {
    begin(x, wire);
    let head = head::read(x, wire).await;
    x.connection.requests.set(x.connection.requests.get() + 1);
    match head {
        Ok(()) => {
            x.worker.counters.requests.add(1);
            x.worker.counters.writing.add(1);
            read::start(x);
            engine::serve(x).await;
            x.worker.counters.writing.sub(1);
        }
        Err(NoHead::Nothing) => return None,
        Err(NoHead::Refuse(status)) => {
            x.worker.counters.requests.add(1);
            engine::refuse(x, status).await;
        }
        Err(NoHead::Silent(status)) => {
            x.worker.counters.requests.add(1);
            engine::close(x, status).await;
            return None;
        }
    }
    let idle = x.plan.core.keepalive_timeout;
    if x.keep_alive && idle > 0 && read::rest(x, wire).await {
        return Some(idle);
    }
    super::linger::close(x, wire).await;
    None
}

/// A fresh exchange for this connection.
fn begin(x: &mut Exchange, wire: &Rc<Wire>) {
    x.start_ms = weir_rt::now_ms();
    x.bytes_before = wire.written();
    match &x.transport {
        Transport::H1(old) if Rc::ptr_eq(old, wire) => {}
        _ => x.transport = Transport::H1(wire.clone()),
    }
    let worker = x.worker.clone();
    let mut recorder = worker.recorder.borrow_mut();
    x.shared.start(|trace| {
        recorder.begin_at(trace, clock::ticks);
        trace.is_on()
    });
}

/// Composes the head of `x`.
pub(crate) fn write_head(x: &mut Exchange, wire: &Wire) {
    wire.compose(|out| super::encode::head(x, out));
}

/// Hands over a part of the body, at the rate that is allowed.
pub(crate) async fn write_body(
    x: &mut Exchange,
    wire: &Rc<Wire>,
    chain: &mut Chain,
    last: bool,
    flush: bool,
) -> Result<(), Error> {
    if x.response.chunked {
        return chunked(x, wire, chain, last, flush).await;
    }
    let rate = super::rate::of(x);
    while let Some(buf) = chain.pop() {
        match rate {
            Some(rate) => super::rate::write(x, wire, buf, rate).await?,
            None => wire.put(buf),
        }
        pace(x, wire).await?;
    }
    if flush {
        wire.flush();
        wire.stream.flush();
    }
    Ok(())
}

async fn chunked(
    x: &mut Exchange,
    wire: &Rc<Wire>,
    chain: &mut Chain,
    last: bool,
    flush: bool,
) -> Result<(), Error> {
    if !chain.is_empty() {
        let size = chain.len();
        wire.compose(|out| chunk_head(out, size));
        while let Some(buf) = chain.pop() {
            wire.put(buf);
        }
        wire.compose(|out| out.extend_from_slice(b"\r\n"));
    }
    if last {
        wire.compose(|out| {
            let trailers = x.response.trailers.iter();
            last_chunk(out, trailers.map(|t| (t.name.bytes(&x.arena), t.value.bytes(&x.arena))));
        });
    }
    if flush {
        wire.flush();
        wire.stream.flush();
    }
    pace(x, wire).await
}

/// Above the high-water mark the writer waits until the client took half of it.
async fn pace(x: &mut Exchange, wire: &Rc<Wire>) -> Result<(), Error> {
    if wire.pending() <= HIGH {
        return Ok(());
    }
    wire.flush();
    wire.stream.flush();
    drained(x, wire, HIGH / 2).await
}

/// Waits until at most `below` bytes are left to send.
pub(crate) async fn drained(x: &mut Exchange, wire: &Rc<Wire>, below: u64) -> Result<(), Error> {
    wire.flush();
    wire.stream.flush();
    wire.timer.arm(x.plan.core.send_timeout);
    let shared = x.shared.clone();
    let sent = shared.waiting(Box::pin(wire.stream.drained(below, Some(&wire.timer)))).await;
    sent.map_err(|error| {
        if error == weir_rt::SendError::TimedOut && x.plan.core.reset_timedout_connection {
            wire.stream.set_linger_reset();
        }
        Error::from(error)
    })
}

/// More than this many bytes composed or queued make a writer wait.
pub(crate) const HIGH: u64 = 64 * 1024;
/// Pieces up to this size are copied behind the head instead of being sent by their own vector.
const COPIED: usize = 16 * 1024;
