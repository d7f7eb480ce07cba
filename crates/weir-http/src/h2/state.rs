//! The states of a stream (RFC 9113 section 5.1).
//!
//! ```text
//!              HEADERS                      END_STREAM in             END_STREAM out
//!   (idle) ─────────────► Open ──────────────► HalfClosedRemote ──────────────► Closed
//!                           │                                                     ▲
//!                           └────────────────► HalfClosedLocal ───────────────────┘
//!                             END_STREAM out                      END_STREAM in
//!   RST_STREAM in either direction, from any state: Closed
//! ```
//!
//! Idle streams have no state: they are those above the highest identifier. Reserved ones don't exist: nothing is
//! pushed.

/// The state of a stream (RFC 9113 section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// Both sides may send.
    Open,
    /// The peer has sent all it will.
    HalfClosedRemote,
    /// We have sent all we will.
    HalfClosedLocal,
    /// Neither sends any more.
    Closed,
}

impl StreamState {
    /// The peer ended its direction.
    #[must_use]
    pub(crate) fn end_in(self) -> StreamState {
        match self {
            StreamState::Open => StreamState::HalfClosedRemote,
            StreamState::HalfClosedLocal => StreamState::Closed,
            ended => ended,
        }
    }

    /// We ended our direction.
    #[must_use]
    pub(crate) fn end_out(self) -> StreamState {
        match self {
            StreamState::Open => StreamState::HalfClosedLocal,
            StreamState::HalfClosedRemote => StreamState::Closed,
            ended => ended,
        }
    }

    /// Whether the peer may still send.
    pub fn receives(self) -> bool {
        matches!(self, StreamState::Open | StreamState::HalfClosedLocal)
    }

    /// Whether we may still send.
    pub fn sends(self) -> bool {
        matches!(self, StreamState::Open | StreamState::HalfClosedRemote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_closes_when_both_sides_have_ended() {
        assert_eq!(StreamState::Open.end_in().end_out(), StreamState::Closed);
        assert_eq!(StreamState::Open.end_out().end_in(), StreamState::Closed);
        assert_eq!(StreamState::Open.end_in().end_in(), StreamState::HalfClosedRemote);
        assert_eq!(StreamState::Open.end_out().end_out(), StreamState::HalfClosedLocal);
        assert!(StreamState::Open.end_in().sends() && !StreamState::Open.end_in().receives());
        assert!(!StreamState::Open.end_out().sends() && StreamState::Open.end_out().receives());
    }
}
