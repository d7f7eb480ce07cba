//! An `upstream` block, or the address that takes its place: what all workers share.

pub mod list_changes;
pub mod upstream;

pub mod balancer_hook;
pub(crate) mod change_notice;
pub(crate) mod description;
pub(crate) mod followed_names;
pub mod health_checker;
pub(crate) mod queue;
pub(crate) mod retry_budget;
pub(crate) mod slow_peers;
pub(crate) mod source_follower;
pub(crate) mod upstreams;
