//! Request streams in: frames, one after the other.

use std::ops::Range;

use super::conn::{H3Connection, H3Role};
use super::frame::{FrameHead, is_reserved, kind};
use super::guard::H3Abuse;
use super::stream::{H3Stream, StreamPhase, StreamReading};
use super::{H3ErrorCode, H3Failure};
use crate::message::{MalformedMessage, MessagePart, SectionMessage, StreamEnd};
use crate::qpack::{QpackError, SectionProgress};

/// What the caller has to know about a request's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum H3Event {
    /// A head, a request's or the final one of a response. It is in [`H3Connection::section`].
    Head {
        /// Whether anything follows.
        end: StreamEnd,
    },
    /// A response's head that is not the final one (1xx).
    Interim,
    /// A piece of content.
    Data {
        /// Where it lies in the bytes that were handed over.
        range: Range<usize>,
        /// Whether anything follows.
        end: StreamEnd,
    },
    /// Trailer fields, which are in [`H3Connection::section`].
    Trailers {
        /// Whether the stream has ended, too.
        end: StreamEnd,
    },
    /// The stream has ended, which no other event has said.
    End,
    /// A header section waits for the dynamic table. Nothing more is taken of the stream until [`H3Connection::unblocked`] reports
    /// it.
    Blocked,
    /// The content is not what the head announced. What else comes of it is dropped; the caller responds with that, or resets
    /// the stream with H3_MESSAGE_ERROR.
    Malformed {
        /// What is wrong.
        reason: &'static str,
    },
    /// The stream is to be reset in both directions, because of what the peer did. What else comes of it is dropped.
    Reset {
        /// The code for it.
        code: H3ErrorCode,
        /// What the log says after "client" or "upstream".
        reason: &'static str,
    },
}

/// What a step of reading came to.
enum ReadStep {
    /// The caller has to know.
    Event(H3Event),
    /// The next step may be taken.
    Next,
    /// All bytes were taken.
    Empty,
}

/// What is handed over at once of a stream.
#[derive(Clone, Copy)]
struct StreamInput<'i> {
    bytes: &'i [u8],
    end: StreamEnd,
}

impl StreamInput<'_> {
    /// Whether the stream ends at this place.
    fn ends_at(self, at: usize) -> bool {
        self.end == StreamEnd::Last && at == self.bytes.len()
    }
}

impl H3Connection {
    /// Takes what came on a request's stream, in order. Returns how many bytes of `bytes` were taken, and the first thing that the
    /// caller has to know; without one all were taken. To be called again with the rest, which may be empty, until there is no
    /// event. `end` says whether the stream has ended with `bytes`; that is reported once, by [`H3Event::End`] where no other event has
    /// said it.
    ///
    /// # Errors
    /// The peer broke the protocol, or a limit: the connection has to be closed.
    pub fn receive(
        &mut self,
        id: u64,
        bytes: &[u8],
        end: StreamEnd,
    ) -> Result<(usize, Option<H3Event>), H3Failure> {
        self.opened(id)?;
        if let Some(event) = self.refused(id) {
            return Ok((bytes.len(), Some(event)));
        }
        let (input, mut at) = (StreamInput { bytes, end }, 0);
        loop {
            match self.step(id, input, &mut at)? {
                ReadStep::Event(event) => return Ok((at, Some(event))),
                ReadStep::Next => {}
                ReadStep::Empty => return Ok((at, self.ended(id, end)?)),
            }
        }
    }

    /// A request that our GOAWAY frame has said we don't take: it may be sent again elsewhere.
    fn refused(&mut self, id: u64) -> Option<H3Event> {
        let is_late = self.role == H3Role::Server && self.last.is_some_and(|last| id >= last);
        let stream = self.streams.get_mut(id)?;
        if !is_late || stream.phase != StreamPhase::Head {
            return None;
        }
        (stream.phase, stream.reading) = (StreamPhase::Over, StreamReading::Dropped);
        Some(H3Event::Reset { code: H3ErrorCode::RequestRejected, reason: "opened stream after GOAWAY" })
    }

