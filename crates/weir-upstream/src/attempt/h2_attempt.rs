//! An attempt over HTTP/2: a call on a session, its content, and the head of the response.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use weir_http::h2::{ErrorCode, StreamEnd};
use weir_http::{Field, KnownField, Method};
use weir_rt::Timer;
use weir_trace::{Cause, WaitKind};

use crate::config::failure_reason::{AttemptFailure, AttemptFault, FailureReason};
use crate::error_log;
use crate::error_log::READING_HEAD;
use crate::h2::body::StreamUpload;
use crate::h2::call::{CallFields, CallProgress};
use crate::h2::session::{SessionLoss, UpstreamSession};
use crate::h2::talk::StreamRequest;
use crate::protocol::{BodyDecoder, IncomingHead};
use crate::request::attempt_state::Attempt;
use crate::request::request_body;
use crate::response::headers;
use crate::response::received_head::{ReceivedHead, UpstreamLink};
use crate::worker_side::local_upstream::PeerLease;
use weir_engine::error::EngineError;
use weir_engine::exchange::Exchange;
use weir_engine::phase::Verdict;

/// Why a call gave no head.
pub(crate) enum NoHead {
    /// The try has failed.
    Failed(AttemptFailure),
    /// The server has not begun with it: it may be sent again, whatever it asks for.
    Refused(AttemptFault),
    /// The connection was closed while the request was on its way.
    Stale(AttemptFault),
}

/// What happens between a request and its response's head.
pub(crate) enum StreamEvent {
    Got(CallProgress),
    /// Some of the request has left.
    Moved,
    /// More of the client's content can be taken.
    Room,
    /// The content does not come.
    Failed(EngineError),
}

impl Attempt {
    /// One try, up to its response's head.
    pub(crate) async fn talk(
        &mut self,
        x: &mut Exchange,
        lease: PeerLease,
    ) -> Result<ReceivedHead, AttemptFailure> {
        let mut lease = lease;
        let mut refused = 0;
        loop {
            let session = self.session(x, &mut lease).await?;
            self.records.connected();
            if let Some(tls) = session.tls() {
                self.records.secured(tls);
            }
            let used = session.is_used();
            let fault = match self.call(x, &session, &lease).await {
                Ok((incoming, talk)) => {
                    self.records.head(incoming.status, &incoming.fields);
                    let link = UpstreamLink::Talk(Box::new(talk));
                    return Ok(ReceivedHead { incoming, link, lease, rest: Vec::new() });
                }
                Err(NoHead::Failed(AttemptFailure::End(verdict))) => {
                    return Err(AttemptFailure::End(verdict));
                }
                Err(NoHead::Failed(AttemptFailure::Next(fault))) => fault,
                Err(NoHead::Refused(_)) if refused < REFUSALS && self.is_whole(x) => {
                    refused += 1;
                    continue;
                }
                Err(NoHead::Stale(fault)) if used && !self.body_begun => {
                    if request_body::may_repeat(x, &self.up.settings) {
                        lease.repeated();
                        continue;
                    }
                    AttemptFault { cause: Cause::KeepaliveRace, ..fault }
                }
                Err(NoHead::Refused(fault) | NoHead::Stale(fault)) => fault,
            };
            self.records.failed(fault);
            lease.fail(x, fault, READING_HEAD);
            return Err(AttemptFailure::Next(fault));
        }
    }

    /// Whether all of the request can be sent once more.
    fn is_whole(&self, x: &Exchange) -> bool {
        !self.body_begun || x.body.is_read()
    }

    /// A session with room for a call: one that is there, one that another task is about to open, or a new one.
    async fn session(
        &self,
        x: &mut Exchange,
        lease: &mut PeerLease,
    ) -> Result<Rc<UpstreamSession>, AttemptFailure> {
        let pool = lease.upstream.pool.clone();
        let mut alone = !pool.shares();
        loop {
            if let Some(session) = pool.session(&lease.peer, self.secure.as_ref()) {
                return Ok(session);
            }
            let soon = if alone {
                None
            } else {
                match pool.connecting.begin(&lease.peer, self.secure.as_ref()) {
                    Ok(soon) => Some(soon),
                    Err(others) => {
                        // Where they fail each asks for itself, and fails for itself.
                        alone = !self.unless_gone(x, WaitKind::UpstreamConnect, others).await?;
                        continue;
                    }
                }
            };
            let connection = self.connect(x, lease).await?;
            let session = UpstreamSession::begin(*connection, &lease.peer, pool.keep(), &x.worker);
            pool.add(&session, &x.worker);
            if let Some(soon) = soon {
                soon.made();
            }
            return Ok(session);
        }
    }

