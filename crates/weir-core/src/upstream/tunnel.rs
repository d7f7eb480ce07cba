//! After `101 Switching Protocols`: bytes both ways, until one side has ended and the other took everything.

use std::future::poll_fn;
use std::task::{Context, Poll};

use weir_trace::WaitKind;

use super::attempt::{Answered, Link, Upstream};
use super::connection::Connection;
use super::headers;
use super::tries::Tries;
use crate::conn::Client;
use crate::conn::client::Bytes;
use crate::exchange::Exchange;
use crate::output;
use crate::phase::Verdict;

/// Passes the answer's head on, then bytes both ways.
pub(super) async fn run(x: &mut Exchange, up: &Upstream, answered: Answered, tries: &Tries) -> Verdict {
    let Answered { incoming, link, lease, rest } = answered;
    let Link::Own(connection) = link else { return Verdict::Status(502) };
    let Some(client) = x.transport.client() else { return Verdict::Status(502) };
    headers::copy(x, up, &incoming, headers::Origin::Server { keeps: false });
    x.keep_alive = false;
    if !output::send_head(x).await {
        return Verdict::Status(500);
    }
    if let Some(wire) = x.transport.wire() {
        wire.flush();
    }
    let tunnel = Tunnel { client, connection, timeout: up.settings.read_timeout };
    tunnel.begin(rest);
    let shared = x.shared.clone();
    let end = shared.waiting_for(WaitKind::UpstreamBody, Box::pin(tunnel.run())).await;
    if let Some(stream) = x.transport.h2() {
        stream.finish();
    }
    tries.count(tunnel.connection.stream.sent(), tunnel.connection.sent(), 0);
    tries.end(None);
    drop(lease);
    if let End::TimedOut = end {
        super::log::error(
            x,
            &"upstream timed out (110: Connection timed out) while proxying upgraded connection",
        );
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
    connection: Box<Connection>,
    timeout: u64,
}

impl Tunnel {
    /// What was read too far on either side goes first.
    fn begin(&self, rest: Vec<u8>) {
        if !rest.is_empty() {
            self.client.pass(rest);
        }
        let early = self.client.early();
        if !early.is_empty() {
            self.connection.stream.send(early);
        }
        self.connection.timer.arm(self.timeout);
    }

    async fn run(&self) -> End {
        let mut ended = (false, false);
        poll_fn(|cx| self.poll(cx, &mut ended)).await
    }

    fn poll(&self, cx: &mut Context<'_>, ended: &mut (bool, bool)) -> Poll<End> {
        let (client, server) = (&self.client, &self.connection.stream);
        loop {
            let forth = self.forth(cx, &mut ended.0);
            let back = self.back(cx, &mut ended.1);
            match (forth, back) {
                (Moved::Broken, _) | (_, Moved::Broken) => return Poll::Ready(End::Closed),
                (Moved::Some, _) | (_, Moved::Some) => {}
                _ if ended.0 && server.poll_drained(cx, 0, None).is_ready()
                    || ended.1 && client.poll_room(cx, 0).is_ready() =>
                {
                    return Poll::Ready(End::Closed);
                }
                _ => match self.connection.timer.poll_expired(cx) {
                    Poll::Ready(()) => return Poll::Ready(End::TimedOut),
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }

    /// Moves what the client has to the server, unless that one takes nothing at the moment.
    fn forth(&self, cx: &mut Context<'_>, ended: &mut bool) -> Moved {
        let server = &self.connection.stream;
        if *ended {
            return Moved::Nothing;
        }
        match server.poll_drained(cx, HIGH, None) {
            Poll::Pending => return Moved::Nothing,
            Poll::Ready(Err(_)) => return Moved::Broken,
            Poll::Ready(Ok(())) => {}
        }
        match self.client.poll_bytes(cx) {
            Poll::Pending => Moved::Nothing,
            Poll::Ready(bytes) => self.moved(bytes, ended, |bytes| server.send(bytes)),
        }
    }

    /// The other way.
    fn back(&self, cx: &mut Context<'_>, ended: &mut bool) -> Moved {
        if *ended {
            return Moved::Nothing;
        }
        match self.client.poll_room(cx, HIGH) {
            Poll::Pending => return Moved::Nothing,
            Poll::Ready(false) => return Moved::Broken,
            Poll::Ready(true) => {}
        }
        match self.connection.stream.poll_recv(cx, None) {
            Poll::Pending => Moved::Nothing,
            Poll::Ready(received) => {
                self.moved(Bytes::from(received), ended, |bytes| self.client.pass(bytes))
            }
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
        self.connection.timer.touch(self.timeout);
        give(bytes);
        Moved::Some
    }
}

enum Moved {
    Nothing,
    Some,
    Broken,
}

/// More than this on its way to one side stops the reading of the other.
const HIGH: u64 = 64 * 1024;
