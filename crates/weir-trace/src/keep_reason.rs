//! The reasons for which trees are retained.

/// Why a tree was retained.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeepReason {
    /// The request carried a signed trace header, or its location keeps all.
    Asked,
    /// It held the loop for so long that it counts as a stall.
    Blocker,
    /// It had to wait for a request that blocked the loop; of each stall one is retained.
    Waiter,
    /// A [`TraceWatch`](crate::TraceWatch) matched it.
    Matched,
    /// Its status was 500 or above.
    Failed,
    /// It took longer than the bound.
    Slow,
    /// The request was drawn at random.
    Sampled,
    /// No other request of its route took longer in its minute.
    Slowest,
}

impl KeepReason {
    /// The word for it in exports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            KeepReason::Asked => "asked",
            KeepReason::Blocker => "blocked_others",
            KeepReason::Waiter => "was_blocked",
            KeepReason::Matched => "matched",
            KeepReason::Failed => "failed",
            KeepReason::Slow => "slow",
            KeepReason::Sampled => "sampled",
            KeepReason::Slowest => "slowest",
        }
    }

    /// The same for people, after "kept because".
    #[must_use]
    pub const fn says(self) -> &'static str {
        match self {
            KeepReason::Asked => "its trace header or its location asks for that",
            KeepReason::Blocker => "it blocked its worker",
            KeepReason::Waiter => "it waited while another request blocked their worker",
            KeepReason::Matched => "a command asked for such requests",
            KeepReason::Failed => "its status is 500 or above",
            KeepReason::Slow => "it took longer than the limit for slow ones",
            KeepReason::Sampled => "it was drawn at random",
            KeepReason::Slowest => "no other request of its location took longer in that minute",
        }
    }
}
