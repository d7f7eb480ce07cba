//! The peer's control stream (RFC 9114 section 6.2.1).

use super::conn::{H3Connection, H3Role};
use super::frame::{FrameHead, PartialHead, is_reserved, kind};
use super::guard::H3Abuse;
use super::settings::H3Settings;
use super::{H3ErrorCode, H3Failure, varint};

/// How far the control stream was read.
#[derive(Debug, Default)]
pub(super) struct ControlReader {
    head: PartialHead,
    frame: Option<ControlFrame>,
    /// What has come of the frame's payload, where that means something.
    payload: Vec<u8>,
}

/// A frame whose payload is coming in.
#[derive(Clone, Copy, Debug)]
struct ControlFrame {
    kind: u64,
    /// Bytes still to come.
    left: u64,
    /// It means nothing: its payload is not stored.
    is_unknown: bool,
}

impl ControlReader {
    /// Bytes of memory that it owns.
    pub(super) fn held_bytes(&self) -> usize {
        self.payload.capacity()
    }

    /// Takes what there is of the frame's payload from the front of `rest`. The frame when it is whole.
    fn payload(&mut self, frame: &mut ControlFrame, rest: &mut &[u8]) -> bool {
        let here = usize::try_from(frame.left).unwrap_or(usize::MAX).min(rest.len());
        let (bytes, after) = rest.split_at_checked(here).unwrap_or((rest, &[]));
        if !frame.is_unknown {
            self.payload.extend_from_slice(bytes);
        }
        *rest = after;
        frame.left -= here as u64;
        frame.left == 0
    }
}

impl H3Connection {
    /// Takes what came on the control stream.
    pub(super) fn control(&mut self, reader: &mut ControlReader, bytes: &[u8]) -> Result<(), H3Failure> {
        let mut rest = bytes;
        loop {
            let mut frame = match reader.frame.take() {
                Some(frame) => frame,
                None => {
                    let (used, head) = reader.head.take(rest);
                    rest = rest.get(used..).unwrap_or_default();
                    let Some(head) = head else { return Ok(()) };
                    self.control_head(head)?
                }
            };
            if !reader.payload(&mut frame, &mut rest) {
                reader.frame = Some(frame);
                return Ok(());
            }
            self.control_frame(frame.kind, &reader.payload)?;
            reader.payload.clear();
        }
    }

    /// Whether a frame may come now, and of this size.
    fn control_head(&mut self, head: FrameHead) -> Result<ControlFrame, H3Failure> {
        if self.remote.is_none() && head.kind != kind::SETTINGS {
            let reason = "did not begin its control stream with SETTINGS frame";
            return Err(H3Failure::new(H3ErrorCode::MissingSettings, reason));
        }
        let (most, is_unknown) = match head.kind {
            kind::SETTINGS if self.remote.is_some() => return Err(unexpected("sent SETTINGS frame twice")),
            kind::DATA | kind::HEADERS | kind::PUSH_PROMISE => {
                return Err(unexpected("sent frame of a request on its control stream"));
            }
            reserved if is_reserved(reserved) => return Err(unexpected("sent frame of HTTP/2")),
            kind::SETTINGS | kind::PRIORITY_UPDATE | kind::PRIORITY_UPDATE_PUSH => (MOST_PAYLOAD, false),
            kind::GOAWAY | kind::MAX_PUSH_ID | kind::CANCEL_PUSH if head.length > INTEGER => {
                let reason = "sent frame with an identifier and more";
                return Err(H3Failure::new(H3ErrorCode::Frame, reason));
            }
            kind::GOAWAY | kind::MAX_PUSH_ID | kind::CANCEL_PUSH => (INTEGER, false),
            _ => {
                self.budget.spend(H3Abuse::Unknown)?;
                (u64::MAX, true)
            }
        };
        if head.length > most {
            return Err(H3Failure::new(
                H3ErrorCode::ExcessiveLoad,
                "sent too large frame on its control stream",
            ));
        }
        Ok(ControlFrame { kind: head.kind, left: head.length, is_unknown })
    }

    /// A frame that is whole.
    fn control_frame(&mut self, kind: u64, payload: &[u8]) -> Result<(), H3Failure> {
        match kind {
            kind::SETTINGS => {
                let settings = H3Settings::read(payload)?;
                self.encoder.set_limit(settings.table);
                self.remote = Some(settings);
                Ok(())
            }
            kind::GOAWAY => self.peer_goes(identifier(payload)?),
            kind::MAX_PUSH_ID => self.max_push(identifier(payload)?),
            kind::CANCEL_PUSH => {
                identifier(payload)?;
                Err(id("sent CANCEL_PUSH frame for what was not pushed"))
            }
            kind::PRIORITY_UPDATE => self.priority_update(payload),
            kind::PRIORITY_UPDATE_PUSH if self.role == H3Role::Client => {
                Err(unexpected("sent PRIORITY_UPDATE frame"))
            }
            kind::PRIORITY_UPDATE_PUSH => Err(id("sent PRIORITY_UPDATE frame for what was not pushed")),
            _ => Ok(()),
        }
    }

    /// A GOAWAY frame says which requests were taken, or, from a client, which pushes. It may only say fewer (RFC 9114 section 5.2).
    fn peer_goes(&mut self, last: u64) -> Result<(), H3Failure> {
        self.budget.spend(H3Abuse::GoAways)?;
        let is_stream = self.role == H3Role::Server || last.is_multiple_of(4);
        if !is_stream || self.peer_last.is_some_and(|before| last > before) {
            return Err(id("sent GOAWAY frame with incorrect identifier"));
        }
        self.peer_last = Some(last);
        Ok(())
    }

    /// Nothing is pushed here, but the number may not shrink (RFC 9114 section 7.2.7).
    fn max_push(&mut self, most: u64) -> Result<(), H3Failure> {
        if self.role == H3Role::Client {
            return Err(unexpected("sent MAX_PUSH_ID frame"));
        }
        self.budget.spend(H3Abuse::PushIds)?;
        if self.most_push.is_some_and(|before| most < before) {
            return Err(id("sent MAX_PUSH_ID frame with smaller identifier than before"));
        }
        self.most_push = Some(most);
        Ok(())
    }
}

/// The payload of a frame that has an identifier and nothing else.
fn identifier(payload: &[u8]) -> Result<u64, H3Failure> {
    let wrong = H3Failure::new(H3ErrorCode::Frame, "sent frame with incorrect identifier");
    varint::only(payload).ok_or(wrong)
}

const fn unexpected(reason: &'static str) -> H3Failure {
    H3Failure::new(H3ErrorCode::FrameUnexpected, reason)
}

const fn id(reason: &'static str) -> H3Failure {
    H3Failure::new(H3ErrorCode::Id, reason)
}

/// Bytes of an integer at most.
const INTEGER: u64 = 8;
/// Bytes of a payload that is stored: hundreds of settings.
const MOST_PAYLOAD: u64 = 4096;
