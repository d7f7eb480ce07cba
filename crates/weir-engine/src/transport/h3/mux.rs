//! What a connection and its streams share: the protocol's state, and what each stream has to send and was sent.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use weir_http::h3::{H3Config, H3Connection, H3ErrorCode, H3Event, H3Failure};
use weir_http::hpack::SectionLimits;
use weir_http::message::StreamEnd;

use super::slot::H3Slot;
use crate::log::LogLevel;
use crate::pieces;
use crate::transport::multiplexed::ExchangeOutcome;
use crate::transport::task_call::TaskCall;
use crate::transport::{ClientConnection, ProtocolState};
use crate::worker::memory::COUNTED;
use crate::worker::{CloseProtocol, CloseReason, Worker};

/// A connection as its streams see it.
pub struct H3Mux {
    /// The client's connection.
    pub connection: Rc<ClientConnection>,
    /// The worker that serves it.
    pub worker: Rc<Worker>,
    /// The protocol's state.
    pub h3: RefCell<H3Connection>,
    pub(super) slots: RefCell<Vec<H3Slot>>,
    /// Places of streams that have something to send, or are over.
    pub(super) ready: RefCell<Vec<usize>>,
    /// Streams of which more may be read than before.
    hungry: RefCell<Vec<u64>>,
    /// Streams that are to be reset, for what their client did.
    pub(super) resets: RefCell<Vec<(u64, H3ErrorCode)>>,
    /// How many streams have a request.
    pub(super) open: Cell<usize>,
    /// Content that QUIC has taken, of all streams.
    pub(super) content: Cell<u64>,
    /// The connection's task.
    call: TaskCall,
    /// Nothing more comes or goes.
    closed: Cell<bool>,
    /// Content of a stream that may come ahead of its reader (`http3_stream_buffer_size`).
    ahead: u64,
}

/// Why no more is taken of what has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum H3Pause {
    /// A request's head is whole, and is to be served first.
    Head {
        /// Whether content follows.
        end: StreamEnd,
    },
    /// A header section waits for what is to come on another stream. The rest is to be kept until then.
    Blocked,
}

impl H3Mux {
    /// The server's side of a connection.
    pub fn new(worker: &Rc<Worker>, connection: &Rc<ClientConnection>) -> Rc<H3Mux> {
        let server = connection.server();
        let limits = server.settings.limits();
        let (number, large) = server.settings.large_client_header_buffers;
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let config = H3Config {
            table: TABLE,
            longest: size(large),
            blocked: server.http3.max_concurrent_streams as usize,
            limits: SectionLimits {
                ignored: limits.ignored,
                ..SectionLimits::new(size(number.saturating_mul(large)), limits.max_fields + PSEUDO)
            },
            connect_protocol: true,
        };
        connection.speaks(CloseProtocol::Http3);
        let mux = Rc::new(H3Mux {
            connection: connection.clone(),
            worker: worker.clone(),
            h3: RefCell::new(H3Connection::new(config)),
            slots: RefCell::default(),
            ready: RefCell::default(),
            hungry: RefCell::default(),
            resets: RefCell::default(),
            open: Cell::new(0),
            content: Cell::new(0),
            call: TaskCall::default(),
            closed: Cell::new(false),
            ahead: server.http3.stream_buffer_size,
        });
        let known: Weak<H3Mux> = Rc::downgrade(&mux);
        // There is one for a connection, so the cell is empty.
        let _first = connection.protocol.set(known);
        mux
    }

