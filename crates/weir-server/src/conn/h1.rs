//! An HTTP/1 connection: one task, one request after the other, pipelined responses leaving together.
//!
//! While idle the task holds a timer and its socket, no buffer and no exchange (its future is a few hundred bytes).
//! Incoming requests are served by plain functions ([`try_requests`], [`try_request`]) as long as nothing must be waited
//! for; where something must, they name it ([`ConnectionWait`], [`RequestWait`]), and the future [`finish_requests`] is
//! boxed, which waits for it and calls them again.

use std::future::poll_fn;
use std::rc::Rc;

use weir_rt::RecvOutcome;

use super::head;
use super::parked;
use crate::tls::accepted::TlsJudge;
use weir_engine::engine::{PolledWait, ServeWait};
use weir_engine::exchange::Exchange;
use weir_engine::progress::Progress;
use weir_engine::request_head::HeadFailure;
use weir_engine::transport::closing;
use weir_engine::transport::keepalive;
use weir_engine::transport::wire::{ClientWire, HIGH};
use weir_engine::transport::{ClientConnection, Transport};
use weir_engine::worker::{CloseReason, Worker};
use weir_engine::{engine, read, trace};

/// A connection from its first byte, for which it waits `idle` milliseconds, to its last, or until it is parked.
pub(crate) async fn run(
    worker: Rc<Worker>,
    connection: Rc<ClientConnection>,
    mut wire: Rc<ClientWire>,
    mut idle: u64,
) {
    // It could not be parked in this wait.
    let mut stays = false;
    loop {
        wire.idle.set(true);
        wire.idle_since.set(weir_rt::now_ms());
        // Bytes of the first request may have come with a PROXY protocol header.
        let waits = wire.input.borrow().is_empty();
        if waits {
            let until = weir_rt::now_ms().saturating_add(idle);
            let parks = !stays && parked::is_wanted(&worker, &connection, idle);
            let moves = parks && wire.moves.get() && Box::pin(is_sent(&wire, idle)).await;
            let received = if moves || connection.takes_no_more() {
                RecvOutcome::TimedOut
            } else {
                receive(&worker, &wire, if parks { parked::PARK_MS } else { idle }).await
            };
            let parks = parks || wire.moves.get();
            match received {
                RecvOutcome::Data(buf) => wire.input.borrow_mut().push(buf),
                RecvOutcome::TimedOut if parks && !connection.is_retired() && !worker.is_stopping() => {
                    wire.moves.set(false);
                    match Box::pin(parked::park(&worker, &connection, wire, until)).await {
                        Ok(()) => return,
                        Err(ours) => (wire, stays) = (ours, true),
                    }
                    idle = until.saturating_sub(weir_rt::now_ms());
                    continue;
                }
                gone => {
                    keepalive::gone(&connection, &worker, &wire, &gone);
                    break;
                }
            }
        }
        wire.idle.set(false);
        stays = false;
        let mut busy = BusyConnection::new(&worker, &connection);
        let mut progress = try_requests(&mut busy, &wire);
        let kept = loop {
            let wait = match progress {
                Progress::Done(timeout) => {
                    drop(busy);
                    break Some(timeout);
                }
                Progress::Wait(wait) => wait,
            };
            match polled(wait) {
                Ok(mut wait) => {
                    let served = poll_fn(|cx| wait.poll(busy.exchange(), cx)).await;
                    progress = went_on(&mut busy, &wire, served);
                }
                Err(wait) => break Box::pin(finish_requests(busy, &wire, wait)).await,
            }
        };
        let Some(IdleTimeout(timeout)) = kept else { break };
        idle = timeout;
        // A client that waits is of the newest configuration: nothing else keeps the one before.
        connection.adopt(&worker);
        if worker.is_stopping() || connection.is_retired() {
            connection.ends_in_order();
            break;
        }
    }
    drain(&connection, &wire).await;
    keepalive::lost_file(&connection, &wire);
}

/// Waits for the next request's bytes, `time` milliseconds at most.
async fn receive(worker: &Worker, wire: &ClientWire, time: u64) -> RecvOutcome {
    wire.timer.arm(time);
    worker.counters.waiting.add(1);
    let received = wire.stream.recv(Some(&wire.timer)).await;
    worker.counters.waiting.sub(1);
    received
}

/// A stream that is dropped discards what the kernel did not take: the end of a response whose client asks no more, or
/// half-closed. One that takes nothing ends this by the timer, one that is gone at once.
async fn drain(connection: &ClientConnection, wire: &ClientWire) {
    if wire.stream.unsent() == 0 || wire.broken.get() {
        return;
    }
    wire.idle.set(false);
    wire.timer.arm(connection.hosts.borrow().default().plan.core.send_timeout);
    let _ = wire.stream.drained(0, Some(&wire.timer)).await;
}