    /// Takes one thing: a frame's head, or what there is of its payload.
    fn step(&mut self, id: u64, input: StreamInput<'_>, at: &mut usize) -> Result<ReadStep, H3Failure> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(ReadStep::Empty) };
        let rest = input.bytes.get(*at..).unwrap_or_default();
        match &mut stream.reading {
            StreamReading::Dropped => {
                *at = input.bytes.len();
                Ok(ReadStep::Empty)
            }
            StreamReading::Blocked(required) if *required > self.decoder.inserted() => {
                Ok(ReadStep::Event(H3Event::Blocked))
            }
            StreamReading::Blocked(_) => {
                self.blocked.retain(|(blocked, _)| *blocked != id);
                self.held_section(id, input.ends_at(*at))
            }
            _ if rest.is_empty() => Ok(ReadStep::Empty),
            StreamReading::Head(partial) => {
                let (used, head) = partial.take(rest);
                *at += used;
                match head {
                    Some(head) => self.frame(id, head, input.ends_at(*at)),
                    None => Ok(ReadStep::Empty),
                }
            }
            StreamReading::Skip(left) => {
                *at += take(left, rest);
                stream.close_frame();
                Ok(ReadStep::Next)
            }
            StreamReading::Content(left) => {
                let start = *at;
                *at += take(left, rest);
                let is_whole = stream.close_frame();
                let ends = is_whole && input.ends_at(*at);
                Ok(ReadStep::Event(stream.content(start..*at, ends)))
            }
            StreamReading::Section(left) => {
                let start = *at;
                *at += take(left, rest);
                let piece = input.bytes.get(start..*at).unwrap_or_default();
                self.section_piece(id, piece, input.ends_at(*at))
            }
        }
    }

