//! Header blocks that are received: requests, responses, trailers.

use super::conn::{ConnectionEnding, H2Connection, H2Role, RESET, remember};
use super::dependency::StreamDependency;
use super::frame::{self, END_HEADERS, END_STREAM, FrameHead, PRIORITY_FLAG, kind, unpadded};
use super::guard::H2Abuse;
use super::recv::{FrameOutcome, H2Event, protocol, size};
use super::state::StreamState;
use super::store::StreamKey;
use super::{ErrorCode, H2Failure};
use crate::hpack;
use crate::message::{MalformedMessage, MessagePart, SectionMessage, StreamEnd};

/// A header block whose frames are coming in.
#[derive(Debug)]
pub(super) struct HeaderBlock {
    pub(super) stream: u32,
    end: StreamEnd,
    bytes: Vec<u8>,
    frames: u32,
}

/// The header block that was read last. Clients ask in the same words again and again (gRPC in all of them): a block that
/// comes once more while nothing has changed the decoder's table says what is in section and message already.
#[derive(Debug, Default)]
pub(super) struct ReadBlock {
    /// Empty: it can't come again.
    bytes: Vec<u8>,
    /// The decoder's state when it came ([`HpackDecoder::changes`](crate::hpack::HpackDecoder::changes)).
    changes: u32,
    /// The message was read as a request's.
    request: bool,
    /// How many blocks were not the one before them.
    version: u64,
}

impl HeaderBlock {
    /// Bytes of memory that it owns.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

impl ReadBlock {
    /// Bytes of memory that it owns.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

impl H2Connection {
    /// The number of what the last header section says: two of one number say the same.
    pub fn section_number(&self) -> u64 {
        self.read.version
    }

    /// Which frame or header block has come in part, where one has: the same number as long as it is the same. `input` is
    /// what was not taken.
    pub fn partial_frame(&self, input: &[u8]) -> Option<u64> {
        if self.preface > 0 {
            return Some(0);
        }
        if let Some(block) = &self.block {
            return Some((1 << 63) | u64::from(block.stream));
        }
        let frame = |head: FrameHead| (u64::from(head.stream) << 8) | u64::from(head.kind);
        (!input.is_empty()).then(|| FrameHead::read(input).map_or(1 << 62, frame))
    }

    /// Whether what has come in part is the head of a request. `input` is what was not taken.
    pub fn is_head(&self, input: &[u8]) -> bool {
        self.begun_head(input).is_some()
    }

    /// The stream that the head opens that has come in part.
    fn begun_head(&self, input: &[u8]) -> Option<u32> {
        let id = match (&self.block, FrameHead::read(input)) {
            (Some(block), _) => block.stream,
            (None, Some(head)) if head.kind == kind::HEADERS && self.data.is_none() => head.stream,
            _ => return None,
        };
        let taken = self.ending == ConnectionEnding::No && self.role == H2Role::Server;
        (id > self.last && !id.is_multiple_of(2) && taken).then_some(id)
    }

    /// The head of the request that has begun to come takes too long: its stream is closed, and what is still to come of
    /// it is read and dropped. `input` is what was not taken. `false`: no such head has begun.
    pub fn expire_head(&mut self, input: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(id) = self.begun_head(input) else { return false };
        self.last = id;
        remember(&mut self.reset, id, RESET);
        frame::reset(out, id, ErrorCode::Protocol);
        true
    }

    pub(super) fn headers(&mut self, head: FrameHead, payload: &[u8], out: &mut Vec<u8>) -> FrameOutcome {
        if head.stream == 0 {
            return Err(protocol("sent HEADERS frame with incorrect identifier"));
        }
        let Some(mut block) = unpadded(head, payload) else {
            return Err(protocol("sent padded HEADERS frame with incorrect length"));
        };
        self.dependency = None;
        if head.has(PRIORITY_FLAG) {
            let Some((tree, rest)) = block.split_first_chunk::<5>() else {
                return Err(size("sent HEADERS frame with incorrect length"));
            };
            let dependency = StreamDependency::read(tree);
            if dependency.parent == head.stream {
                return Err(protocol("sent HEADERS frame with incorrect dependency"));
            }
            self.dependency = Some(dependency);
            block = rest;
        }
        let end = StreamEnd::last_if(head.has(END_STREAM));
        if head.has(END_HEADERS) {
            return self.block(head.stream, end, block, out);
        }
        self.block = Some(HeaderBlock { stream: head.stream, end, bytes: block.to_vec(), frames: 0 });
        Ok(None)
    }

