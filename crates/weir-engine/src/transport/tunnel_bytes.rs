//! What comes through a connection or stream once its bytes are no HTTP.

use weir_rt::{RecvBuf, RecvOutcome};

/// What came of one side of a tunnel.
pub enum TunnelBytes {
    /// Bytes received from the socket, in a buffer of the pool.
    Received(RecvBuf),
    /// Bytes received on a stream of HTTP/2 or HTTP/3.
    Piece(Vec<u8>),
    /// The side has ended its direction.
    End,
    /// The client's connection is closed or broken.
    Broken,
}

impl From<RecvOutcome> for TunnelBytes {
    fn from(received: RecvOutcome) -> TunnelBytes {
        match received {
            RecvOutcome::Data(buf) => TunnelBytes::Received(buf),
            RecvOutcome::Eof | RecvOutcome::TimedOut => TunnelBytes::End,
            RecvOutcome::Err(_) => TunnelBytes::Broken,
        }
    }
}
