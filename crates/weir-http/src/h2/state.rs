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

/// Where a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Both sides may send.
    Open,
    /// The peer has sent all it will.
    HalfClosedRemote,
    /// We have sent all we will.
    HalfClosedLocal,
    /// Neither sends any more.
    Closed,
}

impl State {
    /// The peer ended its direction.
    #[must_use]
    pub fn end_in(self) -> State {
        match self {
            State::Open => State::HalfClosedRemote,
            State::HalfClosedLocal => State::Closed,
            ended => ended,
        }
    }

    /// We ended our direction.
    #[must_use]
    pub fn end_out(self) -> State {
        match self {
            State::Open => State::HalfClosedLocal,
            State::HalfClosedRemote => State::Closed,
            ended => ended,
        }
    }

    /// Whether the peer may still send.
    pub fn receives(self) -> bool {
        matches!(self, State::Open | State::HalfClosedLocal)
    }

    /// Whether we may still send.
    pub fn sends(self) -> bool {
        matches!(self, State::Open | State::HalfClosedRemote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_closes_when_both_sides_have_ended() {
        assert_eq!(State::Open.end_in().end_out(), State::Closed);
        assert_eq!(State::Open.end_out().end_in(), State::Closed);
        assert_eq!(State::Open.end_in().end_in(), State::HalfClosedRemote);
        assert_eq!(State::Open.end_out().end_out(), State::HalfClosedLocal);
        assert!(State::Open.end_in().sends() && !State::Open.end_in().receives());
        assert!(!State::Open.end_out().sends() && State::Open.end_out().receives());
    }
}
