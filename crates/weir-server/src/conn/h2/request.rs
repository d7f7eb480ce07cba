//! A request on a stream, from its head to the end of its exchange.

use std::rc::Rc;

use weir_http::Version;
use weir_http::h2::{ErrorCode, StreamEnd, StreamKey};

use super::exchange;
use crate::conn::section::{self, ReceivedSection};
use crate::conn::stream_task::StreamTask;
use crate::tls::accepted::TlsJudge;
use weir_engine::engine::ServeWait;
use weir_engine::exchange::Exchange;
use weir_engine::progress::Progress;
use weir_engine::request_head::HeadFailure;
use weir_engine::transport::h2::H2Stream;
use weir_engine::transport::h2::mux::H2Mux;
use weir_engine::transport::{ClientStream, ExchangeOutcome, Transport};
use weir_engine::worker::CloseReason;
use weir_engine::{engine, read};

/// Takes what came, serves what can be served, and composes what may be sent.
pub(super) fn turn(mux: &Rc<H2Mux>, spare: &mut Option<Box<Exchange>>) {
    mux.begin_turn();
    let mut requests = 0;
    while let Some((key, end)) = mux.next_head() {
        serve(mux, spare, key, StreamEnd::last_if(end));
        requests += 1;
        if requests == REQUESTS {
            mux.put_off();
            break;
        }
    }
    mux.compose();
    settle(mux, spare);
    mux.end_turn();
}

/// Serves the request whose head has just come. Where it has to wait it becomes a task.
fn serve(mux: &Rc<H2Mux>, spare: &mut Option<Box<Exchange>>, key: StreamKey, end: StreamEnd) {
    if mux.connection.adopt(&mux.worker) {
        // This request is served by the new servers; the client's others come on a new connection.
        mux.go_away(CloseReason::Reload);
    }
    mux.begin(key, end);
    let mut x = exchange(mux, spare);
    begin(&mut x, mux, key);
    count(&mut x, mux);
    match engine::known::try_repeated::<TlsJudge>(&mut x, end) {
        Some(Progress::Done(())) => {
            over(mux, key, &x);
            *spare = Some(x);
            return;
        }
        Some(Progress::Wait(wait)) => return later(mux, key, x, StreamTask::Serve(wait)),
        None => {}
    }
    let (head, malformed) = read_head(&mut x, mux, end);
    engine::known::recall_section(&mut x);
    if malformed {
        mux.slots.borrow_mut()[key.index()].fault = Some(ErrorCode::Protocol);
    }
    mux.worker.counters.requests.add(1);
    mux.worker.counters.writing.add(1);
    match head {
        Ok(()) => *spare = answer(mux, key, x),
        Err(no_head) => later(mux, key, x, StreamTask::Refuse(no_head)),
    }
}

/// Responds to the request of `x`, whose head was read; gives back the exchange, if it is over. The request is counted
/// as in flight.
pub(super) fn answer(mux: &Rc<H2Mux>, key: StreamKey, mut x: Box<Exchange>) -> Option<Box<Exchange>> {
    read::start(&mut x);
    match engine::try_serve(&mut x) {
        Progress::Done(()) => {
            over(mux, key, &x);
            Some(x)
        }
        Progress::Wait(ServeWait::Unsent) => {
            mux.held.borrow_mut().push((key, x));
            None
        }
        Progress::Wait(wait) => {
            later(mux, key, x, StreamTask::Serve(wait));
            None
        }
    }
}

