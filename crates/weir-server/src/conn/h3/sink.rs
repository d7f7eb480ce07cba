//! quinn-proto's streams as those of HTTP/3.

use quinn_proto::{Connection, StreamId, VarInt, WriteError};
use weir_engine::transport::h3::{SinkOutcome, StreamSink};
use weir_http::h3::H3ErrorCode;

/// The streams of a connection.
pub(super) struct QuicSink<'c>(pub(super) &'c mut Connection);

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
