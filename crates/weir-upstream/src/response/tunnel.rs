//! After `101 Switching Protocols`, or where a server of HTTP/2 has opened a WebSocket: bytes both ways, until both sides
//! have ended. The end of one side is passed on, after its last bytes, and what the other still has to say arrives;
//! nginx closes both sides at the first end.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_rt::{HeldMemory, Timer};
use weir_trace::WaitKind;

use crate::location::upstream_location::UpstreamLocation;
use crate::request::attempt_records::AttemptRecords;
use crate::response::headers;
use crate::response::received_head::{ReceivedHead, UpstreamLink};
use crate::worker_side::worker_part;
use weir_engine::exchange::Exchange;
use weir_engine::log::LogLevel;
use weir_engine::output;
use weir_engine::phase::Verdict;
use weir_engine::transport::ClientSide;
use weir_engine::transport::client::TunnelBytes;
use weir_engine::worker::{CloseReason, UpstreamCloseReason, Worker};

/// Passes the response's head on, then bytes both ways.
pub(crate) async fn run(
    x: &mut Exchange,
    up: &UpstreamLocation,
    answered: ReceivedHead,
    records: &AttemptRecords,
) -> Verdict {
    let ReceivedHead { incoming, link, lease, rest } = answered;
    let Some(client) = x.transport.client() else { return Verdict::Status(502) };
    let opened = up.protocol.opens_tunnels();
    x.response.unframed = opened;
    headers::copy(x, up, &incoming, headers::HeaderOrigin::Server { keeps: false });
    x.keep_alive = false;
    if let UpstreamLink::Own(connection) = &link {
        connection.end.expects(UpstreamCloseReason::Tunnel);
    }
    if x.transport.h1().is_some() {
        x.connection.ends(CloseReason::Tunnel);
    }
    if !output::send_head(x).await {
        return Verdict::Status(500);
    }
    if let Some(wire) = x.transport.wire() {
        wire.flush();
    }
    let high = if opened { up.settings.buffer_size } else { HIGH };
    let ends = Default::default();
    let tunnel = UpgradeTunnel { client, server: link, timeout: up.settings.read_timeout, high, ends };
    tunnel.begin(rest);
    let shared = x.shared.clone();
    let task = Box::pin(tunnel.run());
    let held = tunnel.server.held_bytes() + size_of_val(&*task);
    let entry = TunnelEntry::new(&x.worker, HeldMemory::new(1, held));
    let end = shared.waiting_for(WaitKind::UpstreamBody, task).await;
    drop(entry);
    tunnel.end_client();
    match &tunnel.server {
        UpstreamLink::Own(connection) => records.count(connection.stream.sent(), connection.sent(), 0),
        UpstreamLink::Talk(talk) => {
            let (sent, received) = talk.counts();
            records.count(0, sent, received);
        }
    }
    records.end(None);
    drop(lease);
    if let TunnelEnd::TimedOut = end {
        // Which side was silent is not known: as with a client's time-out, neither side is to blame.
        x.log(LogLevel::Info, &TIMED_OUT);
    }
    Verdict::Done
}

/// A tunnel's entry with its worker: it is counted as long as it is open.
struct TunnelEntry(Rc<Worker>, HeldMemory);

impl TunnelEntry {
    fn new(worker: &Rc<Worker>, held: HeldMemory) -> TunnelEntry {
        let open = &worker_part::of_worker(worker).tunnels;
        let mut all = open.get();
        all += held;
        open.set(all);
        TunnelEntry(worker.clone(), held)
    }
}

impl Drop for TunnelEntry {
    fn drop(&mut self) {
        let open = &worker_part::of_worker(&self.0).tunnels;
        let (all, this) = (open.get(), self.1);
        open.set(HeldMemory { things: all.things - this.things, bytes: all.bytes - this.bytes });
    }
}

enum TunnelEnd {
    Closed,
    TimedOut,
}

struct UpgradeTunnel {
    client: ClientSide,
    server: UpstreamLink,
    timeout: u64,
    /// More than this on its way to one side stops the reading of the other.
    high: u64,
    ends: TunnelEnds,
}

/// Which directions have ended.
#[derive(Default)]
struct TunnelEnds {
    /// The client has said all.
    client: Cell<bool>,
    /// The server has.
    server: Cell<bool>,
    /// The client was notified that no more comes.
    client_knows: Cell<bool>,
}

/// The server's side: a connection, or a stream of one.
impl UpstreamLink {
    /// Bytes of memory that it takes.
    fn held_bytes(&self) -> usize {
        match self {
            UpstreamLink::Own(connection) => connection.held_bytes(),
            // The connection is counted by itself.
            UpstreamLink::Talk(_) => 0,
        }
    }

    fn timer(&self) -> &Timer {
        match self {
            UpstreamLink::Own(connection) => &connection.timer,
            UpstreamLink::Talk(talk) => &talk.timer,
        }
    }

    fn poll_bytes(&self, cx: &mut Context<'_>) -> Poll<TunnelBytes> {
        match self {
            UpstreamLink::Own(connection) => connection.stream.poll_recv(cx, None).map(TunnelBytes::from),
            UpstreamLink::Talk(talk) => talk.poll_bytes(cx),
        }
    }

