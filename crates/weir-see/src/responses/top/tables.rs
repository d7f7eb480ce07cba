//! What tables are wanted of `top`.

use std::time::Duration;

/// How often, how many and in which form.
pub(super) struct TopTables {
    pub(super) every: Duration,
    pub(super) count: u64,
    pub(super) json: bool,
}
