//! A request's way through the servers of an upstream: try after try, until one responds or no other may be asked.

pub(crate) mod carry;
pub(crate) mod choose;
pub(crate) mod connect;
pub(crate) mod fast_path;
pub(crate) mod h2_attempt;
pub(crate) mod known_pass;
pub(crate) mod receive;
pub(crate) mod send;

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_rt::clock;
use weir_trace::{Cause, WaitKind};

use crate::caching::fill::FailureSource;
use crate::config::failure_reason::{AttemptFailure, AttemptFault, FailureReason};
use crate::connection::upstream_connection::UpstreamConnection;
use crate::error_log;
use crate::error_log::{CONNECTING, READING_HEAD, SENDING};
use crate::location::upstream_location::UpstreamLocation;
use crate::peer::balance::TriedPeers;
use crate::protocol::{BodyDecoder, IncomingHead, OutgoingRequest};
use crate::request::attempt_records::AttemptRecords;
use crate::request::attempt_state::{Attempt, PendingAttempt, RequestProgress};
use crate::request::balancer_decision::BalancerDecision;
use crate::request::cache_fetch::CacheFetch;
use crate::request::exchange_part::part;
use crate::request::overrides;
use crate::request::request_body;
use crate::response::headers::HeaderOrigin;
use crate::response::received_head::{ReceivedHead, UpstreamLink};
use crate::response::response_body::UpstreamBody;
use crate::response::{headers, store, tunnel};
use crate::worker_side::local_upstream::{LocalUpstream, PeerLease};
use crate::worker_side::queue_ticket::QueueTicket;
use weir_engine::exchange::Exchange;
use weir_engine::log::LogLevel;
use weir_engine::phase::Verdict;
use weir_engine::worker::UpstreamCloseReason;

impl UpstreamLocation {
    /// Asks a server of `group` for `x`'s response; `fetch`: what the cache has to do with it.
    pub(crate) async fn run(
        self: &Rc<Self>,
        x: &mut Exchange,
        upstream: &Rc<LocalUpstream>,
        fetch: Option<Box<CacheFetch>>,
    ) -> Verdict {
        if let Err(verdict) = request_body::body(x, &self.settings, &*self.protocol).await {
            return verdict;
        }
        match Attempt::begin(self, x, upstream, fetch) {
            Ok(run) => finish_attempt(x, &mut PendingAttempt::new(run, upstream.clone())).await,
            Err(verdict) => verdict,
        }
    }
}

/// Goes on with a request that is as far on its way as it came without waiting.
pub(crate) async fn finish_attempt(x: &mut Exchange, pending: &mut PendingAttempt) -> Verdict {
    let PendingAttempt { run, upstream, tried, lease, connection } = pending;
    let verdict = run.all(x, upstream, tried, lease, connection).await;
    run.end(x);
    verdict
}

impl Attempt {
    /// Composes the request.
    ///
    /// # Errors
    /// The verdict that ends it.
    pub(crate) fn begin(
        up: &Rc<UpstreamLocation>,
        x: &mut Exchange,
        upstream: &Rc<LocalUpstream>,
        fetch: Option<Box<CacheFetch>>,
    ) -> Result<Attempt, Verdict> {
        let mut out = OutgoingRequest { head: part(x).scratch.head(), ..OutgoingRequest::default() };
        up.protocol.request(x, &mut out)?;
        // A value of the request is not known: a pattern was given up. No server gets it.
        if x.refuse_unmatched() {
            return Err(Verdict::Status(500));
        }
        upstream.earn();
        let secure = up.protocol.secure(x);
        Ok(Attempt { secure, fetch, ..Attempt::of(up, x, upstream, out) })
    }

    /// Of a request that was composed as `out`.
    pub(crate) fn of(
        up: &Rc<UpstreamLocation>,
        x: &mut Exchange,
        upstream: &Rc<LocalUpstream>,
        out: OutgoingRequest,
    ) -> Attempt {
        Attempt {
            out,
            secure: None,
            records: AttemptRecords::begin(x, upstream),
            left: request_body::tries(upstream.tries(), up.settings.next_tries),
            decided: BalancerDecision::default(),
            began: weir_rt::now_ms(),
            body_begun: false,
            hints: 0,
            fetch: None,
            asked: RequestProgress::No,
            received: Vec::new(),
            put_back: Default::default(),
            up: up.clone(),
        }
    }

    /// After the last try.
    pub(crate) fn end(&mut self, x: &mut Exchange) {
        part(x).scratch.keep_head(std::mem::take(&mut self.out.head));
    }

