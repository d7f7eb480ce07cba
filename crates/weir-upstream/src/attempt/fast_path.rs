//! The usual try, without a future: a request without a body, sent whole on a connection kept alive, with a response
//! from a head that comes in one piece.
//!
//! [`UpstreamLocation::try_attempt`] does all that needs no waiting when the handler is asked, [`poll_attempt`] looks
//! whether the response is there. What is in any way unusual (a connection to be made, a body to be sent, a response
//! that another server may do better than, an end, a failure) is left as it lies to the future of all others
//! ([`finish_attempt`](crate::attempt::finish_attempt)), which finds the same things once more: so there is one place
//! for each of them, and none of them costs the usual try anything.

use std::rc::Rc;
use std::task::{Context, Poll};

use weir_rt::{RecvBuf, RecvOutcome};
use weir_trace::WaitKind;

use crate::attempt::known_pass;
use crate::config::failure_reason::FailureReason;
use crate::connection::upstream_connection::UpstreamConnection;
use crate::location::upstream_location::UpstreamLocation;
use crate::peer::balance::TriedPeers;
use crate::protocol::{HeadProgress, IncomingHead, RequestFraming};
use crate::request::attempt_state::{Attempt, PendingAttempt, RequestProgress};
use crate::request::exchange_part::{part, part_if};
use crate::request::request_body;
use crate::response::headers;
use crate::response::received_head::{ReceivedHead, UpstreamLink};
use crate::worker_side::local_upstream::{LocalUpstream, PeerLease};
use weir_engine::exchange::Exchange;
use weir_engine::phase::Verdict;
use weir_engine::progress::Progress;

impl UpstreamLocation {
    /// Whether `x` may be sent without waiting for its body: [`UpstreamLocation::try_attempt`] is for such.
    pub(crate) fn begins_at_once(&self, x: &Exchange) -> bool {
        self.protocol.is_plain() && !request_body::is_awaited(x, &self.settings, &*self.protocol)
    }

    /// Sends `x` to a server of `upstream`, as far as that goes without waiting; it is done only where the request can't be
    /// composed. The rest is left to [`poll_attempt`] and, where its flight is stored with `x`, to
    /// [`finish_attempt`](crate::attempt::finish_attempt). `fixed`: all requests of the location go there, with the same URI.
    pub(crate) fn try_attempt(
        self: &Rc<Self>,
        x: &mut Exchange,
        upstream: Rc<LocalUpstream>,
        fixed: bool,
    ) -> Progress<Verdict, ()> {
        let mut pending = match Attempt::begin(self, x, &upstream, None) {
            Ok(run) => PendingAttempt::new(run, upstream),
            Err(verdict) => return Progress::Done(verdict),
        };
        let out = &pending.run.out;
        if out.body.is_none()
            && out.framing == RequestFraming::None
            && pending.run.secure.is_none()
            && let Err(verdict) = pending.ask(x)
        {
            pending.run.end(x);
            return Progress::Done(verdict);
        }
        if fixed && x.is_pass_wanted() && pending.connection.is_some() {
            self.learn(x, &pending);
        }
        part(x).pending = Some(pending);
        Progress::Wait(())
    }
}

impl PendingAttempt {
    /// Of a request that no server has been chosen for.
    pub(crate) fn new(run: Attempt, upstream: Rc<LocalUpstream>) -> PendingAttempt {
        PendingAttempt { run, upstream, tried: TriedPeers::default(), lease: None, connection: None }
    }

    /// Sends the request to the next server, if there is a connection for it.
    ///
    /// # Errors
    /// The verdict that ends the request.
    fn ask(&mut self, x: &mut Exchange) -> Result<(), Verdict> {
        let run = &mut self.run;
        let Some(lease) = run.choose(x, &self.upstream, &mut self.tried)? else {
            run.decided.nobody = self.upstream.guided.is_some();
            return Ok(());
        };
        let lease = self.lease.insert(lease);
        // A chooser may have had the request composed again.
        if lease.measured().is_some() || run.out.body.is_some() || run.out.framing != RequestFraming::None {
            return Ok(());
        }
        let Some(connection) = self.upstream.pool.take(&lease.peer, None) else { return Ok(()) };
        let connection = self.connection.insert(connection);
        connection.own = run.decided.keep;
        x.trace().enter(lease.site(&run.up.sites));
        run.start(lease);
        run.records.connected();
        connection.begin(x.connection.account);
        let mut head = connection.stream.spare();
        head.extend_from_slice(&run.out.head);
        connection.stream.send(head);
        run.asked = RequestProgress::Queued;
        if connection.stream.backlog() == 0 {
            connection.timer.arm(run.up.settings.read_timeout);
            run.asked = RequestProgress::Sent;
        }
        Ok(())
    }
}

