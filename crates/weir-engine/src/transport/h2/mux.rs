//! What a connection and its streams share: the protocol's state, and what each stream has to send and was sent.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use weir_http::h2::{ErrorCode, H2Abuse, H2Config, H2Event, H2Failure, StreamEnd, StreamKey};
use weir_http::{h2, hpack};

use super::encode::SentBlocks;
use super::ledger::FrameLedger;
use super::slot::StreamSlot;
use crate::exchange::Exchange;
use crate::log::LogLevel;
use crate::pieces;
use crate::transport::ClientConnection;
use crate::transport::multiplexed::ExchangeOutcome;
use crate::transport::task_call::TaskCall;
use crate::transport::wire::{ClientWire, HIGH};
use crate::worker::{CloseProtocol, CloseReason, StreamCloseSide, Worker};

/// A connection as its streams see it.
pub struct H2Mux {
    /// The socket.
    pub wire: Rc<ClientWire>,
    /// The client's connection.
    pub connection: Rc<ClientConnection>,
    /// The worker that serves it.
    pub worker: Rc<Worker>,
    /// The protocol's state.
    pub h2: RefCell<h2::H2Connection>,
    /// What each stream has to send and was sent, at its key's index.
    pub slots: RefCell<Vec<StreamSlot>>,
    pub(super) blocks: RefCell<SentBlocks>,
    /// Whose the last bytes of the output are.
    pub(super) ledger: RefCell<FrameLedger>,
    /// The connection's task.
    call: TaskCall,
    /// Nothing more comes or goes.
    closed: Cell<bool>,
    /// Bytes are left that were not looked at: others had to have a turn.
    more: Cell<bool>,
    /// Streams whose exchange is over, and when they were looked at last.
    pub(super) lingering: Cell<u32>,
    /// What the timer was armed with since the connection is full; 0: it is not.
    pub(super) full_ms: Cell<u64>,
    /// Since when no stream is open. Frames that open none give a connection no more time.
    pub(super) idle_from: Cell<Option<u64>>,
    /// The frame that has come in part, and since when.
    pub(super) partial: Cell<Option<(u64, u64)>>,
    looked_ms: Cell<u64>,
    /// Content that was composed, of all streams.
    pub(super) content: Cell<u64>,
    due: RefCell<Vec<StreamKey>>,
    /// Requests of this turn whose responses are whole and not composed.
    pub held: RefCell<Vec<(StreamKey, Box<Exchange>)>>,
    /// Streams whose content stays in its file until their windows open.
    pub(super) starved: RefCell<Vec<StreamKey>>,
    /// `http2_recv_buffer_size`
    pub(super) read_window: u32,
    /// Bytes that streams' windows have beyond that.
    pub(super) widened: Cell<u64>,
    /// The line is slow: little is composed ahead of it.
    pub(super) narrow: Cell<bool>,
    /// When a full socket's line is looked at again, in milliseconds of the worker's clock.
    pub(super) line_ms: Cell<u64>,
    /// See [`H2Mux::gives_way`].
    pub(super) gives_way: Cell<bool>,
    /// See [`H2Mux::has_uploads`].
    pub(super) uploads: Cell<bool>,
}

impl H2Mux {
    /// The server's side of a connection; its settings are composed.
    pub fn new(worker: &Rc<Worker>, connection: &Rc<ClientConnection>, wire: &Rc<ClientWire>) -> Rc<H2Mux> {
        let server = connection.hosts.borrow().default().clone();
        let (settings, limits) = (&server.http2, server.settings.limits());
        let config = H2Config {
            max_streams: settings.max_concurrent_streams,
            stream_window: settings.body_preread_size,
            window: 0x7fff_ffff,
            headers: hpack::SectionLimits {
                ignored: limits.ignored,
                ..hpack::SectionLimits::new(limits.max_head, limits.max_fields + PSEUDO)
            },
            max_frame: longest_frame(&limits),
            connect_protocol: true,
        };
        let mut h2 = None;
        wire.compose(|out| h2 = Some(h2::H2Connection::server(&config, out)));
        let h2 = RefCell::new(h2.expect("made in the line above"));
        wire.multiplexed.set(true);
        connection.speaks(CloseProtocol::Http2);
        let mux = Rc::new(H2Mux {
            wire: wire.clone(),
            connection: connection.clone(),
            worker: worker.clone(),
            h2,
            slots: RefCell::default(),
            blocks: RefCell::default(),
            ledger: RefCell::default(),
            call: TaskCall::default(),
            closed: Cell::new(false),
            more: Cell::new(false),
            lingering: Cell::new(0),
            full_ms: Cell::new(0),
            idle_from: Cell::new(None),
            partial: Cell::new(None),
            looked_ms: Cell::new(0),
            content: Cell::new(0),
            due: RefCell::default(),
            held: RefCell::default(),
            starved: RefCell::default(),
            read_window: settings.recv_buffer_size.max(settings.body_preread_size),
            widened: Cell::new(0),
            narrow: Cell::new(false),
            line_ms: Cell::new(0),
            gives_way: Cell::new(false),
            uploads: Cell::new(false),
        });
        let known: Weak<H2Mux> = Rc::downgrade(&mux);
        // There is one for a connection, so the cell is empty.
        let _first = connection.protocol.set(known);
        mux
    }

