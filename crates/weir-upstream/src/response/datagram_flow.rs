//! The datagrams of a session over UDP: each of the client to the server as one, and each of the server back.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_rt::datagrams::{self, BATCH, DatagramBatch};
use weir_rt::{Stream, Timer};

use crate::protocol::SessionManners;
use crate::request::attempt_records::AttemptRecords;
use weir_engine::exchange::SessionBytes;
use weir_engine::transport::flow::ClientFlow;

/// A session with one server.
pub(crate) struct DatagramFlow<'a> {
    pub(crate) client: &'a ClientFlow,
    pub(crate) bytes: Rc<SessionBytes>,
    pub(crate) records: &'a AttemptRecords,
    pub(crate) server: &'a Stream,
    pub(crate) timer: &'a Timer,
    /// `proxy_timeout`, in milliseconds.
    pub(crate) timeout: u64,
    pub(crate) manners: SessionManners,
    /// Precedes the first datagram: a PROXY protocol header.
    pub(crate) prefix: RefCell<Vec<u8>>,
    pub(crate) counts: DatagramCounts,
    pub(crate) paces: [DatagramPace; 2],
    /// What was sent to the server and may have to be sent to another: nothing has come back yet.
    pub(crate) unanswered: RefCell<VecDeque<Vec<u8>>>,
    /// Empty between two calls.
    pub(crate) taken: RefCell<Vec<Vec<u8>>>,
}

/// How many datagrams have passed.
#[derive(Default)]
pub(crate) struct DatagramCounts {
    /// Of the client.
    pub(crate) asked: Cell<u64>,
    /// Of the server.
    pub(crate) received: Cell<u64>,
    /// One more than all that had passed when the last moment of the session began; 0: it has not.
    at_last: Cell<u64>,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowEvent {
    /// The first datagram of the server was passed on; the session goes on.
    Responded,
    /// All datagrams that were expected have passed.
    Done,
    /// Nothing has passed for too long. `owed`: the server has not sent what was expected.
    Silent { owed: bool },
    /// The server can't be reached: the call that said so, and its errno.
    Unreachable(&'static str, i32),
    /// The client's flow was ended from outside, or no more is read of it and nothing is on its way.
    Ended,
}

impl DatagramFlow<'_> {
    /// Passes datagrams until something has happened.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<FlowEvent> {
        loop {
            let (forth, back) = match (self.forth(cx), self.back(cx)) {
                (Err(event), _) | (_, Err(event)) => return Poll::Ready(event),
                (Ok(forth), Ok(back)) => (forth, back),
            };
            if back == DatagramMoved::First {
                return Poll::Ready(FlowEvent::Responded);
            }
            if self.is_done() {
                return Poll::Ready(FlowEvent::Done);
            }
            if (forth, back) == (DatagramMoved::Nothing, DatagramMoved::Nothing) {
                break;
            }
        }
        if self.client.is_finishing() && self.timer.is_armed() {
            self.hurry();
        }
        self.timer.poll_expired(cx).map(|()| match self.is_owed() {
            false if self.client.is_finishing() => FlowEvent::Ended,
            owed => FlowEvent::Silent { owed },
        })
    }

    /// The datagrams of the client that wait.
    fn forth(&self, cx: &mut Context<'_>) -> Result<DatagramMoved, FlowEvent> {
        let (mut moved, mut taken) = (DatagramMoved::Nothing, self.taken.borrow_mut());
        while !self.takes_no_more() && self.paces[0].poll_room(cx).is_ready() {
            match self.client.poll_datagrams(cx, self.most_at_once(), &mut taken) {
                Poll::Pending => return Ok(moved),
                Poll::Ready(false) => return Err(FlowEvent::Ended),
                Poll::Ready(true) => self.ask(&mut taken)?,
            }
            moved = DatagramMoved::Some;
            if self.takes_no_more() {
                self.client.unbind();
            }
        }
        // One that takes no more is ended from outside as others are.
        if self.takes_no_more() && self.client.poll_gone(cx).is_ready() {
            return Err(FlowEvent::Ended);
        }
        Ok(moved)
    }

    /// How many datagrams may be sent to the server together.
    fn most_at_once(&self) -> usize {
        let alone = self.manners.upload_rate > 0 || !self.prefix.borrow().is_empty();
        let left = match self.manners.requests {
            0 => u64::MAX,
            all => all - self.counts.asked.get(),
        };
        if alone { 1 } else { usize::try_from(left).unwrap_or(BATCH).min(BATCH) }
    }

    fn takes_no_more(&self) -> bool {
        self.manners.requests > 0 && self.counts.asked.get() >= self.manners.requests
    }

    /// Sends datagrams to the server; none are left of them.
    fn ask(&self, taken: &mut Vec<Vec<u8>>) -> Result<(), FlowEvent> {
        let len = taken.iter().map(|bytes| bytes.len() as u64).sum();
        self.counts.asked.set(self.counts.asked.get() + taken.len() as u64);
        self.bytes.from_client.set(self.bytes.from_client.get() + len);
        self.paces[0].took(len);
        self.timer.touch(self.timeout);
        let prefix = self.prefix.take();
        let fd = self.server.fd();
        let sent = match prefix.is_empty() {
            true => datagrams::send(fd, None, taken.iter().map(|bytes| &bytes[..])),
            false => datagrams::send(fd, None, std::iter::once(&[&prefix[..], &taken[0]].concat()[..])),
        };
        self.bytes.to_server.set(self.bytes.to_server.get() + sent.bytes as u64);
        let is_new = self.counts.received.get() == 0;
        taken.drain(..).filter(|_| is_new).for_each(|bytes| self.retain(bytes));
        match sent.errno {
            0 => Ok(()),
            errno if LOST.contains(&errno) => {
                self.client.dropped(sent.dropped);
                Ok(())
            }
            errno => Err(FlowEvent::Unreachable("sendmmsg()", errno)),
        }
    }