    /// A try begins.
    pub(crate) fn start(&self, lease: &PeerLease) {
        self.records.start(&lease.peer, self.scheme(), self.out.uri);
    }

    /// A try has begun at `began`, in milliseconds of the worker's clock.
    pub(crate) fn start_at(&self, began: u64, lease: &PeerLease) {
        self.records.start_at(began, &lease.peer, self.scheme(), self.out.uri);
    }

    /// What precedes addresses in messages.
    fn scheme(&self) -> &'static str {
        if self.secure.is_some() { self.up.protocol.secure_scheme() } else { self.up.protocol.scheme() }
    }

    /// Asks server after server. The first may have been chosen, and asked, before.
    async fn all(
        &mut self,
        x: &mut Exchange,
        upstream: &Rc<LocalUpstream>,
        tried: &mut TriedPeers,
        first: &mut Option<PeerLease>,
        connection: &mut Option<Box<UpstreamConnection>>,
    ) -> Verdict {
        loop {
            let lease = match first.take() {
                Some(lease) => Some(lease),
                None => match self.pick(x, upstream, tried).await {
                    Ok(lease) => lease,
                    Err(AttemptFailure::End(verdict)) => return verdict,
                    Err(AttemptFailure::Next(_)) => None,
                },
            };
            let Some(lease) = lease else { return self.no_peer(x, upstream) };
            let site = lease.site(&self.up.sites);
            if connection.is_none() {
                x.trace().enter(site);
                self.start(&lease);
            }
            let result = self.ask_peer(x, lease, connection).await;
            if let Err(AttemptFailure::Next(fault)) = &result
                && fault.reason.counts()
            {
                x.shared.failed(site, fault.reason.status().into());
            }
            x.trace().leave(site);
            match result {
                Ok(received_head) => {
                    // Boxed: its future is not part of those that have no cache.
                    let received_head = match &self.fetch {
                        None => received_head,
                        Some(_) => match Box::pin(self.unless_still_good(x, received_head)).await {
                            Ok(verdict) => return verdict,
                            Err(received_head) => received_head,
                        },
                    };
                    return match self.answer(x, received_head) {
                        Ok(verdict) => verdict,
                        Err(upgraded) => Box::pin(tunnel::run(x, &self.up, *upgraded, &self.records)).await,
                    };
                }
                Err(AttemptFailure::End(verdict)) => return verdict,
                Err(AttemptFailure::Next(fault)) => {
                    x.log(LogLevel::Debug, &format_args!("http next upstream, {:x}", fault.reason.0));
                    self.decided.failed(fault);
                    if !self.again(x, fault.reason) {
                        x.cause = fault.cause;
                        return self.fails(x, fault.reason);
                    }
                    if !self.afford(upstream) {
                        x.cause = Cause::RetryBudget;
                        return self.fails(x, fault.reason);
                    }
                }
            }
        }
    }

    #[cold]
    fn no_peer(&mut self, x: &mut Exchange, upstream: &LocalUpstream) -> Verdict {
        self.records.nobody(&upstream.upstream.name, self.scheme(), self.out.uri);
        error_log::error(x, &"no live upstreams while connecting to upstream");
        x.cause = Cause::AllPeersDown;
        self.fails(x, FailureReason::NO_LIVE)
    }

    /// A server to ask; where the upstream has a `queue`, one is waited for.
    async fn pick(
        &mut self,
        x: &mut Exchange,
        upstream: &Rc<LocalUpstream>,
        tried: &mut TriedPeers,
    ) -> Result<Option<PeerLease>, AttemptFailure> {
        let lease = self.choose(x, upstream, tried).map_err(AttemptFailure::End)?;
        if lease.is_some() || !tried.is_empty() {
            return Ok(lease);
        }
        if let Some(limit) = upstream.upstream.name_patience()
            && let Some(lease) = Box::pin(self.first_address(x, upstream, tried, limit)).await?
        {
            return Ok(Some(lease));
        }
        Box::pin(self.queue(x, upstream, tried)).await
    }

    /// Waits for the first addresses of the upstream's names: a request that comes right after the start comes before
    /// them. Not longer than a look-up may take, nor than tries may.
    async fn first_address(
        &self,
        x: &mut Exchange,
        upstream: &Rc<LocalUpstream>,
        tried: &mut TriedPeers,
        limit: u64,
    ) -> Result<Option<PeerLease>, AttemptFailure> {
        let limit = match self.up.settings.next_timeout {
            0 => limit,
            tries => limit.min(tries),
        };
        let timer = weir_rt::Timer::new();
        timer.arm(limit);
        loop {
            // In this order: names that are found between two of these lines are seen below, or wake this again.
            let seen = upstream.upstream.changes();
            let awaited = upstream.upstream.awaits_names();
            if let Some(lease) = upstream.pick(x, tried) {
                return Ok(Some(lease));
            }
            if timer.expired() || !awaited {
                return Ok(None);
            }
            let mut changed = pin!(upstream.upstream.clone().changed(seen));
            let next = poll_fn(|cx| match changed.as_mut().poll(cx) {
                Poll::Ready(_) => Poll::Ready(()),
                Poll::Pending => timer.poll_expired(cx),
            });
            self.unless_gone(x, WaitKind::Resolver, next).await?;
        }
    }

    async fn queue(
        &self,
        x: &mut Exchange,
        upstream: &Rc<LocalUpstream>,
        tried: &mut TriedPeers,
    ) -> Result<Option<PeerLease>, AttemptFailure> {
        let Some(waiting) = QueueTicket::join(upstream) else { return Ok(None) };
        while self.unless_gone(x, WaitKind::UpstreamConnect, waiting.turn()).await? {
            if let Some(lease) = upstream.pick(x, tried) {
                return Ok(Some(lease));
            }
        }
        Ok(None)
    }

    /// One attempt, up to its response's head. Statuses that another server may do better than are failures. It may have
    /// begun on a `connection` that was kept alive.
    async fn ask_peer(
        &mut self,
        x: &mut Exchange,
        lease: PeerLease,
        connection: &mut Option<Box<UpstreamConnection>>,
    ) -> Result<ReceivedHead, AttemptFailure> {
        if self.up.protocol.multiplexes() {
            let received_head = Box::pin(self.talk(x, lease)).await?;
            return self.judge(x, received_head);
        }
        let mut lease = lease;
        loop {
            let begun = connection.take();
            let is_begun = begun.is_some();
            let kept = begun.or_else(|| lease.upstream.pool.take(&lease.peer, self.secure.as_ref()));
            let reused = kept.is_some();
            let idle = kept.as_ref().map_or(0, |connection| connection.idle);
            let connection = match kept {
                Some(connection) => connection,
                None => Box::pin(self.connect(x, &mut lease)).await?,
            };
            if !is_begun {
                self.records.connected();
            }
            if let Some(tls) = connection.tls.get() {
                self.records.secured(tls);
            }
            let mut connection = connection;
            if self.up.protocol.opens_tunnels() {
                connection.begin(x.connection.account);
                if let Some(flow) = x.transport.flow().cloned() {
                    return Err(Box::pin(self.carry(x, flow, connection, lease)).await);
                }
                return Ok(self.open_tunnel(x, connection, lease));
            }
            connection.own = self.decided.keep;
            let asked = self.ask(x, &mut connection, &lease).await;
            if let Err(failed) = &asked {
                connection.end.ends(failed.closes_kept(reused && !self.body_begun));
            }
            match asked {
                Ok((incoming, rest)) => {
                    let link = UpstreamLink::Own(connection);
                    return self.judge(x, ReceivedHead { incoming, link, lease, rest });
                }
                Err(AttemptFailure::Next(fault))
                    if fault.reason == FailureReason::ERROR && reused && !self.body_begun =>
                {
                    // The server closed it while the request was on its way: not its fault, and not counted.
                    lease.peer.state.idle.closed_after(idle);
                    if !request_body::may_repeat(x, &self.up.settings) {
                        lease.lost();
                        return Err(AttemptFailure::Next(AttemptFault {
                            cause: Cause::KeepaliveRace,
                            ..fault
                        }));
                    }
                    lease.repeated();
                }
                Err(failed) => {
                    if let AttemptFailure::Next(fault) = failed {
                        lease.fail(x, fault, READING_HEAD);
                    }
                    return Err(failed);
                }
            }
        }
    }

    /// The connection itself is the response.
    fn open_tunnel(
        &mut self,
        x: &Exchange,
        connection: Box<UpstreamConnection>,
        lease: PeerLease,
    ) -> ReceivedHead {
        match x.is_session() {
            true => lease.connected(),
            false => self.records.opened(),
        }
        let incoming = IncomingHead { status: 200, upgraded: true, ..IncomingHead::default() };
        ReceivedHead { incoming, link: UpstreamLink::Own(connection), lease, rest: Vec::new() }
    }

    /// Sends the request and reads the head, with the bytes after it. What it needs is lent to it: what an async
    /// function is given it holds twice, and this is in the future of every request.
    async fn ask(
        &mut self,
        x: &mut Exchange,
        connection: &mut UpstreamConnection,
        lease: &PeerLease,
    ) -> Result<(IncomingHead, Vec<u8>), AttemptFailure> {
        let (asked, mut received) = (std::mem::take(&mut self.asked), std::mem::take(&mut self.received));
        self.hints = 0;
        let mut incoming = IncomingHead { fields: part(x).scratch.fields(), ..IncomingHead::default() };
        let measured = lease.measured().map(|timed| (*timed, clock::monotonic_ns()));
        let sent = if asked == RequestProgress::No {
            connection.begin(x.connection.account);
            self.send(x, connection, &mut received).await
        } else {
            Ok(())
        };
        let result = match sent {
            Ok(()) => self.head(x, connection, asked, &mut received, &mut incoming).await,
            Err(failed) => Err(failed),
        };
        connection.reused = true;
        let (sent, length) = (connection.sent(), received.len() as u64);
        self.records.count(0, sent, length);
        x.trace().bytes(lease.site(&self.up.sites), length, sent);
        match result {
            Ok(len) => {
                if let Some((timed, began)) = measured {
                    lease.peer.state.line.sent(&timed, sent, clock::monotonic_ns().saturating_sub(began));
                }
                self.records.head(incoming.status, &incoming.fields);
                received.drain(..len);
                Ok((incoming, received))
            }
            Err(failed) => {
                if let AttemptFailure::Next(fault) = &failed {
                    self.records.failed(*fault);
                }
                Err(failed)
            }
        }
    }

    /// Whether the response is one that another server shall do better than.
    fn judge(
        &mut self,
        x: &mut Exchange,
        received_head: ReceivedHead,
    ) -> Result<ReceivedHead, AttemptFailure> {
        let Some(reason) = FailureReason::of_status(received_head.incoming.status) else {
            return Ok(received_head);
        };
        if !overrides::allows(x, &self.up.settings, self.mask(x, reason))
            || self.left <= 1
            || !self.in_time()
            || self.body_begun
        {
            return match self.stale(x, reason, FailureSource::Status) {
                Some(verdict) => {
                    self.records.end(None);
                    received_head.link.ends(UpstreamCloseReason::Unwanted);
                    Err(AttemptFailure::End(verdict))
                }
                None => Ok(received_head),
            };
        }
        let mut received_head = received_head;
        let fault = AttemptFault { reason, cause: Cause::UpstreamStatus };
        self.records.failed(fault);
        received_head.lease.fail(x, fault, READING_HEAD);
        received_head.link.ends(UpstreamCloseReason::NextServer);
        Err(AttemptFailure::Next(fault))
    }

    /// Whether another server is asked after `reason`.
    fn again(&mut self, x: &Exchange, reason: FailureReason) -> bool {
        self.left = self.left.saturating_sub(1);
        let allowed = overrides::allows(x, &self.up.settings, self.mask(x, reason));
        self.left > 0 && allowed && self.in_time() && !self.body_begun
    }

    /// Whether the upstream's `retry_budget` has another try for it.
    fn afford(&self, upstream: &LocalUpstream) -> bool {
        let budget = upstream.upstream.retry_budget.as_ref();
        budget.is_none_or(|budget| upstream.purse.spend(budget, weir_rt::now_ms()))
    }

    fn in_time(&self) -> bool {
        let limit = self.up.settings.next_timeout;
        limit == 0 || weir_rt::now_ms().saturating_sub(self.began) < limit
    }

    /// The bits that `*_next_upstream` must all have.
    fn mask(&self, x: &Exchange, reason: FailureReason) -> u32 {
        // A session has been passed to no server that has said something.
        let sent = self.tries_sent() && !x.is_session();
        reason.0 | if sent && !request_body::is_idempotent(x) { FailureReason::NON_IDEMPOTENT.0 } else { 0 }
    }

    /// Whether the request reached a server: a connection was open.
    fn tries_sent(&self) -> bool {
        self.records.was_connected()
    }

    /// Hands the response on; `Err`: it is a tunnel.
    pub(crate) fn answer(
        &mut self,
        x: &mut Exchange,
        mut received_head: ReceivedHead,
    ) -> Result<Verdict, Box<ReceivedHead>> {
        received_head.lease.answered(x);
        let (said, keeps) = (received_head.incoming.keep_alive, self.keeps_connection());
        if !(said && keeps) {
            received_head.expects_close(keeps);
        }
        received_head.incoming.keep_alive = said && keeps;
        let judged =
            self.fetch.as_ref().map(|fetch| fetch.judge(x, &self.up.settings, &received_head.incoming));
        if let Some(verdict) = headers::instead(x, &self.up, &received_head.incoming) {
            if let (Some(fetch), Some(judged), Verdict::Status(status)) = (&self.fetch, &judged, &verdict) {
                fetch.keep_error(judged, *status);
            }
            self.fetch = None;
            self.records.end(None);
            self.give_back(x, received_head);
            return Ok(verdict);
        }
        if received_head.incoming.upgraded {
            self.fetch = None;
            return Err(Box::new(received_head));
        }
        let keeps = judged.as_ref().is_some_and(|judged| judged.keeps);
        // What a cache has to do with may be cut and conditional.
        let memo = received_head.incoming.memo.take().filter(|_| self.fetch.is_none());
        if !memo.is_some_and(|memo| x.recall_head(&memo)) {
            headers::copy(x, &self.up, &received_head.incoming, HeaderOrigin::Server { keeps });
        }
        let keep = match (self.fetch.take(), judged) {
            _ if !headers::buffering(x, &self.up.settings, &received_head.incoming) => None,
            (Some(fetch), Some(judged)) => {
                (*fetch).keep(x, &self.up.settings, &received_head.incoming, &judged)
            }
            _ => store::keep(x, &self.up.settings, &received_head.incoming),
        };
        let unfinished = if self.body_begun_unfinished(x) { Some(self.out.framing) } else { None };
        Ok(UpstreamBody::begin(x, &self.up, received_head, self.records.clone(), keep, unfinished))
    }

    /// Whether the connection may be used again, as far as the request says.
    fn keeps_connection(&self) -> bool {
        self.out.keep_alive && self.up.settings.proxy_protocol.is_none()
    }

    /// Responds with what is cached where the server says that it is still good; `Err`: it has sent another.
    async fn unless_still_good(
        &mut self,
        x: &mut Exchange,
        received_head: ReceivedHead,
    ) -> Result<Verdict, ReceivedHead> {
        let Some(verdict) = self.revalidated(x, &received_head.incoming).await else {
            return Err(received_head);
        };
        self.records.end(None);
        self.give_back(x, received_head);
        Ok(verdict)
    }

    /// The connection of a response that is not used may be used again, where nothing follows the head.
    fn give_back(&self, x: &Exchange, received_head: ReceivedHead) {
        let keep_alive =
            received_head.incoming.keep_alive && self.keeps_connection() && !self.body_begun_unfinished(x);
        let ReceivedHead { incoming, link, lease, rest } = received_head;
        let UpstreamLink::Own(connection) = link else { return };
        if !matches!(incoming.decoder, BodyDecoder::None) || !rest.is_empty() {
            connection.end.ends(UpstreamCloseReason::Unwanted);
        } else if keep_alive {
            lease.upstream.pool.give(&x.worker, &lease.peer, connection);
        } else {
            connection.end.expects(UpstreamCloseReason::RequestUnsent);
        }
    }

    /// The client's body was not sent to its end: unless the rest follows, the connection is of no further use.
    fn body_begun_unfinished(&self, x: &Exchange) -> bool {
        self.body_begun && x.body.is_pending()
    }

    /// Whether the response is wanted though the client has left: it is to be cached, or the configuration says so.
    pub(crate) fn goes_on_alone(&self) -> bool {
        let settings = &self.up.settings;
        settings.ignore_client_abort
            || settings.store.is_some()
            || self.fetch.as_ref().is_some_and(|fetch| fetch.keeps)
    }

    /// Awaits `future`, which is part of the caller's, unless the client leaves before.
    pub(crate) async fn unless_gone<T>(
        &self,
        x: &mut Exchange,
        kind: WaitKind,
        future: impl Future<Output = T>,
    ) -> Result<T, AttemptFailure> {
        let client = if self.goes_on_alone() { None } else { x.transport.client() };
        let shared = x.shared.clone();
        let mut future = pin!(future);
        let watched = |cx: &mut Context<'_>| {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(value));
            }
            match &client {
                Some(client) => client.poll_gone(cx).map(|()| None),
                None => Poll::Pending,
            }
        };
        match shared.waiting_until(kind, watched).await {
            Some(value) => Ok(value),
            None => {
                let doing = if kind == WaitKind::UpstreamConnect { CONNECTING } else { SENDING };
                x.log(LogLevel::Info, &error_log::client_gone(doing));
                x.keep_alive = false;
                x.cause = Cause::ClientClosed;
                self.records.end(Some(499));
                Err(AttemptFailure::End(Verdict::Close(499)))
            }
        }
    }
}