    /// Sends the request on `session` and reads the response's head.
    async fn call(
        &mut self,
        x: &mut Exchange,
        session: &Rc<UpstreamSession>,
        lease: &PeerLease,
    ) -> Result<(IncomingHead, StreamRequest), NoHead> {
        self.hints = 0;
        let (content, upload) = StreamUpload::begin(x, &self.out);
        let tunnels = self.out.websocket.is_some();
        if tunnels && !self.takes_tunnels(x, session).await.map_err(NoHead::Failed)? {
            let message = format_args!("upstream does not take WebSockets over HTTP/2");
            return Err(invalid(x, message, Cause::InvalidHeader));
        }
        let empty = content.is_empty() && upload.is_done() && !tunnels;
        let Some(call) = session.call(&self.out.section, StreamEnd::last_if(empty)) else {
            return Err(NoHead::Refused(AttemptFault {
                reason: FailureReason::ERROR,
                cause: Cause::ConnectFailed,
            }));
        };
        if !content.is_empty() {
            call.offer(content, StreamEnd::last_if(upload.is_done()));
        }
        let mut talk = StreamRequest { call, upload, timer: Timer::new() };
        let result = self.answer_head(x, &mut talk).await;
        let (sent, received) = talk.call.counts();
        self.records.count(0, sent, received);
        x.shared.bytes(lease.site(&self.up.sites), received, sent);
        let mut incoming = result?;
        if let Some(accept) = &self.out.websocket {
            match incoming.status {
                200..300 => open_tunnel(x, &mut incoming, accept),
                _ => talk.call.offer(Vec::new(), StreamEnd::Last),
            }
        }
        talk.upload.let_go(x);
        talk.timer.arm(self.up.settings.read_timeout);
        Ok((incoming, talk))
    }

    /// Whether the server takes extended CONNECT, which it says in its settings.
    async fn takes_tunnels(
        &self,
        x: &mut Exchange,
        session: &UpstreamSession,
    ) -> Result<bool, AttemptFailure> {
        let timer = Timer::new();
        timer.arm(self.up.settings.read_timeout);
        let said = poll_fn(|cx| match session.poll_takes_tunnels(cx) {
            Poll::Ready(takes) => Poll::Ready(Some(takes)),
            Poll::Pending => timer.poll_expired(cx).map(|()| None),
        });
        match self.unless_gone(x, WaitKind::UpstreamFirstByte, said).await? {
            Some(takes) => Ok(takes),
            None => Err(AttemptFailure::Next(error_log::timed_out(x, Cause::ReadTimeout, READING_HEAD))),
        }
    }

    /// Reads the response's head while the request leaves.
    async fn answer_head(
        &mut self,
        x: &mut Exchange,
        talk: &mut StreamRequest,
    ) -> Result<IncomingHead, NoHead> {
        loop {
            let got = match self.event(x, talk).await.map_err(NoHead::Failed)? {
                StreamEvent::Got(got) => got,
                StreamEvent::Moved | StreamEvent::Room => continue,
                StreamEvent::Failed(error) => {
                    return Err(NoHead::Failed(AttemptFailure::End(Verdict::Status(error.status()))));
                }
            };
            match got {
                CallProgress::Head(fields, end) => {
                    return self.incoming(x, &fields, end).map_err(NoHead::Failed);
                }
                CallProgress::Interim(fields) => self.interim(x, &fields),
                CallProgress::Data(_) | CallProgress::Trailers(_) | CallProgress::End => {}
                CallProgress::TimedOut if talk.call.unsent() > 0 => {
                    return Err(NoHead::Failed(error_log::send_timed_out(x)));
                }
                CallProgress::TimedOut => {
                    let fault = error_log::timed_out(x, Cause::ReadTimeout, READING_HEAD);
                    return Err(NoHead::Failed(AttemptFailure::Next(fault)));
                }
                CallProgress::Reset(code, reason) => return Err(rejected(x, code, reason)),
                CallProgress::Lost(lost) => return Err(gone(x, lost)),
            }
        }
    }

