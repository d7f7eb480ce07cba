//! What a session of `stream` has beside a tunnel's two directions: counts, rates, and an end that may be of both at once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Context;

use crate::protocol::SessionManners;
use crate::request::attempt_records::AttemptRecords;
use crate::response::limit_rate::ReadPace;
use weir_engine::exchange::SessionBytes;

/// One direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowDirection {
    /// From the client to the server.
    Forth,
    /// From the server to the client.
    Back,
}

/// The flow of a session.
pub(crate) struct SessionFlow {
    bytes: Rc<SessionBytes>,
    records: AttemptRecords,
    half_close: bool,
    paces: [Option<RefCell<ReadPace>>; 2],
    /// Which direction ended first.
    pub(crate) first_end: Cell<Option<FlowDirection>>,
}

/// What may be passed on now.
pub(crate) enum PacedBytes {
    /// The next bytes are to be read.
    Read,
    /// These.
    Some(Vec<u8>),
    /// Nothing yet.
    Wait,
}

impl SessionFlow {
    pub(crate) fn new(
        bytes: &Rc<SessionBytes>,
        manners: SessionManners,
        records: &AttemptRecords,
    ) -> SessionFlow {
        let pace =
            |rate: u64| (rate > 0).then(|| RefCell::new(ReadPace::new(rate, weir_rt::now_ms(), Vec::new())));
        SessionFlow {
            bytes: bytes.clone(),
            records: records.clone(),
            half_close: manners.half_close,
            paces: [pace(manners.upload_rate), pace(manners.download_rate)],
            first_end: Cell::new(None),
        }
    }

    /// Whether all ends with the first end of a direction.
    pub(crate) fn ends_at_once(&self) -> bool {
        !self.half_close
    }

    /// What was read before and may be passed on now.
    pub(crate) fn poll_held(&self, cx: &mut Context<'_>, direction: FlowDirection) -> PacedBytes {
        let Some(pace) = &self.paces[direction as usize] else { return PacedBytes::Read };
        let (mut pace, now) = (pace.borrow_mut(), weir_rt::now_ms());
        if pace.is_empty() {
            return PacedBytes::Read;
        }
        loop {
            if let Some(bytes) = pace.take(now, None) {
                return PacedBytes::Some(bytes);
            }
            if pace.poll_pause(cx, now).is_pending() {
                return PacedBytes::Wait;
            }
        }
    }

    /// Counts what was read. It is given back to be passed on, unless it has to wait: then
    /// [`poll_held`](SessionFlow::poll_held) gives it.
    pub(crate) fn read(&self, direction: FlowDirection, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let count = bytes.len() as u64;
        match direction {
            FlowDirection::Forth => self.bytes.from_client.set(self.bytes.from_client.get() + count),
            FlowDirection::Back => {
                if self.bytes.from_server.get() == 0 {
                    self.records.first_byte();
                }
                self.bytes.from_server.set(self.bytes.from_server.get() + count);
            }
        }
        match &self.paces[direction as usize] {
            None => Some(bytes),
            Some(pace) => {
                pace.borrow_mut().hold(bytes);
                None
            }
        }
    }

    /// Counts what was passed on.
    pub(crate) fn passed(&self, direction: FlowDirection, count: usize) {
        if direction == FlowDirection::Forth {
            self.bytes.to_server.set(self.bytes.to_server.get() + count as u64);
        }
    }

    /// The session is over: its bytes are those of the try.
    pub(crate) fn end(&self) {
        self.records.count(0, self.bytes.to_server.get(), self.bytes.from_server.get());
    }
}

#[cfg(test)]
mod tests {
    use weir_engine::testing;

    use super::*;

    #[test]
    fn what_is_read_is_counted_and_held_where_there_is_a_rate() {
        testing::run("server { }", "GET / HTTP/1.0\r\n\r\n", async |_| {
            let bytes = Rc::<SessionBytes>::default();
            let manners = SessionManners { upload_rate: 3, ..SessionManners::default() };
            let flow = SessionFlow::new(&bytes, manners, &AttemptRecords::default());
            assert_eq!(flow.read(FlowDirection::Back, vec![1; 4]), Some(vec![1; 4]));
            assert_eq!(flow.read(FlowDirection::Forth, vec![2; 5]), None);
            assert_eq!((bytes.from_client.get(), bytes.from_server.get()), (5, 4));
            let mut cx = Context::from_waker(std::task::Waker::noop());
            assert!(matches!(flow.poll_held(&mut cx, FlowDirection::Back), PacedBytes::Read));
            let held = flow.poll_held(&mut cx, FlowDirection::Forth);
            assert!(matches!(held, PacedBytes::Some(part) if part == [2; 3]));
        });
    }
}
