//! Why a client's connection ends. What ends it says so ([`ClientConnection::ends`]); of several the first counts. What
//! follows from a request is found out when the connection is closed after it, and costs the others nothing.

use std::cell::Cell;

use weir_http::Version;
use weir_rt::{RecvOutcome, SendError};
use weir_trace::Cause;

use super::wire::ClientWire;
use super::{ClientConnection, keepalive};
use crate::exchange::Exchange;
use crate::worker::{CloseProtocol, CloseReason, HandshakeFault, Worker};

/// What is known of a connection's end.
#[derive(Debug, Default)]
pub(crate) struct ConnectionEnd {
    reason: Cell<Option<CloseReason>>,
    protocol: Cell<CloseProtocol>,
    moved: Cell<bool>,
    /// Why its TLS handshake failed.
    fault: Cell<Option<HandshakeFault>>,
}

impl ClientConnection {
    /// Notes why it ends, unless that is known already.
    pub fn ends(&self, reason: CloseReason) {
        if self.end.reason.get().is_none() {
            self.end.reason.set(Some(reason));
        }
    }

    /// Notes why its TLS handshake fails, with which it ends.
    pub fn handshake_fails(&self, fault: HandshakeFault) {
        self.end.fault.set(Some(fault));
    }

    /// Notes what it speaks from here on.
    pub fn speaks(&self, protocol: CloseProtocol) {
        self.end.protocol.set(protocol);
    }

    /// It does not end: it goes on outside of this worker.
    pub fn moves_on(&self) {
        self.end.moved.set(true);
    }

    /// No further request is accepted on it, because of `reason`; the first counts.
    pub fn retire(&self, reason: CloseReason) {
        if !self.is_retired() {
            self.retired.set(Some(reason));
        }
    }

    /// Whether no further request is accepted on it.
    #[inline]
    pub fn is_retired(&self) -> bool {
        self.retired.get().is_some()
    }

    /// Whether it ends once it is idle: it is retired, and its client has had a response. A client that has not sent a
    /// request yet gets one, since the request may be on the way.
    pub fn takes_no_more(&self) -> bool {
        self.is_retired() && self.requests.get() > 0
    }

    /// Notes that it ends without having broken: because it is retired, or the worker ends.
    pub fn ends_in_order(&self) {
        self.ends(self.retired.get().unwrap_or(CloseReason::Shutdown));
    }

    /// Counts its end with `worker`.
    pub(super) fn count_end(&self, worker: &Worker) {
        if !self.end.moved.get() {
            let reason = self.end.reason.get().unwrap_or(CloseReason::Dropped);
            worker.counters.closes.count(self.end.protocol.get(), reason);
        }
        if let Some(fault) = self.end.fault.get() {
            worker.counters.handshakes().failed(fault);
        }
    }
}

/// The reason where `gone` came instead of a request.
pub fn while_idle(connection: &ClientConnection, worker: &Worker, gone: &RecvOutcome) -> CloseReason {
    let first = connection.requests.get() == 0;
    match *gone {
        RecvOutcome::Eof | RecvOutcome::Data(_) if first => CloseReason::Unused,
        RecvOutcome::Eof | RecvOutcome::Data(_) => CloseReason::Idle,
        RecvOutcome::TimedOut => match connection.retired.get() {
            Some(reason) => reason,
            None if worker.is_stopping() => CloseReason::Shutdown,
            None if first => CloseReason::HeaderTimeout,
            None => CloseReason::KeepaliveTimeout,
        },
        RecvOutcome::Err(errno) => CloseReason::of_errno(errno, CloseReason::ResetIdle),
    }
}

/// The reason where `gone` came in the middle of something: `eof` where the client has closed, `timeout` where it was too
/// slow.
pub fn in_the_middle(gone: &RecvOutcome, eof: CloseReason, timeout: CloseReason) -> CloseReason {
    match *gone {
        RecvOutcome::Eof | RecvOutcome::Data(_) => eof,
        RecvOutcome::TimedOut => timeout,
        RecvOutcome::Err(errno) => CloseReason::of_errno(errno, CloseReason::Reset),
    }
}

/// The reason where a response could not be sent.
pub fn while_sending(error: SendError) -> CloseReason {
    match error {
        SendError::TimedOut => CloseReason::SendTimeout,
        SendError::Closed(errno) => CloseReason::of_errno(errno, CloseReason::Reset),
        SendError::File(_) | SendError::Truncated => CloseReason::Broken,
    }
}

/// The reason where a file could not be sent; `None`: none has failed.
pub fn of_lost_file(wire: &ClientWire) -> Option<CloseReason> {
    wire.stream.file_error().map(while_sending)
}

