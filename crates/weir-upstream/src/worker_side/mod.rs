//! A worker's own side of an upstream: the choice of a peer and its use.

pub mod local_upstream;

pub(crate) mod computed_upstream;
pub(crate) mod guided_choice;
pub(crate) mod queue_ticket;
pub(crate) mod worker_part;
