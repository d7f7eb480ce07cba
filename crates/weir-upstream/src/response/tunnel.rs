//! After `101 Switching Protocols`, or where a server of HTTP/2 has opened a WebSocket: bytes both ways, until both sides
//! have ended. The end of one side is passed on, after its last bytes, and what the other still has to say arrives;
//! nginx closes both sides at the first end. A session of `stream` is the same without a head before it, and ends as nginx's
//! does ([`SessionFlow`]).

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_rt::{HeldMemory, Timer, USUAL_RECEIVE};
use weir_trace::WaitKind;

use crate::location::upstream_location::UpstreamLocation;
use crate::protocol::IncomingHead;
use crate::request::attempt_records::AttemptRecords;
use crate::response::headers;
use crate::response::received_head::{ReceivedHead, UpstreamLink};
use crate::response::session_flow::{FlowDirection, PacedBytes, SessionFlow};
use crate::worker_side::worker_part;
use weir_engine::exchange::Exchange;
use weir_engine::log::LogLevel;
use weir_engine::output;
use weir_engine::phase::Verdict;
use weir_engine::transport::ClientSide;
use weir_engine::transport::client::TunnelBytes;
use weir_engine::worker::{CloseReason, UpstreamCloseReason, Worker};

/// Passes the response's head on, if there is one, then bytes both ways.
pub(crate) async fn run(
    x: &mut Exchange,
    up: &UpstreamLocation,
    answered: ReceivedHead,
    records: &AttemptRecords,
) -> Verdict {
    let ReceivedHead { incoming, link, lease, rest } = answered;
    let Some(client) = x.transport.client() else { return Verdict::Status(502) };
    let opened = up.protocol.opens_tunnels();
    if let UpstreamLink::Own(connection) = &link {
        connection.end.expects(UpstreamCloseReason::Tunnel);
    }
    let manners = up.protocol.session(x);
    let flow = x.session().zip(manners).map(|(bytes, manners)| SessionFlow::new(bytes, manners, records));
    if flow.is_none() && !send_head(x, up, &incoming).await {
        return Verdict::Status(500);
    }
    let high = if opened { up.settings.buffer_size } else { HIGH };
    let (ends, bulk) = Default::default();
    let timeout = up.settings.read_timeout;
    let received = Cell::new(0);
    let tunnel = UpgradeTunnel { client, server: link, timeout, high, ends, bulk, received, flow };
    tunnel.begin(rest);
    let shared = x.shared.clone();
    let task = Box::pin(tunnel.run());
    let held = tunnel.server.held_bytes() + size_of_val(&*task);
    let entry = TunnelEntry::new(&x.worker, HeldMemory::new(1, held));
    let end = shared.waiting_for(WaitKind::UpstreamBody, task).await;
    drop(entry);
    match &tunnel.flow {
        Some(flow) => end_session(x, flow, &end),
        None => {
            tunnel.end_client();
            tunnel.count(records);
            if let TunnelEnd::TimedOut = end {
                // Which side was silent is not known: as with a client's time-out, neither side is to blame.
                x.log(LogLevel::Info, &TIMED_OUT);
            }
        }
    }
    records.end(None);
    drop(lease);
    Verdict::Done
}

/// Sends the client the head that comes before the tunnel's bytes; `false`: it can't be sent.
async fn send_head(x: &mut Exchange, up: &UpstreamLocation, incoming: &IncomingHead) -> bool {
    x.response.unframed = up.protocol.opens_tunnels();
    headers::copy(x, up, incoming, headers::HeaderOrigin::Server { keeps: false });
    x.keep_alive = false;
    if x.transport.h1().is_some() {
        x.connection.ends(CloseReason::Tunnel);
    }
    if !output::send_head(x).await {
        return false;
    }
    if let Some(wire) = x.transport.wire() {
        wire.flush();
    }
    true
}

/// Says in nginx's words how a session has ended.
fn end_session(x: &Exchange, flow: &SessionFlow, end: &TunnelEnd) {
    flow.end();
    if let TunnelEnd::TimedOut = end {
        return x.log(
            LogLevel::Info,
            &"connection timed out (110: Connection timed out) while proxying connection",
        );
    }
    let who = match flow.first_end.get() {
        Some(FlowDirection::Back) => "upstream",
        Some(FlowDirection::Forth) | None => "client",
    };
    x.connection.log_idle(LogLevel::Info, &format_args!("{who} disconnected{}", x.passed_bytes()));
}

/// A tunnel's entry with its worker: it is counted as long as it is open.
pub(crate) struct TunnelEntry(Rc<Worker>, HeldMemory);

