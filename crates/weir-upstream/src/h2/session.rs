//! A connection to a server that speaks HTTP/2: one task that reads frames, hands what they bring to the calls, and sends
//! for all of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use weir_http::h2::{self, DataGrant, ErrorCode, H2Config, H2Event, StreamEnd, StreamKey};
use weir_http::hpack;
use weir_rt::{OutputChunk, RecvOutcome};

use super::call::{CallFields, CallProgress, StreamCall};
use super::session_list::SessionList;
use crate::connection::keepalive_limits::KeepaliveLimits;
use crate::connection::upstream_connection::UpstreamConnection;
use crate::peer::Peer;
use crate::protocol::{FieldSection, INTERIM, TOO_MANY};
use crate::tls_client::SecureUpstream;
use crate::tls_client::tls_facts::UpstreamTlsFacts;
use weir_engine::pieces;
use weir_engine::worker::UpstreamCloseReason;
use weir_engine::worker::Worker;

/// Why a session, or a call of it, is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionLoss {
    /// The server closed the connection.
    Closed,
    /// The system's error.
    Failed(i32),
    /// The server broke the protocol: what it did.
    Broken(&'static str),
    /// The server went away, and has not begun with this call.
    Away(ErrorCode),
}

/// A connection and its streams.
pub(crate) struct UpstreamSession {
    connection: UpstreamConnection,
    peer: Arc<Peer>,
    keep: KeepaliveLimits,
    pub(super) h2: RefCell<h2::H2Connection>,
    pub(super) slots: RefCell<Vec<SessionSlot>>,
    /// What was received and is no whole frame.
    input: RefCell<Vec<u8>>,
    /// What was composed and not given to the socket.
    pub(super) out: RefCell<Vec<u8>>,
    task: RefCell<Option<Waker>>,
    woken: Cell<bool>,
    /// Tasks that wait for the server's settings.
    settling: RefCell<Vec<Waker>>,
    /// Calls that it has taken.
    calls: Cell<u64>,
    idle_since: Cell<u64>,
    /// No call is taken any more; it ends with the last one.
    retired: Cell<bool>,
    lost: Cell<Option<SessionLoss>>,
    /// Where it is among others, if it is shared.
    list: RefCell<Weak<SessionList>>,
}

/// What is stored of a stream beside the protocol's state, at its key's index.
#[derive(Default)]
pub(super) struct SessionSlot {
    /// What came and was not taken.
    pub(super) news: VecDeque<CallProgress>,
    /// Content to send that was announced, and how much of its first piece has gone.
    pub(super) pieces: VecDeque<Vec<u8>>,
    gone: usize,
    /// Bytes of frames with content.
    pub(super) sent: u64,
    pub(super) received: u64,
    /// The call's task.
    pub(super) waker: Option<Waker>,
    /// Memory that its interim responses have taken.
    interim: usize,
}

impl SessionSlot {
    /// Empties the slot for another stream.
    fn renew(&mut self) {
        self.news.clear();
        self.pieces.clear();
        self.gone = 0;
        self.sent = 0;
        self.received = 0;
        self.interim = 0;
        self.waker = None;
    }

