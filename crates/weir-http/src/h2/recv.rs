//! What is received: frames, one after the other; those with content here, header blocks in `heads.rs`, what is about the
//! connection and its streams in `control.rs`.

use std::ops::Range;

use super::conn::{ConnectionEnding, H2Connection, H2Role};
use super::frame::{self, END_STREAM, FrameHead, HEAD, PADDED, kind};
use super::guard::H2Abuse;
use super::state::StreamState;
use super::store::StreamKey;
use super::{ErrorCode, H2Failure, PREFACE};

/// What the caller has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum H2Event {
    /// A head: a request's, which opens the stream, or a response's. It is in [`H2Connection::section`].
    Head {
        /// The stream.
        key: StreamKey,
        /// No content follows.
        end: bool,
    },
    /// A response's head that is not the final one (1xx).
    Interim {
        /// The stream.
        key: StreamKey,
    },
    /// A piece of content. What is used of it is to be reported ([`H2Connection::consumed`]).
    Data {
        /// The stream.
        key: StreamKey,
        /// Where it lies in the input. May be empty at the end.
        range: Range<usize>,
        /// It is the last.
        end: bool,
    },
    /// Trailer fields, which are in [`H2Connection::section`]; nothing follows.
    Trailers {
        /// The stream.
        key: StreamKey,
    },
    /// The stream is closed before its end: by the peer, or because of what the peer did.
    Reset {
        /// The stream.
        key: StreamKey,
        /// Why.
        code: ErrorCode,
        /// What the peer did, where we closed it.
        reason: Option<&'static str>,
    },
    /// The content of a stream is not what its head announced. What else comes of it is dropped; the caller responds
    /// with that, or resets the stream with PROTOCOL_ERROR.
    Malformed {
        /// The stream.
        key: StreamKey,
        /// What is wrong.
        reason: &'static str,
    },
    /// The peer takes no streams above `last`.
    GoAway {
        /// The highest stream that it took.
        last: u32,
        /// Why.
        code: ErrorCode,
    },
}

/// A DATA frame of which something is to come.
#[derive(Debug)]
pub(super) struct DataFrame {
    /// `None`: it is not wanted.
    pub(super) key: Option<StreamKey>,
    content: u32,
    padding: u32,
    end: bool,
}

impl DataFrame {
    /// It is not wanted any more: how many bytes of content are still to come.
    pub(super) fn orphan(&mut self) -> u32 {
        self.key = None;
        self.content
    }
}

/// What a frame came to.
pub(super) type FrameOutcome = Result<Option<H2Event>, H2Failure>;

pub(super) const fn protocol(reason: &'static str) -> H2Failure {
    H2Failure::new(ErrorCode::Protocol, reason)
}

pub(super) const fn size(reason: &'static str) -> H2Failure {
    H2Failure::new(ErrorCode::FrameSize, reason)
}

impl H2Connection {
    /// Takes what came: `input` is all that was received and not taken. Returns how many bytes of it were taken, and the
    /// first thing that the caller has to know; without one, more bytes are needed. Call again with the rest, until
    /// there is no event. `now` is in milliseconds. What has to be sent in reply is appended to `out`.
    ///
    /// # Errors
    /// The peer broke the protocol, or a limit: the connection has to be closed when `out` is sent.
    pub fn receive(
        &mut self,
        input: &[u8],
        now: u64,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<H2Event>), H2Failure> {
        if self.ending == ConnectionEnding::Failed {
            return Ok((input.len(), None));
        }
        self.guard.tick(now);
        let received = self.frames(input, out).inspect_err(|failure| {
            frame::goaway(out, self.last, failure.code);
            self.ending = ConnectionEnding::Failed;
        });
        if let Ok((_, None)) = received {
            self.seen = self.last;
        }
        received
    }

    fn frames(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, Option<H2Event>), H2Failure> {
        let mut at = self.preface(input)?;
        if self.preface > 0 {
            return Ok((at, None));
        }
        loop {
            if self.data.is_some() {
                if let Some(event) = self.content(input, &mut at, out)? {
                    return Ok((at, Some(event)));
                }
                if self.data.is_some() {
                    return Ok((at, None));
                }
            }
            let rest = input.get(at..).unwrap_or_default();
            let Some(head) = FrameHead::read(rest) else { return Ok((at, None)) };
            self.check(head)?;
            if head.kind == kind::DATA {
                // Of a padded frame the length of its padding has to be there.
                let Some(pad) = rest.get(HEAD..).filter(|rest| !(head.has(PADDED) && rest.is_empty())) else {
                    return Ok((at, None));
                };
                let padding = pad.first().filter(|_| head.has(PADDED)).copied();
                at += HEAD + usize::from(padding.is_some());
                if let Some(event) = self.data(head, padding, out)? {
                    return Ok((at, Some(event)));
                }
                continue;
            }
            let Some(payload) = rest.get(HEAD..HEAD + head.length as usize) else { return Ok((at, None)) };
            at += HEAD + payload.len();
            if let Some(event) = self.other(head, payload, out)? {
                return Ok((at, Some(event)));
            }
        }
    }