/// Looks whether the response to `x` has come. [`Verdict::Wait`]: it needs the future of all others.
pub(crate) fn poll_attempt(x: &mut Exchange, cx: &mut Context<'_>) -> Poll<Verdict> {
    let Some(PendingAttempt { run, connection: Some(connection), .. }) =
        part_if(x).and_then(|part| part.pending.as_ref())
    else {
        return known_pass::poll_flight(x, cx);
    };
    if run.asked != RequestProgress::Sent {
        return Poll::Ready(Verdict::Wait);
    }
    match connection.stream.poll_recv(cx, Some(&connection.timer)) {
        Poll::Ready(RecvOutcome::Data(bytes)) => return Poll::Ready(arrived(x, bytes)),
        // It will be found once more.
        Poll::Ready(_) => return Poll::Ready(Verdict::Wait),
        Poll::Pending => {}
    }
    if !run.goes_on_alone() && x.transport.poll_gone(cx).is_ready() {
        return Poll::Ready(Verdict::Wait);
    }
    x.shared.suspend(WaitKind::UpstreamFirstByte);
    Poll::Pending
}

/// Bytes of the response have come.
pub(crate) fn arrived(x: &mut Exchange, bytes: RecvBuf) -> Verdict {
    let own = part(x);
    let Some(mut pending) = own.pending.take() else { return Verdict::Wait };
    let mut incoming = IncomingHead { fields: own.scratch.fields(), ..IncomingHead::default() };
    let head = pending.run.up.protocol.head(x, &bytes, &mut incoming);
    match (head, pending.lease.take(), pending.connection.take()) {
        (Ok(HeadProgress::Complete(len)), Some(lease), Some(connection))
            if is_usual(x, &pending.run, len, &incoming) =>
        {
            responded(x, pending.run, lease, connection, incoming, &bytes, len)
        }
        (_, lease, connection) => {
            pending.run.received = bytes.into_vec();
            pending.lease = lease;
            pending.connection = connection;
            let own = part(x);
            own.scratch.keep_fields(incoming.fields);
            own.pending = Some(pending);
            Verdict::Wait
        }
    }
}

/// Whether nothing but the response comes of a head of `len` bytes.
fn is_usual(x: &Exchange, run: &Attempt, len: usize, incoming: &IncomingHead) -> bool {
    len as u64 <= run.up.settings.buffer_size
        && !incoming.upgraded
        && FailureReason::of_status(incoming.status).is_none()
        && headers::refused(x, incoming).is_none()
}

/// Makes the response that of `x`; of `bytes` the first `head_len` were its head.
fn responded(
    x: &mut Exchange,
    mut run: Attempt,
    lease: PeerLease,
    mut connection: Box<UpstreamConnection>,
    incoming: IncomingHead,
    bytes: &[u8],
    head_len: usize,
) -> Verdict {
    connection.reused = true;
    let site = lease.site(&run.up.sites);
    let (sent, received) = (connection.sent(), bytes.len() as u64);
    run.records.count(0, sent, received);
    x.trace().bytes(site, received, sent);
    run.records.head(incoming.status, &incoming.fields);
    x.trace().leave(site);
    let mut rest = Vec::new();
    if let Some(body @ [_, ..]) = bytes.get(head_len..) {
        rest = connection.stream.spare();
        rest.extend_from_slice(body);
    }
    let verdict =
        match run.answer(x, ReceivedHead { incoming, link: UpstreamLink::Own(connection), lease, rest }) {
            Ok(verdict) => verdict,
            // Only what is upgraded, which is not usual.
            Err(_) => Verdict::Status(502),
        };
    run.end(x);
    verdict
}
