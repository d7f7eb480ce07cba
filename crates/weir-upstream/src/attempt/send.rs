//! A request on its way out: queued whole, or passed on as the client sends it.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use weir_rt::{OutputChunk, RecvOutcome, SendError};
use weir_trace::{Cause, WaitKind};

use crate::config::failure_reason::AttemptFailure;
use crate::connection::upstream_connection::UpstreamConnection;
use crate::error_log;
use crate::protocol::{RequestFraming, UpstreamProtocol};
use crate::request::attempt_state::Attempt;
use crate::request::request_body;
use crate::response::upload::AHEAD;
use weir_engine::error::EngineError;
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
            // Of a body without content (Content-Length: 0) nothing is read, and nothing is pending.
            // One that counts as read and is pending was left out: what comes of it is for nobody.
            if x.body.is_pending() && !x.body.is_read() {
                return Box::pin(self.stream_body(x, connection, received)).await;
            }
            request_body::queue_body(x, &*self.up.protocol, self.out.framing, connection);
        }
        connection.stream.flush();
        Ok(())
    }

    /// The file that has the body of `x` can't be sent: no server is to blame, and another would get no more of it.
    #[cold]
    pub(crate) fn lost_file(&self, x: &mut Exchange, error: SendError) -> AttemptFailure {
        error_log::lost_file(x, error);
        x.cause = Cause::File;
        self.records.end(Some(500));
        AttemptFailure::End(Verdict::Status(500))
    }

    async fn stream_body(
        &mut self,
        x: &mut Exchange,
        connection: &UpstreamConnection,
        received: &mut Vec<u8>,
    ) -> Result<(), AttemptFailure> {
        self.body_begun = true;
        let mut gathered = GatheredBody {
            bytes: Vec::new(),
            protocol: self.up.protocol.clone(),
            framing: self.out.framing,
            connection,
        };
        loop {
            match gathered.next(x).await {
                UploadEvent::Piece(piece) => {
                    let limit = x.plan.core.client_body_buffer_size;
                    x.body.remember(&piece, limit);
                    gathered.add(piece);
                }
                UploadEvent::End => {
                    x.body.passed();
                    gathered.finish();
                    return Ok(());
                }
                UploadEvent::Failed(error) => {
                    return Err(AttemptFailure::End(Verdict::Status(error.status())));
                }
                UploadEvent::Received(RecvOutcome::Data(bytes)) => {
                    received.extend_from_slice(&bytes);
                    return Ok(());
                }
                // What became of the connection is determined by the next receive, or by the next send.
                UploadEvent::Received(_) => return Ok(()),
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
                Err(error @ (SendError::File(_) | SendError::Truncated)) => {
                    return Err(self.lost_file(x, error));
                }
                Err(SendError::Closed(_)) => return Ok(()),
            }
        }
    }
}

/// What comes while a body is passed on.
enum UploadEvent {
    /// Of the client's body.
    Piece(Vec<u8>),
    /// The client's body is whole.
    End,
    /// The client's body can't be read.
    Failed(EngineError),
    /// From the server, before the body's end.
    Received(RecvOutcome),
}

/// What came at once of a body, framed as one.
struct GatheredBody<'c> {
    bytes: Vec<u8>,
    protocol: Rc<dyn UpstreamProtocol>,
    framing: RequestFraming,
    connection: &'c UpstreamConnection,
}

impl GatheredBody<'_> {
    /// The next piece of the client's body; what there is of it leaves with the head before it is waited for.
    async fn next(&mut self, x: &mut Exchange) -> UploadEvent {
        let mut piece = Box::pin(x.body_piece());
        poll_fn(|cx| {
            if let Poll::Ready(received) = self.connection.stream.poll_recv(cx, None) {
                return Poll::Ready(UploadEvent::Received(received));
            }
            let piece = piece.as_mut().poll(cx);
            if piece.is_pending() {
                self.pass();
                self.connection.stream.flush();
            }
            piece.map(|piece| match piece {
                Ok(Some(piece)) => UploadEvent::Piece(piece),
                Ok(None) => UploadEvent::End,
                Err(error) => UploadEvent::Failed(error),
            })
        })
        .await
    }

    fn add(&mut self, piece: Vec<u8>) {
        if self.bytes.is_empty() {
            self.bytes = piece;
        } else {
            self.bytes.extend_from_slice(&piece);
        }
        if self.bytes.len() >= GATHERED {
            self.pass();
        }
    }

    /// Queues what was gathered.
    fn pass(&mut self) {
        if !self.bytes.is_empty() {
            let bytes = self.protocol.body(std::mem::take(&mut self.bytes), self.framing);
            self.connection.stream.queue(OutputChunk::Bytes(bytes));
        }
    }

    /// Sends the rest, and the end of the body.
    fn finish(&mut self) {
        self.pass();
        let end = self.protocol.body_end(self.framing);
        self.connection.stream.queue(OutputChunk::Bytes(end));
        self.connection.stream.flush();
    }
}

/// Pieces of a body that come at once are joined up to this size: 16 KB cost what one piece of 4 KB does.
const GATHERED: usize = 16 * 1024;