    pub(super) fn continuation(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> FrameOutcome {
        let Some(block) = &mut self.block else { return Ok(None) };
        block.frames += 1;
        if block.frames > CONTINUATIONS {
            return Err(H2Abuse::Continuations.failure());
        }
        if block.bytes.len() + payload.len() > self.config.headers.text.saturating_mul(4) {
            return Err(H2Abuse::Headers.failure());
        }
        block.bytes.extend_from_slice(payload);
        if !head.has(END_HEADERS) {
            return Ok(None);
        }
        match self.block.take() {
            Some(block) => self.block(block.stream, block.end, &block.bytes, out),
            None => Ok(None),
        }
    }

    /// A header block that is whole.
    fn block(&mut self, id: u32, end: StreamEnd, block: &[u8], out: &mut Vec<u8>) -> FrameOutcome {
        self.decode(block)?;
        self.block_len = block.len();
        match (self.store.find(id), self.role) {
            (Some(key), _) => self.more_headers(key, id, end, out),
            (None, H2Role::Server) => self.opened(id, end, out),
            (None, H2Role::Client) => self.gone(id, "sent HEADERS frame for idle stream").map(|()| None),
        }
    }

    /// Reads `block` into the section, unless it is there.
    fn decode(&mut self, block: &[u8]) -> Result<(), H2Failure> {
        let before = self.decoder.changes();
        let read = &mut self.read;
        if !block.is_empty() && read.bytes == block && read.changes == before {
            return Ok(());
        }
        read.bytes.clear();
        read.request = false;
        read.version += 1;
        match self.decoder.decode(block, self.config.headers, &mut self.section) {
            Ok(()) => {}
            Err(hpack::HpackError::TooLarge) => return Err(H2Abuse::Headers.failure()),
            Err(_) => return Err(H2Failure::new(ErrorCode::Compression, "sent invalid header block")),
        }
        if block.len() <= USUAL && self.decoder.changes() == before {
            read.bytes.extend_from_slice(block);
            read.changes = before;
        }
        Ok(())
    }

    /// A stream that the peer opens.
    fn opened(&mut self, id: u32, end: StreamEnd, out: &mut Vec<u8>) -> FrameOutcome {
        if id.is_multiple_of(2) {
            return Err(protocol("sent HEADERS frame with incorrect identifier"));
        }
        if id <= self.last {
            return match (self.is_ours(id), self.ended.contains(&id)) {
                (true, _) => Ok(None),
                (false, true) => {
                    Err(H2Failure::new(ErrorCode::StreamClosed, "sent HEADERS frame for closed stream"))
                }
                (false, false) => Err(protocol("sent HEADERS frame with incorrect identifier")),
            };
        }
        if self.is_late(id) {
            // It will be sent again elsewhere: it is above what we said we took.
            return self.late();
        }
        self.last = id;
        if self.store.len() >= self.config.max_streams as usize {
            self.guard.count(H2Abuse::Resets)?;
            frame::reset(out, id, ErrorCode::Refused);
            remember(&mut self.reset, id, RESET);
            return Ok(None);
        }
        let mut stream = self.stream(
            id,
            if end == StreamEnd::Last { StreamState::HalfClosedRemote } else { StreamState::Open },
        );
        stream.head = true;
        if !self.read.request {
            self.malformed =
                SectionMessage::read(&self.section, MessagePart::Request, &mut self.message).err();
            self.read.request = true;
        }
        if self.malformed.is_some() || self.section.too_large {
            // Each makes us say what is wrong, and reset the stream.
            self.guard.count(H2Abuse::Resets)?;
        }
        // Clients reprioritize what they have asked for, and grease what they ask.
        self.guard.pay(H2Abuse::Priorities, 8);
        self.guard.pay(H2Abuse::Unknown, 1);
        stream.expected = self.message.content_length;
        if let Some(priority) = self.message.priority {
            stream.priority = priority;
            self.use_urgencies();
        }
        if let Some(at) = self.early.iter().position(|(early, _)| *early == id)
            && let Some((_, priority)) = self.early.remove(at)
        {
            stream.priority = priority;
        }
        if end == StreamEnd::Last
            && self.message.content_length.is_some_and(|length| length > 0)
            && self.malformed.is_none()
        {
            self.malformed = Some(MalformedMessage::ContentLength);
            // Of a block that comes again, with content, this is not true.
            self.read.request = false;
        }
        let key = self.store.insert(stream);
        self.join_tree(id);
        Ok(Some(H2Event::Head { key, end: end == StreamEnd::Last }))
    }

    /// Headers on a stream that is there: a response's, or trailers.
    fn more_headers(&mut self, key: StreamKey, id: u32, end: StreamEnd, out: &mut Vec<u8>) -> FrameOutcome {
        let ours = self.is_ours(id);
        let Some(stream) = self.store.get_mut(key) else { return Ok(None) };
        if !stream.state.receives() {
            if stream.state == StreamState::Closed && ours {
                return Ok(None);
            }
            return Err(H2Failure::new(ErrorCode::StreamClosed, "sent HEADERS frame for closed stream"));
        }
        let first = !stream.head;
        let part = if first { MessagePart::Response } else { MessagePart::Trailers };
        let read = SectionMessage::read(&self.section, part, &mut self.message);
        self.read.request = false;
        self.malformed = read.err();
        let interim = first && self.message.status.is_some_and(|status| status < 200);
        let wrong = match (first, interim) {
            _ if read.is_err() => Some("sent malformed headers"),
            (true, true) if end == StreamEnd::Last => Some("sent interim response that ends its stream"),
            (false, _) if end == StreamEnd::More => Some("sent trailers that do not end their stream"),
            (false, _) if stream.expected.is_some_and(|expected| expected != stream.received) => {
                Some("sent content of another length than \"Content-Length\"")
            }
            _ => None,
        };
        if let Some(reason) = wrong {
            return self.fail(key, ErrorCode::Protocol, reason, out);
        }
        if interim {
            return Ok(Some(H2Event::Interim { key }));
        }
        if first {
            stream.head = true;
            // The length of the response to HEAD, or of a 304, is not that of its content.
            stream.expected = if end == StreamEnd::Last { None } else { self.message.content_length };
        }
        if end == StreamEnd::Last {
            stream.state = stream.state.end_in();
        }
        Ok(Some(if first {
            H2Event::Head { key, end: end == StreamEnd::Last }
        } else {
            H2Event::Trailers { key }
        }))
    }
}

/// CONTINUATION frames of one block: a header section of a megabyte needs no more.
const CONTINUATIONS: u32 = 64;
/// Longer blocks are not cached: they have something new in them.
const USUAL: usize = 256;
