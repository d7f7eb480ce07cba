//! The settings of HTTP/3 and QUIC.

use weir_tls::quic::QuicKeys;

/// The settings of a server, resolved.
#[derive(Clone, Debug)]
pub struct Http3Settings {
    /// `http3`: HTTP/3 is offered on addresses with `quic`.
    pub on: bool,
    /// Number of requests that a client may have open at a time (`http3_max_concurrent_streams`).
    pub max_concurrent_streams: u32,
    /// `http3_stream_buffer_size`: bytes that a stream receives before they are read.
    pub stream_buffer_size: u64,
    /// `quic_active_connection_id_limit`: connection IDs of a client that are stored.
    pub connection_ids: u64,
    /// `quic_gso`: several packets are handed to the kernel as one.
    pub gso: bool,
    /// `quic_retry`: a client shows that it receives at its address before it is served.
    pub retry: bool,
    /// Keys of `quic_host_key`; `None`: those that the process has made for itself.
    pub host_key: Option<QuicKeys>,
}

impl Http3Settings {
    /// The application protocols that are offered, in order. Empty: each handshake is refused.
    pub fn protocols(&self) -> &'static [&'static [u8]] {
        if self.on { &[b"h3"] } else { &[] }
    }
}
