//! The head of a response: read while the request leaves, interim responses before it.

use std::future::poll_fn;
use std::task::Poll;

use weir_rt::{RecvOutcome, SendError};
use weir_trace::{Cause, WaitKind};

use crate::config::failure_reason::{AttemptFailure, AttemptFault, FailureReason};
use crate::connection::upstream_connection::UpstreamConnection;
use crate::error_log;
use crate::error_log::READING_HEAD;
use crate::protocol::{HeadProgress, INTERIM, IncomingHead, TOO_MANY};
use crate::request::attempt_state::{Attempt, RequestProgress};
use crate::response::headers;
use weir_engine::exchange::Exchange;

/// What happens between a request and its response's head.
enum ReceiveEvent {
    /// The request has left.
    Sent,
    /// It does not leave.
    Stuck,
    /// It can't leave: the file that has its body can't be read, or ended early.
    FileLost(SendError),
    /// Of the response, or in its place.
    Received(RecvOutcome),
}

impl Attempt {
    /// Reads the head of the response while the request leaves; the number of its bytes. Time runs already for a
    /// request that was `asked` for and sent before.
    pub(crate) async fn head(
        &mut self,
        x: &mut Exchange,
        connection: &UpstreamConnection,
        asked: RequestProgress,
        received: &mut Vec<u8>,
        incoming: &mut IncomingHead,
    ) -> Result<usize, AttemptFailure> {
        let settings = self.up.settings.clone();
        if let Some(error) = connection.stream.file_error() {
            return Err(self.lost_file(x, error));
        }
        let mut sending = asked != RequestProgress::Sent && connection.stream.backlog() > 0;
        if asked != RequestProgress::Sent {
            connection.timer.arm(if sending { settings.send_timeout } else { settings.read_timeout });
        }
        loop {
            if !received.is_empty()
                && let Some(len) = self.parse(x, received, incoming)?
            {
                return Ok(len);
            }
            let event = poll_fn(|cx| {
                if sending
                    && let Poll::Ready(sent) = connection.stream.poll_drained(cx, 0, Some(&connection.timer))
                {
                    return Poll::Ready(match sent {
                        Err(SendError::TimedOut) => ReceiveEvent::Stuck,
                        Err(error @ (SendError::File(_) | SendError::Truncated)) => {
                            ReceiveEvent::FileLost(error)
                        }
                        // A server that refuses the rest of a body may have said why.
                        _ => ReceiveEvent::Sent,
                    });
                }
                let timer = if sending { None } else { Some(&connection.timer) };
                connection.stream.poll_recv(cx, timer).map(ReceiveEvent::Received)
            });
            let kind = if sending { WaitKind::UpstreamSend } else { WaitKind::UpstreamFirstByte };
            match self.unless_gone(x, kind, event).await? {
                ReceiveEvent::Received(RecvOutcome::Data(bytes)) if received.is_empty() => {
                    *received = bytes.into_vec();
                }
                ReceiveEvent::Received(RecvOutcome::Data(bytes)) => received.extend_from_slice(&bytes),
                ReceiveEvent::Sent => {
                    sending = false;
                    connection.timer.arm(settings.read_timeout);
                }
                ReceiveEvent::Stuck => return Err(error_log::send_timed_out(x)),
                ReceiveEvent::FileLost(error) => return Err(self.lost_file(x, error)),
                ReceiveEvent::Received(RecvOutcome::TimedOut) => {
                    let fault = error_log::timed_out(x, Cause::ReadTimeout, READING_HEAD);
                    return Err(AttemptFailure::Next(fault));
                }
                ReceiveEvent::Received(RecvOutcome::Eof) => {
                    return Err(AttemptFailure::Next(closed_early(x)));
                }
                ReceiveEvent::Received(RecvOutcome::Err(errno)) => {
                    return Err(AttemptFailure::Next(error_log::receive(x, errno)));
                }
            }
        }
    }

    /// The length of the head at the start of `received`, if it is whole; interim responses are taken out.
    fn parse(
        &mut self,
        x: &mut Exchange,
        received: &mut Vec<u8>,
        incoming: &mut IncomingHead,
    ) -> Result<Option<usize>, AttemptFailure> {
        let most = self.up.settings.buffer_size as usize;
        // What is taken of `received` leaves it at once: of thousands of small pieces each would move all that follow.
        let mut at = 0;
        loop {
            let rest = received.get(at..).unwrap_or_default();
            if rest.is_empty() {
                received.clear();
                return Ok(None);
            }
            match self.up.protocol.head(x, rest, incoming) {
                Ok(HeadProgress::Complete(len)) if len <= most => {
                    received.drain(..at);
                    return match headers::refused(x, incoming) {
                        None => Ok(Some(len)),
                        Some(message) => {
                            error_log::error(x, &format_args!("{message} while {READING_HEAD}"));
                            Err(invalid(Cause::InvalidHeader))
                        }
                    };
                }
                Ok(HeadProgress::Interim(len)) if len <= most => {
                    self.records.count(0, 0, len as u64);
                    if self.takes_hints(x, len) {
                        headers::interim(x, &self.up, incoming, rest);
                    }
                    if self.hints > most.max(INTERIM) {
                        error_log::error(x, &format_args!("upstream {TOO_MANY} while {READING_HEAD}"));
                        return Err(invalid(Cause::InvalidHeader));
                    }
                    at += len;
                    *incoming = IncomingHead::default();
                }
                Ok(HeadProgress::Taken(len)) => {
                    self.records.count(0, 0, len as u64);
                    at += len;
                }
                Ok(HeadProgress::Incomplete) if rest.len() < most => {
                    received.drain(..at);
                    return Ok(None);
                }
                Ok(_) => {
                    error_log::error(x, &format_args!("{TOO_BIG} while {READING_HEAD}"));
                    return Err(invalid(Cause::HeaderTooLarge));
                }
                Err(message) => return Err(no_head(x, &message)),
            }
        }
    }
}

/// The connection ends where a head should be.
#[cold]
fn closed_early(x: &mut Exchange) -> AttemptFault {
    error_log::error(x, &format_args!("upstream prematurely closed connection while {READING_HEAD}"));
    AttemptFault { reason: FailureReason::ERROR, cause: Cause::ClosedBeforeResponse }
}

/// What came is no head, for the reason of `message`; an empty one is in the log already.
#[cold]
fn no_head(x: &mut Exchange, message: &str) -> AttemptFailure {
    if !message.is_empty() {
        error_log::error(x, &format_args!("{message} while {READING_HEAD}"));
    }
    invalid(if message.starts_with(TOO_BIG) { Cause::HeaderTooLarge } else { Cause::InvalidHeader })
}

const TOO_BIG: &str = "upstream sent too big header";

/// What came is not a response.
fn invalid(cause: Cause) -> AttemptFailure {
    AttemptFailure::Next(AttemptFault { reason: FailureReason::INVALID_HEADER, cause })
}
