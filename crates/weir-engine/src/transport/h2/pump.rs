//! The streams' content on its way into the connection, as far as windows and the client's pace allow.

use weir_http::h2;
use weir_http::h2::{DataGrant, StreamKey};

use super::file::load;
use super::mux::H2Mux;
use super::slot::StreamSlot;
use crate::body::{BodyBuf, BodyChain};
use crate::transport::multiplexed::ExchangeOutcome;
use crate::transport::wire::HIGH;

impl H2Mux {
    /// Composes as much of the streams' content as may be sent now.
    pub(super) fn pump(&self) {
        let room = self.room();
        while self.wire.pending() <= room {
            let mut h2 = self.h2.borrow_mut();
            let mut grant = None;
            let mut slots = self.slots.borrow_mut();
            if !h2.has_data() {
                break;
            }
            let Some(most) = load(&mut h2, &mut slots) else { continue };
            self.wire.frame(|out| grant = h2.next_data_of(most, out));
            let Some(DataGrant { key, len, end }) = grant else { break };
            if let Some(slot) = slots.get_mut(key.index()) {
                self.take(&mut slot.chain, len);
                self.count(key, slot, (len + h2::HEAD as u64, len));
            }
            let pending = h2.pending(key);
            drop(h2);
            if let Some(slot) = slots.get_mut(key.index()) {
                if let Some(until) = &mut slot.until {
                    *until = weir_rt::now_ms() + slot.core.patience;
                }
                let over = end || (pending == 0 && slot.fault.is_some());
                // Of a window that opens byte by byte each would wake a writer that needs more than that: see `feed`.
                let few = if slot.has_file { HIGH } else { HIGH / 2 };
                if pending <= few && !slot.starved {
                    slot.woken |= slot.core.wake_writer();
                }
                let is_dry = pending == 0 && !over && std::mem::take(&mut slot.woken);
                if is_dry && self.h2.borrow().is_before_others(key) {
                    // What it has next comes before all others, and its task knows that it may go on.
                    self.gives_way.set(true);
                    break;
                }
                if slot.detached && over {
                    let patience = slot.core.patience;
                    drop(slots);
                    self.detach(key, ExchangeOutcome::Complete, patience);
                }
            }
        }
    }

    /// Content of all streams that was composed by now, if this one's own window is open: it has only to wait for its turn then.
    pub(super) fn taken_by_all(&self, key: StreamKey) -> Option<u64> {
        self.h2.borrow().has_own_window(key).then(|| self.content.get())
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
                slot.core.wake_writer();
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

    /// Counts a frame that was just composed, of so many bytes and, of these, bytes of content. What a stream composes that
    /// was reset, or whose connection is gone, goes nowhere.
    #[inline]
    pub(super) fn count(&self, key: StreamKey, slot: &mut StreamSlot, (bytes, content): (u64, u64)) {
        if slot.core.closed {
            return;
        }
        slot.written += bytes;
        slot.content += content;
        self.content.set(self.content.get() + content);
        let end = self.wire.composed();
        self.ledger.borrow_mut().note(key, (bytes, content), end, || self.wire.taken());
    }

    /// Takes back what was counted of the streams that are `meant`, and lies after the output's first `sent` bytes.
    pub(super) fn retract(&self, sent: u64, meant: impl Fn(StreamKey) -> bool) {
        let mut slots = self.slots.borrow_mut();
        for unsent in self.ledger.borrow().unsent(sent) {
            if let Some(slot) = slots.get_mut(unsent.key.index())
                && unsent.end > slot.since
                && meant(unsent.key)
            {
                slot.written = slot.written.saturating_sub(unsent.bytes);
                slot.content = slot.content.saturating_sub(unsent.content);
            }
        }
    }

    /// The client took nothing of a stream for too long: it will hardly take what the connection has left of it.
    pub(super) fn give_up(&self, key: StreamKey) {
        self.retract(self.wire.taken(), |other| other == key);
        if let Some(slot) = self.slots.borrow_mut().get_mut(key.index()) {
            slot.since = self.wire.composed();
            slot.core.given_up = true;
        }
    }

    /// How long the client of a connection that is full may take nothing: the longest `send_timeout` of the server and of the
    /// streams that wait. nginx takes the server's; a location that has more patience with slow clients needs that of the
    /// connection, and the streams of those that have less end by their own timers.
    pub(super) fn longest_patience(&self) -> u64 {
        let server = self.connection.server().plan.core.send_timeout;
        let (h2, slots) = (self.h2.borrow(), self.slots.borrow());
        let keys = h2.keys().into_iter();
        let patience = keys.filter_map(|key| slots.get(key.index())).map(|slot| slot.core.patience);
        patience.fold(server, u64::max)
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
