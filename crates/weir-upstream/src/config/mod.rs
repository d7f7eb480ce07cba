//! What the directives of a `*_pass` module say about its upstream.

pub mod cache_directives;
pub mod directives;

pub(crate) mod buffer_sizes;
pub(crate) mod failure_reason;
pub(crate) mod field_names;
pub(crate) mod server_parameters;
