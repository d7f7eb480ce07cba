//! What was recorded of requests, as text.

use weir_rt::clock;
use weir_trace::{KeptRequest, SiteTable, render};

/// Headline and tree, as `weir trace` prints them.
pub fn kept(kept: &KeptRequest) -> String {
    let sites = SiteTable::global();
    let headline = render::headline(kept.record(), sites, &nanoseconds);
    format!("{headline}\n{}", render::tree(&kept.tree(), sites, &nanoseconds))
}

/// Nanoseconds of the clock that the engine stamps with.
pub fn nanoseconds(ticks: u64) -> u64 {
    clock::scale().ticks_to_ns(ticks)
}
