//! What streams have to send, on its way into QUIC.

use super::mux::H3Mux;
use crate::transport::multiplexed::ExchangeOutcome;
use weir_http::h3::H3ErrorCode;
use weir_http::priority::Priority;

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

    /// From here on what was written of stream `id` leaves before that of streams of a lower rank, and by turns with that of the
    /// same one.
    fn rank(&mut self, id: u64, rank: i32);

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
        self.order(&mut ready, sink);
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

    /// Puts streams in the order of their priorities: what one takes of the room that there is, the next has no more.
    fn order(&self, ready: &mut [usize], sink: &mut impl StreamSink) {
        let (h3, mut slots) = (self.h3.borrow(), self.slots.borrow_mut());
        for at in ready.iter() {
            if let Some(slot) = slots.get_mut(*at)
                && let Some(id) = slot.id
            {
                let rank = rank(h3.priority(id), id);
                if slot.rank.replace(rank) != Some(rank) {
                    sink.rank(id, rank);
                }
            }
        }
        if ready.len() > 1 {
            ready.sort_by_key(|at| std::cmp::Reverse(slots.get(*at).and_then(|slot| slot.rank)));
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
        let (before, mut is_refused) = (slot.pending, false);
        while let Some(buf) = slot.next() {
            let bytes = buf.memory().unwrap_or_default();
            match sink.write(id, bytes) {
                SinkOutcome::Taken(taken) => {
                    slot.took(&buf, taken as u64);
                    // One that takes a part says nothing of room for the rest until it was asked for that.
                    if taken == 0 {
                        is_refused = true;
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
        self.content.set(self.content.get() + before.saturating_sub(slot.pending));
        slot.refused = is_refused.then(|| self.content.get());
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

/// A stream's priority as one number, the most urgent the highest. Those that are not incremental come one after the other in the
/// order of their numbers, before those that share (RFC 9218 section 10).
fn rank(priority: Priority, id: u64) -> i32 {
    let urgency = 7 - i32::from(priority.urgency.min(7));
    let place = match priority.incremental {
        true => 0,
        false => PLACES - i32::try_from(id / 4).unwrap_or(PLACES).min(PLACES - 1),
    };
    urgency * (PLACES + 1) + place
}

/// So many streams have an order among those of the same urgency.
const PLACES: i32 = 1 << 27;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_in_the_order_of_urgency_then_of_asking_then_shared() {
        let of = |urgency, incremental, id| rank(Priority { urgency, incremental }, id);
        let order = [
            of(0, false, 8),
            of(0, false, 12),
            of(0, true, 0),
            of(1, false, 0),
            of(7, false, 0),
            of(7, true, 4),
        ];
        assert!(order.is_sorted_by(|a, b| a > b), "{order:?}");
        assert_eq!(of(3, true, 0), of(3, true, 400));
        let last = of(3, false, (1 << 62) - 4);
        assert!(last > of(3, true, 0) && of(0, false, 0) > 0);
    }
}