/// Whether the client takes what was sent within `ms` milliseconds.
async fn is_sent(wire: &ClientWire, ms: u64) -> bool {
    wire.timer.arm(ms);
    wire.stream.drained(0, Some(&wire.timer)).await.is_ok() && wire.stream.unsent() == 0
}

/// How long an idle connection is kept alive, in milliseconds (`keepalive_timeout`).
#[derive(Clone, Copy)]
struct IdleTimeout(u64);

/// What a busy connection waits for.
enum ConnectionWait {
    /// Something in a request.
    Request(RequestWait),
    /// The client, until it took some of the responses; then it is idle, unless there is another request.
    Room(IdleTimeout),
    /// Other tasks: it has had many requests at a stretch.
    Turn,
}

/// What follows a request.
enum AfterRequest {
    /// The next one, for which the exchange is ready.
    Next,
    /// Nothing is left to read.
    Idle(IdleTimeout),
}

/// Serves requests until nothing is left to read, as far as that goes without waiting; the rest is left to
/// [`finish_requests`].
fn try_requests(
    busy: &mut BusyConnection<'_>,
    wire: &Rc<ClientWire>,
) -> Progress<IdleTimeout, ConnectionWait> {
    loop {
        let idle = match try_request(busy.exchange(), wire) {
            Progress::Done(idle) => idle,
            Progress::Wait(request) => return Progress::Wait(ConnectionWait::Request(request)),
        };
        match try_next(busy, wire, idle) {
            Progress::Done(AfterRequest::Next) => {}
            Progress::Done(AfterRequest::Idle(idle)) => return Progress::Done(idle),
            Progress::Wait(wait) => return Progress::Wait(wait),
        }
    }
}

/// `wait` as one that needs no future.
///
/// # Errors
/// It needs one.
#[inline]
fn polled(wait: ConnectionWait) -> Result<PolledWait, ConnectionWait> {
    match wait {
        ConnectionWait::Request(RequestWait::Engine(wait)) => {
            wait.polled().map_err(|wait| ConnectionWait::Request(RequestWait::Engine(wait)))
        }
        wait => Err(wait),
    }
}

/// Goes on where [`PolledWait`] was waited for.
fn went_on(
    busy: &mut BusyConnection<'_>,
    wire: &Rc<ClientWire>,
    served: Progress<(), ServeWait>,
) -> Progress<IdleTimeout, ConnectionWait> {
    let request = match served {
        Progress::Done(()) => try_keep(busy.exchange(), wire),
        Progress::Wait(wait) => Progress::Wait(RequestWait::Engine(wait)),
    };
    match request {
        Progress::Done(idle) => match try_next(busy, wire, idle) {
            Progress::Done(AfterRequest::Next) => try_requests(busy, wire),
            Progress::Done(AfterRequest::Idle(idle)) => Progress::Done(idle),
            Progress::Wait(wait) => Progress::Wait(wait),
        },
        Progress::Wait(wait) => Progress::Wait(ConnectionWait::Request(wait)),
    }
}

/// After a request: sends what was composed where that is due, and goes on to the next one.
fn try_next(
    busy: &mut BusyConnection<'_>,
    wire: &ClientWire,
    idle: IdleTimeout,
) -> Progress<AfterRequest, ConnectionWait> {
    busy.batch += 1;
    if wire.input.borrow().is_empty() {
        wire.flush();
        if wire.stream.unsent() <= HIGH {
            return Progress::Done(AfterRequest::Idle(idle));
        }
        return Progress::Wait(ConnectionWait::Room(idle));
    }
    if wire.pending() > HIGH {
        wire.flush();
        return Progress::Wait(ConnectionWait::Room(idle));
    }
    if busy.batch.is_multiple_of(64) {
        wire.flush();
        return Progress::Wait(ConnectionWait::Turn);
    }
    busy.next();
    Progress::Done(AfterRequest::Next)
}

/// Waits for what [`try_requests`] stopped at, and serves requests until nothing is left to read; `None`: the connection
/// is closed.
async fn finish_requests(
    mut busy: BusyConnection<'_>,
    wire: &Rc<ClientWire>,
    wait: ConnectionWait,
) -> Option<IdleTimeout> {
    let mut wait = wait;
    loop {
        let after = match wait {
            ConnectionWait::Request(request) => {
                let idle = finish_request(busy.exchange(), wire, request).await?;
                try_next(&mut busy, wire, idle)
            }
            ConnectionWait::Room(idle) => {
                Box::pin(wait_room(busy.exchange(), wire)).await?;
                if wire.input.borrow().is_empty() {
                    return Some(idle);
                }
                busy.next();
                Progress::Done(AfterRequest::Next)
            }
            ConnectionWait::Turn => {
                weir_rt::yield_now().await;
                busy.next();
                Progress::Done(AfterRequest::Next)
            }
        };
        let progress = match after {
            Progress::Done(AfterRequest::Next) => try_requests(&mut busy, wire),
            Progress::Done(AfterRequest::Idle(idle)) => return Some(idle),
            Progress::Wait(wait) => Progress::Wait(wait),
        };
        match progress {
            Progress::Done(idle) => return Some(idle),
            Progress::Wait(again) => wait = again,
        }
    }
}