    /// Waits for the next thing, giving what there is of the client's content.
    async fn event(
        &mut self,
        x: &mut Exchange,
        talk: &mut StreamRequest,
    ) -> Result<StreamEvent, AttemptFailure> {
        let settings = self.up.settings.clone();
        let unsent = talk.call.unsent();
        if let StreamUpload::Exchange = talk.upload
            && unsent < crate::h2::session::HIGH
        {
            return self.piece(x, talk).await;
        }
        let kind = match (unsent, talk.upload.is_done()) {
            (0, true) => {
                talk.timer.arm(settings.read_timeout);
                WaitKind::UpstreamFirstByte
            }
            _ => {
                talk.timer.arm(settings.send_timeout);
                WaitKind::UpstreamSend
            }
        };
        let waits = matches!(talk.upload, StreamUpload::Exchange);
        let event = poll_fn(|cx| {
            match talk.poll(cx) {
                Poll::Ready(Ok(got)) => return Poll::Ready(StreamEvent::Got(got)),
                Poll::Ready(Err(error)) => return Poll::Ready(StreamEvent::Failed(error)),
                Poll::Pending => {}
            }
            if waits && talk.call.has_room(cx) {
                return Poll::Ready(StreamEvent::Room);
            }
            if talk.call.unsent() != unsent { Poll::Ready(StreamEvent::Moved) } else { Poll::Pending }
        });
        self.unless_gone(x, kind, event).await
    }

    /// Takes a piece of the content from the client and gives it to the server; a response may come before.
    async fn piece(
        &mut self,
        x: &mut Exchange,
        talk: &mut StreamRequest,
    ) -> Result<StreamEvent, AttemptFailure> {
        self.body_begun = true;
        let early = {
            let mut piece = Box::pin(x.body_piece());
            poll_fn(|cx| match talk.call.poll(cx, None) {
                Poll::Ready(got) => Poll::Ready(Err(got)),
                Poll::Pending => piece.as_mut().poll(cx).map(Ok),
            })
            .await
        };
        match early {
            Err(got) => Ok(StreamEvent::Got(got)),
            Ok(piece) => self.give(x, talk, piece).map(|()| StreamEvent::Moved),
        }
    }

    /// Gives the server a piece of the client's content; `None` is its end.
    fn give(
        &mut self,
        x: &mut Exchange,
        talk: &mut StreamRequest,
        piece: Result<Option<Vec<u8>>, EngineError>,
    ) -> Result<(), AttemptFailure> {
        let piece = match piece {
            Ok(piece) => piece.unwrap_or_default(),
            Err(error) if x.body.is_gone() => {
                return Err(AttemptFailure::End(Verdict::Close(error.status())));
            }
            Err(error) => return Err(AttemptFailure::End(Verdict::Status(error.status()))),
        };
        let limit = x.plan.core.client_body_buffer_size;
        x.body.remember(&piece, limit);
        let last = !x.body.is_pending();
        if last {
            x.body.passed();
            talk.upload = StreamUpload::Done;
        }
        talk.call.offer(piece, StreamEnd::last_if(last));
        Ok(())
    }

