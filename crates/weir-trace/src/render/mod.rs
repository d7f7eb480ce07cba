//! What was recorded, for people and for other programs.

mod average;
mod folded;
mod json;
mod rows;
mod server_timing;
mod sites;
mod text;

pub use average::{average, average_json};
pub use folded::folded;
pub use json::{kept_json, record_json, totals_json, tree_json};
pub use server_timing::server_timing;
pub use sites::sites;
pub use text::{flow, headline, kernel_line, short_tree, tree};

/// Ticks to nanoseconds; must not decrease.
pub type TicksToNanos<'a> = &'a dyn Fn(u64) -> u64;
