//! A request on its way out: queued whole, or passed on as the client sends it.

use std::future::poll_fn;
use std::task::Poll;

use weir_rt::{OutputChunk, RecvOutcome, SendError};
use weir_trace::WaitKind;

use crate::config::failure_reason::AttemptFailure;
use crate::connection::upstream_connection::UpstreamConnection;
use crate::error_log;
use crate::protocol::RequestFraming;
use crate::request::attempt_state::Attempt;
use crate::request::request_body;
use crate::response::upload::AHEAD;
use weir_engine::exchange::Exchange;
use weir_engine::phase::Verdict;

impl Attempt {
    /// Queues the request; a body that is passed on as it comes is read from the client meanwhile. The rest
    /// of a body whose response comes before its end is passed on beside that.
    pub(crate) async fn send(
        &mut self,
        x: &mut Exchange,
        connection: &UpstreamConnection,
        received: &mut Vec<u8>,
    ) -> Result<(), AttemptFailure> {
        // A copy, since it may have to be sent again.
        let mut head = connection.stream.spare();
        head.extend_from_slice(&self.out.head);
        if self.out.body.is_none() && self.out.framing == RequestFraming::None {
            connection.stream.send(head);
            return Ok(());
        }
        connection.stream.queue(OutputChunk::Bytes(head));
        if let Some(body) = &self.out.body {
            connection.stream.queue(OutputChunk::Bytes(body.clone()));
        } else if self.out.framing != RequestFraming::None {
            if !x.body.is_read() {
                return Box::pin(self.stream_body(x, connection, received)).await;
            }
            request_body::queue_body(x, &*self.up.protocol, self.out.framing, connection);
        }
        connection.stream.flush();
        Ok(())
    }

    async fn stream_body(
        &mut self,
        x: &mut Exchange,
        connection: &UpstreamConnection,
        received: &mut Vec<u8>,
    ) -> Result<(), AttemptFailure> {
        let (protocol, framing) = (self.up.protocol.clone(), self.out.framing);
        self.body_begun = true;
        // What came at once, framed as one.
        let mut gathered = Vec::new();
        let pass = |gathered: &mut Vec<u8>| {
            if !gathered.is_empty() {
                let bytes = protocol.body(std::mem::take(gathered), framing);
                connection.stream.queue(OutputChunk::Bytes(bytes));
            }
        };
        loop {
            let early = {
                let mut piece = Box::pin(x.body_piece());
                poll_fn(|cx| {
                    if let Poll::Ready(recv) = connection.stream.poll_recv(cx, None) {
                        return Poll::Ready(Err(recv));
                    }
                    let piece = piece.as_mut().poll(cx);
                    if piece.is_pending() {
                        // What there is of the body leaves with the head.
                        pass(&mut gathered);
                        connection.stream.flush();
                    }
                    piece.map(Ok)
                })
                .await
            };
            match early {
                Ok(Ok(Some(piece))) => {
                    let limit = x.plan.core.client_body_buffer_size;
                    x.body.remember(&piece, limit);
                    if gathered.is_empty() {
                        gathered = piece;
                    } else {
                        gathered.extend_from_slice(&piece);
                    }
                    if gathered.len() >= GATHERED {
                        pass(&mut gathered);
                    }
                }
                Ok(Ok(None)) => {
                    x.body.passed();
                    pass(&mut gathered);
                    connection.stream.queue(OutputChunk::Bytes(protocol.body_end(framing)));
                    connection.stream.flush();
                    return Ok(());
                }
                Ok(Err(error)) => return Err(AttemptFailure::End(Verdict::Status(error.status()))),
                Err(RecvOutcome::Data(bytes)) => {
                    received.extend_from_slice(&bytes);
                    return Ok(());
                }
                // What became of the connection is found out by the next receive, or by the next send.
                Err(_) => return Ok(()),
            }
            if connection.stream.unsent() < AHEAD {
                // More of the body may be there already, and leaves with this.
                continue;
            }
            connection.timer.arm(self.up.settings.send_timeout);
            let room = connection.stream.drained(AHEAD, Some(&connection.timer));
            match self.unless_gone(x, WaitKind::UpstreamSend, room).await? {
                Ok(()) => {}
                Err(SendError::TimedOut) => return Err(error_log::send_timed_out(x)),
                Err(_) => return Ok(()),
            }
        }
    }
}

/// Pieces of a body that come at once are joined up to this size: 16 KB cost what one piece of 4 KB does.
const GATHERED: usize = 16 * 1024;
