//! What streams have to send, on its way into QUIC.

use super::mux::H3Mux;
use crate::transport::multiplexed::ExchangeOutcome;
use weir_http::h3::H3ErrorCode;

/// What has become of bytes that QUIC was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkOutcome {
    /// So many were taken; when none, there is room later ([`H3Mux::writable`]).
    Taken(usize),
    /// The client does not want the stream any more.
    Gone,
}

/// QUIC, where streams end and begin.
pub trait StreamSink {
    /// Takes bytes of stream `id`.
    fn write(&mut self, id: u64, bytes: &[u8]) -> SinkOutcome;

    /// Nothing follows on stream `id`.
    fn finish(&mut self, id: u64);

    /// Stream `id` ends without being whole.
    fn reset(&mut self, id: u64, code: H3ErrorCode);

    /// Nothing more of stream `id` is read.
    fn stop(&mut self, id: u64, code: H3ErrorCode);
}

impl H3Mux {
    /// Hands over what streams have to send and QUIC takes, and forgets those that are over.
    pub fn pump(&self, sink: &mut impl StreamSink) {
        for (id, code) in self.resets.borrow_mut().drain(..) {
            sink.reset(id, code);
            sink.stop(id, code);
        }
        let mut ready = std::mem::take(&mut *self.ready.borrow_mut());
        for at in ready.drain(..) {
            if let Some(slot) = self.slots.borrow_mut().get_mut(at) {
                slot.queued = false;
            }
            self.pump_stream(at, sink);
            self.end_stream(at, sink);
        }
        // Its memory is used again, unless streams have come meanwhile.
        let mut later = self.ready.borrow_mut();
        if later.is_empty() {
            *later = ready;
        }
    }

    fn pump_stream(&self, at: usize, sink: &mut impl StreamSink) {
        let mut slots = self.slots.borrow_mut();
        let Some((slot, id)) = slots.get_mut(at).and_then(|slot| slot.id.map(|id| (slot, id))) else {
            return;
        };
        if slot.core.closed {
            return;
        }
        let before = slot.pending;
        while let Some(buf) = slot.next() {
            let bytes = buf.memory().unwrap_or_default();
            match sink.write(id, bytes) {
                SinkOutcome::Taken(taken) => {
                    slot.took(&buf, taken as u64);
                    // One that takes a part says nothing of room for the rest until it was asked for that.
                    if taken == 0 {
                        break;
                    }
                }
                SinkOutcome::Gone => {
                    slot.took(&buf, 0);
                    slot.drop_output();
                    slot.core.closed = true;
                    return slot.core.wake();
                }
            }
        }
        if slot.pending == 0 && slot.ends && !slot.finished && slot.fault.is_none() {
            sink.finish(id);
            slot.finished = true;
        }
        if slot.pending < before || slot.finished {
            slot.core.wake_writer();
            if let Some((until, patience)) = &mut slot.until {
                *until = weir_rt::now_ms() + *patience;
            }
        }
    }

    /// Forgets the stream where its exchange is over and QUIC has all of it.
    fn end_stream(&self, at: usize, sink: &mut impl StreamSink) {
        let mut slots = self.slots.borrow_mut();
        let Some((slot, id)) = slots.get_mut(at).and_then(|slot| slot.id.map(|id| (slot, id))) else {
            return;
        };
        let Some(over) = slot.over else { return };
        let unsent = slot.pending > 0 && !slot.core.closed;
        if over == ExchangeOutcome::Complete && unsent {
            return;
        }
        let whole = slot.finished && over == ExchangeOutcome::Complete && !slot.core.closed;
        let code = match (slot.fault, slot.core.closed) {
            (Some(fault), _) => fault,
            (None, true) => H3ErrorCode::RequestCancelled,
            (None, false) => H3ErrorCode::Internal,
        };
        if !whole {
            // Also where the client has given it up: only then QUIC lets it begin another one.
            sink.reset(id, code);
        }
        if !slot.core.ended {
            // What is still to come of the request is not needed any more (RFC 9114 section 4.1).
            sink.stop(id, if whole { H3ErrorCode::No } else { code });
        }
        slot.free();
        drop(slots);
        self.h3.borrow_mut().forget(id);
        self.open.set(self.open.get() - 1);
    }
}
