//! The settings of HTTP/2.

/// The settings of a server, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Settings {
    /// `http2`: connections to the server's address may be HTTP/2.
    pub on: bool,
    /// `http2_upgrade`: requests of HTTP/1.1 with `Upgrade: h2c` change to HTTP/2.
    pub upgrade: bool,
    /// `http2_reprioritize_blocking_assets`: style sheets and scripts go before all else that nobody gave a priority.
    pub reprioritizes: bool,
    /// Number of streams that a client may have open at a time (`http2_max_concurrent_streams`).
    pub max_concurrent_streams: u32,
    /// `http2_body_preread_size`: bytes of a request body that are accepted before it is read.
    pub body_preread_size: u32,
    /// `http2_recv_buffer_size`: bytes of a request body that may be in flight (the flow-control window) while it is
    /// read.
    pub recv_buffer_size: u32,
}