    /// Begins a turn: what came is taken, request by request ([`H2Mux::next_head`]), until the turn ends.
    pub fn begin_turn(&self) {
        self.call.serves(true);
        self.look();
        self.more.set(false);
        self.unlinger();
    }

    /// Takes what came up to the next head of a request: its stream, and whether it has no body. `None`: nothing more can
    /// be taken now.
    pub fn next_head(&self) -> Option<(StreamKey, bool)> {
        loop {
            if self.wire.pending() > HIGH {
                self.more.set(!self.wire.input.borrow().is_empty());
                return None;
            }
            match self.receive() {
                Ok(Some((_, H2Event::Head { key, end }))) => return Some((key, end)),
                Ok(Some((content, event))) => self.event(event, content),
                Ok(None) => return None,
                Err(failure) => {
                    self.failed(&failure);
                    return None;
                }
            }
        }
    }

    /// Notes that bytes are left for the next turn, which is due at once.
    pub fn put_off(&self) {
        self.more.set(true);
    }

    /// Composes what may be sent, and lets tasks send more.
    pub fn compose(&self) {
        self.pump();
        self.feed();
    }

    /// Ends a turn that [`H2Mux::begin_turn`] began. If the worker stops, the address is gone, or its servers have changed
    /// and no stream is left, it sends `GOAWAY` (RFC 9113 section 6.8).
    pub fn end_turn(&self) {
        // Those that were idle at the reload end in `transport::open`.
        if self.has_other_servers() {
            self.go_away(CloseReason::Reload);
        }
        self.look();
        self.call.serves(false);
    }

    /// The next event, with a copy of its content.
    fn receive(&self) -> Result<Option<(Vec<u8>, H2Event)>, H2Failure> {
        let now = weir_rt::now_ms();
        let mut input = self.wire.input.borrow_mut();
        if input.is_empty() {
            return Ok(None);
        }
        let mut received = Ok((0, None));
        let mut h2 = self.h2.borrow_mut();
        self.wire.compose(|out| received = h2.receive(input.bytes(), now, out));
        let (used, event) = received?;
        let content = match &event {
            Some(H2Event::Data { range, .. }) => {
                input.bytes().get(range.clone()).unwrap_or_default().to_vec()
            }
            _ => Vec::new(),
        };
        input.consume(used);
        match event {
            Some(event) => Ok(Some((content, event))),
            None => {
                // A frame that does not end here must not keep the pooled buffer.
                input.hold();
                Ok(None)
            }
        }
    }

    fn event(&self, event: H2Event, content: Vec<u8>) {
        match event {
            H2Event::Data { key, end, .. } => self.content(key, content, StreamEnd::last_if(end)),
            H2Event::Trailers { key } => self.content(key, Vec::new(), StreamEnd::Last),
            H2Event::Reset { key, code, reason } => {
                if let Some(reason) = reason {
                    self.log(&format_args!("client {reason}"));
                }
                let side = if reason.is_some() { StreamCloseSide::Server } else { StreamCloseSide::Client };
                self.worker.counters.streams.count(side, code);
                self.close_stream(key);
            }
            H2Event::Malformed { key, reason } => self.malformed(key, reason),
            H2Event::GoAway { .. } => self.connection.ends(CloseReason::GoAway),
            H2Event::Head { .. } | H2Event::Interim { .. } => {}
        }
    }

    /// A piece of a request's body.
    fn content(&self, key: StreamKey, content: Vec<u8>, end: StreamEnd) {
        let end = end == StreamEnd::Last;
        let bytes = content.len() as u64;
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(key.index()) else { return };
        slot.core.ended |= end;
        let unwanted = slot.core.discarded || slot.detached || slot.core.closed;
        if slot.lingers {
            slot.dropped += bytes;
            if end || slot.dropped > LINGERING {
                drop(slots);
                self.consumed(key, bytes);
                self.release(key);
                return;
            }
        }
        if !unwanted && bytes > 0 {
            self.note_content(bytes);
            let piece = pieces::join(slot.core.input.back_mut(), content);
            slot.core.input.extend(piece);
        }
        slot.core.wake_reader();
        drop(slots);
        if unwanted {
            self.consumed(key, bytes);
        }
    }

