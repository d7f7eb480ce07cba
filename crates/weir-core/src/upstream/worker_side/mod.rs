//! A worker's own side of an upstream: the choice of a peer and its use.

pub mod balancer_hook;
pub mod local_upstream;

pub(crate) mod computed_upstream;
