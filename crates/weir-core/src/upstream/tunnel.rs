//! After `101 Switching Protocols`, or where a server of HTTP/2 has opened a WebSocket: bytes both ways, until one side has
//! ended and the other took everything.

use std::future::poll_fn;
use std::task::{Context, Poll};

use weir_rt::Timer;
use weir_trace::WaitKind;

use super::attempt::{Answered, Link, Upstream};
use super::headers;
use super::tries::Tries;
use crate::conn::Client;
use crate::conn::client::Bytes;
use crate::exchange::Exchange;
use crate::log::Level;
use crate::output;
use crate::phase::Verdict;

/// Passes the answer's head on, then bytes both ways.
pub(super) async fn run(x: &mut Exchange, up: &Upstream, answered: Answered, tries: &Tries) -> Verdict {
    let Answered { incoming, link, lease, rest } = answered;
    let Some(client) = x.transport.client() else { return Verdict::Status(502) };
    let opened = up.protocol.opens_tunnels();
    x.response.unframed = opened;
    headers::copy(x, up, &incoming, headers::Origin::Server { keeps: false });
    x.keep_alive = false;
    if !output::send_head(x).await {
        return Verdict::Status(500);
    }
    if let Some(wire) = x.transport.wire() {
        wire.flush();
    }
    let high = if opened { up.settings.buffer_size } else { HIGH };
    let tunnel = Tunnel { client, server: link, timeout: up.settings.read_timeout, high };
    tunnel.begin(rest);
    let shared = x.shared.clone();
    let end = shared.waiting_for(WaitKind::UpstreamBody, Box::pin(tunnel.run())).await;
    if let Some(stream) = x.transport.h2() {
        stream.finish();
    }
    match &tunnel.server {
        Link::Own(connection) => tries.count(connection.stream.sent(), connection.sent(), 0),
        Link::Talk(talk) => {
            let (sent, received) = talk.counts();
            tries.count(0, sent, received);
        }
    }
    tries.end(None);
    drop(lease);
    if let End::TimedOut = end {
        // Which side was silent is not known: as with a client's time-out, nobody is to blame.
        x.log(Level::Info, &TIMED_OUT);
    }
    tries.over();
    Verdict::Done
}

enum End {
    Closed,
    TimedOut,
}

struct Tunnel {
    client: Client,
    server: Link,
    timeout: u64,
    /// More than this on its way to one side stops the reading of the other.
    high: u64,
}

/// The server's side: a connection, or a stream of one.
impl Link {
    fn timer(&self) -> &Timer {
        match self {
            Link::Own(connection) => &connection.timer,
            Link::Talk(talk) => &talk.timer,
        }
    }

    fn poll_bytes(&self, cx: &mut Context<'_>) -> Poll<Bytes> {
        match self {
            Link::Own(connection) => connection.stream.poll_recv(cx, None).map(Bytes::from),
            Link::Talk(talk) => talk.poll_bytes(cx),
        }
    }

    fn pass(&self, bytes: Vec<u8>) {
        match self {
            Link::Own(connection) => connection.stream.send(bytes),
            Link::Talk(talk) => talk.pass(bytes),
        }
    }

    /// Ready when no more than `below`, which for a stream is nothing or little, is left to send; `false`: nothing can be
    /// sent any more.
    fn poll_room(&self, cx: &mut Context<'_>, below: u64) -> Poll<bool> {
        match self {
            Link::Own(connection) => {
                connection.stream.poll_drained(cx, below, None).map(|drained| drained.is_ok())
            }
            Link::Talk(talk) => talk.poll_room(cx, below == 0).map(|()| true),
        }
    }
}

impl Tunnel {
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

    async fn run(&self) -> End {
        let mut ended = (false, false);
        poll_fn(|cx| self.poll(cx, &mut ended)).await
    }

    fn poll(&self, cx: &mut Context<'_>, ended: &mut (bool, bool)) -> Poll<End> {
        let (client, server) = (&self.client, &self.server);
        loop {
            let forth = self.forth(cx, &mut ended.0);
            let back = self.back(cx, &mut ended.1);
            match (forth, back) {
                (Moved::Broken, _) | (_, Moved::Broken) => return Poll::Ready(End::Closed),
                (Moved::Some, _) | (_, Moved::Some) => {}
                _ if ended.0 && server.poll_room(cx, 0).is_ready()
                    || ended.1 && client.poll_room(cx, 0).is_ready() =>
                {
                    return Poll::Ready(End::Closed);
                }
                _ => match server.timer().poll_expired(cx) {
                    Poll::Ready(()) => return Poll::Ready(End::TimedOut),
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }

    /// Moves what the client has to the server, unless that one takes nothing at the moment.
    fn forth(&self, cx: &mut Context<'_>, ended: &mut bool) -> Moved {
        let server = &self.server;
        if *ended {
            return Moved::Nothing;
        }
        match server.poll_room(cx, self.high) {
            Poll::Pending => return Moved::Nothing,
            Poll::Ready(false) => return Moved::Broken,
            Poll::Ready(true) => {}
        }
        match self.client.poll_bytes(cx) {
            Poll::Pending => Moved::Nothing,
            Poll::Ready(bytes) => self.moved(bytes, ended, |bytes| server.pass(bytes)),
        }
    }

    /// The other way.
    fn back(&self, cx: &mut Context<'_>, ended: &mut bool) -> Moved {
        if *ended {
            return Moved::Nothing;
        }
        match self.client.poll_room(cx, self.high) {
            Poll::Pending => return Moved::Nothing,
            Poll::Ready(false) => return Moved::Broken,
            Poll::Ready(true) => {}
        }
        match self.server.poll_bytes(cx) {
            Poll::Pending => Moved::Nothing,
            Poll::Ready(received) => self.moved(received, ended, |bytes| self.client.pass(bytes)),
        }
    }

    fn moved(&self, bytes: Bytes, ended: &mut bool, give: impl Fn(Vec<u8>)) -> Moved {
        let bytes = match bytes {
            Bytes::Received(buf) => buf.to_vec(),
            Bytes::Piece(piece) => piece,
            Bytes::End => {
                *ended = true;
                return Moved::Nothing;
            }
            Bytes::Broken => return Moved::Broken,
        };
        self.server.timer().touch(self.timeout);
        give(bytes);
        Moved::Some
    }
}

enum Moved {
    Nothing,
    Some,
    Broken,
}

const TIMED_OUT: &str = "upstream timed out (110: Connection timed out) while proxying upgraded connection";
/// What may be on its way to one side of a connection that changed its protocol.
const HIGH: u64 = 64 * 1024;