impl TunnelEntry {
    pub(crate) fn new(worker: &Rc<Worker>, held: HeldMemory) -> TunnelEntry {
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
    /// Of both directions, in the order of [`FlowDirection`].
    bulk: [BulkRun; 2],
    /// Bytes that the server has sent since the head, without those that came with it.
    received: Cell<u64>,
    /// Of a session.
    flow: Option<SessionFlow>,
}

/// Whether a direction moves bytes in bulk: then a receive brings more of them.
#[derive(Default)]
struct BulkRun {
    /// So many receives in a row have brought all that a usual one can.
    full: Cell<u8>,
}

impl BulkRun {
    /// How many bytes the next receive is to bring at most; `None`: as usual.
    fn most(&self, high: u64) -> Option<usize> {
        let most = usize::try_from(high).unwrap_or(usize::MAX);
        (self.full.get() >= BULK_AFTER && most > USUAL_RECEIVE).then_some(most)
    }

    /// Notes that a receive has brought `bytes`; `true`: what follows is short again.
    fn note(&self, bytes: usize) -> bool {
        if self.full.get() >= BULK_AFTER {
            let ends = bytes < USUAL_RECEIVE / 2;
            if ends {
                self.full.set(0);
            }
            return ends;
        }
        self.full.set(if bytes == USUAL_RECEIVE { self.full.get() + 1 } else { 0 });
        false
    }
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

    /// The next bytes; `most`: so many at once.
    fn poll_bytes(&self, cx: &mut Context<'_>, most: Option<usize>) -> Poll<TunnelBytes> {
        match (self, most) {
            (UpstreamLink::Own(connection), None) => {
                connection.stream.poll_recv(cx, None).map(TunnelBytes::from)
            }
            (UpstreamLink::Own(connection), Some(most)) => {
                connection.stream.poll_recv_long(cx, None, most).map(TunnelBytes::from)
            }
            (UpstreamLink::Talk(talk), _) => talk.poll_bytes(cx),
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
            self.give(FlowDirection::Forth, early);
        }
        self.server.timer().arm(self.timeout);
    }