    /// Takes bytes of stream `id`; how many, and why not all, or why it is to be called again.
    ///
    /// # Errors
    /// The client broke the protocol: the connection ends.
    pub fn receive(
        &self,
        id: u64,
        bytes: &[u8],
        end: StreamEnd,
    ) -> Result<(usize, Option<H3Pause>), H3Failure> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let (taken, event) = self.h3.borrow_mut().receive(id, rest, end)?;
            used += taken;
            match event {
                Some(H3Event::Head { end }) => return Ok((used, Some(H3Pause::Head { end }))),
                Some(H3Event::Blocked) => return Ok((used, Some(H3Pause::Blocked))),
                Some(event) => self.event(id, &event, rest),
                None => return Ok((used, None)),
            }
        }
    }

    fn event(&self, id: u64, event: &H3Event, content: &[u8]) {
        match event {
            H3Event::Data { range, end } => {
                self.content(id, content.get(range.clone()).unwrap_or_default());
                self.content_ends(id, *end);
            }
            H3Event::End => self.content_ends(id, StreamEnd::Last),
            H3Event::Trailers { end } => self.content_ends(id, *end),
            H3Event::Malformed { reason } => {
                self.log(&format_args!("client {reason}"));
                self.with_id(id, |slot| {
                    slot.core.broken = true;
                    slot.fault = Some(H3ErrorCode::Message);
                    slot.core.wake_reader();
                });
            }
            H3Event::Reset { code, reason } => {
                self.log(&format_args!("client {reason}"));
                self.resets.borrow_mut().push((id, *code));
                self.reset(id);
            }
            H3Event::Head { .. } | H3Event::Interim | H3Event::Blocked => {}
        }
    }

    /// A piece of a request's body.
    fn content(&self, id: u64, content: &[u8]) {
        self.with_id(id, |slot| {
            if content.is_empty() || slot.core.discarded || slot.core.closed || slot.over.is_some() {
                return;
            }
            slot.held += content.len() as u64;
            let piece = pieces::join(slot.core.input.back_mut(), content.to_vec());
            slot.core.input.extend(piece);
            slot.core.wake_reader();
        });
    }

    /// No more content of a request comes.
    fn content_ends(&self, id: u64, end: StreamEnd) {
        self.with_id(id, |slot| {
            slot.core.ended |= end == StreamEnd::Last;
            slot.core.wake_reader();
        });
    }

    /// Whether more of the content of stream `id` may be read now; where not, [`H3Mux::take_hungry`] has it later.
    pub fn wants(&self, id: u64) -> bool {
        let ahead = self.ahead;
        self.with_id(id, |slot| {
            slot.unread = slot.held >= ahead;
            !slot.unread
        })
        .unwrap_or(true)
    }

    /// A stream of which more may be read than before.
    pub fn take_hungry(&self) -> Option<u64> {
        self.hungry.borrow_mut().pop()
    }

    /// So many bytes of a stream's content were used.
    pub(super) fn consumed(&self, at: usize, bytes: u64) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(at) else { return };
        slot.held = slot.held.saturating_sub(bytes);
        if slot.unread
            && slot.held < self.ahead
            && let Some(id) = slot.id
        {
            slot.unread = false;
            self.hungry.borrow_mut().push(id);
            drop(slots);
            self.wake();
        }
    }

    /// The client has given stream `id` up, or wants no more of the response. `false`: it has no request yet.
    pub fn reset(&self, id: u64) -> bool {
        let Some(at) = self.place_of(id) else { return false };
        if let Some(slot) = self.slots.borrow_mut().get_mut(at) {
            slot.core.closed = true;
            slot.drop_output();
            slot.core.wake();
        }
        self.has_output(at);
        true
    }

    /// There is room for more of stream `id`.
    pub fn writable(&self, id: u64) {
        if let Some(at) = self.place_of(id) {
            self.slots.borrow_mut()[at].refused = None;
            self.has_output(at);
        }
    }

    /// Content of all streams that QUIC has taken by now, if the stream at `at` has only to wait for its turn.
    pub(super) fn taken_by_all(&self, at: usize) -> Option<u64> {
        let (slots, content) = (self.slots.borrow(), self.content.get());
        slots.get(at).filter(|slot| !slot.is_held_back(content)).map(|_| content)
    }

    fn place_of(&self, id: u64) -> Option<usize> {
        self.slots.borrow().iter().position(|slot| slot.id == Some(id))
    }

    fn with_id<R>(&self, id: u64, f: impl FnOnce(&mut H3Slot) -> R) -> Option<R> {
        self.slots.borrow_mut().iter_mut().find(|slot| slot.id == Some(id)).map(f)
    }

    /// The stream at `at` has something to send, or is over.
    pub(super) fn has_output(&self, at: usize) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(at) else { return };
        if !std::mem::replace(&mut slot.queued, true) {
            self.ready.borrow_mut().push(at);
        }
        drop(slots);
        self.wake();
    }

    /// Prepares the place of a new stream; `request`: whether content of its request follows.
    pub fn begin(&self, id: u64, request: StreamEnd) -> usize {
        let mut slots = self.slots.borrow_mut();
        let at = slots.iter().position(|slot| slot.id.is_none()).unwrap_or(slots.len());
        if at == slots.len() {
            slots.push(H3Slot::default());
        }
        slots[at].renew(id);
        slots[at].core.ended = request == StreamEnd::Last;
        self.open.set(self.open.get() + 1);
        at
    }

    /// The exchange of a stream is over: the rest of its response is sent, as long as the client takes some of it in
    /// each `send_timeout` milliseconds, then it is forgotten.
    pub fn detach(&self, at: usize, end: ExchangeOutcome, send_timeout: u64) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(at) {
            slot.over = Some(end);
            slot.until = Some((weir_rt::now_ms() + send_timeout, send_timeout));
            slot.taken_by_all = self.content.get();
        }
        self.has_output(at);
    }

    /// Gives up the streams without exchange whose clients took nothing for too long; how long until the next is due, in
    /// milliseconds.
    pub fn expire(&self) -> Option<u64> {
        let (now, mut next, mut due) = (weir_rt::now_ms(), None, Vec::new());
        for (at, slot) in self.slots.borrow_mut().iter_mut().enumerate() {
            let Some((mut until, patience)) = slot.until.filter(|_| slot.id.is_some()) else { continue };
            // What waits for its turn has time as long as the client takes what is before it.
            let content = self.content.get();
            let waits = slot.pending > 0 && slot.taken_by_all != content && !slot.is_held_back(content);
            if until <= now && waits {
                until = now + patience;
                (slot.taken_by_all, slot.until) = (content, Some((until, patience)));
            }
            if until <= now {
                slot.drop_output();
                slot.over = Some(ExchangeOutcome::Broken);
                due.push(at);
            } else {
                next = Some(next.unwrap_or(u64::MAX).min(until - now));
            }
        }
        due.into_iter().for_each(|at| self.has_output(at));
        next
    }

    /// Notes what is wrong with the request of a stream: it is reset with that code after the response.
    pub fn blame(&self, at: usize, code: H3ErrorCode) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(at) {
            slot.fault = Some(code);
        }
    }

    /// The connection broke the protocol.
    pub fn failed(&self, failure: &H3Failure) {
        self.log(&format_args!("client {}", failure.reason));
        self.connection.ends(CloseReason::ProtocolError);
    }

    fn log(&self, message: &dyn std::fmt::Display) {
        self.connection.log(LogLevel::Info, &format_args!("{message} while processing HTTP/3 connection"));
    }

    /// How many streams have a request.
    pub fn streams(&self) -> usize {
        self.open.get()
    }

    /// Whether streams have something to send.
    pub fn has_more(&self) -> bool {
        !self.ready.borrow().is_empty() || !self.hungry.borrow().is_empty()
    }

    /// Whether the worker or the connection takes no more requests.
    pub fn is_to_end(&self) -> bool {
        self.worker.is_stopping() || self.connection.takes_no_more()
    }

    /// The task is at work from here on, and looks at what streams did before it waits; or it is not.
    pub fn serves(&self, on: bool) {
        self.call.serves(on);
    }

    /// Whether a stream has woken the connection's task; else it will.
    pub fn is_woken(&self, cx: &Context<'_>) -> bool {
        self.call.is_woken(cx)
    }

    /// Has the connection's task look at what a stream has done.
    pub fn wake(&self) {
        self.call.wake();
    }

    /// Waits until all requests are over.
    pub async fn ended(&self) {
        std::future::poll_fn(|cx| {
            self.forget_ended();
            self.call.waits(cx);
            if self.streams() == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Frees the places of exchanges that are over, where no QUIC is there any more.
    fn forget_ended(&self) {
        let mut slots = self.slots.borrow_mut();
        for slot in slots.iter_mut().filter(|slot| slot.id.is_some() && slot.over.is_some()) {
            slot.free();
            self.open.set(self.open.get() - 1);
        }
    }

    /// The connection is over: streams that are running are notified.
    pub fn end(&self) {
        if self.closed.replace(true) {
            return;
        }
        let mut slots = self.slots.borrow_mut();
        for slot in slots.iter_mut().filter(|slot| slot.id.is_some()) {
            self.worker.counters.streams.with_connection.add(1);
            slot.core.closed = true;
            slot.drop_output();
            slot.core.wake();
        }
    }
}

impl ProtocolState for H3Mux {
    /// Itself with the protocol's tables, and the places of streams with what they hold.
    fn held_bytes(&self) -> usize {
        let slots = self.slots.borrow();
        let held = slots.iter().map(H3Slot::held_bytes).sum::<usize>();
        COUNTED
            + size_of::<H3Mux>()
            + self.h3.borrow().held_bytes()
            + slots.capacity() * size_of::<H3Slot>()
            + held
    }

    fn look(&self) {
        self.wake();
    }
}

/// Bytes of the table that clients may fill.
const TABLE: usize = 4096;
/// Pseudo-header fields of a request beside the fields that `max_headers` counts.
const PSEUDO: usize = 4;
