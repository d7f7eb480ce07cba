//! A request's end of its stream.

use std::rc::Rc;
use std::task::{Context, Poll};

use weir_http::h2::{ErrorCode, StreamEnd, StreamKey};
use weir_http::{Field, KnownField, Span, hpack};
use weir_rt::Timer;

use super::session::{HIGH, SessionLoss, SessionSlot, UpstreamSession};
use weir_engine::exchange::Exchange;

/// What comes on a stream.
#[derive(Debug)]
pub(crate) enum CallProgress {
    /// The head of the response; whether it is all of it.
    Head(Box<CallFields>, bool),
    /// A head before it (1xx).
    Interim(Box<CallFields>),
    /// Content.
    Data(Vec<u8>),
    /// The trailer.
    Trailers(Box<CallFields>),
    /// The response is whole.
    End,
    /// The stream was reset: by the server, or because of what the server did.
    Reset(ErrorCode, Option<&'static str>),
    /// The connection is gone, or the server does not take the request.
    Lost(SessionLoss),
    /// The timer expired.
    TimedOut,
}

impl CallProgress {
    /// Bytes of content.
    pub(super) fn len(&self) -> usize {
        if let CallProgress::Data(bytes) = self { bytes.len() } else { 0 }
    }
}

/// A header section.
#[derive(Debug)]
pub(crate) struct CallFields {
    text: Vec<u8>,
    list: Vec<(Span, Span, KnownField)>,
    /// The status, of a head.
    pub(crate) status: u16,
    /// Bytes of its frames.
    pub(super) block: usize,
    /// There was more of it than is read.
    pub(super) too_large: bool,
}

impl CallFields {
    /// A copy of what the engine has read.
    pub(super) fn of(section: &hpack::DecodedSection, status: Option<u16>, block: usize) -> CallFields {
        let usual = section.items.iter().filter(|item| !item.name.kind.is_pseudo());
        CallFields {
            text: section.text.clone(),
            list: usual.map(|item| (item.label, item.value, item.name.known)).collect(),
            status: status.unwrap_or(0),
            block,
            too_large: section.too_large,
        }
    }

    /// Whether it is longer than a buffer of `most` bytes, or was not read whole. The shortest code of a byte has five bits; only
    /// a table that was filled before makes one byte expand to kilobytes.
    pub(crate) fn is_larger(&self, most: u64) -> bool {
        self.too_large || self.block as u64 > most || self.text.len() as u64 > most.saturating_mul(2)
    }

    /// Whether it is more than a trailer section may be, with buffers of `most` bytes; what is not read whole may lack a field
    /// that says that the call has failed.
    pub(crate) fn is_too_large_for_trailers(&self, most: u64) -> bool {
        self.too_large || self.text.len() as u64 > most.saturating_mul(2).max(TRAILERS)
    }

    /// Names and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.list.iter().map(|(name, value, _)| (name.of(&self.text), value.of(&self.text)))
    }

    /// The text that [`CallFields::spans`] are of.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// The fields, as spans that are `base` bytes further on than in the text.
    pub(crate) fn spans(&self, base: u32) -> Vec<Field> {
        let moved = |span: Span| Span { start: span.start + base, end: span.end + base };
        let field = |(name, value, known): &(Span, Span, KnownField)| Field {
            name: moved(*name),
            value: moved(*value),
            known: *known,
            valid: true,
            underscore: false,
        };
        self.list.iter().map(field).collect()
    }

    /// The fields in the arena of `x`.
    pub(crate) fn keep(&self, x: &mut Exchange) -> Vec<Field> {
        let base = x.arena.push(&self.text).start;
        self.spans(base)
    }
}

/// A stream. Dropping it before its end resets it.
pub(crate) struct StreamCall {
    session: Rc<UpstreamSession>,
    key: StreamKey,
}

impl StreamCall {
    pub(super) fn new(session: Rc<UpstreamSession>, key: StreamKey) -> StreamCall {
        StreamCall { session, key }
    }

    /// The next thing that comes. `Reset`, `Lost` and `End` are the last.
    pub(crate) fn poll(&self, cx: &mut Context<'_>, timer: Option<&Timer>) -> Poll<CallProgress> {
        if let Some(got) = self.next() {
            return Poll::Ready(got);
        }
        self.with(|slot| slot.waker = Some(cx.waker().clone()));
        match timer {
            Some(timer) => timer.poll_expired(cx).map(|()| CallProgress::TimedOut),
            None => Poll::Pending,
        }
    }

    /// The next thing, if it is there. The server is notified that content was taken.
    pub(super) fn next(&self) -> Option<CallProgress> {
        let got = self.with(|slot| slot.news.pop_front())?;
        if let CallProgress::Data(bytes) = &got {
            let mut out = self.session.out.borrow_mut();
            let before = out.len();
            self.session.h2.borrow_mut().consumed(self.key, bytes.len() as u64, &mut out);
            let said = out.len() > before;
            drop(out);
            if said {
                self.session.wake();
            }
        }
        Some(got)
    }

    /// Gives content of the request.
    pub(crate) fn offer(&self, bytes: Vec<u8>, end: StreamEnd) {
        self.session.h2.borrow_mut().offer(self.key, bytes.len() as u64, end);
        if !bytes.is_empty() {
            self.with(|slot| slot.offer(bytes));
        }
        self.session.wake();
    }

    /// Bytes of the request's content that were given and not sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.session.h2.borrow().pending(self.key)
    }

    /// Whether more content can be given; else the task of `cx` is woken when it can.
    pub(crate) fn has_room(&self, cx: &mut Context<'_>) -> bool {
        if self.unsent() < HIGH {
            return true;
        }
        self.wake_when_moved(cx);
        false
    }

    /// The task of `cx` is woken when something comes, or has left.
    pub(super) fn wake_when_moved(&self, cx: &mut Context<'_>) {
        self.with(|slot| slot.waker = Some(cx.waker().clone()));
    }

    /// Bytes of its frames that were sent, and received.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.with(|slot| (slot.sent, slot.received))
    }

    fn with<R>(&self, f: impl FnOnce(&mut SessionSlot) -> R) -> R {
        f(&mut self.session.slots.borrow_mut()[self.key.index()])
    }
}

impl Drop for StreamCall {
    fn drop(&mut self) {
        self.session.release(self.key);
    }
}

/// Bytes of a trailer section that pass whatever the buffers are: `grpc-status-details-bin` has kilobytes.
const TRAILERS: u64 = 64 * 1024;
