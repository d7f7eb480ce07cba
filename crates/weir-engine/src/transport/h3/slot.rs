//! What a connection knows of each stream.

use weir_http::h3::H3ErrorCode;

use crate::body::{BodyBuf, BodyChain};
use crate::transport::multiplexed::{ExchangeOutcome, StreamCore};
use crate::transport::wire::is_copied;

/// A request stream.
#[derive(Default)]
pub(super) struct H3Slot {
    pub(super) core: StreamCore,
    /// QUIC's number of the stream; `None`: the place is free.
    pub(super) id: Option<u64>,
    /// Frames that QUIC has not taken, the last of them in `tail`.
    chain: BodyChain,
    tail: Vec<u8>,
    /// Bytes of content that were given and that QUIC has not taken; those of frames' heads count as theirs.
    pub(super) pending: u64,
    /// Nothing follows what was given.
    pub(super) ends: bool,
    /// QUIC knows that.
    pub(super) finished: bool,
    /// Bytes of all its frames (`$bytes_sent`).
    pub(super) written: u64,
    /// Bytes of content in them (`$body_bytes_sent`).
    pub(super) content: u64,
    /// Content that came and was not taken, in bytes.
    pub(super) held: u64,
    /// More of its content has come, and was left with QUIC.
    pub(super) unread: bool,
    /// With which code the stream is reset after the response, since its request was malformed.
    pub(super) fault: Option<H3ErrorCode>,
    /// How its exchange has ended.
    pub(super) over: Option<ExchangeOutcome>,
    /// Until then (milliseconds of the worker's clock) the client has time to take the rest of the response, and so long from
    /// each piece that it takes.
    pub(super) until: Option<(u64, u64)>,
    /// Content of all streams that QUIC had taken when its time was measured last.
    pub(super) taken_by_all: u64,
    /// QUIC has taken nothing of it since so much content of all streams was taken, and has said nothing of room.
    pub(super) refused: Option<u64>,
    /// What QUIC was told of its priority.
    pub(super) rank: Option<i32>,
    /// It is among those that have something to send.
    pub(super) queued: bool,
}

impl H3Slot {
    /// Makes it the place of stream `id`.
    pub(super) fn renew(&mut self, id: u64) {
        self.core.renew();
        self.chain.clear();
        self.tail.clear();
        let H3Slot { core: _, chain: _, tail: _, .. } = self;
        (self.id, self.pending, self.held, self.written, self.content) = (Some(id), 0, 0, 0, 0);
        (self.ends, self.finished, self.unread, self.queued) = (false, false, false, false);
        (self.fault, self.over, self.until, self.rank, self.refused) = (None, None, None, None, None);
    }

    /// Frees the place. Its memory is used again.
    pub(super) fn free(&mut self) {
        self.chain.clear();
        self.core.input.clear();
        self.id = None;
    }

    /// Composes frames after those that are there; how many bytes they have. None after the stream's end.
    pub(super) fn compose(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        if self.core.closed || self.ends {
            return 0;
        }
        let before = self.tail.len();
        write(&mut self.tail);
        let bytes = (self.tail.len() - before) as u64;
        self.count(bytes, 0);
        bytes
    }

    /// Sends `buf`, which is content in memory, after what was composed.
    pub(super) fn give(&mut self, buf: BodyBuf) {
        if self.core.closed || self.ends {
            return;
        }
        let bytes = buf.len();
        match buf.memory() {
            Some(small) if is_copied(&buf) => self.tail.extend_from_slice(small),
            _ => {
                if !self.tail.is_empty() {
                    self.chain.push(BodyBuf::Bytes(std::mem::take(&mut self.tail)));
                }
                self.chain.push(buf);
            }
        }
        self.count(bytes, bytes);
    }

    fn count(&mut self, bytes: u64, content: u64) {
        (self.pending, self.written) = (self.pending + bytes, self.written + bytes);
        self.content += content;
    }

    /// Whether others were taken from, up to `content` of all streams, while nothing was of this one: its own window has no room then,
    /// since where the connection has some QUIC says so first to those that it has refused.
    pub(super) fn is_held_back(&self, content: u64) -> bool {
        self.refused.is_some_and(|at| at != content)
    }

    /// The next bytes for QUIC.
    pub(super) fn next(&mut self) -> Option<BodyBuf> {
        match self.chain.pop() {
            None if self.tail.is_empty() => None,
            None => Some(BodyBuf::Bytes(std::mem::take(&mut self.tail))),
            next => next,
        }
    }

    /// QUIC has taken `taken` bytes of `buf`, the rest is still to be sent.
    pub(super) fn took(&mut self, buf: &BodyBuf, taken: u64) {
        self.pending -= taken.min(self.pending);
        if taken < buf.len() {
            self.chain.unpop(buf.slice(taken, buf.len()));
        }
    }

    /// Drops what was not sent: it goes nowhere.
    pub(super) fn drop_output(&mut self) {
        self.written = self.written.saturating_sub(self.pending);
        self.content = self.content.saturating_sub(self.pending);
        self.pending = 0;
        self.chain.clear();
        self.tail.clear();
    }

    /// Bytes of memory that it holds beside its place.
    pub(super) fn held_bytes(&self) -> usize {
        self.tail.capacity() + (self.pending + self.held) as usize
    }
}