    fn pass(&self, bytes: Vec<u8>) {
        match self {
            UpstreamLink::Own(connection) => connection.stream.send(bytes),
            UpstreamLink::Talk(talk) => talk.pass(bytes),
        }
    }

    /// Says that no more comes, after what is on its way.
    fn end(&self) {
        match self {
            // One that is gone needs no end.
            UpstreamLink::Own(connection) => drop(connection.stream.shutdown_write()),
            UpstreamLink::Talk(talk) => talk.end(),
        }
    }

    /// Ready when no more than `below`, which for a stream is nothing or little, is left to send; `false`: nothing can be
    /// sent any more.
    fn poll_room(&self, cx: &mut Context<'_>, below: u64) -> Poll<bool> {
        match self {
            UpstreamLink::Own(connection) => {
                connection.stream.poll_drained(cx, below, None).map(|drained| drained.is_ok())
            }
            UpstreamLink::Talk(talk) => talk.poll_room(cx, below == 0).map(|()| true),
        }
    }
}

impl UpgradeTunnel {
    /// What was read too far on either side goes first.
    fn begin(&self, rest: Vec<u8>) {
        if !rest.is_empty() {
            self.client.pass(rest);
        }
        let early = self.client.early();
        if !early.is_empty() {
            self.server.pass(early);
        }
        self.server.timer().arm(self.timeout);
    }

    async fn run(&self) -> TunnelEnd {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<TunnelEnd> {
        let (client, server, ends) = (&self.client, &self.server, &self.ends);
        loop {
            match (self.forth(cx), self.back(cx)) {
                (TunnelMoved::Broken, _) | (_, TunnelMoved::Broken) => return Poll::Ready(TunnelEnd::Closed),
                (TunnelMoved::Some, _) | (_, TunnelMoved::Some) => {}
                _ if ends.client.get() && ends.server.get() => {
                    let (there, here) = (server.poll_room(cx, 0), client.poll_room(cx, 0));
                    if there.is_ready() && here.is_ready() {
                        return Poll::Ready(TunnelEnd::Closed);
                    }
                    return self.poll_silence(cx);
                }
                _ => return self.poll_silence(cx),
            }
        }
    }

    fn poll_silence(&self, cx: &mut Context<'_>) -> Poll<TunnelEnd> {
        let end = if self.ends.server.get() { TunnelEnd::Closed } else { TunnelEnd::TimedOut };
        self.server.timer().poll_expired(cx).map(|()| end)
    }

    /// For how long nothing may move.
    fn patience(&self) -> u64 {
        if self.ends.server.get() { self.timeout.min(AFTER_SERVER_MS) } else { self.timeout }
    }

    /// Moves what the client has to the server, unless that one takes nothing at the moment.
    fn forth(&self, cx: &mut Context<'_>) -> TunnelMoved {
        let (server, ended) = (&self.server, &self.ends.client);
        if ended.get() {
            return TunnelMoved::Nothing;
        }
        match server.poll_room(cx, self.high) {
            Poll::Pending => return TunnelMoved::Nothing,
            Poll::Ready(false) => return TunnelMoved::Broken,
            Poll::Ready(true) => {}
        }
        match self.client.poll_bytes(cx) {
            Poll::Pending => TunnelMoved::Nothing,
            Poll::Ready(TunnelBytes::End) => {
                ended.set(true);
                server.end();
                TunnelMoved::Some
            }
            Poll::Ready(bytes) => self.moved(bytes, |bytes| server.pass(bytes)),
        }
    }

    /// The other way.
    fn back(&self, cx: &mut Context<'_>) -> TunnelMoved {
        let ended = &self.ends.server;
        if ended.get() {
            return TunnelMoved::Nothing;
        }
        match self.client.poll_room(cx, self.high) {
            Poll::Pending => return TunnelMoved::Nothing,
            Poll::Ready(false) => return TunnelMoved::Broken,
            Poll::Ready(true) => {}
        }
        match self.server.poll_bytes(cx) {
            Poll::Pending => TunnelMoved::Nothing,
            Poll::Ready(TunnelBytes::End) => {
                ended.set(true);
                self.end_client();
                self.server.timer().arm(self.patience());
                TunnelMoved::Some
            }
            Poll::Ready(received) => self.moved(received, |bytes| self.client.pass(bytes)),
        }
    }

    /// Notifies the client, once, that no more comes.
    fn end_client(&self) {
        if !self.ends.client_knows.replace(true) {
            self.client.end();
        }
    }

    fn moved(&self, bytes: TunnelBytes, give: impl Fn(Vec<u8>)) -> TunnelMoved {
        let bytes = match bytes {
            TunnelBytes::Received(buf) => buf.to_vec(),
            TunnelBytes::Piece(piece) => piece,
            TunnelBytes::End | TunnelBytes::Broken => return TunnelMoved::Broken,
        };
        self.server.timer().touch(self.patience());
        give(bytes);
        TunnelMoved::Some
    }
}

enum TunnelMoved {
    Nothing,
    Some,
    Broken,
}

const TIMED_OUT: &str = "upstream timed out (110: Connection timed out) while proxying upgraded connection";
/// How long a client may be silent to whom the server has said all: one that just leaves its connection open would be
/// kept for all of `*_read_timeout`.
const AFTER_SERVER_MS: u64 = 5000;
/// What may be on its way to one side of a connection that changed its protocol.
const HIGH: u64 = 64 * 1024;