    /// The head of a frame.
    fn frame(&mut self, id: u64, head: FrameHead, is_last: bool) -> Result<ReadStep, H3Failure> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(ReadStep::Empty) };
        match head.kind {
            kind::DATA => {
                if stream.phase != StreamPhase::Content {
                    return Err(unexpected("sent DATA frame before or after its message"));
                }
                match head.length {
                    0 => self.budget.spend(H3Abuse::Empty)?,
                    _ => self.budget.received(),
                }
                return Ok(stream.begin_content(head.length));
            }
            kind::HEADERS => return self.begin_section(id, head.length, is_last),
            kind::PUSH_PROMISE if self.role == H3Role::Client => {
                return Err(H3Failure::new(H3ErrorCode::Id, "sent PUSH_PROMISE frame"));
            }
            kind::PUSH_PROMISE => return Err(unexpected("sent PUSH_PROMISE frame")),
            kind::SETTINGS
            | kind::GOAWAY
            | kind::CANCEL_PUSH
            | kind::MAX_PUSH_ID
            | kind::PRIORITY_UPDATE
            | kind::PRIORITY_UPDATE_PUSH => {
                return Err(unexpected("sent frame of the control stream on another one"));
            }
            reserved if is_reserved(reserved) => return Err(unexpected("sent frame of HTTP/2")),
            _ => self.budget.spend(H3Abuse::Unknown)?,
        }
        stream.reading = StreamReading::Skip(head.length);
        stream.close_frame();
        Ok(ReadStep::Next)
    }

    /// The head of a HEADERS frame.
    fn begin_section(&mut self, id: u64, length: u64, is_last: bool) -> Result<ReadStep, H3Failure> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(ReadStep::Empty) };
        if stream.phase == StreamPhase::Over || (stream.phase == StreamPhase::Content && stream.is_tunnel) {
            return Err(unexpected("sent HEADERS frame after its message"));
        }
        if length > self.config.limits.text.saturating_mul(4) as u64 {
            return Err(H3Abuse::Headers.failure());
        }
        stream.reading = StreamReading::Section(length);
        if length == 0 {
            return self.section_piece(id, &[], is_last);
        }
        Ok(ReadStep::Next)
    }

    /// A piece of a header section; it is read once it is whole.
    fn section_piece(&mut self, id: u64, piece: &[u8], is_last: bool) -> Result<ReadStep, H3Failure> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(ReadStep::Empty) };
        let is_whole = matches!(stream.reading, StreamReading::Section(0));
        if is_whole && stream.block.is_empty() {
            return self.read_section(id, piece, is_last);
        }
        self.hold(id, piece)?;
        if is_whole { self.held_section(id, is_last) } else { Ok(ReadStep::Empty) }
    }

    /// Stores bytes of a header section.
    fn hold(&mut self, id: u64, piece: &[u8]) -> Result<(), H3Failure> {
        self.held += piece.len();
        if self.held > self.config.limits.text.saturating_mul(8).max(MOST_HELD) {
            return Err(H3Abuse::Headers.failure());
        }
        if let Some(stream) = self.streams.get_mut(id) {
            stream.block.extend_from_slice(piece);
        }
        Ok(())
    }

    /// Reads the header section that is stored.
    fn held_section(&mut self, id: u64, is_last: bool) -> Result<ReadStep, H3Failure> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(ReadStep::Empty) };
        let block = std::mem::take(&mut stream.block);
        self.held -= block.len();
        self.read_section(id, &block, is_last)
    }

    /// Reads a whole header section, unless it has to wait.
    fn read_section(&mut self, id: u64, block: &[u8], is_last: bool) -> Result<ReadStep, H3Failure> {
        if let SectionProgress::Blocked(required) = self.decode(id, block)? {
            return self.wait(id, required, block);
        }
        self.block_len = block.len();
        let Some(stream) = self.streams.get_mut(id) else { return Ok(ReadStep::Empty) };
        stream.reading = StreamReading::next();
        let event = match stream.phase {
            StreamPhase::Head if self.role == H3Role::Server => self.request(id, is_last)?,
            StreamPhase::Head => self.response(id, is_last)?,
            _ => self.trailers(id, is_last)?,
        };
        Ok(ReadStep::Event(event))
    }

    /// A header section waits for the dynamic table.
    fn wait(&mut self, id: u64, required: u64, block: &[u8]) -> Result<ReadStep, H3Failure> {
        let inserted = self.decoder.inserted();
        let waiting = self.blocked.iter().filter(|(_, required)| *required > inserted).count();
        if waiting >= self.config.blocked {
            return Err(QpackError::BlockedStreams.into());
        }
        self.hold(id, block)?;
        self.blocked.push((id, required));
        if let Some(stream) = self.streams.get_mut(id) {
            stream.reading = StreamReading::Blocked(required);
        }
        Ok(ReadStep::Event(H3Event::Blocked))
    }

    /// The head of a request.
    fn request(&mut self, id: u64, is_last: bool) -> Result<H3Event, H3Failure> {
        if !self.read.is_request {
            self.malformed =
                SectionMessage::read(&self.section, MessagePart::Request, &mut self.message).err();
            self.read.is_request = true;
        }
        if self.malformed.is_some() || self.section.too_large {
            // Each makes us say what is wrong.
            self.budget.spend(H3Abuse::Resets)?;
        }
        self.budget.requested();
        let length = self.message.content_length;
        if is_last && length.is_some_and(|length| length > 0) && self.malformed.is_none() {
            self.malformed = Some(MalformedMessage::ContentLength);
            // Of a block that comes again, with content, this is not true.
            self.read.is_request = false;
        }
        let method = self.message.method.map(|method| method.of(&self.section.text));
        if let Some(stream) = self.streams.get_mut(id) {
            stream.is_tunnel = method == Some(b"CONNECT");
            if let Some(priority) = self.message.priority.filter(|_| !stream.is_reprioritized) {
                stream.priority = priority;
            }
            stream.begin_message(length, is_last);
        }
        Ok(H3Event::Head { end: StreamEnd::last_if(is_last) })
    }

    /// The head of a response, or one that is before it.
    fn response(&mut self, id: u64, is_last: bool) -> Result<H3Event, H3Failure> {
        let read = SectionMessage::read(&self.section, MessagePart::Response, &mut self.message);
        self.read.is_request = false;
        self.malformed = read.err();
        let is_interim = self.message.status.is_some_and(|status| status < 200);
        if read.is_err() || (is_interim && is_last) {
            return self.fault(id, H3ErrorCode::Message, "sent malformed headers");
        }
        if is_interim {
            return Ok(H3Event::Interim);
        }
        if let Some(stream) = self.streams.get_mut(id) {
            // The length of the response to HEAD, or of a 304, is not that of its content.
            stream.begin_message(self.message.content_length, is_last);
        }
        Ok(H3Event::Head { end: StreamEnd::last_if(is_last) })
    }

    fn trailers(&mut self, id: u64, is_last: bool) -> Result<H3Event, H3Failure> {
        let read = SectionMessage::read(&self.section, MessagePart::Trailers, &mut self.message);
        self.read.is_request = false;
        self.malformed = read.err();
        if read.is_err() {
            return self.fault(id, H3ErrorCode::Message, "sent malformed headers");
        }
        let Some(stream) = self.streams.get_mut(id) else { return Ok(H3Event::End) };
        if stream.is_short(self.role) {
            return Ok(stream.break_content());
        }
        (stream.phase, stream.is_ended) = (StreamPhase::Over, is_last);
        Ok(H3Event::Trailers { end: StreamEnd::last_if(is_last) })
    }

    /// The stream is to be reset because of what the peer did.
    fn fault(&mut self, id: u64, code: H3ErrorCode, reason: &'static str) -> Result<H3Event, H3Failure> {
        self.budget.spend(H3Abuse::Resets)?;
        if let Some(stream) = self.streams.get_mut(id) {
            (stream.phase, stream.reading) = (StreamPhase::Over, StreamReading::Dropped);
        }
        Ok(H3Event::Reset { code, reason })
    }

    /// All that came was taken, and `end` says whether that was all.
    fn ended(&mut self, id: u64, end: StreamEnd) -> Result<Option<H3Event>, H3Failure> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        if end == StreamEnd::More || std::mem::replace(&mut stream.is_ended, true) {
            return Ok(None);
        }
        if matches!(stream.reading, StreamReading::Dropped) {
            return Ok(None);
        }
        if !stream.reading.is_between() {
            return Err(H3Failure::new(H3ErrorCode::Frame, "closed stream within a frame"));
        }
        match stream.phase {
            StreamPhase::Head if self.role == H3Role::Server => {
                let reason = "closed stream without a request";
                self.fault(id, H3ErrorCode::RequestIncomplete, reason).map(Some)
            }
            StreamPhase::Head => {
                self.fault(id, H3ErrorCode::GeneralProtocol, "closed stream without a response").map(Some)
            }
            StreamPhase::Content if stream.is_short(self.role) => Ok(Some(stream.break_content())),
            _ => {
                stream.phase = StreamPhase::Over;
                Ok(Some(H3Event::End))
            }
        }
    }
}