    /// A body is not of the length that was announced: the response is an error, and the stream ends as one.
    fn malformed(&self, key: StreamKey, reason: &str) {
        self.log(&format_args!("client {reason}"));
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(key.index()) else { return };
        slot.core.broken = true;
        slot.fault = Some(ErrorCode::Protocol);
        slot.core.wake_reader();
        if slot.detached {
            drop(slots);
            self.release(key);
        }
    }

    /// This many bytes of a stream's content were used.
    pub(super) fn consumed(&self, key: StreamKey, bytes: u64) {
        if bytes > 0 {
            let mut h2 = self.h2.borrow_mut();
            self.wire.compose(|out| h2.consumed(key, bytes, out));
        }
    }

    /// A stream was reset: the task that waits on it is notified.
    fn close_stream(&self, key: StreamKey) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(key.index()) else { return };
        slot.core.closed = true;
        slot.chain.clear();
        slot.core.wake();
        if slot.detached {
            drop(slots);
            self.release(key);
        }
    }

    /// The connection broke the protocol: the GOAWAY frame that says so is composed.
    pub fn failed(&self, failure: &H2Failure) {
        self.log(&format_args!("client {failure}"));
        self.connection.ends(match failure.abuse {
            Some(_) => CloseReason::Abuse,
            None => CloseReason::ProtocolError,
        });
        if let Some(abuse) = failure.abuse {
            self.worker.counters.http2_abuse[abuse as usize % H2Abuse::COUNT].add(1);
        }
        self.closed.set(true);
        self.wire.input.borrow_mut().release();
    }

    fn log(&self, message: &dyn std::fmt::Display) {
        self.connection.log(LogLevel::Info, &format_args!("{message} while processing HTTP/2 connection"));
    }

    /// Prepares the slot of a new stream; `request`: whether content of its request follows.
    pub fn begin(&self, key: StreamKey, request: StreamEnd) {
        let mut slots = self.slots.borrow_mut();
        if slots.len() <= key.index() {
            if slots.is_empty() {
                // Many connections never have two streams at a time: four places would take 1 KB.
                slots.reserve_exact(1);
            }
            slots.resize_with(key.index() + 1, StreamSlot::default);
        }
        let slot = &mut slots[key.index()];
        self.narrow(slot);
        slot.renew();
        (slot.core.ended, slot.since) = (request == StreamEnd::Last, self.wire.composed());
        self.idle_from.set(None);
    }

    /// The exchange of a stream is over: the rest of its response is sent, as long as the client takes some of it in
    /// each `send_timeout` milliseconds, then it is forgotten.
    pub fn detach(&self, key: StreamKey, outcome: ExchangeOutcome, send_timeout: u64) {
        let state = {
            let h2 = self.h2.borrow();
            (
                outcome == ExchangeOutcome::Complete,
                h2.is_unsent(key),
                h2.state(key) == h2::StreamState::HalfClosedLocal,
            )
        };
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(key.index()) else { return };
        match state {
            // Nothing leaves any more, and no turn comes that would forget it: the connection's task waits for its last stream.
            _ if self.closed.get() => {
                drop(slots);
                self.release(key);
            }
            (true, true, _) => self.wait_until(slot, send_timeout),
            (true, _, true) if slot.fault.is_none() => {
                // More of the request may be under way, and a client that is reset at once may take that for a failure.
                slot.lingers = true;
                self.wait_until(slot, LINGERING_MS);
            }
            _ => {
                drop(slots);
                self.release(key);
            }
        }
    }

    /// A stream without exchange has `ms` milliseconds for the rest of it.
    fn wait_until(&self, slot: &mut StreamSlot, ms: u64) {
        slot.detached = true;
        slot.core.patience = ms;
        slot.taken_by_all = self.content.get();
        if slot.until.replace(weir_rt::now_ms() + ms).is_none() {
            self.lingering.set(self.lingering.get() + 1);
        }
    }

    /// Forgets the streams whose time is over; called five times a second while there are any. `true`: there were
    /// some.
    pub fn unlinger(&self) -> bool {
        let now = weir_rt::now_ms();
        if self.lingering.get() == 0 || now < self.looked_ms.get() + LINGERING_MS {
            return false;
        }
        self.looked_ms.set(now);
        for key in self.h2.borrow().keys() {
            let over = |slot: &&mut StreamSlot| slot.until.is_some_and(|until| until <= now);
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slots.get_mut(key.index()).filter(over) else { continue };
            // What waits for its turn has time as long as the client takes what is before it.
            match self.taken_by_all(key).filter(|_| self.h2.borrow().is_unsent(key)) {
                Some(taken) if taken != slot.taken_by_all => {
                    (slot.taken_by_all, slot.until) = (taken, Some(now + slot.core.patience));
                }
                _ => self.due.borrow_mut().push(key),
            }
        }
        let due = std::mem::take(&mut *self.due.borrow_mut());
        let some = !due.is_empty();
        due.into_iter().for_each(|key| self.release(key));
        some
    }

    /// The head of a request takes too long. `false`: none has begun.
    pub fn expire_head(&self) -> bool {
        // What is still to come of it, and is dropped, has its own time.
        self.partial.set(None);
        let input = self.wire.input.borrow();
        let mut h2 = self.h2.borrow_mut();
        let mut expired = false;
        self.wire.compose(|out| expired = h2.expire_head(input.bytes(), out));
        expired
    }

    /// Forgets a stream.
    fn release(&self, key: StreamKey) {
        let (unread, fault) = {
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slots.get_mut(key.index()) else { return };
            self.unstarve(slot, key);
            self.narrow(slot);
            slot.chain.clear();
            if slot.until.take().is_some() {
                self.lingering.set(self.lingering.get() - 1);
            }
            (slot.core.drop_input(), slot.fault)
        };
        let mut h2 = self.h2.borrow_mut();
        let mut reset = None;
        self.wire.compose(|out| {
            if unread > 0 {
                h2.consumed(key, unread, out);
            }
            if let Some(code) = fault {
                h2.reset(key, code, out);
            }
            reset = h2.release(key, out);
        });
        drop(h2);
        if self.closed.get() {
            self.wake();
        } else if let Some(code) = reset.or(fault) {
            self.worker.counters.streams.count(StreamCloseSide::Server, code);
        }
    }

    /// Ends the connection where the worker stops, or its address is gone.
    pub(super) fn look(&self) {
        if self.is_to_end() {
            self.connection.ends_in_order();
            self.go_away(CloseReason::Shutdown);
        }
    }

    /// Whether the worker or the connection takes no more requests.
    pub fn is_to_end(&self) -> bool {
        self.worker.is_stopping() || self.connection.takes_no_more()
    }

    fn has_other_servers(&self) -> bool {
        let connection = &self.connection;
        self.streams() == 0 && connection.adopt(&self.worker) && connection.requests.get() > 0
    }

    /// Sends `GOAWAY` without an error (RFC 9113 section 6.8): no new stream is taken any more, because of `reason`.
    pub fn go_away(&self, reason: CloseReason) {
        self.connection.ends(reason);
        let mut h2 = self.h2.borrow_mut();
        self.wire.compose(|out| h2.go_away(ErrorCode::No, out));
    }

    /// Nothing is left to do for the connection's task.
    pub fn is_over(&self) -> bool {
        self.closed.get() || self.h2.borrow().is_over()
    }

    /// Whether the client's preface has come.
    pub fn is_begun(&self) -> bool {
        self.h2.borrow().is_begun()
    }

    /// How many streams are open.
    pub fn streams(&self) -> usize {
        self.h2.borrow().streams()
    }

    /// Something was left for the next turn: requests, or content for which there was no room.
    pub fn has_more(&self) -> bool {
        self.more.get() || self.h2.borrow().has_data()
    }

    /// Whether a stream has woken the connection's task; else it will.
    pub fn is_woken(&self, cx: &Context<'_>) -> bool {
        self.call.is_woken(cx)
    }

    /// Has the connection's task look at what a stream has done.
    pub fn wake(&self) {
        self.call.wake();
    }

    /// The connection is over: streams that are running are notified.
    pub fn end(&self) {
        self.closed.set(true);
        // Of a connection that broke less has left than was composed, and `written` says so.
        let sent = self.wire.written();
        self.retract(sent, |_| true);
        let keys = self.h2.borrow().keys();
        for key in keys {
            self.worker.counters.streams.with_connection.add(1);
            self.close_stream(key);
        }
    }

    /// Waits until all streams are over.
    pub async fn ended(&self) {
        std::future::poll_fn(|cx| {
            self.call.waits(cx);
            if self.streams() == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// The frames that clients may send: where lines are allowed that are longer than the least that all must take, a whole
/// head that is allowed may come in one frame, since clients exist that cut none.
fn longest_frame(head: &weir_http::h1::HeadLimits) -> u32 {
    if head.max_line <= h2::MIN_FRAME as usize {
        return h2::MIN_FRAME;
    }
    u32::try_from(head.max_head).unwrap_or(u32::MAX).min((1 << 24) - 1)
}

/// Pseudo-header fields of a request beside the fields that `max_headers` counts.
const PSEUDO: usize = 4;
/// How long the rest of a request whose response is whole is read, and how much of it. What is under way comes sooner.
pub(super) const LINGERING_MS: u64 = 200;
const LINGERING: u64 = 32 * 1024;
