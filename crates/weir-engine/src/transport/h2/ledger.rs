//! Which bytes of the output belong to which stream, for as long as they may not have left.
//!
//! A stream counts its frames when they are composed. That is what its client got, unless the connection breaks before the
//! kernel has taken them: then the rest of each frame is subtracted, once, before the streams are logged. Nothing is done per
//! frame but noting it, and nothing per turn: marks of bytes that have left are dropped when the list is full.

use weir_http::h2::StreamKey;

/// A frame with content, or a header section, in the output.
#[derive(Clone, Copy, Debug)]
struct FrameMark {
    /// What [`ClientWire::composed`](crate::transport::wire::ClientWire::composed) was after its last byte.
    end: u64,
    key: StreamKey,
    /// Its bytes, head included.
    bytes: u32,
    /// Those of content; 0 of a header section.
    content: u32,
}

/// The frames of the output that were composed last.
#[derive(Debug, Default)]
pub(super) struct FrameLedger(Vec<FrameMark>);

/// What of a stream's frames has not left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnsentFrame {
    /// The stream's key.
    pub(super) key: StreamKey,
    /// Where the whole frame ends in the output.
    pub(super) end: u64,
    /// Bytes, those of the head included.
    pub(super) bytes: u64,
    /// Bytes of content.
    pub(super) content: u64,
}

impl FrameLedger {
    /// Bytes of memory that it owns.
    pub(super) fn held_bytes(&self) -> usize {
        self.0.capacity() * size_of::<FrameMark>()
    }

    /// Notes the frame of `bytes` bytes, `content` of them content, which ends at `end`. `sent` returns up to where the
    /// kernel has taken the output, and is called when the list is full.
    #[inline]
    pub(super) fn note(
        &mut self,
        key: StreamKey,
        (bytes, content): (u64, u64),
        end: u64,
        sent: impl FnOnce() -> u64,
    ) {
        if self.0.len() == self.0.capacity() {
            self.make_room(sent());
        }
        self.0.push(FrameMark { end, key, bytes: bytes as u32, content: content as u32 });
    }

    /// Drops the marks of what has left, and makes room for as many again as are left.
    #[cold]
    fn make_room(&mut self, sent: u64) {
        self.0.retain(|mark| mark.end > sent);
        self.0.reserve_exact(self.0.len().max(FEW));
    }

    /// What has not left when the kernel has taken the output up to `sent`.
    pub(super) fn unsent(&self, sent: u64) -> impl Iterator<Item = UnsentFrame> {
        let unsent = self.0.iter().rev().take_while(move |mark| mark.end > sent);
        unsent.map(move |mark| {
            let left = mark.end - sent;
            UnsentFrame {
                key: mark.key,
                end: mark.end,
                bytes: left.min(mark.bytes.into()),
                content: left.min(mark.content.into()),
            }
        })
    }

    /// No stream is open: the marks are of no more use, and the memory of many is given back.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.0.clear();
        if self.0.capacity() > FEW {
            self.0 = Vec::new();
        }
    }
}

/// Marks in the list of a connection whose client takes what it gets: 768 bytes.
const FEW: usize = 32;

#[cfg(test)]
mod tests {
    use weir_http::h2::{H2Config, H2Connection, StreamEnd, StreamKey};

    use super::{FEW, FrameLedger};

    /// Keys of two streams.
    fn keys() -> [StreamKey; 2] {
        let config = H2Config {
            max_streams: 10,
            stream_window: 65_535,
            window: 65_535,
            headers: weir_http::hpack::SectionLimits::new(1000, 10),
            max_frame: weir_http::h2::MIN_FRAME,
            connect_protocol: false,
        };
        let mut client = H2Connection::client(&config, &mut Vec::new());
        [0; 2].map(|_| client.open(StreamEnd::Last, &mut Vec::new(), |_, _| {}).expect("streams are free"))
    }

    #[test]
    fn what_has_not_left_is_found_frame_by_frame() {
        let [a, b] = keys();
        let mut ledger = FrameLedger::default();
        let mut note = |key, bytes, content, end| ledger.note(key, (bytes, content), end, || 0);
        note(a, 30, 0, 130);
        note(b, 109, 100, 250);
        note(a, 59, 50, 309);
        let unsent = |sent| {
            let frames = ledger.unsent(sent).map(|frame| (frame.key == a, frame.bytes, frame.content));
            frames.collect::<Vec<_>>()
        };
        assert_eq!(unsent(309), []);
        assert_eq!(unsent(308), [(true, 1, 1)]);
        assert_eq!(unsent(250), [(true, 59, 50)]);
        assert_eq!(unsent(145), [(true, 59, 50), (false, 105, 100)], "four bytes of the head have left");
        assert_eq!(unsent(100), [(true, 59, 50), (false, 109, 100), (true, 30, 0)]);
    }

    #[test]
    fn the_list_does_not_grow_while_the_client_takes_what_it_gets() {
        let [a, _] = keys();
        let mut ledger = FrameLedger::default();
        for end in 1..10_000 {
            ledger.note(a, (1, 0), end, || end - 1);
        }
        assert!(ledger.0.capacity() <= 2 * FEW, "{}", ledger.0.capacity());
        for end in 10_000..20_000 {
            ledger.note(a, (1, 0), end, || 9_999);
        }
        assert_eq!(ledger.unsent(9_999).count(), 10_000);
        ledger.clear();
        assert_eq!(ledger.0.capacity(), 0);
    }
}