/// A connection's exchange while it is busy. Dropping it gives the exchange back to the worker.
struct BusyConnection<'c> {
    worker: &'c Rc<Worker>,
    connection: &'c Rc<ClientConnection>,
    x: Option<Box<Exchange>>,
    /// Requests served since the connection was idle.
    batch: u32,
}

impl<'c> BusyConnection<'c> {
    fn new(worker: &'c Rc<Worker>, connection: &'c Rc<ClientConnection>) -> BusyConnection<'c> {
        connection.adopt(worker);
        let x = worker.take_exchange(connection, &connection.server());
        BusyConnection { worker, connection, x: Some(x), batch: 0 }
    }

    fn exchange(&mut self) -> &mut Exchange {
        self.x.as_mut().expect("taken only when dropped")
    }

    /// Makes the exchange ready for the next request of the batch.
    fn next(&mut self) {
        self.connection.adopt(self.worker);
        let Some(x) = &mut self.x else { return };
        x.reset(self.connection, &self.connection.server());
        x.pipelined = true;
    }
}

impl Drop for BusyConnection<'_> {
    fn drop(&mut self) {
        if let Some(x) = self.x.take() {
            self.worker.give_exchange(x);
        }
    }
}

/// Waits until the client took some of what was sent to it; `None`: it is gone or too slow.
async fn wait_room(x: &Exchange, wire: &ClientWire) -> Option<()> {
    wire.timer.arm(x.server.plan.core.send_timeout);
    let drained = wire.stream.drained(HIGH / 2, Some(&wire.timer)).await;
    drained
        .inspect_err(|error| {
            wire.broken.set(true);
            x.connection.ends(closing::while_sending(*error));
        })
        .ok()
}

/// What a request waits for.
enum RequestWait {
    /// The rest of its head.
    Head,
    /// The response to a head that is no good.
    HeadFailure(HeadFailure),
    /// It asks for HTTP/2, with these settings.
    Upgrade(Vec<u8>),
    /// What the engine waits for.
    Engine(ServeWait),
    /// It is over, and its body is not read or its connection not kept alive.
    Ending,
}

/// One request, as far as that goes without waiting; how long its connection is kept alive. The rest is left to
/// [`finish_request`].
fn try_request(x: &mut Exchange, wire: &Rc<ClientWire>) -> Progress<IdleTimeout, RequestWait> {
    begin(x, wire);
    match engine::known::try_at_sight::<TlsJudge>(x, wire) {
        Some(Progress::Done(())) => return try_keep(x, wire),
        Some(Progress::Wait(wait)) => return Progress::Wait(RequestWait::Engine(wait)),
        None => {}
    }
    match head::try_request_head(x, wire) {
        Progress::Done(head) => try_serve(x, wire, head),
        Progress::Wait(()) => Progress::Wait(RequestWait::Head),
    }
}

/// [`try_request`] once its head was read.
fn try_serve(
    x: &mut Exchange,
    wire: &ClientWire,
    head: Result<(), HeadFailure>,
) -> Progress<IdleTimeout, RequestWait> {
    x.nth = x.connection.requests.get() + 1;
    x.connection.requests.set(x.nth);
    if let Err(no_head) = head {
        return Progress::Wait(RequestWait::HeadFailure(no_head));
    }
    x.worker.counters.requests.add(1);
    x.worker.counters.writing.add(1);
    if x.request.head.connection.upgrade
        && let Some(settings) = crate::conn::h2::upgrade::wanted(x)
    {
        return Progress::Wait(RequestWait::Upgrade(settings));
    }
    read::start(x);
    match engine::try_serve(x) {
        Progress::Done(()) => try_keep(x, wire),
        Progress::Wait(wait) => Progress::Wait(RequestWait::Engine(wait)),
    }
}

/// After the response to a request that had a head: whether its connection is kept alive.
fn try_keep(x: &Exchange, wire: &ClientWire) -> Progress<IdleTimeout, RequestWait> {
    x.worker.counters.writing.sub(1);
    settle(x, wire);
    if x.keep_alive && !x.body.is_pending() {
        return Progress::Done(IdleTimeout(x.plan.core.keepalive_timeout));
    }
    Progress::Wait(RequestWait::Ending)
}

