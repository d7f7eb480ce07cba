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
            KeepReason::Blocker => "blocker",
            KeepReason::Waiter => "waiter",
            KeepReason::Matched => "matched",
            KeepReason::Failed => "failed",
            KeepReason::Slow => "slow",
            KeepReason::Sampled => "sampled",
            KeepReason::Slowest => "slowest",
        }
    }
}
