//! Priorities of requests (RFC 9218).

use super::conn::{H3Connection, H3Role};
use super::guard::H3Abuse;
use super::{H3ErrorCode, H3Failure, varint};
use crate::priority::Priority;

impl H3Connection {
    /// The priority of a stream: what its head says, or the last PRIORITY_UPDATE frame about it.
    pub fn priority(&self, id: u64) -> Priority {
        self.streams.get(id).map(|stream| stream.priority).unwrap_or_default()
    }

    /// Gives a stream another priority, also in the middle of its response.
    pub fn prioritize(&mut self, id: u64, priority: Priority) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.priority = priority;
        }
    }

    /// A PRIORITY_UPDATE frame about a request (RFC 9218 section 7.2).
    pub(super) fn priority_update(&mut self, payload: &[u8]) -> Result<(), H3Failure> {
        let cut = H3Failure::new(H3ErrorCode::Frame, "sent PRIORITY_UPDATE frame with incorrect length");
        let (id, used) = varint::read(payload).ok_or(cut)?;
        if self.role == H3Role::Client {
            let reason = "sent PRIORITY_UPDATE frame";
            return Err(H3Failure::new(H3ErrorCode::FrameUnexpected, reason));
        }
        if !id.is_multiple_of(4) {
            let reason = "sent PRIORITY_UPDATE frame with incorrect identifier";
            return Err(H3Failure::new(H3ErrorCode::Id, reason));
        }
        self.budget.spend(H3Abuse::Priorities)?;
        let priority = Priority::parse(payload.get(used..).unwrap_or_default());
        if let Some(stream) = self.streams.get_mut(id) {
            (stream.priority, stream.is_reprioritized) = (priority, true);
        } else if id >= self.next {
            self.early.retain(|(early, _)| *early != id);
            if self.early.len() < EARLY {
                self.early.push_back((id, priority));
            }
        }
        Ok(())
    }
}

/// Number of priorities that are stored for streams to come.
const EARLY: usize = 128;
