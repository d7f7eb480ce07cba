//! An HTTP/2 connection: one task that reads frames, responds to what need not wait, and sends for all streams.
//!
//! A stream's request runs on the same engine as one of HTTP/1. It is served at once, between two frames, by plain
//! functions; only where it has to wait does it become a task of its own, which leaves what it has to send with the
//! connection ([`H2Mux`]) and wakes it. So all responses to what one receive brought leave in one write, in the order
//! of their priorities, and a request that does not wait allocates nothing: exchange, stream and slot are used again.
//!
//! * `mod.rs`: the task; * `mux.rs`: what streams and connection share; * `pump.rs`: content that leaves;
//!   * `stream.rs`: a request's end of it;
//!   * `encode.rs`: responses as header sections.

mod request;
pub(crate) mod upgrade;

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use weir_http::h2;
use weir_rt::{LONG_RECEIVE, RecvOutcome, SendError};

use weir_engine::exchange::Exchange;
use weir_engine::log::LogLevel;
use weir_engine::transport::ClientConnection;
use weir_engine::transport::closing;
use weir_engine::transport::h2::H2Mux;
use weir_engine::transport::keepalive;
use weir_engine::transport::wire::ClientWire;
use weir_engine::trim;
use weir_engine::worker::{CloseReason, Worker};

/// Whether `input`, a connection's first bytes, begins an HTTP/2 connection; `None` while that can't be known.
pub(crate) fn begins(input: &[u8]) -> Option<bool> {
    let length = input.len().min(h2::PREFACE.len());
    if input[..length] != h2::PREFACE[..length] {
        return Some(false);
    }
    (length == h2::PREFACE.len()).then_some(true)
}

/// A connection from its preface on.
pub(crate) async fn run(worker: Rc<Worker>, connection: Rc<ClientConnection>, wire: Rc<ClientWire>) {
    let mux = H2Mux::new(&worker, &connection, &wire);
    // What came with the last message of a TLS handshake has its responses together with the settings. Anything else than
    // bytes is there when it is asked for again.
    if wire.stream.has_layer()
        && let Some(RecvOutcome::Data(buf)) = wire.stream.try_recv()
    {
        wire.input.borrow_mut().push(buf);
    }
    serve(&mux, None).await;
}

/// Serves until the connection is over, and sends the rest.
async fn serve(mux: &Rc<H2Mux>, spare: Option<Box<Exchange>>) {
    let wire = &mux.wire;
    let mut spare = spare;
    let _held = request::HeldRequests(mux);
    loop {
        request::turn(mux, &mut spare);
        if mux.gives_way() {
            weir_rt::yield_now().await;
            continue;
        }
        wire.flush();
        if mux.is_over() {
            break;
        }
        // What was composed may be gone already: then nothing else would wake this task for the rest.
        if mux.has_more() && !mux.is_full() {
            // Others have their turn, too.
            weir_rt::yield_now().await;
            continue;
        }
        if mux.streams() == 0 {
            // An idle connection holds none of the exchange's 2.5 KB: its next request takes one of the worker's.
            give_back(mux, &mut spare);
        }
        match wait(mux).await {
            TurnReason::Work => {}
            TurnReason::Received(buf) => wire.input.borrow_mut().push(buf),
            TurnReason::Expired => expired(mux),
            TurnReason::Gone(gone) => {
                left(mux, &gone);
                break;
            }
        }
    }
    give_back(mux, &mut spare);
    mux.end();
    request::scatter(mux);
    finish(mux).await;
}

/// What a connection's task goes on for.
enum TurnReason {
    /// A stream has something to send, or there is room for it.
    Work,
    /// Bytes.
    Received(weir_rt::RecvBuf),
    /// The timer expired.
    Expired,
    /// The client left, or takes nothing.
    Gone(RecvOutcome),
}

/// Waits for bytes, for streams, or, where much is unsent, for the client to take some of it.
async fn wait(mux: &Rc<H2Mux>) -> TurnReason {
    let wire = mux.wire.clone();
    let full = mux.is_full();
    let idle = mux.arm(full);
    if idle {
        mux.worker.counters.waiting.add(1);
    }
    let wake = poll_fn(|cx| {
        if mux.is_woken(cx) {
            return Poll::Ready(TurnReason::Work);
        }
        if full
            && let Poll::Ready(drained) =
                wire.stream.poll_drained(cx, mux.drained_mark(), Some(&wire.timer)).map(drained)
        {
            return Poll::Ready(drained);
        }
        if full && !mux.reads_when_full() {
            // Nothing is read from a client that does not take its responses.
            return Poll::Pending;
        }
        // A full socket's timer is for what it takes.
        let timer = Some(&wire.timer).filter(|_| !full);
        let received = match mux.has_uploads() {
            true => wire.stream.poll_recv_long(cx, timer, LONG_RECEIVE),
            false => wire.stream.poll_recv(cx, timer),
        };
        received.map(|received| match received {
            RecvOutcome::Data(buf) => TurnReason::Received(buf),
            RecvOutcome::TimedOut => TurnReason::Expired,
            gone => TurnReason::Gone(gone),
        })
    })
    .await;
    if idle {
        mux.worker.counters.waiting.sub(1);
        wire.idle.set(false);
    }
    wake
}