    /// What the head of a response says.
    fn incoming(
        &mut self,
        x: &mut Exchange,
        fields: &CallFields,
        end: bool,
    ) -> Result<IncomingHead, AttemptFailure> {
        let invalid =
            |cause| AttemptFailure::Next(AttemptFault { reason: FailureReason::INVALID_HEADER, cause });
        if fields.is_larger(self.up.settings.buffer_size) {
            error_log::error(x, &format_args!("upstream sent too big header while {READING_HEAD}"));
            return Err(invalid(Cause::HeaderTooLarge));
        }
        let mut incoming = IncomingHead { status: fields.status, ..IncomingHead::default() };
        incoming.fields = fields.keep(x);
        let length = incoming.fields.iter().find(|field| field.known == KnownField::ContentLength);
        incoming.content_length =
            length.and_then(|field| weir_http::header::decimal(x.arena.get(field.value)));
        let bodiless = x.request.head.method == Method::Head || matches!(fields.status, 204 | 304);
        if end && !bodiless {
            incoming.content_length = Some(0);
        }
        incoming.decoder = if end { BodyDecoder::None } else { BodyDecoder::UntilClose };
        if let Some(message) = headers::refused(x, &incoming) {
            error_log::error(x, &format_args!("{message} while {READING_HEAD}"));
            return Err(invalid(Cause::InvalidHeader));
        }
        Ok(incoming)
    }

    fn interim(&mut self, x: &mut Exchange, fields: &CallFields) {
        if !self.takes_hints(x, fields.text().len()) {
            return;
        }
        let incoming =
            IncomingHead { status: fields.status, fields: fields.spans(0), ..IncomingHead::default() };
        headers::interim(x, &self.up, &incoming, fields.text());
    }
}

/// The server has opened a WebSocket: its response as HTTP/1.1 has it, for whatever the client speaks.
pub(crate) fn open_tunnel(x: &mut Exchange, incoming: &mut IncomingHead, accept: &[u8]) {
    incoming.status = 101;
    incoming.upgraded = true;
    incoming.content_length = None;
    incoming.decoder = BodyDecoder::None;
    let fields = [
        (KnownField::Upgrade, &b"Upgrade"[..], &b"websocket"[..]),
        (KnownField::SecWebsocketAccept, b"Sec-WebSocket-Accept", accept),
    ];
    for (known, name, value) in fields {
        let (name, value) = (x.arena.push(name), x.arena.push(value));
        incoming.fields.push(Field { known, valid: true, underscore: false, name, value });
    }
}

/// The server reset the stream, or made us do so.
pub(crate) fn rejected(x: &Exchange, code: ErrorCode, reason: Option<&'static str>) -> NoHead {
    if let Some(reason) = reason {
        return invalid(x, format_args!("upstream {reason}"), Cause::InvalidHeader);
    }
    let message = format_args!("upstream rejected request with error {}", code as u32);
    if code == ErrorCode::Refused {
        error_log::error(x, &format_args!("{message} while {READING_HEAD}"));
        return NoHead::Refused(AttemptFault {
            reason: FailureReason::ERROR,
            cause: Cause::ResetBeforeResponse,
        });
    }
    invalid(x, message, Cause::ResetBeforeResponse)
}

/// The connection is gone, or the server goes.
pub(crate) fn gone(x: &Exchange, lost: SessionLoss) -> NoHead {
    match lost {
        SessionLoss::Closed => {
            error_log::error(x, &format_args!("upstream prematurely closed connection while {READING_HEAD}"));
            NoHead::Stale(AttemptFault { reason: FailureReason::ERROR, cause: Cause::ClosedBeforeResponse })
        }
        SessionLoss::Failed(errno) => NoHead::Stale(error_log::receive(x, errno)),
        SessionLoss::Broken(reason) => invalid(x, format_args!("upstream {reason}"), Cause::InvalidHeader),
        // A server that goes without an error has left what it has not begun with to others.
        SessionLoss::Away(ErrorCode::No) => {
            NoHead::Refused(AttemptFault { reason: FailureReason::ERROR, cause: Cause::ClosedBeforeResponse })
        }
        SessionLoss::Away(code) => {
            let message = format_args!("upstream sent goaway with error {}", code as u32);
            invalid(x, message, Cause::ClosedBeforeResponse)
        }
    }
}

pub(crate) fn invalid(x: &Exchange, message: std::fmt::Arguments<'_>, cause: Cause) -> NoHead {
    error_log::error(x, &format_args!("{message} while {READING_HEAD}"));
    NoHead::Failed(AttemptFailure::Next(AttemptFault { reason: FailureReason::INVALID_HEADER, cause }))
}

/// How often a request that a server has refused is sent on another connection.
pub(crate) const REFUSALS: u32 = 3;
