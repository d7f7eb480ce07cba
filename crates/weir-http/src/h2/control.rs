//! Frames about the connection, and about streams as such.

use super::conn::{H2Connection, H2Role};
use super::dependency::StreamDependency;
use super::frame::{self, ACK, FrameHead, kind};
use super::guard::H2Abuse;
use super::recv::{FrameOutcome, H2Event, protocol, size};
use super::settings::H2Settings;
use super::state::StreamState;
use super::{ErrorCode, H2Failure};
use crate::priority::Priority;

impl H2Connection {
    /// A PRIORITY frame of RFC 7540, which RFC 9113 has no more; older clients order their streams by it.
    pub(super) fn tree(&mut self, head: FrameHead, payload: &[u8], out: &mut Vec<u8>) -> FrameOutcome {
        if head.stream == 0 {
            return Err(protocol("sent PRIORITY frame with incorrect identifier"));
        }
        if self.is_late(head.stream) {
            return self.late();
        }
        self.guard.spend(H2Abuse::Priorities)?;
        let wrong = match payload.first_chunk().map(StreamDependency::read) {
            Some(dependency) if payload.len() == 5 && dependency.parent != head.stream => {
                self.depend(head.stream, dependency);
                return Ok(None);
            }
            Some(_) if payload.len() == 5 => protocol("sent PRIORITY frame with incorrect dependency"),
            _ => size("sent PRIORITY frame with incorrect length"),
        };
        match self.store.find(head.stream) {
            Some(key) => self.fail(key, wrong.code, wrong.reason, out),
            None => Err(wrong),
        }
    }

    pub(super) fn peer_reset(&mut self, head: FrameHead, payload: &[u8]) -> FrameOutcome {
        let Ok(code) = <[u8; 4]>::try_from(payload) else {
            return Err(size("sent RST_STREAM frame with incorrect length"));
        };
        if head.stream == 0 {
            return Err(protocol("sent RST_STREAM frame with incorrect identifier"));
        }
        if self.is_late(head.stream) {
            return self.late();
        }
        // A peer that waited for a response may not want the rest; responses do not pay for requests that are cancelled
        // in the same breath.
        let at_once = self.role == H2Role::Server && head.stream > self.seen;
        let counted =
            if at_once { self.guard.count(H2Abuse::Resets) } else { self.guard.spend(H2Abuse::Resets) };
        counted?;
        let Some(key) = self.store.find(head.stream) else {
            // From here on the peer knows that it is closed.
            self.reset.retain(|id| *id != head.stream);
            return self.gone(head.stream, "sent RST_STREAM frame for idle stream").map(|()| None);
        };
        self.unqueue(key);
        let Some(stream) = self.store.get_mut(key) else { return Ok(None) };
        if stream.state == StreamState::Closed {
            return Ok(None);
        }
        stream.state = StreamState::Closed;
        Ok(Some(H2Event::Reset { key, code: ErrorCode::of(u32::from_be_bytes(code)), reason: None }))
    }

    pub(super) fn settings(&mut self, head: FrameHead, payload: &[u8], out: &mut Vec<u8>) -> FrameOutcome {
        if head.stream != 0 {
            return Err(protocol("sent SETTINGS frame with incorrect identifier"));
        }
        if head.has(ACK) {
            self.guard.count(H2Abuse::Settings)?;
            return match payload {
                [] => {
                    self.acknowledged();
                    Ok(None)
                }
                _ => Err(size("sent SETTINGS frame with the ACK flag and nonzero length")),
            };
        }
        self.guard.count(H2Abuse::Settings)?;
        let before = self.remote.window;
        self.remote.read(payload)?;
        self.settled = true;
        if self.remote.no_tree {
            self.use_urgencies();
        }
        self.encoder.set_limit(self.remote.header_table);
        let change = i64::from(self.remote.window) - i64::from(before);
        if change != 0 {
            let grown = self.store.streams_mut().all(|(_, stream)| stream.send.grow(change));
            if !grown {
                let reason = "sent SETTINGS frame that makes a window too large";
                return Err(H2Failure::new(ErrorCode::FlowControl, reason));
            }
            self.keys().into_iter().for_each(|key| self.enqueue(key));
        }
        frame::write(out, kind::SETTINGS, ACK, 0, &[]);
        Ok(None)
    }