    async fn run(&self) -> TunnelEnd {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<TunnelEnd> {
        let (client, server) = (&self.client, &self.server);
        loop {
            match (self.forth(cx), self.back(cx)) {
                (TunnelMoved::Broken, _) | (_, TunnelMoved::Broken) => return Poll::Ready(TunnelEnd::Closed),
                (TunnelMoved::Some, _) | (_, TunnelMoved::Some) => {}
                _ if self.is_over() => {
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

    /// Nothing more is to be read.
    fn is_over(&self) -> bool {
        let (client, server) = (self.ends.client.get(), self.ends.server.get());
        match &self.flow {
            Some(flow) if flow.ends_at_once() => client || server,
            _ => client && server,
        }
    }

    fn poll_silence(&self, cx: &mut Context<'_>) -> Poll<TunnelEnd> {
        let end = if self.ends.server.get() { TunnelEnd::Closed } else { TunnelEnd::TimedOut };
        self.server.timer().poll_expired(cx).map(|()| end)
    }

    /// For how long nothing may move.
    fn patience(&self) -> u64 {
        let after_server = self.ends.server.get() && self.flow.is_none();
        if after_server { self.timeout.min(AFTER_SERVER_MS) } else { self.timeout }
    }

    /// Moves what the client has to the server, unless that one takes nothing at the moment.
    fn forth(&self, cx: &mut Context<'_>) -> TunnelMoved {
        if self.ends.client.get() {
            return TunnelMoved::Nothing;
        }
        let room = self.server.poll_room(cx, self.high);
        self.one_way(cx, FlowDirection::Forth, room, |cx, most| self.client.poll_bytes(cx, most))
    }

    /// The other way.
    fn back(&self, cx: &mut Context<'_>) -> TunnelMoved {
        if self.ends.server.get() {
            return TunnelMoved::Nothing;
        }
        let room = self.client.poll_room(cx, self.high);
        self.one_way(cx, FlowDirection::Back, room, |cx, most| self.server.poll_bytes(cx, most))
    }

    /// Moves what `read` gives, if there is `room` on the other side.
    fn one_way(
        &self,
        cx: &mut Context<'_>,
        direction: FlowDirection,
        room: Poll<bool>,
        read: impl FnOnce(&mut Context<'_>, Option<usize>) -> Poll<TunnelBytes>,
    ) -> TunnelMoved {
        match room {
            Poll::Pending => return TunnelMoved::Nothing,
            Poll::Ready(false) => return TunnelMoved::Broken,
            Poll::Ready(true) => {}
        }
        if let Some(flow) = &self.flow {
            match flow.poll_held(cx, direction) {
                PacedBytes::Read => {}
                PacedBytes::Some(bytes) => {
                    self.hand_on(direction, bytes);
                    return TunnelMoved::Some;
                }
                PacedBytes::Wait => return TunnelMoved::Nothing,
            }
        }
        let bulk = &self.bulk[direction as usize];
        let bytes = match read(cx, bulk.most(self.high)) {
            Poll::Pending => return TunnelMoved::Nothing,
            Poll::Ready(TunnelBytes::End) => return self.ended(direction),
            Poll::Ready(TunnelBytes::Broken) => {
                self.note_end(direction);
                return TunnelMoved::Broken;
            }
            Poll::Ready(TunnelBytes::Received(buf)) => buf.into_vec(),
            Poll::Ready(TunnelBytes::Piece(piece)) => piece,
        };
        self.server.timer().touch(self.patience());
        if let FlowDirection::Back = direction {
            self.received.set(self.received.get() + bytes.len() as u64);
        }
        if bulk.note(bytes.len()) {
            self.end_bulk(direction);
        }
        self.give(direction, bytes);
        TunnelMoved::Some
    }

    /// What comes in this direction is short again.
    fn end_bulk(&self, direction: FlowDirection) {
        match (direction, &self.server) {
            (FlowDirection::Forth, _) => {
                if let Some(stream) = self.client.stream() {
                    stream.end_long();
                }
            }
            (FlowDirection::Back, UpstreamLink::Own(connection)) => connection.stream.end_long(),
            (FlowDirection::Back, UpstreamLink::Talk(_)) => {}
        }
    }

    /// The side from which `direction` comes has ended it.
    fn ended(&self, direction: FlowDirection) -> TunnelMoved {
        self.note_end(direction);
        let closes = self.flow.as_ref().is_some_and(SessionFlow::ends_at_once);
        match direction {
            FlowDirection::Forth => {
                self.ends.client.set(true);
                if !closes {
                    self.server.end();
                }
            }
            FlowDirection::Back => {
                self.ends.server.set(true);
                if !closes {
                    self.end_client();
                }
                self.server.timer().arm(self.patience());
            }
        }
        TunnelMoved::Some
    }

    fn note_end(&self, direction: FlowDirection) {
        if let Some(flow) = &self.flow
            && flow.first_end.get().is_none()
        {
            flow.first_end.set(Some(direction));
        }
    }

    /// Passes on what was read, unless a rate makes it wait.
    fn give(&self, direction: FlowDirection, bytes: Vec<u8>) {
        let bytes = match &self.flow {
            Some(flow) => flow.read(direction, bytes),
            None => Some(bytes),
        };
        if let Some(bytes) = bytes {
            self.hand_on(direction, bytes);
        }
    }

    fn hand_on(&self, direction: FlowDirection, bytes: Vec<u8>) {
        if let Some(flow) = &self.flow {
            flow.passed(direction, bytes.len());
        }
        match direction {
            FlowDirection::Forth => self.server.pass(bytes),
            FlowDirection::Back => self.client.pass(bytes),
        }
    }

    /// Counts what has passed; a response's length has none of it, as in nginx.
    fn count(&self, records: &AttemptRecords) {
        match &self.server {
            UpstreamLink::Own(connection) => records.count(0, connection.sent(), self.received.get()),
            UpstreamLink::Talk(talk) => {
                let (sent, received) = talk.counts();
                records.count(0, sent, received);
            }
        }
    }

    /// Notifies the client, once, that no more comes.
    fn end_client(&self) {
        if !self.ends.client_knows.replace(true) {
            self.client.end();
        }
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
/// After so many full receives in a row a direction moves bytes in bulk.
const BULK_AFTER: u8 = 4;
/// What may be on its way to one side of a connection that changed its protocol.
const HIGH: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_begins_with_full_receives_and_ends_with_a_short_one() {
        let run = BulkRun::default();
        for bytes in [4096, 4096, 4096, 1000, 4096, 4096, 4096] {
            assert!(!run.note(bytes));
            assert_eq!(run.most(HIGH), None);
        }
        assert!(!run.note(4096));
        assert_eq!((run.most(HIGH), run.most(4096)), (Some(65_536), None));
        assert!(!run.note(20_000));
        assert!(!run.note(2048));
        assert_eq!(run.most(16_384), Some(16_384));
        assert!(run.note(100));
        assert_eq!(run.most(HIGH), None);
    }
}
