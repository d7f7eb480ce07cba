//! After `101 Switching Protocols`: bytes both ways, until one side has ended and the other took everything.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_rt::{Recv, Stream, Timer};
use weir_trace::WaitKind;

use super::attempt::{Answered, Upstream};
use super::connection::Connection;
use super::headers;
use super::tries::Tries;
use crate::conn::h1::Wire;
use crate::exchange::Exchange;
use crate::output;
use crate::phase::Verdict;

/// Passes the answer's head on, then bytes both ways.
pub(super) async fn run(x: &mut Exchange, up: &Upstream, answered: Answered, tries: &Tries) -> Verdict {
    let Answered { incoming, connection, lease, rest } = answered;
    let Some(wire) = x.transport.h1().cloned() else { return Verdict::Status(502) };
    headers::copy(x, up, &incoming);
    x.keep_alive = false;
    if !output::send_head(x).await {
        return Verdict::Status(500);
    }
    wire.flush();
    let tunnel = Tunnel { wire, connection, timeout: up.settings.read_timeout };
    tunnel.begin(rest);
    let shared = x.shared.clone();
    let end = shared.waiting_for(WaitKind::UpstreamBody, Box::pin(tunnel.run())).await;
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
    wire: Rc<Wire>,
    connection: Connection,
    timeout: u64,
}

impl Tunnel {
    /// What was read too far on either side goes first.
    fn begin(&self, rest: Vec<u8>) {
        if !rest.is_empty() {
            self.wire.pass(rest);
        }
        let early = self.wire.input.borrow_mut().take();
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
        let (client, server) = (&self.wire.stream, &self.connection.stream);
        let timer = &self.connection.timer;
        loop {
            let forth =
                pass(cx, client, &mut ended.0, |bytes| server.send(bytes), server, timer, self.timeout);
            let back =
                pass(cx, server, &mut ended.1, |bytes| self.wire.pass(bytes), client, timer, self.timeout);
            match (forth, back) {
                (Moved::Broken, _) | (_, Moved::Broken) => return Poll::Ready(End::Closed),
                (Moved::Some, _) | (_, Moved::Some) => {}
                _ if ended.0 && client_took(cx, server) || ended.1 && client_took(cx, client) => {
                    return Poll::Ready(End::Closed);
                }
                _ if timer.expired() => return Poll::Ready(End::TimedOut),
                _ => {
                    let mut wait = std::pin::pin!(timer.wait());
                    if wait.as_mut().poll(cx).is_ready() {
                        continue;
                    }
                    return Poll::Pending;
                }
            }
        }
    }
}

enum Moved {
    Nothing,
    Some,
    Broken,
}

/// Moves what `from` has to the other side, unless that one takes nothing at the moment.
fn pass(
    cx: &mut Context<'_>,
    from: &Stream,
    ended: &mut bool,
    give: impl Fn(Vec<u8>),
    to: &Stream,
    timer: &Timer,
    timeout: u64,
) -> Moved {
    if *ended {
        return Moved::Nothing;
    }
    match to.poll_drained(cx, HIGH, None) {
        Poll::Pending => return Moved::Nothing,
        Poll::Ready(Err(_)) => return Moved::Broken,
        Poll::Ready(Ok(())) => {}
    }
    match from.poll_recv(cx, None) {
        Poll::Pending => Moved::Nothing,
        Poll::Ready(Recv::Data(bytes)) => {
            timer.touch(timeout);
            give(bytes.to_vec());
            Moved::Some
        }
        Poll::Ready(Recv::Eof | Recv::TimedOut) => {
            *ended = true;
            Moved::Nothing
        }
        Poll::Ready(Recv::Err(_)) => Moved::Broken,
    }
}

/// Whether the other side of one that has ended took all that came from it.
fn client_took(cx: &mut Context<'_>, to: &Stream) -> bool {
    to.poll_drained(cx, 0, None).is_ready()
}

/// More than this on its way to one side stops the reading of the other.
const HIGH: u64 = 64 * 1024;