    /// The peer knows our settings: windows that were opened before are as small as these say.
    fn acknowledged(&mut self) {
        if std::mem::replace(&mut self.is_acknowledged, true) {
            return;
        }
        let (size, known) = (self.config.stream_window, H2Settings::default().window);
        self.store.streams_mut().for_each(|(_, stream)| stream.recv.narrow(size, known));
    }

    pub(super) fn ping(&mut self, head: FrameHead, payload: &[u8], out: &mut Vec<u8>) -> FrameOutcome {
        if head.stream != 0 {
            return Err(protocol("sent PING frame with incorrect identifier"));
        }
        if payload.len() != 8 {
            return Err(size("sent PING frame with incorrect length"));
        }
        self.guard.spend(H2Abuse::Pings)?;
        if head.has(ACK) {
            return Ok(None);
        }
        frame::write(out, kind::PING, ACK, 0, payload);
        Ok(None)
    }

    pub(super) fn peer_goes(&mut self, head: FrameHead, payload: &[u8]) -> FrameOutcome {
        if head.stream != 0 {
            return Err(protocol("sent GOAWAY frame with incorrect identifier"));
        }
        let Some((&[a, b, c, d, w, x, y, z], _)) = payload.split_first_chunk::<8>() else {
            return Err(size("sent GOAWAY frame with incorrect length"));
        };
        self.guard.count(H2Abuse::GoAways)?;
        let last = u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff;
        self.peer_last = Some(last);
        Ok(Some(H2Event::GoAway { last, code: ErrorCode::of(u32::from_be_bytes([w, x, y, z])) }))
    }

    pub(super) fn window_update(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> FrameOutcome {
        let Ok(increment) = <[u8; 4]>::try_from(payload) else {
            return Err(size("sent WINDOW_UPDATE frame with incorrect length"));
        };
        let increment = u32::from_be_bytes(increment) & 0x7fff_ffff;
        if self.is_late(head.stream) {
            return self.late();
        }
        self.guard.spend(H2Abuse::Windows)?;
        let nothing = "sent WINDOW_UPDATE frame with incorrect window increment 0";
        let excess = "violated flow control: window is too large";
        if head.stream == 0 {
            return match increment {
                0 => Err(protocol(nothing)),
                _ if self.send.grow(increment.into()) => Ok(None),
                _ => Err(H2Failure::new(ErrorCode::FlowControl, excess)),
            };
        }
        let Some(key) = self.store.find(head.stream) else {
            self.gone(head.stream, "sent WINDOW_UPDATE frame for idle stream")?;
            if increment == 0 {
                self.guard.count(H2Abuse::Resets)?;
                frame::reset(out, head.stream, ErrorCode::Protocol);
            }
            return Ok(None);
        };
        let Some(stream) = self.store.get_mut(key) else { return Ok(None) };
        if stream.state == StreamState::Closed {
            return Ok(None);
        }
        if increment == 0 {
            return self.fail(key, ErrorCode::Protocol, nothing, out);
        }
        if !stream.send.grow(increment.into()) {
            return self.fail(key, ErrorCode::FlowControl, excess, out);
        }
        self.enqueue(key);
        Ok(None)
    }

    /// RFC 9218 section 7.1.
    pub(super) fn priority_update(&mut self, head: FrameHead, payload: &[u8]) -> FrameOutcome {
        let Some((id, value)) = payload.split_first_chunk::<4>() else {
            return Err(size("sent PRIORITY_UPDATE frame with incorrect length"));
        };
        let id = u32::from_be_bytes(*id) & 0x7fff_ffff;
        if head.stream != 0 || self.role == H2Role::Client || id.is_multiple_of(2) {
            return Err(protocol("sent PRIORITY_UPDATE frame with incorrect identifier"));
        }
        self.guard.spend(H2Abuse::Priorities)?;
        self.use_urgencies();
        let priority = Priority::parse(value);
        if let Some(key) = self.store.find(id) {
            self.prioritize(key, priority);
        } else if id > self.last {
            self.early.retain(|(early, _)| *early > self.last && *early != id);
            if self.early.len() < EARLY {
                self.early.push_back((id, priority));
            }
        }
        Ok(None)
    }
}

/// Number of priorities that are stored for streams to come.
const EARLY: usize = 128;
