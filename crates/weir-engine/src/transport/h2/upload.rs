//! How much of a request's content may come ahead of its reader.
//!
//! A window of a fixed size bounds a stream's rate by the time that a round trip takes: 256 KB at 50 ms are 5 MB/s. So it
//! grows while the reader keeps up: each time that the client has used a window's worth and nothing of it is left, as
//! far as 8 MB, which fills 1 Gbit/s at 50 ms. A reader that is slow leaves it as it is.

use weir_http::h2::StreamKey;

use super::mux::H2Mux;
use super::slot::StreamSlot;
use super::stream::H2Stream;

/// The window of a stream at most, in bytes.
const WIDEST: u32 = 8 << 20;
/// What the streams of a connection may have beyond `http2_recv_buffer_size`, in bytes, all together: what a connection
/// can make the server hold, once something behind it stalls.
const WIDENED: u64 = 32 << 20;
/// Content that comes in pieces of so many bytes is received long pieces at a time.
const LONG_CONTENT: u64 = 2048;

/// How far ahead the content of a stream may come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadAheadWindow {
    /// Bytes; 0: nobody reads the content yet.
    size: u32,
    /// Bytes that were taken since the window grew.
    taken: u64,
}

impl ReadAheadWindow {
    /// `bytes` were taken, and nothing is left. By how much the window grows, if it may: no more than `room`.
    fn grow(&mut self, bytes: u64, room: u64) -> Option<u32> {
        self.taken += bytes;
        if self.size == 0 || self.taken < u64::from(self.size) {
            return None;
        }
        let by = self.size.min(WIDEST.saturating_sub(self.size));
        if by == 0 || u64::from(by) > room {
            return None;
        }
        (self.size, self.taken) = (self.size + by, 0);
        Some(by)
    }
}

impl H2Mux {
    /// A stream's slot is free, or another stream's: what its window had beyond the usual goes back.
    pub(super) fn narrow(&self, slot: &mut StreamSlot) {
        let window = std::mem::take(&mut slot.ahead);
        let beyond = window.size.saturating_sub(self.read_window);
        self.widened.set(self.widened.get() - u64::from(beyond));
    }

    /// Notes that `bytes` of content came in one piece.
    pub(super) fn note_content(&self, bytes: u64) {
        if bytes >= LONG_CONTENT {
            self.uploads.set(true);
        }
    }

    /// Whether content comes in such pieces that the connection is received from long pieces at a time; until it is idle.
    pub fn has_uploads(&self) -> bool {
        self.uploads.get()
    }

    /// The connection is idle: what comes next is short.
    pub(super) fn end_uploads(&self) {
        if self.uploads.replace(false) {
            self.wire.stream.end_long();
        }
    }

    fn widen(&self, key: StreamKey, window: u32) {
        let mut h2 = self.h2.borrow_mut();
        self.wire.compose(|out| h2.widen(key, window, out));
    }
}

impl H2Stream {
    /// The request's content is being read: more of it may come ahead.
    pub(crate) fn read_ahead(&self) {
        let window = self.mux.read_window;
        let begun = self.with_mut(|slot| {
            let begun = slot.ahead.size == 0;
            slot.ahead.size = slot.ahead.size.max(window);
            begun
        });
        if begun {
            self.mux.widen(self.key, window);
            self.mux.wake();
        }
    }

    /// A piece of the request's content, if one has come.
    pub(super) fn take_piece(&self) -> Option<Vec<u8>> {
        let room = WIDENED - self.mux.widened.get();
        let (piece, wider) = self.with_mut(|slot| {
            let piece = slot.core.input.pop_front()?;
            let kept_up = slot.core.input.is_empty() && !slot.core.ended;
            let by = if kept_up { slot.ahead.grow(piece.len() as u64, room) } else { None };
            Some((piece, by.map(|by| (slot.ahead.size, by))))
        })?;
        self.mux.consumed(self.key, piece.len() as u64);
        if let Some((size, by)) = wider {
            self.mux.widened.set(self.mux.widened.get() + u64::from(by));
            self.mux.widen(self.key, size);
        }
        self.mux.wake();
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_doubles_with_each_that_was_used_up_to_eight_megabytes() {
        let mut window = ReadAheadWindow { size: 262_144, ..ReadAheadWindow::default() };
        let mut sizes = vec![];
        for _ in 0..4_096 {
            let before = window.size;
            if let Some(by) = window.grow(16_384, WIDENED) {
                assert_eq!(window.size, before + by);
                sizes.push(window.size);
            }
        }
        assert_eq!(sizes, [512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20]);
    }

    #[test]
    fn a_window_does_not_grow_beyond_its_connections_share_or_before_it_is_read() {
        let mut window = ReadAheadWindow { size: 262_144, ..ReadAheadWindow::default() };
        assert_eq!(window.grow(262_144, 262_143), None);
        assert_eq!((window.grow(1, 262_144), window.size), (Some(262_144), 524_288));
        assert_eq!(ReadAheadWindow::default().grow(1 << 30, WIDENED), None);
    }

    #[test]
    fn a_window_that_is_large_already_stays() {
        let mut window = ReadAheadWindow { size: 16 << 20, ..ReadAheadWindow::default() };
        assert_eq!(window.grow(64 << 20, WIDENED), None);
    }
}