    fn tell(&mut self, got: CallProgress) {
        self.news.push_back(got);
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Whether another interim response is taken; `None`: it was said before that none is. They are read before their call
    /// has a turn, and some bytes of a block may expand to a megabyte.
    fn takes_interim(&mut self, section: &hpack::DecodedSection) -> Option<bool> {
        let before = self.interim;
        // As the compression's tables count them (RFC 7541 section 4.1).
        self.interim += section.text.len() + 32 * section.items.len();
        (before <= INTERIM).then_some(self.interim <= INTERIM)
    }

    /// A piece of the response's content.
    fn content(&mut self, content: &[u8]) {
        let last = self
            .news
            .back_mut()
            .and_then(|got| if let CallProgress::Data(last) = got { Some(last) } else { None });
        if !pieces::append(last, content) {
            self.news.push_back(CallProgress::Data(content.to_vec()));
        }
        self.wake();
    }

    /// A piece of the request's content, to be sent in its turn.
    pub(super) fn offer(&mut self, bytes: Vec<u8>) {
        // The first piece may be on its way already; `gone` counts from its start all the same.
        let piece = pieces::join(self.pieces.back_mut(), bytes);
        self.pieces.extend(piece);
    }

    /// Moves `len` bytes of content to `out`.
    fn take(&mut self, len: usize, out: &mut Vec<u8>) {
        let mut left = len;
        while left > 0
            && let Some(piece) = self.pieces.front()
        {
            let rest = piece.get(self.gone..).unwrap_or_default();
            let part = rest.len().min(left);
            out.extend_from_slice(&rest[..part]);
            left -= part;
            self.gone += part;
            if self.gone >= piece.len() {
                self.pieces.pop_front();
                self.gone = 0;
            }
        }
    }
}

impl UpstreamSession {
    /// Bytes of memory that it takes, its connection's among them; its task's future is as large as a few of its fields.
    pub(crate) fn held_bytes(&self) -> usize {
        let itself = size_of::<UpstreamSession>() - size_of::<UpstreamConnection>();
        let buffers = self.input.borrow().capacity() + self.out.borrow().capacity();
        let slots = self.slots.borrow().capacity() * size_of::<SessionSlot>();
        itself + self.connection.held_bytes() + self.h2.borrow().held_bytes() + slots + buffers
    }

    /// What came of its handshake, if it has TLS.
    pub(crate) fn tls(&self) -> Option<&Rc<UpstreamTlsFacts>> {
        self.connection.tls.get()
    }

    /// Begins to speak HTTP/2 on a fresh connection; the task that does so runs until the connection is over.
    pub(crate) fn begin(
        connection: UpstreamConnection,
        peer: &Arc<Peer>,
        keep: KeepaliveLimits,
        worker: &Rc<Worker>,
    ) -> Rc<UpstreamSession> {
        let config = H2Config {
            max_streams: 0,
            stream_window: STREAM_WINDOW,
            window: 0x7fff_ffff,
            headers: hpack::SectionLimits::new(HEADERS, FIELDS),
            max_frame: h2::MIN_FRAME,
            connect_protocol: false,
        };
        let mut out = Vec::new();
        let h2 = h2::H2Connection::client(&config, &mut out);
        let session = Rc::new(UpstreamSession {
            connection,
            peer: peer.clone(),
            keep,
            h2: RefCell::new(h2),
            slots: RefCell::default(),
            input: RefCell::default(),
            out: RefCell::new(out),
            task: RefCell::default(),
            woken: Cell::new(false),
            settling: RefCell::default(),
            calls: Cell::new(0),
            idle_since: Cell::new(weir_rt::now_ms()),
            retired: Cell::new(false),
            lost: Cell::new(None),
            list: RefCell::default(),
        });
        weir_rt::spawn(run(session.clone(), worker.clone()));
        session
    }

    /// Opens a stream with a request's head; `None`: the server, or this session, takes no more.
    pub(crate) fn call(self: &Rc<Self>, head: &FieldSection, end: StreamEnd) -> Option<StreamCall> {
        if !self.has_room() {
            return None;
        }
        let mut out = self.out.borrow_mut();
        let before = out.len();
        let key = self.h2.borrow_mut().open(end, &mut out, |coder, out| head.write(coder, out))?;
        let composed = out.len() - before;
        drop(out);
        self.calls.set(self.calls.get() + 1);
        let mut slots = self.slots.borrow_mut();
        if slots.len() <= key.index() {
            slots.resize_with(key.index() + 1, SessionSlot::default);
        }
        slots[key.index()].renew();
        slots[key.index()].sent = composed as u64;
        drop(slots);
        self.wake();
        Some(StreamCall::new(self.clone(), key))
    }