    /// Takes what there is of the preface.
    fn preface(&mut self, input: &[u8]) -> Result<usize, H2Failure> {
        if self.preface == 0 {
            return Ok(0);
        }
        let expected = PREFACE.get(PREFACE.len() - self.preface..).unwrap_or_default();
        let length = expected.len().min(input.len());
        if input.get(..length) != expected.get(..length) {
            return Err(protocol("sent invalid connection preface"));
        }
        self.preface -= length;
        Ok(length)
    }

    /// What holds for all frames.
    fn check(&self, head: FrameHead) -> Result<(), H2Failure> {
        if head.length > self.config.max_frame {
            return Err(size("sent frame larger than SETTINGS_MAX_FRAME_SIZE"));
        }
        match &self.block {
            Some(block) if head.kind != kind::CONTINUATION || head.stream != block.stream => {
                Err(protocol("sent inappropriate frame while CONTINUATION was expected"))
            }
            None if head.kind == kind::CONTINUATION => Err(protocol("sent unexpected CONTINUATION frame")),
            None if head.kind == kind::PUSH_PROMISE => Err(protocol("sent PUSH_PROMISE frame")),
            _ => Ok(()),
        }
    }

    fn other(&mut self, head: FrameHead, payload: &[u8], out: &mut Vec<u8>) -> FrameOutcome {
        match head.kind {
            kind::HEADERS => self.headers(head, payload, out),
            kind::CONTINUATION => self.continuation(head, payload, out),
            kind::PRIORITY => self.tree(head, payload, out),
            kind::RST_STREAM => self.peer_reset(head, payload),
            kind::SETTINGS => self.settings(head, payload, out),
            kind::PING => self.ping(head, payload, out),
            kind::GOAWAY => self.peer_goes(head, payload),
            kind::WINDOW_UPDATE => self.window_update(head, payload, out),
            kind::PRIORITY_UPDATE => self.priority_update(head, payload),
            _ => self.guard.spend(H2Abuse::Unknown).map(|()| None),
        }
    }

    /// The head of a DATA frame.
    fn data(&mut self, head: FrameHead, padding: Option<u8>, out: &mut Vec<u8>) -> FrameOutcome {
        if head.stream == 0 {
            return Err(protocol("sent DATA frame with incorrect identifier"));
        }
        let padding = padding.map(u32::from);
        let extra = padding.map_or(0, |padding| padding + 1);
        let Some(content) = head.length.checked_sub(extra) else {
            return Err(protocol("sent padded DATA frame with incorrect length"));
        };
        if !self.recv.take(head.length) {
            let reason = "violated connection flow control";
            return Err(H2Failure::new(ErrorCode::FlowControl, reason));
        }
        let end = head.has(END_STREAM);
        match content {
            0 if end => {}
            0 => self.guard.spend(H2Abuse::Empty)?,
            _ => self.guard.pay(H2Abuse::Empty, 1),
        }
        let mut data = DataFrame { key: None, content, padding: padding.unwrap_or(0), end };
        let event = self.content_for(head, &mut data, out)?;
        if data.key.is_none() {
            // Content that will not be used counts as used.
            self.give_back(None, head.length, out);
        } else {
            self.give_back(data.key, extra, out);
        }
        self.data = Some(data);
        Ok(event)
    }