/// What a socket that was full has come to.
fn drained(drained: Result<(), SendError>) -> TurnReason {
    match drained {
        Ok(()) => TurnReason::Work,
        Err(SendError::TimedOut) => TurnReason::Gone(RecvOutcome::TimedOut),
        Err(SendError::Closed(errno) | SendError::File(errno)) => TurnReason::Gone(RecvOutcome::Err(errno)),
        Err(SendError::Truncated) => TurnReason::Gone(RecvOutcome::Eof),
    }
}

/// The timer expired: a stream has lingered, the head of a request does not come, the connection was idle for long enough,
/// or it is to end while it is idle.
fn expired(mux: &Rc<H2Mux>) {
    // A head that has begun to come is not late because of that: the next turn's GOAWAY says that nothing was done with it.
    let ends = mux.streams() == 0 && (mux.is_to_end() || mux.connection.is_retired());
    if ends {
        return mux.go_away(closing::while_idle(&mux.connection, &mux.worker, &RecvOutcome::TimedOut));
    }
    if mux.unlinger() || mux.expire_head() || mux.streams() > 0 {
        return;
    }
    if !mux.is_begun() {
        keepalive::gone(&mux.connection, &mux.worker, &mux.wire, &RecvOutcome::TimedOut);
    }
    mux.go_away(closing::while_idle(&mux.connection, &mux.worker, &RecvOutcome::TimedOut));
}

/// The client is gone, or takes nothing.
fn left(mux: &Rc<H2Mux>, gone: &RecvOutcome) {
    mux.wire.broken.set(!matches!(gone, RecvOutcome::Eof));
    if let RecvOutcome::TimedOut = gone {
        // What it would take from now on is not what the log says that it got.
        mux.wire.stream.abort();
    }
    if mux.streams() == 0 {
        keepalive::gone(&mux.connection, &mux.worker, &mux.wire, gone);
        return;
    }
    if let Some(lost) = closing::of_lost_file(&mux.wire) {
        return mux.connection.ends(lost);
    }
    mux.connection.ends(closing::in_the_middle(gone, CloseReason::InResponse, CloseReason::SendTimeout));
    if let RecvOutcome::TimedOut = gone {
        let message = "client timed out (110: Connection timed out) while sending to client";
        mux.connection.log(LogLevel::Info, &message);
    }
}

/// Sends the rest, lets the streams that are still running end, and closes without losing what was sent.
async fn finish(mux: &Rc<H2Mux>) {
    let wire = &mux.wire;
    wire.idle.set(false);
    let core = mux.connection.hosts.borrow().default().plan.core.clone();
    if !wire.broken.get() {
        wire.flush();
        wire.timer.arm(core.send_timeout);
        if wire.stream.drained(0, Some(&wire.timer)).await.is_ok() && !wire.stream.is_eof() {
            linger(wire, core.lingering_timeout.min(core.lingering_time)).await;
        }
    }
    mux.ended().await;
    keepalive::lost_file(&mux.connection, wire);
    trim::trim_later(&mux.worker);
}

/// Ends our direction and reads what still comes: closing over unread bytes would reset the connection, and what was
/// sent last could be lost.
async fn linger(wire: &ClientWire, ms: u64) {
    if wire.stream.shutdown_write().is_err() {
        return;
    }
    wire.timer.arm(ms);
    let mut read = 0;
    while let RecvOutcome::Data(buf) = wire.stream.recv(Some(&wire.timer)).await {
        read += buf.len();
        if read > LINGERING {
            return;
        }
    }
}

/// How much is read of a client that sends on: what was under way fits, and a client that floods is not served in this
/// way, too.
const LINGERING: usize = 1 << 20;

/// Gives the spare exchange to the worker's other requests.
fn give_back(mux: &H2Mux, spare: &mut Option<Box<Exchange>>) {
    if let Some(x) = spare.take() {
        mux.worker.give_exchange(x);
    }
}

/// An exchange for the next request: the last one's, or another of the worker's.
fn exchange(mux: &H2Mux, spare: &mut Option<Box<Exchange>>) -> Box<Exchange> {
    let hosts = mux.connection.hosts.borrow();
    match spare.take() {
        Some(mut x) => {
            x.reset(&mux.connection, hosts.default());
            x
        }
        None => mux.worker.take_exchange(&mux.connection, hosts.default()),
    }
}
