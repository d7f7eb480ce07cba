//! TLS to upstream servers, and what both sides of TLS need: certificates from files, a connection's layer.

pub(crate) mod cache;
pub mod client;
pub mod connect;
pub(crate) mod effort;
pub(crate) mod files;
pub(crate) mod layer;
pub(crate) mod toward;
pub(crate) mod values;

pub use client::Secure;
pub use files::device_certificate;
pub use toward::{Met, Shown, UpstreamHandler};
