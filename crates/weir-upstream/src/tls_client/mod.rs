//! TLS to upstream servers, and what both sides of TLS need: certificates from files, a connection's layer.

pub mod cache;
pub mod client;
pub mod commands;
pub mod connect;
pub mod effort;
pub mod files;
pub mod layer;
mod overrides;
pub(crate) mod tls_facts;
pub(crate) mod toward;
pub mod values;

pub use client::SecureUpstream;
pub use files::device_certificate;
pub use overrides::TlsOverrides;
pub use toward::{MetServer, ShownCertificate, UpstreamHandler, handle_upstream_handshakes};