    /// Finds the stream that the content of a DATA frame is for.
    fn content_for(&mut self, head: FrameHead, data: &mut DataFrame, out: &mut Vec<u8>) -> FrameOutcome {
        let Some(key) = self.store.find(head.stream) else {
            if self.is_late(head.stream) {
                return self.late();
            }
            self.gone(head.stream, "sent DATA frame for idle stream")?;
            if self.is_ours(head.stream) || self.ending != ConnectionEnding::No {
                return Ok(None);
            }
            frame::reset(out, head.stream, ErrorCode::StreamClosed);
            return self.guard.count(H2Abuse::Resets).map(|()| None);
        };
        let Some(stream) = self.store.get_mut(key) else { return Ok(None) };
        if !stream.state.receives() {
            if stream.state == StreamState::Closed && self.is_ours(head.stream) {
                return Ok(None);
            }
            return self.fail(key, ErrorCode::StreamClosed, "sent DATA frame for half-closed stream", out);
        }
        if !stream.head {
            return self.fail(key, ErrorCode::Protocol, "sent DATA frame before HEADERS", out);
        }
        if !stream.recv.take(head.length) {
            return self.fail(key, ErrorCode::FlowControl, "violated flow control for stream", out);
        }
        if stream.broken {
            return Ok(None);
        }
        stream.received += u64::from(data.content);
        let received = stream.received;
        let wrong = |expected| received > expected || (data.end && received < expected);
        if stream.expected.is_some_and(wrong) {
            stream.broken = true;
            let reason = "sent content of another length than \"Content-Length\"";
            return Ok(Some(H2Event::Malformed { key, reason }));
        }
        data.key = Some(key);
        Ok(None)
    }

    /// Hands out what there is of the DATA frame that is under way.
    fn content(&mut self, input: &[u8], at: &mut usize, out: &mut Vec<u8>) -> FrameOutcome {
        let Some(data) = &mut self.data else { return Ok(None) };
        if let Some(key) = data.key
            && self.store.get(key).is_none_or(|stream| stream.state == StreamState::Closed)
        {
            // It was reset in the middle of the frame.
            let content = data.orphan();
            self.give_back(None, content, out);
        }
        let Some(data) = &mut self.data else { return Ok(None) };
        let rest = input.len().saturating_sub(*at);
        let content = (data.content as usize).min(rest);
        let range = *at..*at + content;
        *at += content;
        data.content -= content as u32;
        let whole = data.content == 0;
        if whole {
            let padding = (data.padding as usize).min(rest - content);
            *at += padding;
            data.padding -= padding as u32;
        }
        let ended = whole && data.end;
        // Reported once, with the last byte of content, though padding may be missing.
        data.end &= !whole;
        let (key, over) = (data.key, whole && data.padding == 0);
        if over {
            self.data = None;
        }
        let Some(key) = key else { return Ok(None) };
        if ended && let Some(stream) = self.store.get_mut(key) {
            stream.state = stream.state.end_in();
        }
        let news = !range.is_empty() || ended;
        Ok(news.then_some(H2Event::Data { key, range, end: ended }))
    }

    /// This many bytes of the windows belong to no stream any more.
    fn give_back(&mut self, key: Option<StreamKey>, bytes: u32, out: &mut Vec<u8>) {
        if bytes == 0 {
            return;
        }
        match key {
            Some(key) => self.consumed(key, bytes.into(), out),
            None => {
                if let Some(more) = self.recv.release(bytes) {
                    frame::window_update(out, 0, more);
                }
            }
        }
    }

    /// Whether a stream is one of those that the peer opened before it knew of our GOAWAY frame. What comes on it is ignored
    /// (RFC 9113 section 6.8): other streams, which GOAWAY promised to finish, must not end with it.
    pub(super) fn is_late(&self, id: u32) -> bool {
        let reported = self.ending != ConnectionEnding::No && self.role == H2Role::Server;
        reported && id > self.last && !id.is_multiple_of(2)
    }

    /// A frame that is ignored; no honest peer sends many of them before the GOAWAY frame has come.
    pub(super) fn late(&mut self) -> FrameOutcome {
        self.guard.count(H2Abuse::Late).map(|()| None)
    }

    /// A frame on a stream that is not there: one that ended, or, which is an error, never was.
    pub(super) fn gone(&self, id: u32, idle: &'static str) -> Result<(), H2Failure> {
        let known = match self.role {
            H2Role::Server => !id.is_multiple_of(2) && id <= self.last,
            H2Role::Client => !id.is_multiple_of(2) && id < self.next,
        };
        if known { Ok(()) } else { Err(protocol(idle)) }
    }

    /// Whether a stream was reset from here.
    pub(super) fn is_ours(&self, id: u32) -> bool {
        self.reset.contains(&id)
    }

    /// Closes a stream because of what the peer did.
    pub(super) fn fail(
        &mut self,
        key: StreamKey,
        code: ErrorCode,
        reason: &'static str,
        out: &mut Vec<u8>,
    ) -> FrameOutcome {
        self.guard.count(H2Abuse::Resets)?;
        let ended = self.state(key) == StreamState::Closed;
        if ended {
            frame::reset(out, self.id(key), code);
            return Ok(None);
        }
        self.reset(key, code, out);
        Ok(Some(H2Event::Reset { key, code, reason: Some(reason) }))
    }
}
