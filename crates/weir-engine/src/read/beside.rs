//! The rest of a body whose response is under way: a handler that passes it on reads it without the exchange, which is
//! busy with the response. And bodies that are read while others go on.

use std::rc::Rc;
use std::task::{Context, Poll};

use weir_rt::{RecvOutcome, Timer};
use weir_trace::Site;

use crate::error::{EngineError, EngineErrorKind, FaultSide};
use crate::exchange::Exchange;
use crate::exchange::request_body::{BodyFraming, BodyProgress};
use crate::read::BodyEnd;
use crate::transport::ClientSide;
use crate::transport::client::TunnelBytes;
use crate::transport::wire::ClientWire;

impl Exchange {
    /// As [`Exchange::read_body`], unless `others` is ready before: `None`, and the next call goes on from there.
    ///
    /// # Errors
    /// As [`Exchange::read_body`].
    pub async fn read_body_beside(
        &mut self,
        others: impl FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> Option<Result<(), EngineError>> {
        if self.body.read {
            return Some(Ok(()));
        }
        self.trace().enter(Site::BODY_READ);
        let result = self.read_all_beside(others).await;
        self.trace().leave(Site::BODY_READ);
        self.body.read = matches!(result, Some(Ok(())));
        result
    }

    async fn read_all_beside(
        &mut self,
        mut others: impl FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> Option<Result<(), EngineError>> {
        let room = self.body_room();
        loop {
            let kept = match self.body_piece_beside(&mut others).await? {
                Ok(Some(piece)) => self.keep_piece(piece, room).await,
                Ok(None) => return Some(self.end_reading(BodyEnd::Settled).await),
                Err(error) => Err(error),
            };
            if kept.is_err() {
                return Some(kept);
            }
        }
    }
}

/// The part of a request's body that is still to come, read beside the handler.
pub struct BodyRest {
    client: ClientSide,
    /// Of HTTP/1.
    framing: BodyFraming,
    progress: Rc<BodyProgress>,
    /// `client_body_timeout`, while the client is waited for.
    timer: Timer,
    timeout: u64,
    /// `client_max_body_size`; 0: none.
    limit: u64,
}

impl BodyRest {
    /// Takes the unread rest of the request's body away from the exchange; `None` if the body was read to its end or no
    /// client is connected. If the rest is not read to its end, an HTTP/1 connection is closed after the response, as
    /// nginx does.
    pub fn take_over(x: &mut Exchange) -> Option<BodyRest> {
        if !x.body.is_pending() {
            return None;
        }
        let client = x.transport.client()?;
        let progress = Rc::new(BodyProgress::default());
        progress.received.set(x.body.received);
        progress.framed.set(x.body.framed);
        let left = match &client {
            ClientSide::H1(_) => BodyFraming::Beside(progress.clone()),
            ClientSide::Stream(stream) => {
                stream.read_ahead();
                BodyFraming::Done
            }
            // A session has no body.
            ClientSide::Flow(_) => return None,
        };
        Some(BodyRest {
            framing: std::mem::replace(&mut x.body.framing, left),
            client,
            progress,
            timer: Timer::new(),
            timeout: x.plan.core.client_body_timeout,
            limit: x.plan.core.client_max_body_size,
        })
    }

    /// Nothing waits for the client at the moment.
    pub fn pause(&self) {
        self.timer.disarm();
    }

    /// The next bytes, and whether they are the last; the last chunk may be empty.
    ///
    /// # Errors
    /// The client left, was too slow, broke the framing or sent too much.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Vec<u8>, bool), EngineError>> {
        let polled = match self.client.clone() {
            ClientSide::H1(wire) => self.poll_wire(cx, &wire),
            ClientSide::Stream(stream) => stream.poll_bytes(cx).map(|bytes| match bytes {
                TunnelBytes::Piece(piece) => Ok((piece, stream.is_ended())),
                TunnelBytes::End => Ok((Vec::new(), true)),
                TunnelBytes::Received(_) | TunnelBytes::Broken => Err(EngineError::CLIENT_CLOSED),
            }),
            ClientSide::Flow(_) => Poll::Ready(Err(EngineError::CLIENT_CLOSED)),
        };
        match polled {
            Poll::Ready(Ok((piece, last))) => {
                let received = self.progress.received.get() + piece.len() as u64;
                self.progress.received.set(received);
                self.progress.done.set(last);
                if self.limit != 0 && received > self.limit {
                    return Poll::Ready(Err(EngineError {
                        kind: EngineErrorKind::TooLarge,
                        side: FaultSide::Client,
                        errno: None,
                    }));
                }
                self.timer.touch(self.timeout);
                Poll::Ready(Ok((piece, last)))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                if !self.timer.is_armed() && !self.timer.expired() {
                    self.timer.arm(self.timeout);
                }
                self.timer.poll_expired(cx).map(|()| Err(EngineError::CLIENT_TIMED_OUT))
            }
        }
    }

    fn poll_wire(
        &mut self,
        cx: &mut Context<'_>,
        wire: &ClientWire,
    ) -> Poll<Result<(Vec<u8>, bool), EngineError>> {
        loop {
            if let Some(taken) = self.take(wire) {
                return Poll::Ready(taken);
            }
            let long = self.framing.long_receive(self.progress.received.get());
            let Poll::Ready(received) = wire.poll_body(cx, None, long) else { return Poll::Pending };
            let RecvOutcome::Data(buf) = received else {
                return Poll::Ready(Err(wire.why_gone()));
            };
            wire.input.borrow_mut().push(buf);
        }
    }

    /// From what was received, if there is anything.
    fn take(&mut self, wire: &ClientWire) -> Option<Result<(Vec<u8>, bool), EngineError>> {
        let mut input = wire.input.borrow_mut();
        loop {
            let bytes = input.bytes();
            if bytes.is_empty() {
                return None;
            }
            let Some(Ok(taken)) = self.framing.take(bytes) else {
                return Some(Err(EngineError {
                    kind: EngineErrorKind::Protocol,
                    side: FaultSide::Client,
                    errno: None,
                }));
            };
            let piece = input.take_content(&taken);
            if taken.last {
                wire.stream.end_long();
            }
            self.progress.framed.set(self.progress.framed.get() + taken.used as u64);
            if taken.last || !piece.is_empty() {
                return Some(Ok((piece, taken.last)));
            }
        }
    }
}