    /// For another server, where this one turns out not to be there.
    fn retain(&self, bytes: Vec<u8>) {
        let mut unanswered = self.unanswered.borrow_mut();
        if unanswered.len() == MOST_RETAINED {
            unanswered.pop_front();
        }
        unanswered.push_back(bytes);
    }

    /// The datagrams of the server.
    fn back(&self, cx: &mut Context<'_>) -> Result<DatagramMoved, FlowEvent> {
        if self.paces[1].poll_room(cx).is_pending() {
            return Ok(DatagramMoved::Nothing);
        }
        let most = if self.manners.download_rate > 0 { 1 } else { BATCH };
        match self.server.poll_datagrams(cx, most, |batch| self.pass(batch)) {
            Poll::Pending => Ok(DatagramMoved::Nothing),
            Poll::Ready(Ok(moved)) => Ok(moved),
            Poll::Ready(Err(error)) => {
                Err(FlowEvent::Unreachable("recv()", error.raw_os_error().unwrap_or(0)))
            }
        }
    }

    fn pass(&self, batch: &DatagramBatch) -> DatagramMoved {
        if batch.is_empty() {
            return DatagramMoved::Some;
        }
        let (before, len) = (self.counts.received.get(), batch.total() as u64);
        if before == 0 {
            self.records.first_byte();
            self.unanswered.take();
        }
        self.counts.received.set(before + batch.len() as u64);
        self.bytes.from_server.set(self.bytes.from_server.get() + len);
        self.paces[1].took(len);
        self.timer.touch(self.timeout);
        self.client.send(batch.iter().map(|datagram| datagram.bytes));
        if before == 0 { DatagramMoved::First } else { DatagramMoved::Some }
    }

    /// Whether nothing more is expected: as many datagrams have come of the client as are a session, if that is known, and as many
    /// of the server as are due.
    fn is_done(&self) -> bool {
        let may_follow = self.manners.requests > 0 && !self.takes_no_more();
        let expected = self.manners.responses.is_some();
        expected && !may_follow && !self.is_owed() && self.counts.asked.get() > 0 && self.is_drained()
    }

    /// Whether no datagram of the client waits that belongs to the session.
    fn is_drained(&self) -> bool {
        self.takes_no_more() || self.client.is_empty()
    }

    /// Whether the server has not sent what is expected of it.
    fn is_owed(&self) -> bool {
        let due = self.manners.responses.map(|each| each.saturating_mul(self.counts.asked.get()));
        due.is_some_and(|due| self.counts.received.get() < due)
    }

    /// What was sent may go to another server: how many bytes.
    pub(crate) fn put_back(&self) -> u64 {
        let again: Vec<_> = self.unanswered.take().into();
        let len = again.iter().map(|bytes| bytes.len() as u64).sum();
        self.client.put_back(again);
        len
    }

    /// No more of the client is read: what the server owes is waited for as ever, anything else for a moment.
    fn hurry(&self) {
        if !self.is_owed() && self.timeout > LAST_MS && !self.counts_down() {
            self.timer.arm(LAST_MS);
        }
    }

    /// Whether the moment has begun; notes that it has.
    fn counts_down(&self) -> bool {
        let now = self.counts.asked.get() + self.counts.received.get() + 1;
        self.counts.at_last.replace(now) == now
    }

    /// nginx's words for what has passed.
    pub(crate) fn packets(&self) -> String {
        format!(", packets from/to client:{}/{}", self.counts.asked.get(), self.counts.received.get())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DatagramMoved {
    Nothing,
    Some,
    /// The first of the server.
    First,
}

/// A limit of bytes a second on one direction: whole datagrams pass, and after each there is a pause.
pub(crate) struct DatagramPace {
    /// Bytes a second; 0: no limit.
    rate: u64,
    pause: Option<Timer>,
}

impl DatagramPace {
    /// Of `rate` bytes a second; 0: no limit.
    pub(crate) fn new(rate: u64) -> DatagramPace {
        DatagramPace { rate, pause: (rate > 0).then(Timer::new) }
    }

    /// Ready when a datagram may pass.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &self.pause {
            Some(pause) if pause.is_armed() => pause.poll_expired(cx),
            _ => Poll::Ready(()),
        }
    }

    /// So many bytes have passed.
    fn took(&self, bytes: u64) {
        if let Some(pause) = &self.pause {
            pause.arm(bytes.saturating_mul(1000) / self.rate);
        }
    }
}

/// Errors of sending that lose the datagram alone: `EAGAIN`, `ENOBUFS`, `EMSGSIZE`.
const LOST: [i32; 3] = [11, 105, 90];
/// Datagrams that can be sent to another server.
const MOST_RETAINED: usize = 16;
/// How long a session without expected responses is waited for when its client is not read any more, in milliseconds.
const LAST_MS: u64 = 1000;
