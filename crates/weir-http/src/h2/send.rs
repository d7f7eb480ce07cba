//! What is sent: heads at once, data by turns.

use super::conn::{ConnectionEnding, H2Connection, H2Role};
use super::frame::{self, END_HEADERS, END_STREAM, FrameHead, HEAD, kind};
use super::guard::H2Abuse;
use super::state::StreamState;
use super::store::{StreamKey, StreamRecord};
use crate::hpack::HpackEncoder;
use crate::message::StreamEnd;
use crate::priority::Priority;

/// A DATA frame whose head was written: this many bytes of that stream are to be appended now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataGrant {
    /// The stream whose bytes may be sent.
    pub key: StreamKey,
    /// Bytes; 0 only at the end.
    pub len: u64,
    /// True when the stream ends with these bytes.
    pub end: bool,
}

impl H2Connection {
    /// Appends a header section: a head, an interim one, or trailers, which come when all data was sent. `write` writes
    /// the block. Does nothing on a stream that may not send any more.
    pub fn head(
        &mut self,
        key: StreamKey,
        end: StreamEnd,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut HpackEncoder, &mut Vec<u8>),
    ) {
        let Some(stream) = self.store.get_mut(key).filter(|stream| stream.state.sends()) else { return };
        let id = stream.id;
        let flags = match end {
            StreamEnd::More => 0,
            StreamEnd::Last => {
                stream.state = stream.state.end_out();
                self.guard.pay(H2Abuse::Resets, 1);
                END_STREAM
            }
        };
        let start = out.len();
        out.extend_from_slice(&[0; HEAD]);
        self.encoder.begin(out);
        write(&mut self.encoder, out);
        self.frame(start, id, flags, out);
    }

    /// Opens a stream with a request's head; `None` when the peer takes no more (now, or at all).
    pub fn open(
        &mut self,
        end: StreamEnd,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut HpackEncoder, &mut Vec<u8>),
    ) -> Option<StreamKey> {
        let most = self.remote.max_streams.unwrap_or(u32::MAX) as usize;
        let ending = self.ending != ConnectionEnding::No || self.peer_last.is_some();
        if self.role != H2Role::Client || ending || self.store.len() >= most || self.next > 0x7fff_ffff {
            return None;
        }
        let stream = self.stream(self.next, StreamState::Open);
        self.next += 2;
        let key = self.store.insert(stream);
        self.head(key, end, out, write);
        Some(key)
    }

    /// Fills in the head of the block that begins at `start`; one that is longer than a frame is cut.
    fn frame(&self, start: usize, id: u32, flags: u8, out: &mut Vec<u8>) {
        let most = self.remote.max_frame as usize;
        let length = out.len() - start - HEAD;
        let whole = length <= most;
        let first = FrameHead {
            length: length.min(most) as u32,
            kind: kind::HEADERS,
            flags: if whole { flags | END_HEADERS } else { flags },
            stream: id,
        };
        if let Some(place) = out.get_mut(start..start + HEAD) {
            place.copy_from_slice(&first.bytes());
        }
        if whole {
            return;
        }
        let rest = out.split_off(start + HEAD + most);
        let mut pieces = rest.chunks(most).peekable();
        while let Some(piece) = pieces.next() {
            let flags = if pieces.peek().is_none() { END_HEADERS } else { 0 };
            frame::write(out, kind::CONTINUATION, flags, id, piece);
        }
    }

    /// Announces `bytes` more of a stream's content, and whether they are the last. They are asked for by
    /// [`H2Connection::next_data`] when their turn comes.
    pub fn offer(&mut self, key: StreamKey, bytes: u64, end: StreamEnd) {
        let Some(stream) = self.store.get_mut(key).filter(|stream| stream.state.sends()) else { return };
        stream.pending += bytes;
        stream.last |= end == StreamEnd::Last;
        self.enqueue(key);
    }

    /// Bytes announced and not asked for yet.
    pub fn pending(&self, key: StreamKey) -> u64 {
        self.store.get(key).map_or(0, |stream| stream.pending)
    }

    /// Bytes that could be sent of a stream beside all that was announced: until then its content need not be in memory.
    /// What other streams may not send for their own windows takes nothing of the connection's.
    pub fn window(&self, key: StreamKey) -> u64 {
        let Some(stream) = self.store.get(key) else { return 0 };
        let own = stream.send.room().saturating_sub(stream.pending);
        if own == 0 {
            // Of many streams whose windows stay closed each is asked again and again.
            return 0;
        }
        let ahead = self.store.streams().map(|stream| stream.pending.min(stream.send.room())).sum();
        own.min(self.send.room().saturating_sub(ahead))
    }

    /// Whether the peer has room for content of a stream, whatever it has for all of them.
    pub fn has_own_window(&self, key: StreamKey) -> bool {
        self.store.get(key).is_some_and(|stream| stream.send.room() > 0)
    }

    /// Whether something of a stream is still to be sent that was announced, if only its end.
    pub fn is_unsent(&self, key: StreamKey) -> bool {
        let unsent = |stream: &StreamRecord| stream.state.sends() && (stream.pending > 0 || stream.last);
        self.store.get(key).is_some_and(unsent)
    }

    /// Whether something was announced that was not asked for, maybe because the stream was reset.
    pub fn is_pending(&self, key: StreamKey) -> bool {
        self.store.get(key).is_some_and(|stream| stream.pending > 0 || (stream.last && stream.state.sends()))
    }

    /// Writes the head of a DATA frame with all of a stream's content, `bytes`, where that is one frame, may be sent, and
    /// no stream that is as urgent waits. `false`: it has to be offered.
    #[inline]
    pub fn data_at_once(&mut self, key: StreamKey, bytes: u64, out: &mut Vec<u8>) -> bool {
        let room = self.send.room();
        let Some(stream) = self.store.get_mut(key).filter(|stream| stream.state.sends()) else {
            return false;
        };
        let limit = u64::from(self.remote.max_frame.min(stream.chunk)).min(room);
        if bytes > limit || bytes > stream.send.room() || stream.pending > 0 || self.queue.first().is_some() {
            return false;
        }
        stream.send.take(bytes);
        stream.state = stream.state.end_out();
        let head = FrameHead { length: bytes as u32, kind: kind::DATA, flags: END_STREAM, stream: stream.id };
        self.send.take(bytes);
        self.guard.sent(bytes, false);
        self.guard.pay(H2Abuse::Resets, 1);
        out.extend_from_slice(&head.bytes());
        true
    }

    /// Whether [`data_at_once`](H2Connection::data_at_once) would write the frame of so many bytes, of which at most `chunk` may
    /// go in one.
    #[inline]
    pub fn takes_at_once(&self, key: StreamKey, bytes: u64, chunk: u32) -> bool {
        let Some(stream) = self.store.get(key).filter(|stream| stream.state.sends()) else { return false };
        let limit = u64::from(self.remote.max_frame.min(chunk.max(1))).min(self.send.room());
        bytes <= limit && bytes <= stream.send.room() && stream.pending == 0 && self.queue.first().is_none()
    }

    /// Sets how many bytes of a stream's content may go in one frame (`http2_chunk_size`).
    pub fn set_chunk(&mut self, key: StreamKey, bytes: u32) {
        if let Some(stream) = self.store.get_mut(key) {
            stream.chunk = bytes.max(1);
        }
    }

    /// The next DATA frame: its head is appended to `out`, and its content is to be appended by the caller before
    /// anything else. `None` when no stream has anything to send, or none may.
    pub fn next_data(&mut self, out: &mut Vec<u8>) -> Option<DataGrant> {
        self.next_data_of(u64::MAX, out)
    }

    /// [`next_data`](H2Connection::next_data) with at most so many bytes of content, of which there is at least one.
    pub fn next_data_of(&mut self, most: u64, out: &mut Vec<u8>) -> Option<DataGrant> {
        loop {
            let key = StreamKey(self.queue.first()?);
            let whole = self.send.room();
            let Some(stream) = self.store.get_mut(key) else {
                self.queue.pop(0);
                continue;
            };
            let limit = u64::from(self.remote.max_frame.min(stream.chunk)).min(whole).min(most);
            let room = stream.send.room();
            let len = stream.pending.min(room).min(limit);
            let end = stream.last && len == stream.pending;
            if len == 0 && !end {
                if stream.pending > 0 && room > 0 {
                    // It is the connection's window that is used up.
                    return None;
                }
                stream.queued = false;
                self.queue.pop(0);
                continue;
            }
            stream.pending -= len;
            stream.send.take(len);
            if end {
                stream.state = stream.state.end_out();
                self.guard.pay(H2Abuse::Resets, 1);
            }
            let cut = stream.pending > 0 && (len == room || len == whole);
            let flags = if end { END_STREAM } else { 0 };
            let head = FrameHead { length: len as u32, kind: kind::DATA, flags, stream: stream.id };
            if stream.pending == 0 || stream.send.room() == 0 {
                stream.queued = false;
                self.queue.pop(len);
            } else {
                self.queue.turn(len);
            }
            self.send.take(len);
            self.guard.sent(len, cut);
            out.extend_from_slice(&head.bytes());
            return Some(DataGrant { key, len, end });
        }
    }

    /// The stream that [`H2Connection::next_data`] would serve, and how many bytes of its content its windows let go at most,
    /// in one frame or several. `None` where none may send content.
    pub fn next_stream(&self) -> Option<(StreamKey, u64)> {
        let key = StreamKey(self.queue.first()?);
        let stream = self.store.get(key)?;
        let len = stream.pending.min(stream.send.room()).min(self.send.room());
        (len > 0).then_some((key, len))
    }

    /// The stream's content is not at hand: others have their turns until it is [resumed](H2Connection::resume).
    pub fn hold(&mut self, key: StreamKey) {
        let Some(stream) = self.store.get_mut(key) else { return };
        stream.held = true;
        if std::mem::take(&mut stream.queued) {
            self.queue.remove(stream.priority, stream.id, key.0);
        }
    }

    /// The content of a stream that was [held](H2Connection::hold) is at hand.
    pub fn resume(&mut self, key: StreamKey) {
        if let Some(stream) = self.store.get_mut(key) {
            stream.held = false;
            self.enqueue(key);
        }
    }

    /// What was announced of a stream's content and not asked for does not come, nor its end.
    pub fn withdraw(&mut self, key: StreamKey) {
        self.hold(key);
        if let Some(stream) = self.store.get_mut(key) {
            (stream.pending, stream.last) = (0, false);
        }
    }

    /// Whether [`H2Connection::next_data`] would give something.
    pub fn has_data(&self) -> bool {
        let Some(stream) = self.queue.first().and_then(|place| self.store.get(StreamKey(place))) else {
            return false;
        };
        self.send.room() > 0 || stream.pending == 0
    }

    /// Whether something of a stream was announced, and only other streams, or room on the way to the peer, are waited for.
    pub fn is_ready(&self, key: StreamKey) -> bool {
        self.store
            .get(key)
            .is_some_and(|stream| stream.queued && (self.send.room() > 0 || stream.pending == 0))
    }

    /// Whether a stream that has nothing to send now would come before those that have.
    pub fn is_before_others(&self, key: StreamKey) -> bool {
        let first = self.queue.first().and_then(|place| self.store.get(StreamKey(place)));
        let (Some(first), Some(stream)) = (first, self.store.get(key)) else { return false };
        let (own, other) = (stream.priority, first.priority);
        let earlier = match own.urgency == other.urgency {
            true => !own.incremental && (other.incremental || stream.id < first.id),
            false => own.urgency < other.urgency,
        };
        // By weights: what others are served meanwhile would be more than their share.
        earlier || self.queue.tree.is_some()
    }

    /// Gives a stream another priority (RFC 9218); also in the middle of its response.
    pub fn prioritize(&mut self, key: StreamKey, priority: Priority) {
        let Some(stream) = self.store.get_mut(key).filter(|stream| stream.priority != priority) else {
            return;
        };
        let queued = std::mem::take(&mut stream.queued);
        let (before, id) = (std::mem::replace(&mut stream.priority, priority), stream.id);
        if queued {
            self.queue.remove(before, id, key.0);
            self.enqueue(key);
        }
    }

    /// The priority of a stream.
    pub fn priority(&self, key: StreamKey) -> Priority {
        self.store.get(key).map_or_else(Priority::default, |stream| stream.priority)
    }

    /// Puts a stream in the queue, if it has something to send and may.
    pub(super) fn enqueue(&mut self, key: StreamKey) {
        let Some(stream) = self.store.get_mut(key) else { return };
        let ready = if stream.pending > 0 { stream.send.room() > 0 } else { stream.last };
        if !ready || stream.queued || stream.held || !stream.state.sends() {
            return;
        }
        stream.queued = true;
        let (priority, id) = (stream.priority, stream.id);
        self.queue.push(priority, id, key.0);
    }

    /// `bytes` of a stream's content were used: the peer may send as many again. A WINDOW_UPDATE frame says so where
    /// that is worth one.
    pub fn consumed(&mut self, key: StreamKey, bytes: u64, out: &mut Vec<u8>) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if let Some(more) = self.recv.release(bytes) {
            frame::window_update(out, 0, more);
        }
        if let Some(stream) = self.store.get_mut(key)
            && stream.state.receives()
            && let Some(more) = stream.recv.release(bytes)
        {
            frame::window_update(out, stream.id, more);
        }
    }

    /// A stream's content is being read: from here on the peer may send `window` bytes ahead.
    pub fn widen(&mut self, key: StreamKey, window: u32, out: &mut Vec<u8>) {
        if let Some(stream) = self.store.get_mut(key)
            && stream.state.receives()
            && let Some(more) = stream.recv.widen(window)
        {
            frame::window_update(out, stream.id, more);
        }
    }

    /// Whether a stream was ended, or reset, in both directions.
    pub fn is_closed(&self, key: StreamKey) -> bool {
        self.state(key) == StreamState::Closed
    }
}
