//! Limits on what a peer may do that costs it less than us.
//!
//! Of each there is a budget: a burst, and what the peer's own requests, our responses and content pay for. Who asks for much
//! may do much; who only does what an attack is made of comes to its end. An overrun ends the connection with H3_EXCESSIVE_LOAD, is
//! counted, and has a name. Flow control, streams at once and reset streams that never were requests are limited by QUIC.

use super::{H3ErrorCode, H3Failure};

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum H3Abuse {
    /// Streams that the peer resets, or makes us reset (CVE-2023-44487).
    Resets,
    /// DATA frames that carry nothing.
    Empty,
    /// Frames of unknown types.
    Unknown,
    /// PRIORITY_UPDATE frames.
    Priorities,
    /// MAX_PUSH_ID frames.
    PushIds,
    /// GOAWAY frames.
    GoAways,
    /// The size of a header section, far above the one from which the response is an error; or of all those of which a part
    /// has come.
    Headers,
    /// The dynamic table of header compression.
    Table,
}

impl H3Abuse {
    /// How many kinds there are.
    pub const COUNT: usize = 8;

    /// All kinds; the position of each is its number.
    pub const ALL: [H3Abuse; H3Abuse::COUNT] = [
        H3Abuse::Resets,
        H3Abuse::Empty,
        H3Abuse::Unknown,
        H3Abuse::Priorities,
        H3Abuse::PushIds,
        H3Abuse::GoAways,
        H3Abuse::Headers,
        H3Abuse::Table,
    ];

    /// The word for it in logs and counters.
    pub const fn name(self) -> &'static str {
        match self {
            H3Abuse::Resets => "rapid reset",
            H3Abuse::Empty => "empty frames flood",
            H3Abuse::Unknown => "unknown frames flood",
            H3Abuse::Priorities => "PRIORITY flood",
            H3Abuse::PushIds => "MAX_PUSH_ID flood",
            H3Abuse::GoAways => "GOAWAY flood",
            H3Abuse::Headers => "header bomb",
            H3Abuse::Table => "dynamic table flood",
        }
    }

    const fn reason(self) -> &'static str {
        match self {
            H3Abuse::Resets => "reset too many streams (rapid reset)",
            H3Abuse::Empty => "sent too many empty frames (empty frames flood)",
            H3Abuse::Unknown => "sent too many unknown frames (unknown frames flood)",
            H3Abuse::Priorities => "sent too many PRIORITY_UPDATE frames (PRIORITY flood)",
            H3Abuse::PushIds => "sent too many MAX_PUSH_ID frames (MAX_PUSH_ID flood)",
            H3Abuse::GoAways => "sent too many GOAWAY frames (GOAWAY flood)",
            H3Abuse::Headers => "sent too large header section (header bomb)",
            H3Abuse::Table => "sent too many encoder instructions (dynamic table flood)",
        }
    }

    /// The failure that it is.
    pub(super) const fn failure(self) -> H3Failure {
        H3Failure { code: H3ErrorCode::ExcessiveLoad, reason: self.reason(), abuse: Some(self) }
    }

    /// How many there may be before anything has paid for them, and how many may be paid for in advance at most.
    const fn burst(self) -> (u32, u32) {
        match self {
            // A page that is left cancels what it had asked for: a hundred streams.
            H3Abuse::Resets => (500, 1000),
            H3Abuse::Empty => (100, 20_000),
            H3Abuse::Unknown => (1000, 20_000),
            H3Abuse::Priorities => (2000, 20_000),
            H3Abuse::PushIds => (100, 1000),
            H3Abuse::GoAways => (20, 20),
            H3Abuse::Headers | H3Abuse::Table => (0, 0),
        }
    }
}

/// The budgets of one connection.
#[derive(Clone, Debug)]
pub(super) struct AbuseBudget {
    left: [u32; H3Abuse::COUNT],
}

impl AbuseBudget {
    pub(super) fn new() -> AbuseBudget {
        AbuseBudget { left: H3Abuse::ALL.map(|abuse| abuse.burst().0) }
    }

    /// Work was done that makes this many honest.
    #[inline]
    pub(super) fn pay(&mut self, abuse: H3Abuse, count: u32) {
        if let Some(left) = self.left.get_mut(abuse as usize) {
            *left = left.saturating_add(count).min(abuse.burst().1);
        }
    }

    /// One more.
    ///
    /// # Errors
    /// One too many.
    #[inline]
    pub(super) fn spend(&mut self, abuse: H3Abuse) -> Result<(), H3Failure> {
        let left = self.left.get_mut(abuse as usize).filter(|left| **left > 0).ok_or(abuse.failure())?;
        *left -= 1;
        Ok(())
    }

    /// The head of a request has come: clients reprioritize what they have asked for, and grease what they ask.
    pub(super) fn requested(&mut self) {
        self.pay(H3Abuse::Priorities, 8);
        self.pay(H3Abuse::Unknown, 4);
        self.pay(H3Abuse::PushIds, 1);
    }

    /// A DATA frame with something in it has come.
    #[inline]
    pub(super) fn received(&mut self) {
        self.pay(H3Abuse::Empty, 1);
        self.pay(H3Abuse::Unknown, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_pass_floods_do_not_and_work_pays() {
        let mut budget = AbuseBudget::new();
        for abuse in H3Abuse::ALL {
            let (burst, most) = abuse.burst();
            assert!((0..burst).all(|_| budget.spend(abuse).is_ok()));
            let failed = budget.spend(abuse).expect_err("too many");
            assert_eq!((failed.code, failed.abuse), (H3ErrorCode::ExcessiveLoad, Some(abuse)));
            assert!(failed.reason.contains(abuse.name()));
            budget.pay(abuse, u32::MAX);
            assert!((0..most).all(|_| budget.spend(abuse).is_ok()) && budget.spend(abuse).is_err());
        }
        budget.requested();
        budget.received();
        assert!((0..5).all(|_| budget.spend(H3Abuse::Unknown).is_ok()));
        assert!(budget.spend(H3Abuse::Unknown).is_err());
    }
}
