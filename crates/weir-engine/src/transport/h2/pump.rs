//! The streams' content on its way into the connection, as far as windows and the client's pace allow.

use weir_http::h2;
use weir_http::h2::{DataGrant, StreamKey};

use super::mux::{ExchangeOutcome, H2Mux, StreamSlot};
use crate::body::{BodyBuf, BodyChain};
use crate::transport::wire::HIGH;

impl H2Mux {
    /// Composes as much of the streams' content as may be sent now.
    pub(super) fn pump(&self) {
        while self.wire.pending() <= HIGH {
            let mut h2 = self.h2.borrow_mut();
            let mut grant = None;
            let mut slots = self.slots.borrow_mut();
            if !h2.has_data() {
                break;
            }
            self.wire.frame(|out| grant = h2.next_data(out));
            let Some(DataGrant { key, len, end }) = grant else { break };
            if let Some(slot) = slots.get_mut(key.index()) {
                self.take(&mut slot.chain, len);
                slot.written += len + h2::HEAD as u64;
                slot.content += len;
            }
            let pending = h2.pending(key);
            drop(h2);
            if let Some(slot) = slots.get_mut(key.index()) {
                if let Some(until) = &mut slot.until {
                    *until = weir_rt::now_ms() + slot.patience;
                }
                let over = end || (pending == 0 && slot.fault.is_some());
                // Of a window that opens byte by byte each would wake a writer that needs more than that: see `feed`.
                if pending <= HIGH / 2
                    && !slot.starved
                    && let Some(writer) = slot.writer.take()
                {
                    writer.wake();
                }
                if slot.detached && over {
                    drop(slots);
                    self.detach(key, ExchangeOutcome::Complete);
                }
            }
        }
    }

    /// Wakes the streams that wait for windows that are open now. Hardly ever there are any.
    pub(super) fn feed(&self) {
        let mut starved = self.starved.borrow_mut();
        if starved.is_empty() {
            return;
        }
        let (h2, mut slots) = (self.h2.borrow(), self.slots.borrow_mut());
        starved.retain(|key| {
            let waits = h2.window(*key) == 0;
            if !waits && let Some(slot) = slots.get_mut(key.index()) {
                slot.starved = false;
                if let Some(writer) = slot.writer.take() {
                    writer.wake();
                }
            }
            waits
        });
    }

    /// Has the stream's writer woken when there is a window for what it has not announced.
    pub(super) fn starve(&self, key: StreamKey) {
        let mut slots = self.slots.borrow_mut();
        if let Some(slot) = slots.get_mut(key.index())
            && !std::mem::replace(&mut slot.starved, true)
        {
            self.starved.borrow_mut().push(key);
        }
    }

    /// The stream's writer waits for no window, or no longer.
    pub(super) fn relieve(&self, key: StreamKey) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(key.index()) {
            self.unstarve(slot, key);
        }
    }

    /// [`relieve`](H2Mux::relieve) where the stream's slot is at hand.
    pub(super) fn unstarve(&self, slot: &mut StreamSlot, key: StreamKey) {
        if std::mem::take(&mut slot.starved) {
            self.starved.borrow_mut().retain(|starved| *starved != key);
        }
    }

    /// Moves `len` bytes of `chain` after the head of their frame; all of its pieces are in memory. Small ones are
    /// copied, others go as they are: the bytes of a file that many ask for stay in the processor's cache, and a burst
    /// needs no memory of its own.
    fn take(&self, chain: &mut BodyChain, len: u64) {
        let mut left = len;
        while left > 0
            && let Some(buf) = chain.pop()
        {
            let part = buf.len().min(left);
            left -= part;
            if part == buf.len() {
                self.wire.queue(buf);
                continue;
            }
            let buf = divisible(buf);
            self.wire.queue(buf.slice(0, part));
            chain.unpop(buf.slice(part, buf.len()));
        }
    }
}

/// `buf` in a form whose parts are no copies.
fn divisible(buf: BodyBuf) -> BodyBuf {
    match buf {
        BodyBuf::Bytes(bytes) => BodyBuf::shared(bytes.into()),
        other => other,
    }
}
