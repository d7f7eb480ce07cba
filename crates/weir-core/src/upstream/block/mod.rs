//! An `upstream` block, or the address that takes its place: what all workers share.

pub mod list_changes;
pub mod upstream;

pub(crate) mod change_notice;
pub(crate) mod description;
pub(crate) mod queue;
pub(crate) mod retry_budget;
pub(crate) mod upstreams;