    /// Ready when the server has said whether it takes extended CONNECT (RFC 8441 section 3). One that is gone takes no call, and
    /// says why there.
    pub(crate) fn poll_takes_tunnels(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let h2 = self.h2.borrow();
        if h2.is_settled() || self.is_lost() {
            return Poll::Ready(h2.remote().connect_protocol || self.is_lost());
        }
        let mut settling = self.settling.borrow_mut();
        if !settling.iter().any(|waker| waker.will_wake(cx.waker())) {
            settling.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Whether another call can be made on it.
    pub(crate) fn has_room(&self) -> bool {
        let h2 = self.h2.borrow();
        self.lost.get().is_none()
            && !self.retired.get()
            && !h2.is_ending()
            && h2.streams() < h2.remote().max_streams.map_or(STREAMS, |most| STREAMS.min(most as usize))
            && (self.calls.get() == 0 || self.calls.get() < self.keep.requests)
            && self.connection.age() < self.keep.time
            && self.connection.stream.error().is_none()
            && !self.connection.stream.is_eof()
    }

    /// Whether it is one to `peer`, by the same line, with this TLS.
    pub(crate) fn is_to(&self, peer: &Peer, secure: Option<&SecureUpstream>) -> bool {
        self.peer.shares_line(peer) && self.connection.secure.as_ref() == secure
    }

    /// The server it is to.
    pub(crate) fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Calls at the moment.
    pub(crate) fn streams(&self) -> usize {
        self.h2.borrow().streams()
    }

    /// Milliseconds of the loops' clock: since when it has no calls.
    pub(crate) fn idle_since(&self) -> u64 {
        self.idle_since.get()
    }

    /// It is over.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// It has taken calls before the current one.
    pub(crate) fn is_used(&self) -> bool {
        self.calls.get() > 0
    }

    /// Takes no further call, and ends with the last one, for `reason`.
    pub(crate) fn retire(&self, reason: UpstreamCloseReason) {
        if !self.retired.replace(true) {
            self.connection.end.expects(reason);
        }
        self.wake();
    }

    /// Notes why the connection ends: `received` says so where the server, or the way to it, is the cause.
    fn ends(&self, received: Option<&RecvOutcome>) {
        let idle = self.streams() == 0;
        let (eof, reset) = match idle {
            true => (UpstreamCloseReason::Idle, UpstreamCloseReason::ResetIdle),
            false => (UpstreamCloseReason::InResponse, UpstreamCloseReason::Reset),
        };
        let end = &self.connection.end;
        match received {
            Some(RecvOutcome::Err(errno)) => end.ends(UpstreamCloseReason::of_errno(*errno, reset)),
            Some(RecvOutcome::Data(_)) => end.ends(UpstreamCloseReason::BadResponse),
            Some(_) if self.h2.borrow().is_ending() => end.ends(UpstreamCloseReason::GoAway),
            Some(_) => end.ends(eof),
            None if self.retired.get() => {}
            None if self.h2.borrow().is_ending() => end.ends(UpstreamCloseReason::GoAway),
            None => end.ends(UpstreamCloseReason::KeepaliveOff),
        }
    }

    /// It has been added to this list.
    pub(super) fn set_list(&self, list: &Rc<SessionList>) {
        *self.list.borrow_mut() = Rc::downgrade(list);
    }

    /// Whether it takes no call any more.
    pub(super) fn is_retired(&self) -> bool {
        self.retired.get()
    }

    /// Why it ends that was idle for too long, unless it would take no further call either.
    fn overdue(&self, worker: &Worker) -> UpstreamCloseReason {
        if worker.is_stopping() {
            UpstreamCloseReason::Shutdown
        } else if self.calls.get() >= self.keep.requests {
            UpstreamCloseReason::KeepaliveRequests
        } else if self.connection.age() >= self.keep.time {
            UpstreamCloseReason::KeepaliveTime
        } else {
            UpstreamCloseReason::KeepaliveTimeout
        }
    }

    /// A call was given up, or has ended.
    pub(super) fn release(&self, key: StreamKey) {
        let mut out = self.out.borrow_mut();
        let mut h2 = self.h2.borrow_mut();
        if !h2.is_closed(key) && self.lost.get().is_none() {
            h2.reset(key, ErrorCode::Cancel, &mut out);
        }
        let unread = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[key.index()];
            let unread: usize = slot.news.iter().map(CallProgress::len).sum();
            slot.renew();
            unread
        };
        h2.consumed(key, unread as u64, &mut out);
        h2.release(key, &mut out);
        let is_idle = h2.streams() == 0;
        drop((out, h2));
        if is_idle {
            self.idle_since.set(weir_rt::now_ms());
            // Among others there may be one too many now.
            if let Some(list) = self.list.borrow().upgrade() {
                list.close_beyond();
            }
        }
        self.wake();
    }

    /// Has the session's task look at what a call has done.
    pub(super) fn wake(&self) {
        if !self.woken.replace(true)
            && let Some(task) = self.task.borrow_mut().take()
        {
            task.wake();
        }
    }

    /// Composes as much of the calls' content as may be sent now, and hands everything to the socket.
    fn pump(&self) {
        let mut out = self.out.borrow_mut();
        let mut h2 = self.h2.borrow_mut();
        let mut slots = self.slots.borrow_mut();
        while self.connection.stream.unsent() + (out.len() as u64) <= HIGH {
            let Some(DataGrant { key, len, .. }) = h2.next_data(&mut out) else { break };
            let Some(slot) = slots.get_mut(key.index()) else { continue };
            slot.take(len as usize, &mut out);
            slot.sent += len + h2::HEAD as u64;
            if h2.pending(key) <= HIGH / 2 {
                slot.wake();
            }
        }
        if !out.is_empty() {
            self.connection.stream.queue(OutputChunk::Bytes(std::mem::take(&mut *out)));
            self.connection.stream.flush();
        }
    }

    /// Takes what came.
    fn received(&self, bytes: &[u8]) -> Result<(), SessionLoss> {
        let mut kept = std::mem::take(&mut *self.input.borrow_mut());
        let bytes = if kept.is_empty() {
            bytes
        } else {
            kept.extend_from_slice(bytes);
            &kept
        };
        let now = weir_rt::now_ms();
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let received = {
                let mut out = self.out.borrow_mut();
                self.h2.borrow_mut().receive(rest, now, &mut out)
            };
            let (used, event) = received.map_err(|failure| SessionLoss::Broken(failure.reason))?;
            if let Some(event) = event {
                self.event(event, rest);
                at += used;
                continue;
            }
            *self.input.borrow_mut() = rest.get(used..).unwrap_or_default().to_vec();
            return Ok(());
        }
    }

