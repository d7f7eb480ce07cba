//! The usual try of a request that was composed before, for another one with the same head: it is sent as it is, and a response
//! whose head came before goes out with the head that it had then.
//!
//! What is unusual is left to [the usual try](crate::attempt::fast_path) and to the future of all others, as if this had not
//! been: [`unfold`] makes of the flight what they know.

use std::rc::Rc;
use std::task::{Context, Poll};

use weir_rt::{RecvBuf, RecvOutcome};
use weir_trace::WaitKind;

use crate::attempt::fast_path;
use crate::config::failure_reason::FailureReason;
use crate::location::upstream_location::UpstreamLocation;
use crate::peer::balance::TriedPeers;
use crate::protocol::{KnownHead, OutgoingRequest, RequestFraming};
use crate::request::attempt_state::{Attempt, PendingAttempt, RequestProgress};
use crate::request::exchange_part::{part, part_if};
use crate::request::known_request::{KnownFlight, KnownRequest};
use crate::worker_side::local_upstream::LocalUpstream;
use weir_engine::body::{BodyBuf, ResponseBody};
use weir_engine::exchange::Exchange;
use weir_engine::phase::{Phase, Verdict};
use weir_engine::worker::UpstreamCloseReason;

impl UpstreamLocation {
    /// A request was sent that was composed for `x`: the next one with the same head need not be, if it follows from that.
    #[cold]
    pub(crate) fn learn(&self, x: &mut Exchange, pending: &PendingAttempt) {
        let PendingAttempt { run, upstream, .. } = pending;
        let usual = run.secure.is_none()
            && run.out.body.is_none()
            && run.out.framing == RequestFraming::None
            && upstream.guided.is_none();
        if usual {
            let basis = self.protocol.basis(x);
            let request = Rc::new(KnownRequest::of(x, &run.out));
            x.is_passed_alike(basis, request);
        }
    }

    /// Sends `request` for `x`, as far as that goes without waiting.
    pub(crate) fn try_known(
        self: &Rc<Self>,
        x: &mut Exchange,
        upstream: Rc<LocalUpstream>,
        request: Rc<KnownRequest>,
    ) -> Verdict {
        upstream.earn();
        let mut tried = TriedPeers::default();
        let lease = upstream.pick(x, &mut tried);
        let connection = lease.as_ref().and_then(|lease| upstream.pool.take(&lease.peer, None));
        let (lease, mut connection) = match (lease, connection) {
            (Some(lease), Some(connection)) => (lease, connection),
            (lease, _) => {
                let out = outgoing(x, &request);
                let run = Attempt::of(self, x, &upstream, out);
                part(x).pending = Some(PendingAttempt { tried, lease, ..PendingAttempt::new(run, upstream) });
                return Verdict::Wait;
            }
        };
        connection.own = None;
        x.trace().enter(lease.site(&self.sites));
        connection.begin(x.connection.account);
        let mut head = connection.stream.spare();
        head.extend_from_slice(&request.head);
        connection.stream.send(head);
        let mut asked = RequestProgress::Queued;
        if connection.stream.backlog() == 0 {
            connection.timer.arm(self.settings.read_timeout);
            asked = RequestProgress::Sent;
        }
        let (up, began) = (self.clone(), weir_rt::now_ms());
        part(x).flight = Some(KnownFlight { up, request, upstream, tried, lease, connection, began, asked });
        Verdict::Wait
    }

    /// Whether the response is wanted though the client has left.
    fn goes_on_alone(&self) -> bool {
        self.settings.ignore_client_abort || self.settings.store.is_some()
    }
}