/// Notes why the connection of HTTP/1 ends with `x`, which is over and after which it is not kept alive.
#[cold]
pub fn after_request(x: &Exchange, wire: &ClientWire) {
    let reason = broken(x, wire).or_else(|| exhausted(x)).unwrap_or_else(|| by_response(x));
    x.connection.ends(reason);
}

/// Something failed on the connection.
fn broken(x: &Exchange, wire: &ClientWire) -> Option<CloseReason> {
    if let Some(lost) = of_lost_file(wire) {
        return Some(lost);
    }
    if let Some(errno) = wire.stream.error() {
        return Some(CloseReason::of_errno(errno, CloseReason::Reset));
    }
    let reading = x.body.is_pending() || x.body.is_gone();
    Some(match x.cause {
        Cause::ClientClosed if reading => CloseReason::InBody,
        Cause::ClientClosed => CloseReason::InResponse,
        Cause::ClientTimeout if reading => CloseReason::BodyTimeout,
        Cause::ClientTimeout => CloseReason::SendTimeout,
        _ if wire.broken.get() => CloseReason::SendTimeout,
        _ if x.response.status == 499 => CloseReason::InResponse,
        _ if x.body.is_gone() => CloseReason::InBody,
        _ if x.response.status == 444 => CloseReason::NoResponse,
        _ if x.body.is_broken() => CloseReason::BadRequest,
        _ => return None,
    })
}

/// The connection has had what it may have.
fn exhausted(x: &Exchange) -> Option<CloseReason> {
    let core = &x.plan.core;
    if !keepalive::possible(x) {
        return Some(x.connection.retired.get().unwrap_or(CloseReason::Shutdown));
    }
    if x.connection.requests.get() >= core.keepalive_requests && core.keepalive_timeout > 0 {
        return Some(CloseReason::KeepaliveRequests);
    }
    (x.start_ms.saturating_sub(x.connection.started_ms) > core.keepalive_time)
        .then_some(CloseReason::KeepaliveTime)
}

/// The response, or the request, ends it.
fn by_response(x: &Exchange) -> CloseReason {
    let response = &x.response;
    let framed = response.chunked || response.content_length.is_some() || response.header_only;
    match () {
        () if !x.request.head.keep_alive() => CloseReason::Asked,
        () if keepalive::ends(x, &x.plan.core, x.connection.requests.get()) => CloseReason::KeepaliveOff,
        () if x.body.is_pending() => CloseReason::UnreadBody,
        () if !x.is_complete() => CloseReason::Broken,
        () if keepalive::closes(response.status) => CloseReason::ErrorStatus,
        () if !framed && x.request.head.version < Version::V20 => CloseReason::NoLength,
        () => CloseReason::ResponseAsked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn first_of(reasons: &[CloseReason]) -> Option<CloseReason> {
        testing::run("server { }", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", async move |x| {
            reasons.iter().for_each(|reason| x.connection.ends(*reason));
            x.connection.end.reason.get()
        })
    }

    #[test]
    fn the_first_reason_counts() {
        assert_eq!(first_of(&[]), None);
        assert_eq!(first_of(&[CloseReason::GoAway, CloseReason::Idle]), Some(CloseReason::GoAway));
    }

    const ECONNRESET: i32 = 104;
    const EPROTO: i32 = 71;

    #[test]
    fn what_the_system_reports_is_the_client_s_reset_or_the_network_s() {
        assert_eq!(while_sending(SendError::Closed(ECONNRESET)), CloseReason::Reset);
        assert_eq!(while_sending(SendError::Closed(110)), CloseReason::Lost);
        assert_eq!(while_sending(SendError::File(5)), CloseReason::Broken);
        assert_eq!(while_sending(SendError::TimedOut), CloseReason::SendTimeout);
        let gone = RecvOutcome::Err(EPROTO);
        assert_eq!(
            in_the_middle(&gone, CloseReason::InHead, CloseReason::HeaderTimeout),
            CloseReason::TlsBroken
        );
    }

    #[test]
    fn a_request_that_is_the_last_says_why() {
        for (settings, head, expected) in [
            ("", "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", CloseReason::Asked),
            ("", "GET / HTTP/1.0\r\nHost: h\r\n\r\n", CloseReason::Asked),
            ("keepalive_requests 2;", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", CloseReason::KeepaliveRequests),
            ("keepalive_timeout 0;", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", CloseReason::KeepaliveOff),
        ] {
            let http = format!("server {{ {settings} }}");
            let found = testing::run(&http, head, async |x| {
                x.delivery.set(crate::exchange::ResponseDelivery::Whole);
                exhausted(x).unwrap_or_else(|| by_response(x))
            });
            assert_eq!(found, expected, "{settings} {head}");
        }
    }
}