    fn event(&self, event: H2Event, bytes: &[u8]) {
        let mut slots = self.slots.borrow_mut();
        let h2 = self.h2.borrow();
        let fields = || Box::new(CallFields::of(h2.section(), h2.message().status, h2.block_len()));
        let mut tell = |key: StreamKey, got: CallProgress| {
            if let Some(slot) = slots.get_mut(key.index()) {
                slot.received += got.len() as u64 + h2::HEAD as u64;
                slot.tell(got);
            }
        };
        match event {
            H2Event::Head { key, end } => {
                tell(key, CallProgress::Head(fields(), end));
                if end {
                    tell(key, CallProgress::End);
                }
            }
            H2Event::Interim { key } => {
                let Some(slot) = slots.get_mut(key.index()) else { return };
                slot.received += (h2.block_len() + h2::HEAD) as u64;
                match slot.takes_interim(h2.section()) {
                    Some(true) => slot.tell(CallProgress::Interim(fields())),
                    Some(false) => slot.tell(CallProgress::Reset(ErrorCode::EnhanceYourCalm, Some(TOO_MANY))),
                    None => {}
                }
            }
            H2Event::Data { key, range, end } => {
                let content = bytes.get(range).unwrap_or_default();
                if let Some(slot) = slots.get_mut(key.index()) {
                    slot.received += content.len() as u64 + h2::HEAD as u64;
                    if !content.is_empty() {
                        slot.content(content);
                    }
                    if end {
                        slot.tell(CallProgress::End);
                    }
                }
            }
            H2Event::Trailers { key } => {
                tell(key, CallProgress::Trailers(fields()));
                tell(key, CallProgress::End);
            }
            H2Event::Reset { key, code, reason } => tell(key, CallProgress::Reset(code, reason)),
            H2Event::Malformed { key, reason } => {
                tell(key, CallProgress::Reset(ErrorCode::Protocol, Some(reason)));
            }
            H2Event::GoAway { last, code } => {
                for key in h2.keys().into_iter().filter(|key| h2.id(*key) > last) {
                    tell(key, CallProgress::Lost(SessionLoss::Away(code)));
                }
            }
        }
    }