/// Looks whether the response to `x`, which has a flight, has come. [`Verdict::Wait`]: it needs the future of all others.
pub(crate) fn poll_flight(x: &mut Exchange, cx: &mut Context<'_>) -> Poll<Verdict> {
    let Some(flight) = part_if(x).and_then(|part| part.flight.as_ref()) else {
        return Poll::Ready(Verdict::Wait);
    };
    if flight.asked != RequestProgress::Sent {
        return Poll::Ready(unfold(x));
    }
    match flight.connection.stream.poll_recv(cx, Some(&flight.connection.timer)) {
        Poll::Ready(RecvOutcome::Data(bytes)) => return Poll::Ready(arrived(x, bytes)),
        // It will be found once more.
        Poll::Ready(_) => return Poll::Ready(unfold(x)),
        Poll::Pending => {}
    }
    if !flight.up.goes_on_alone() && x.transport.poll_gone(cx).is_ready() {
        return Poll::Ready(unfold(x));
    }
    x.shared.suspend(WaitKind::UpstreamFirstByte);
    Poll::Pending
}

/// Leaves `x` to the future of all others, as the usual try would.
#[cold]
fn unfold(x: &mut Exchange) -> Verdict {
    let Some(flight) = part(x).flight.take() else { return Verdict::Wait };
    let KnownFlight { up, request, upstream, tried, lease, connection, began, asked } = flight;
    let out = outgoing(x, &request);
    let mut run = Attempt::of(&up, x, &upstream, out);
    (run.began, run.asked) = (began, asked);
    run.start_at(began, &lease);
    run.records.connected_at_once();
    let pending = PendingAttempt::new(run, upstream);
    part(x).pending =
        Some(PendingAttempt { tried, lease: Some(lease), connection: Some(connection), ..pending });
    Verdict::Wait
}

/// `request` as if it had been composed for `x`.
fn outgoing(x: &mut Exchange, request: &KnownRequest) -> OutgoingRequest {
    let head = part(x).scratch.head();
    request.outgoing(x, head)
}

/// Bytes of the response have come.
fn arrived(x: &mut Exchange, bytes: RecvBuf) -> Verdict {
    match recall_head(x, &bytes) {
        Some(head) => responded(x, &head, &bytes),
        None => {
            unfold(x);
            fast_path::arrived(x, bytes)
        }
    }
}

/// The head that `bytes` begin with, if it is known what becomes of it, and the whole body is after it: it is that of `x` then.
fn recall_head(x: &mut Exchange, bytes: &[u8]) -> Option<KnownHead> {
    let up = &part_if(x)?.flight.as_ref()?.up;
    let head = up.protocol.known_head(bytes)?;
    let is_usual = (head.len as u64).saturating_add(head.body) == bytes.len() as u64
        && head.len as u64 <= up.settings.buffer_size
        && FailureReason::of_status(head.status).is_none()
        && up.settings.limit_rate.is_none()
        && up.settings.store.is_none()
        && x.plan.phase(Phase::Log).is_empty();
    (is_usual && x.recall_unseen_head(&head.memo)).then_some(head)
}

/// Makes the response with this head that of `x`.
fn responded(x: &mut Exchange, head: &KnownHead, bytes: &[u8]) -> Verdict {
    let Some(flight) = part(x).flight.take() else { return Verdict::Wait };
    let KnownFlight { up, request, mut lease, mut connection, .. } = flight;
    connection.reused = true;
    let site = lease.site(&up.sites);
    x.trace().bytes(site, bytes.len() as u64, connection.sent());
    x.trace().leave(site);
    lease.answered(x);
    let body = match bytes.get(head.len..) {
        Some(rest @ [_, ..]) => {
            let mut body = connection.stream.spare();
            body.extend_from_slice(rest);
            ResponseBody::Whole(BodyBuf::from(body))
        }
        _ => ResponseBody::Empty,
    };
    if !head.keep_alive {
        connection.end.ends(UpstreamCloseReason::Asked);
    } else if request.keeps_alive() && up.settings.proxy_protocol.is_none() {
        lease.upstream.pool.give(&x.worker, &lease.peer, connection);
    } else {
        connection.end.ends(UpstreamCloseReason::KeepaliveOff);
    }
    x.respond(body)
}
