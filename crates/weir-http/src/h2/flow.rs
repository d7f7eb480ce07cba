//! Flow control (RFC 9113 section 5.2): what may be sent, and what the peer may send.

/// What may be sent. A change of settings can make it negative (section 6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendWindow(i64);

/// Above this a window is an error (section 6.9.1).
const MOST: i64 = 0x7fff_ffff;

impl SendWindow {
    pub(super) fn new(size: u32) -> SendWindow {
        SendWindow(size.into())
    }

    /// Bytes that may be sent now.
    pub(super) fn room(self) -> u64 {
        self.0.max(0) as u64
    }

    /// This many bytes were sent.
    pub(super) fn take(&mut self, bytes: u64) {
        self.0 -= bytes as i64;
    }

    /// The peer allows this many more, or, by its settings, fewer. `false`: it is an error.
    #[must_use]
    pub(super) fn grow(&mut self, by: i64) -> bool {
        self.0 += by;
        self.0 <= MOST
    }
}

/// What the peer may send, and how much of it was used up and is not reported to it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecvWindow {
    /// Bytes that the peer may still send; negative after [`RecvWindow::narrow`].
    room: i64,
    /// What it shall be able to send at once.
    size: u32,
    /// Bytes that were used, and that it may send again once it gets a WINDOW_UPDATE frame.
    used: u32,
}

impl RecvWindow {
    /// A window of which the peer knows `known` bytes.
    pub(super) fn new(known: u32) -> RecvWindow {
        RecvWindow { room: known.into(), size: known, used: 0 }
    }

    /// A window of `size` bytes while the peer may still take it for one of `known` bytes, if that is more.
    pub(super) fn early(size: u32, known: u32) -> RecvWindow {
        RecvWindow { room: size.max(known).into(), size, used: 0 }
    }

    /// The peer knows from here on that the window is not of `known` bytes, if that was more ([`RecvWindow::early`]).
    pub(super) fn narrow(&mut self, size: u32, known: u32) {
        self.room -= i64::from(known.saturating_sub(size));
    }

    /// The peer sent `bytes`; `false`: it was not allowed to.
    #[must_use]
    pub(super) fn take(&mut self, bytes: u32) -> bool {
        // An end without content needs no room.
        let is_allowed = bytes == 0 || i64::from(bytes) <= self.room;
        if is_allowed {
            self.room -= i64::from(bytes);
        }
        is_allowed
    }

    /// `bytes` of what was received were used. Returns the WINDOW_UPDATE increment in bytes, if that is worth a frame:
    /// half a window.
    pub(super) fn release(&mut self, bytes: u32) -> Option<u32> {
        self.used = self.used.saturating_add(bytes);
        if self.used < self.size / 2 {
            return None;
        }
        self.room += i64::from(self.used);
        Some(std::mem::take(&mut self.used))
    }

    /// The window shall be `size`. Returns the WINDOW_UPDATE increment in bytes.
    pub(super) fn widen(&mut self, size: u32) -> Option<u32> {
        let by = size.checked_sub(self.size).filter(|by| *by > 0)? + std::mem::take(&mut self.used);
        self.size = size;
        self.room += i64::from(by);
        Some(by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_given_back_by_halves() {
        let mut window = RecvWindow::new(100);
        assert!(window.take(60) && !window.take(41) && window.take(40) && window.take(0));
        assert_eq!(window.release(49), None);
        assert_eq!(window.release(1), Some(50));
        assert!(window.take(50) && !window.take(1));
        assert_eq!(window.release(10), None);
        assert_eq!(window.widen(1000), Some(910));
        assert_eq!(window.widen(500), None);
    }

    #[test]
    fn a_peer_that_does_not_know_of_a_small_window_may_fill_the_usual_one() {
        let mut window = RecvWindow::early(10, 100);
        assert!(window.take(90) && !window.take(11));
        window.narrow(10, 100);
        assert!(!window.take(1) && window.take(0));
        // Of its view: 100 - 90 - 90, and what is given back.
        assert_eq!(window.release(81), Some(81));
        assert!(window.take(1) && !window.take(1));
        let mut wide = RecvWindow::early(1000, 100);
        wide.narrow(1000, 100);
        assert!(wide.take(1000) && !wide.take(1));
    }

    #[test]
    fn a_window_to_send_into_may_be_negative_and_not_too_large() {
        let mut window = SendWindow::new(10);
        window.take(10);
        assert!(window.grow(-5));
        assert_eq!(window.room(), 0);
        assert!(window.grow(6));
        assert_eq!(window.room(), 1);
        assert!(window.grow(0x7fff_fffe) && !window.grow(1));
    }
}
