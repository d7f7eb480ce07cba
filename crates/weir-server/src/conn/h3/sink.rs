//! quinn-proto's streams as those of HTTP/3.

use quinn_proto::{Connection, StreamId, VarInt, WriteError};
use weir_engine::transport::h3::{SinkOutcome, StreamSink};
use weir_http::h3::H3ErrorCode;

/// The streams of a connection.
pub(super) struct QuicSink<'c>(pub(super) &'c mut Connection);

impl QuicSink<'_> {
    /// Has the connection buffer little beyond what the network takes: an urgent stream is not behind what others have in the
    /// buffer.
    pub(super) fn follow_line(&mut self) {
        let window = self.0.congestion_state().window();
        self.0.set_send_window((window + window / 4 + AHEAD).min(MOST));
    }
}

/// Bytes that a connection buffers ahead of its line, beyond a quarter of what may be in flight.
const AHEAD: u64 = 32 * 1024;
/// Bytes that are sent and not acknowledged, or buffered, at most: as the kernel has it for TCP.
const MOST: u64 = 4 << 20;

/// The stream of that number.
pub(super) fn stream(id: u64) -> StreamId {
    StreamId::from(VarInt::from_u64(id).unwrap_or_default())
}

/// The code as QUIC has it.
pub(in crate::conn) fn number(code: H3ErrorCode) -> VarInt {
    VarInt::from_u64(code.number()).unwrap_or(VarInt::MAX)
}

impl StreamSink for QuicSink<'_> {
    fn write(&mut self, id: u64, bytes: &[u8]) -> SinkOutcome {
        match self.0.send_stream(stream(id)).write(bytes) {
            Ok(taken) => SinkOutcome::Taken(taken),
            Err(WriteError::Blocked) => SinkOutcome::Taken(0),
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => SinkOutcome::Gone,
        }
    }

    fn rank(&mut self, id: u64, rank: i32) {
        // One that the client has stopped is not sent.
        let _ = self.0.send_stream(stream(id)).set_priority(rank);
    }

    fn finish(&mut self, id: u64) {
        // One that the client has stopped needs no end.
        let _ = self.0.send_stream(stream(id)).finish();
    }

    fn reset(&mut self, id: u64, code: H3ErrorCode) {
        let _ = self.0.send_stream(stream(id)).reset(number(code));
    }

    fn stop(&mut self, id: u64, code: H3ErrorCode) {
        // One whose end was read is closed already.
        let _ = self.0.recv_stream(stream(id)).stop(number(code));
    }
}