/// Logs the requests whose responses have been composed. Those for which there was no room stay with the connection until the
/// next turn, and those whose windows are closed, or whose clients have left, become tasks.
fn settle(mux: &Rc<H2Mux>, spare: &mut Option<Box<Exchange>>) {
    if mux.held.borrow().is_empty() {
        return;
    }
    let mut held = std::mem::take(&mut *mux.held.borrow_mut());
    // A task for each, and its memory, is a fifth of what a response of 10 KB costs. A trace ends where the response was handed
    // over, as with HTTP/1: what the connection has left to send is no wait of its own.
    for (key, mut x) in held.extract_if(.., |(key, _)| !mux.h2.borrow().is_ready(*key)) {
        let unsent = mux.h2.borrow().is_pending(key);
        let end = if unsent { Progress::Wait(ServeWait::Unsent) } else { engine::try_end(&mut x) };
        match end {
            Progress::Wait(wait) => later(mux, key, x, StreamTask::Serve(wait)),
            Progress::Done(()) => {
                over(mux, key, &x);
                if let Some(other) = spare.replace(x) {
                    mux.worker.give_exchange(other);
                }
            }
        }
    }
    // Its memory is used again.
    mux.held.replace(held);
}

/// The connection ends: requests that wait for room in it become tasks, which see that and end.
pub(super) fn scatter(mux: &Rc<H2Mux>) {
    for (key, x) in mux.held.take() {
        later(mux, key, x, StreamTask::Serve(ServeWait::Unsent));
    }
}

/// What is done where a connection's task ends otherwise, in a panic: no request stays counted, and nothing in a circle.
pub(super) struct HeldRequests<'m>(pub(super) &'m H2Mux);

impl Drop for HeldRequests<'_> {
    fn drop(&mut self) {
        self.0.held.take().iter().for_each(|(key, x)| over(self.0, *key, x));
    }
}

fn later(mux: &Rc<H2Mux>, key: StreamKey, x: Box<Exchange>, task: StreamTask) {
    let running = RunningStream { mux: mux.clone(), key, x: Some(x) };
    weir_rt::spawn(run(running, task));
}

/// A fresh exchange for a stream.
fn begin(x: &mut Exchange, mux: &Rc<H2Mux>, key: StreamKey) {
    x.start_ms = weir_rt::now_ms();
    x.bytes_before = 0;
    x.transport = Transport::Stream(ClientStream::H2(H2Stream { mux: mux.clone(), key }));
    x.shared.detach();
    let first = mux.wire.idle.replace(false);
    weir_engine::trace::begin(x, first.then(weir_rt::turn_stamp));
}

/// The request from the header section that was read last; also whether it is malformed.
fn read_head(x: &mut Exchange, mux: &H2Mux, end: StreamEnd) -> (Result<(), HeadFailure>, bool) {
    let h2 = mux.h2.borrow();
    let received = ReceivedSection {
        section: h2.section(),
        message: *h2.message(),
        checked: h2.checked().map(|_| ()),
        len: h2.block_len(),
        version: Version::V20,
    };
    section::read(x, &received, end)
}

/// Counts the request, and ends the connection after it where it had as many, or lasted as long, as it may.
fn count(x: &mut Exchange, mux: &H2Mux) {
    if let Some(reason) = section::count(x, &mux.connection) {
        mux.go_away(reason);
    }
}

async fn run(mut running: RunningStream, task: StreamTask) {
    if let Some(x) = &mut running.x {
        task.finish(x).await;
    }
}

/// A request that is a task. Dropping it, also in a panic, gives the exchange back and lets the stream end.
struct RunningStream {
    mux: Rc<H2Mux>,
    key: StreamKey,
    x: Option<Box<Exchange>>,
}

impl Drop for RunningStream {
    fn drop(&mut self) {
        if let Some(x) = self.x.take() {
            over(&self.mux, self.key, &x);
            if !std::thread::panicking() {
                self.mux.worker.give_exchange(x);
            }
            self.mux.wake();
        }
    }
}

fn over(mux: &H2Mux, key: StreamKey, x: &Exchange) {
    mux.worker.counters.writing.sub(1);
    let outcome = if x.is_complete() { ExchangeOutcome::Complete } else { ExchangeOutcome::Broken };
    mux.detach(key, outcome, x.plan.core.send_timeout);
}

/// Requests that are served at a stretch.
const REQUESTS: u32 = 128;
