//! How much a recorder records and retains.

/// How much of requests is recorded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum TraceLevel {
    /// Request records and counts by status only; no boundary is stamped.
    Off,
    /// One request in [`RecorderSettings::sample`] is recorded whole: histograms come from those, and their trees are
    /// retained.
    Sampled,
    /// Every request is recorded: histograms of all, and the tree of any that turns out worth it is retained.
    #[default]
    Full,
}

/// A recorder's settings, in ticks where they are times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecorderSettings {
    /// How much is recorded.
    pub level: TraceLevel,
    /// One request in this many is drawn and its tree retained; 0 for none.
    pub sample: u32,
    /// Requests that took at least this many ticks are slow; `u64::MAX` for none.
    pub slow: u64,
    /// Number of trees retained; the oldest makes room.
    pub kept: usize,
    /// Number of routes of which the slowest request of the last minute is retained besides, and of the minute before
    /// it.
    pub slowest: usize,
    /// Number of request records retained; the oldest makes room.
    pub records: usize,
    /// Number of stalls retained; the oldest makes room.
    pub stalls: usize,
    /// Seed of the draw; workers take different ones.
    pub seed: u64,
}

impl Default for RecorderSettings {
    /// Every request recorded, one tree in 64 retained besides the failed ones, nothing slow: the bound depends on the
    /// clock's ticks.
    fn default() -> RecorderSettings {
        RecorderSettings {
            level: TraceLevel::Full,
            sample: 64,
            slow: u64::MAX,
            kept: 256,
            slowest: 256,
            // Each request writes one: together they should not push other things out of the processor's cache (23 KB).
            records: 64,
            stalls: 64,
            seed: 0x9E37_79B9_7F4A_7C15,
        }
    }
}