/// Waits for what [`try_request`] stopped at, and does the rest. `None`: the connection is closed (what was sent is still
/// delivered).
async fn finish_request(x: &mut Exchange, wire: &Rc<ClientWire>, wait: RequestWait) -> Option<IdleTimeout> {
    let mut wait = wait;
    // After wrong framing the rest of the body can't be distinguished from anything else.
    let mut unread = false;
    loop {
        let progress = match wait {
            RequestWait::Head => {
                let head = Box::pin(head::finish_request_head(x, wire)).await;
                try_serve(x, wire, head)
            }
            RequestWait::HeadFailure(no_head) => {
                Box::pin(without_head(x, no_head)).await?;
                settle(x, wire);
                unread = true;
                Progress::Wait(RequestWait::Ending)
            }
            RequestWait::Upgrade(settings) => {
                if let Err(status) = Box::pin(crate::conn::h2::upgrade::read_body(x)).await {
                    Box::pin(without_body(x, status)).await;
                    settle(x, wire);
                    unread = true;
                    wait = RequestWait::Ending;
                    continue;
                }
                Box::pin(crate::conn::h2::upgrade::serve(x, wire, &settings)).await;
                return None;
            }
            RequestWait::Engine(wait) => {
                engine::finish_serve(x, wait).await;
                try_keep(x, wire)
            }
            RequestWait::Ending => {
                if x.keep_alive && (!x.body.is_pending() || Box::pin(read::rest(x, wire)).await) {
                    return Some(IdleTimeout(x.plan.core.keepalive_timeout));
                }
                closing::after_request(x, wire);
                Box::pin(super::linger::close(x, wire, unread || x.body.is_broken())).await;
                return None;
            }
        };
        match progress {
            Progress::Done(idle) => return Some(idle),
            Progress::Wait(again) => wait = again,
        }
    }
}

/// What the location's rarer settings want of the connection from here on.
#[inline]
fn settle(x: &Exchange, wire: &ClientWire) {
    let core = &x.plan.core;
    if core.keepalive_min_timeout > 0 {
        wire.kept_until.set(weir_rt::now_ms() + core.keepalive_min_timeout);
    }
    if !core.tcp_nodelay && !wire.delays.replace(true) {
        // Listeners hand TCP_NODELAY down to every connection. One that is gone already needs no delay either.
        let _ = weir_rt::net::nodelay(wire.stream.fd(), false);
    }
}

/// A request whose head is no good, or did not come. `None`: closed without a response.
async fn without_head(x: &mut Exchange, no_head: HeadFailure) -> Option<()> {
    if matches!(no_head, HeadFailure::Nothing) {
        return None;
    }
    x.worker.counters.requests.add(1);
    match no_head {
        HeadFailure::Refuse(status) => {
            if status >= 400 {
                x.connection.ends(CloseReason::BadRequest);
            }
            engine::refuse(x, status).await;
            Some(())
        }
        HeadFailure::Silent(status) => {
            engine::close(x, status).await;
            x.worker.logs.written().await;
            None
        }
        HeadFailure::Nothing => None,
    }
}

/// Responds to a request that was to change to HTTP/2 and whose body could not be read.
async fn without_body(x: &mut Exchange, status: u16) {
    x.worker.counters.writing.sub(1);
    x.keep_alive = false;
    if x.body.is_gone() { engine::close(x, status).await } else { engine::refuse(x, status).await }
}

/// A fresh exchange for this connection.
fn begin(x: &mut Exchange, wire: &Rc<ClientWire>) {
    x.start_ms = weir_rt::now_ms();
    x.bytes_before = wire.written();
    match &x.transport {
        Transport::H1(old) if Rc::ptr_eq(old, wire) => {}
        _ => {
            x.transport = Transport::H1(wire.clone());
            x.shared.detach();
        }
    }
    // A request that came while its connection was idle has been ready since the loop woke.
    let ready = if x.pipelined { None } else { Some(weir_rt::turn_stamp()) };
    trace::begin(x, ready);
}

#[cfg(test)]
mod tests {
    use weir_rt::Stream;

    use super::*;
    use weir_engine::testing;

    #[test]
    fn an_idle_connection_s_task_is_small_and_a_busy_one_fits_the_allocator_s_fast_bins() {
        testing::run("server { }", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", async |x| {
            let (ours, _theirs) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
            let wire = Rc::new(ClientWire::new(Stream::from_fd(ours.into()).expect("a socket")));
            let (worker, connection) = (x.worker.clone(), x.connection.clone());
            let wait = ConnectionWait::Request(RequestWait::Head);
            let busy = finish_requests(BusyConnection::new(&worker, &connection), &wire, wait);
            // glibc keeps blocks of up to 1,032 bytes in a list of the thread's own.
            assert!(size_of_val(&busy) <= 1032, "{} bytes", size_of_val(&busy));
            drop(busy);
            let idle = run(worker, connection, wire, 1000);
            assert!(size_of_val(&idle) <= 512, "{} bytes", size_of_val(&idle));
        });
    }
}
