//! The rest of a request that leaves while its response comes, on a connection of its own.

use std::rc::Rc;
use std::task::{Context, Poll};

use weir_rt::{OutputChunk, Stream};

use crate::location::upstream_location::UpstreamLocation;
use crate::protocol::{RequestFraming, UpstreamProtocol};
use weir_engine::error::EngineError;
use weir_engine::exchange::Exchange;
use weir_engine::read::BodyRest;

/// See the module.
pub(crate) struct ConnectionUpload {
    rest: BodyRest,
    protocol: Rc<dyn UpstreamProtocol>,
    framing: RequestFraming,
}

impl ConnectionUpload {
    /// The rest of the body of `x`, if there is any.
    pub(crate) fn begin(
        x: &mut Exchange,
        up: &UpstreamLocation,
        framing: RequestFraming,
    ) -> Option<ConnectionUpload> {
        Some(ConnectionUpload { rest: BodyRest::take_over(x)?, protocol: up.protocol.clone(), framing })
    }

    /// Passes on what has come, as far as the server takes it. Whether that was all.
    ///
    /// # Errors
    /// The client does not send the rest, or too much.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, server: &Stream) -> Result<bool, EngineError> {
        let done = loop {
            match server.poll_drained(cx, AHEAD, None) {
                Poll::Ready(Ok(())) => {}
                // A server that takes no more may respond all the same; the next receive shows what became of it.
                Poll::Ready(Err(_)) => break false,
                Poll::Pending => {
                    self.rest.pause();
                    break false;
                }
            }
            let Poll::Ready(polled) = self.rest.poll(cx) else { break false };
            let (piece, last) = polled?;
            if !piece.is_empty() {
                server.queue(OutputChunk::Bytes(self.protocol.body(piece, self.framing)));
            }
            if last {
                server.queue(OutputChunk::Bytes(self.protocol.body_end(self.framing)));
                break true;
            }
        };
        server.flush();
        Ok(done)
    }
}

/// How much of it may be on its way to the server.
pub(crate) const AHEAD: u64 = 64 * 1024;
