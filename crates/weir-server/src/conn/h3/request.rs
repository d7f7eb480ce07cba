//! A request on a stream, from its head to the end of its exchange.

use std::rc::Rc;

use weir_http::h3::H3ErrorCode;
use weir_http::message::StreamEnd;

use super::H3Session;
use crate::conn::section::{self, ReceivedSection};
use crate::conn::stream_task::StreamTask;
use weir_engine::engine::ServeWait;
use weir_engine::exchange::Exchange;
use weir_engine::progress::Progress;
use weir_engine::transport::h3::{H3Mux, H3Stream};
use weir_engine::transport::{ClientStream, ExchangeOutcome, Transport};
use weir_engine::worker::CloseReason;
use weir_engine::{engine, read};
use weir_http::Version;

impl H3Session {
    /// Serves the request whose head has just come. Where it has to wait it becomes a task.
    pub(super) fn serve(&mut self, id: u64, end: StreamEnd) {
        let mux = self.mux.clone();
        // After a reload requests are the new servers'. Where the address has none the client is notified.
        mux.connection.adopt(&mux.worker);
        if mux.connection.is_retired() {
            self.go_away(CloseReason::Reload);
        }
        let at = mux.begin(id, end);
        let mut x = self.exchange();
        begin(&mut x, &mux, at);
        self.count(&mut x);
        let (head, malformed) = {
            let h3 = mux.h3.borrow();
            let received = ReceivedSection {
                section: h3.section(),
                message: *h3.message(),
                checked: h3.checked(),
                len: h3.block_len(),
                version: Version::V30,
            };
            section::read(&mut x, &received, end)
        };
        if malformed {
            mux.blame(at, H3ErrorCode::Message);
        }
        mux.worker.counters.requests.add(1);
        mux.worker.counters.writing.add(1);
        match head {
            Ok(()) => self.respond(at, x),
            Err(no_head) => later(&mux, at, x, StreamTask::Refuse(no_head)),
        }
    }

    /// Responds to the request of `x`, whose head was read.
    fn respond(&mut self, at: usize, mut x: Box<Exchange>) {
        read::start(&mut x);
        match engine::try_serve(&mut x) {
            Progress::Done(()) => {
                over(&self.mux, at, &x);
                self.keep(x);
            }
            Progress::Wait(ServeWait::Unsent) => self.held.push((at, x)),
            Progress::Wait(wait) => later(&self.mux, at, x, StreamTask::Serve(wait)),
        }
    }

    /// Logs the requests whose responses QUIC has taken. Those for which there was no room become tasks.
    pub(super) fn settle(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        for (at, mut x) in held.drain(..) {
            let unsent = x.transport.stream().is_some_and(ClientStream::is_unsent);
            let end = if unsent { Progress::Wait(ServeWait::Unsent) } else { engine::try_end(&mut x) };
            match end {
                Progress::Wait(wait) => later(&self.mux, at, x, StreamTask::Serve(wait)),
                Progress::Done(()) => {
                    over(&self.mux, at, &x);
                    self.keep(x);
                }
            }
        }
        // Its memory is used again.
        self.held = held;
    }

    /// The connection ends: requests that wait for room in it become tasks, which see that and end.
    pub(super) fn scatter(&mut self) {
        for (at, x) in self.held.drain(..) {
            later(&self.mux, at, x, StreamTask::Serve(ServeWait::Unsent));
        }
    }

    /// An exchange for the next request: the last one's, or another of the worker's.
    fn exchange(&mut self) -> Box<Exchange> {
        let hosts = self.mux.connection.hosts.borrow();
        match self.spare.take() {
            Some(mut x) => {
                x.reset(&self.mux.connection, hosts.default());
                x
            }
            None => self.mux.worker.take_exchange(&self.mux.connection, hosts.default()),
        }
    }

    fn keep(&mut self, x: Box<Exchange>) {
        if let Some(other) = self.spare.replace(x) {
            self.mux.worker.give_exchange(other);
        }
    }

    /// Counts the request, and ends the connection after it where it had as many, or lasted as long, as it may.
    fn count(&mut self, x: &mut Exchange) {
        if let Some(reason) = section::count(x, &self.mux.connection) {
            self.go_away(reason);
        }
    }
}

/// A fresh exchange for a stream.
fn begin(x: &mut Exchange, mux: &Rc<H3Mux>, at: usize) {
    x.start_ms = weir_rt::now_ms();
    x.bytes_before = 0;
    x.transport = Transport::Stream(ClientStream::H3(H3Stream { mux: mux.clone(), at }));
    x.shared.detach();
    weir_engine::trace::begin(x, None);
}

fn later(mux: &Rc<H3Mux>, at: usize, x: Box<Exchange>, task: StreamTask) {
    let running = RunningRequest { mux: mux.clone(), at, x: Some(x) };
    weir_rt::spawn(run(running, task));
}

async fn run(mut running: RunningRequest, task: StreamTask) {
    if let Some(x) = &mut running.x {
        task.finish(x).await;
    }
}

/// A request that is a task. Dropping it, also in a panic, gives the exchange back and lets the stream end.
struct RunningRequest {
    mux: Rc<H3Mux>,
    at: usize,
    x: Option<Box<Exchange>>,
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        if let Some(x) = self.x.take() {
            over(&self.mux, self.at, &x);
            if !std::thread::panicking() {
                self.mux.worker.give_exchange(x);
            }
        }
    }
}

fn over(mux: &H3Mux, at: usize, x: &Exchange) {
    mux.worker.counters.writing.sub(1);
    let outcome = if x.is_complete() { ExchangeOutcome::Complete } else { ExchangeOutcome::Broken };
    mux.detach(at, outcome, x.plan.core.send_timeout);
}