    /// Whether the task has nothing left to do.
    fn is_over(&self) -> bool {
        let h2 = self.h2.borrow();
        let last = self.retired.get() || h2.is_ending() || self.keep.connections == 0;
        let begun = self.calls.get() > 0 || self.retired.get();
        self.lost.get().is_some() || (last && h2.streams() == 0 && begun)
    }

    /// The task that waits for the server's settings goes on.
    fn settled(&self) {
        self.settling.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// The connection is over: all calls are notified.
    fn end(&self, lost: SessionLoss) {
        self.lost.set(Some(lost));
        self.settled();
        let keys = self.h2.borrow().keys();
        let mut slots = self.slots.borrow_mut();
        for key in keys {
            if let Some(slot) = slots.get_mut(key.index()) {
                slot.tell(CallProgress::Lost(lost));
            }
        }
    }

    fn poll_wake(&self, cx: &mut Context<'_>) -> Poll<SessionWake> {
        if self.woken.take() {
            return Poll::Ready(SessionWake::Work);
        }
        let mut task = self.task.borrow_mut();
        if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
        drop(task);
        let stream = &self.connection.stream;
        if stream.unsent() > HIGH / 2 && stream.poll_drained(cx, HIGH / 2, None).is_ready() {
            return Poll::Ready(SessionWake::Work);
        }
        match stream.poll_recv(cx, Some(&self.connection.timer)) {
            Poll::Ready(RecvOutcome::TimedOut) => Poll::Ready(SessionWake::Expired),
            Poll::Ready(received) => Poll::Ready(SessionWake::Received(received)),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// What a session's task goes on for.
enum SessionWake {
    /// A call has something to send, or there is room for it.
    Work,
    /// Bytes, or the end of them.
    Received(RecvOutcome),
    /// It is time to look whether it was idle for long enough.
    Expired,
}

async fn run(session: Rc<UpstreamSession>, worker: Rc<Worker>) {
    let timer = &session.connection.timer;
    let every = session.keep.timeout.clamp(10, crate::peer::idle_time::LOOK);
    let lost = loop {
        session.pump();
        if session.is_over() {
            session.ends(None);
            break SessionLoss::Closed;
        }
        if !timer.is_armed() {
            timer.arm(every);
        }
        match poll_fn(|cx| session.poll_wake(cx)).await {
            SessionWake::Work => {}
            SessionWake::Expired => {
                let idle = weir_rt::now_ms().saturating_sub(session.idle_since());
                let old = idle >= session.keep.timeout || worker.is_stopping();
                if session.streams() == 0 && old {
                    session.retire(session.overdue(&worker));
                    break SessionLoss::Closed;
                }
            }
            SessionWake::Received(RecvOutcome::Data(bytes)) => {
                if let Err(lost) = session.received(&bytes) {
                    session.ends(Some(&RecvOutcome::Data(bytes)));
                    break lost;
                }
                if session.h2.borrow().is_settled() {
                    session.settled();
                }
            }
            SessionWake::Received(lost) => {
                session.ends(Some(&lost));
                break match lost {
                    RecvOutcome::Err(errno) => SessionLoss::Failed(errno),
                    _ => SessionLoss::Closed,
                };
            }
        }
    };
    session.end(lost);
    // What the server has done wrong is reported to it; a goodbye that it does not take is no loss.
    if lost == SessionLoss::Closed && !session.connection.stream.is_eof() {
        session.h2.borrow_mut().go_away(ErrorCode::No, &mut session.out.borrow_mut());
    }
    session.pump();
    session.connection.timer.arm(GOODBYE);
    let _ = session.connection.stream.drained(0, Some(&session.connection.timer)).await;
    let list = session.list.borrow().upgrade();
    if let Some(list) = list {
        list.forget_ended();
    }
}

/// Bytes that a server may send on a stream before any of them is taken.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Bytes of the calls' content on the way to the socket above which no more is composed.
pub(crate) const HIGH: u64 = 64 * 1024;
/// Calls at once on one connection: what most servers allow.
const STREAMS: usize = 100;
/// The longest header section that is read at all; `*_buffer_size` is checked by the caller.
const HEADERS: usize = 1 << 20;
const FIELDS: usize = 2000;
/// Milliseconds for the last frame to leave.
const GOODBYE: u64 = 1000;