impl H3Stream {
    /// Goes on to the next frame when nothing of this one is left.
    fn close_frame(&mut self) -> bool {
        let is_whole = matches!(self.reading, StreamReading::Content(0) | StreamReading::Skip(0));
        if is_whole {
            self.reading = StreamReading::next();
        }
        is_whole
    }

    /// Its head has come, which announced `length` bytes of content.
    fn begin_message(&mut self, length: Option<u64>, is_last: bool) {
        (self.phase, self.expected, self.is_ended) = (StreamPhase::Content, length, is_last);
        if is_last {
            self.phase = StreamPhase::Over;
        }
    }

    /// The head of a DATA frame.
    fn begin_content(&mut self, length: u64) -> ReadStep {
        self.received = self.received.saturating_add(length);
        if self.expected.is_some_and(|expected| self.received > expected) {
            return ReadStep::Event(self.break_content());
        }
        self.reading = StreamReading::Content(length);
        self.close_frame();
        ReadStep::Next
    }

    /// A piece of content, after which the stream ends or goes on. Where it ends too early, that comes next.
    fn content(&mut self, range: Range<usize>, ends: bool) -> H3Event {
        let is_last = ends && self.expected.is_none_or(|expected| self.received == expected);
        if is_last {
            (self.phase, self.is_ended) = (StreamPhase::Over, true);
        }
        H3Event::Data { range, end: StreamEnd::last_if(is_last) }
    }

    /// Whether less content has come than was announced. The response to HEAD announces what does not come.
    fn is_short(&self, role: H3Role) -> bool {
        let is_announced = role == H3Role::Server || self.received > 0;
        is_announced && self.expected.is_some_and(|expected| self.received < expected)
    }

    /// The content is not what was announced.
    fn break_content(&mut self) -> H3Event {
        (self.phase, self.reading) = (StreamPhase::Over, StreamReading::Dropped);
        H3Event::Malformed { reason: "sent content of another length than \"Content-Length\"" }
    }
}

/// How many bytes of `rest` are of what is `left` to come.
fn take(left: &mut u64, rest: &[u8]) -> usize {
    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
    *left -= here as u64;
    here
}

const fn unexpected(reason: &'static str) -> H3Failure {
    H3Failure::new(H3ErrorCode::FrameUnexpected, reason)
}

/// Bytes of header sections that may be stored of all streams together, where limits of one section are small.
const MOST_HELD: usize = 1 << 18;
