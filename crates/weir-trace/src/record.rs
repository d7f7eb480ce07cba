//! What is known of every request once it is over, recorded at any level.

use std::fmt;

use crate::model::{RequestId, WaitKind};
use crate::site::Site;

/// One finished request. Times are in ticks. `start`, `total`, `run` and `waits` are filled in from the trace when
/// there is one; without one, `total` is the caller's to give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestRecord {
    /// The request's number.
    pub id: RequestId,
    /// The location that responded: a site of [`SiteKind::Request`](crate::SiteKind). What has none is counted only
    /// in the worker's totals.
    pub route: Site,
    /// The number of the rule that judges whether its tree is retained ([`Recorder::configure`](crate::Recorder)), from
    /// 1; 0: the recorder's settings do.
    pub rule: u16,
    /// The status sent, or nginx's for a client that left (499).
    pub status: u16,
    /// The worker's number.
    pub worker: u16,
    /// 9 for HTTP/0.9, 10, 11, 20, 30.
    pub protocol: u8,
    /// Why it ended as it did.
    pub cause: Cause,
    /// Wall clock at its beginning, milliseconds since 1970.
    pub unix_ms: u64,
    /// When it began, in ticks.
    pub start: u64,
    /// Ticks from the beginning to the end.
    pub total: u64,
    /// Ticks of it spent running.
    pub run: u64,
    /// Ticks of it spent waiting, by [`WaitKind`].
    pub waits: [u64; WaitKind::COUNT],
    /// Ticks that the kernel took outside of the run to receive, send and accept for it; estimated.
    pub kernel: u64,
    /// Ticks before the beginning: in the listener's accept queue (first request of a connection).
    pub accept_wait: u64,
    /// Ticks before the beginning: in the socket's receive queue.
    pub receive_wait: u64,
    /// Bytes received: head and body.
    pub bytes_in: u64,
    /// Bytes sent, head included.
    pub bytes_out: u64,
    /// Ticks of the run spent waiting for locks.
    pub lock: u64,
    /// Ticks of the run spent in Lua garbage collection.
    pub gc: u64,
    /// Ticks of the run spent compiling Lua traces.
    pub jit: u64,
    /// Number of exits from compiled Lua traces.
    pub trace_exits: u64,
    /// Bytes Lua allocated.
    pub lua_bytes: u64,
    /// The method, cut at 16 bytes.
    pub method: InlineText<16>,
    /// The path without arguments, cut at 95 bytes; see [`RequestRecord::set_path`].
    pub path: InlineText<95>,
}

impl RequestRecord {
    /// Makes it an empty one, but for bytes of texts that are not visible: a whole new one would be made elsewhere and
    /// copied, for every request.
    #[inline]
    pub fn clear(&mut self) {
        let RequestRecord { id, route, rule, status, worker, protocol, cause, waits, method, path, .. } =
            self;
        (*id, *route, *status, *worker) = Default::default();
        (*protocol, *cause, *waits, *rule) = Default::default();
        (method.len, path.len) = (0, 0);
        let RequestRecord {
            id: _,
            route: _,
            rule: _,
            status: _,
            worker: _,
            protocol: _,
            cause: _,
            waits: _,
            method: _,
            path: _,
            unix_ms,
            start,
            total,
            run,
            kernel,
            accept_wait,
            receive_wait,
            bytes_in,
            bytes_out,
            lock,
            gc,
            jit,
            trace_exits,
            lua_bytes,
        } = self;
        for number in [
            unix_ms,
            start,
            total,
            run,
            kernel,
            accept_wait,
            receive_wait,
            bytes_in,
            bytes_out,
            lock,
            gc,
            jit,
            trace_exits,
            lua_bytes,
        ] {
            *number = 0;
        }
    }

    /// Sets the path from a request target. Arguments and fragment are left out: records, trees and every export
    /// are made from here, and secrets travel in arguments.
    pub fn set_path(&mut self, target: &[u8]) {
        let end = target.iter().position(|b| matches!(b, b'?' | b'#')).unwrap_or(target.len());
        self.path.set(&target[..end]);
    }

    /// Sets the path with its arguments, if there are any: where the configuration says that they may be shown
    /// (`profile_redact`).
    #[inline]
    pub fn set_target(&mut self, target: &[u8]) {
        self.path.set(target);
    }

    /// All waiting together, in ticks.
    #[must_use]
    pub fn wait(&self) -> u64 {
        self.waits.iter().sum()
    }

    /// The part of the waiting in which the request was ready and the loop busy.
    #[must_use]
    pub fn queue(&self) -> u64 {
        self.waits[WaitKind::Queue as usize]
    }
}

/// Why a request ended as it did, where the status does not say it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Cause {
    /// It has a response.
    #[default]
    None,
    /// The client closed or reset the connection.
    ClientClosed,
    /// The client was too slow.
    ClientTimeout,
    /// The client sent something malformed.
    BadRequest,
    /// The request's head exceeds `large_client_header_buffers`.
    RequestHeaderTooLarge,
    /// The request's body exceeds `client_max_body_size`.
    BodyTooLarge,
    /// The client gave no credentials.
    Unauthorized,
    /// The client may not have this.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// The method is not allowed here.
    MethodNotAllowed,
    /// No such part of the file.
    RangeNotSatisfiable,
    /// The configuration says so (`return`, `rewrite`), or another status that it chose.
    Configured,
    /// A configured limit was hit.
    Limit,
    /// A file or the disk failed.
    File,
    /// A handler or filter failed.
    Internal,
    /// A handler or filter panicked.
    Panic,
    /// The name of an upstream server was not resolved.
    DnsFailed,
    /// No name server responded, and addresses known from before were used.
    DnsStaleUsed,
    /// No server of the upstream could be asked.
    AllPeersDown,
    /// No server of the upstream came free in time, or too many requests wait for one.
    QueueTimeout,
    /// Another server would have been asked, but too many requests are retried already.
    RetryBudget,
    /// An upstream server refused the connection.
    ConnectRefused,
    /// An upstream server did not take the connection in time.
    ConnectTimeout,
    /// No connection to an upstream server could be made.
    ConnectFailed,
    /// The TLS handshake with an upstream server failed.
    TlsFailed,
    /// An upstream server took nothing of the request in time.
    SendTimeout,
    /// An upstream server sent nothing of its response in time.
    ReadTimeout,
    /// An upstream server closed the connection without a response.
    ClosedBeforeResponse,
    /// An upstream server reset the connection without a response.
    ResetBeforeResponse,
    /// A connection kept alive was closed while a request that may not be repeated was on its way.
    KeepaliveRace,
    /// An upstream server's response is invalid.
    InvalidHeader,
    /// The head of an upstream server's response exceeds the buffer for it.
    HeaderTooLarge,
    /// The status of an upstream server's response is one for which the next server is tried (`*_next_upstream`).
    UpstreamStatus,
    /// An upstream server closed the connection in the middle of its response.
    ClosedInResponse,
    /// An upstream server reset the connection in the middle of its response.
    ResetInResponse,
    /// The framing of an upstream server's response is wrong.
    InvalidBody,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Cause; 36] = [
        Cause::None,
        Cause::ClientClosed,
        Cause::ClientTimeout,
        Cause::BadRequest,
        Cause::RequestHeaderTooLarge,
        Cause::BodyTooLarge,
        Cause::Unauthorized,
        Cause::Forbidden,
        Cause::NotFound,
        Cause::MethodNotAllowed,
        Cause::RangeNotSatisfiable,
        Cause::Configured,
        Cause::Limit,
        Cause::File,
        Cause::Internal,
        Cause::Panic,
        Cause::DnsFailed,
        Cause::DnsStaleUsed,
        Cause::AllPeersDown,
        Cause::QueueTimeout,
        Cause::RetryBudget,
        Cause::ConnectRefused,
        Cause::ConnectTimeout,
        Cause::ConnectFailed,
        Cause::TlsFailed,
        Cause::SendTimeout,
        Cause::ReadTimeout,
        Cause::ClosedBeforeResponse,
        Cause::ResetBeforeResponse,
        Cause::KeepaliveRace,
        Cause::InvalidHeader,
        Cause::HeaderTooLarge,
        Cause::UpstreamStatus,
        Cause::ClosedInResponse,
        Cause::ResetInResponse,
        Cause::InvalidBody,
    ];

    /// The word for it in logs and exports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Cause::None => "",
            Cause::ClientClosed => "client_closed",
            Cause::ClientTimeout => "client_timeout",
            Cause::BadRequest => "bad_request",
            Cause::RequestHeaderTooLarge => "request_header_too_large",
            Cause::BodyTooLarge => "body_too_large",
            Cause::Unauthorized => "unauthorized",
            Cause::Forbidden => "forbidden",
            Cause::NotFound => "not_found",
            Cause::MethodNotAllowed => "method_not_allowed",
            Cause::RangeNotSatisfiable => "range_not_satisfiable",
            Cause::Configured => "configured",
            Cause::Limit => "limit",
            Cause::File => "file",
            Cause::Internal => "handler_failed",
            Cause::Panic => "panic",
            Cause::DnsFailed => "dns_failed",
            Cause::DnsStaleUsed => "dns_stale_used",
            Cause::AllPeersDown => "all_peers_down",
            Cause::QueueTimeout => "queue_timeout",
            Cause::RetryBudget => "retry_budget",
            Cause::ConnectRefused => "connect_refused",
            Cause::ConnectTimeout => "connect_timeout",
            Cause::ConnectFailed => "connect_failed",
            Cause::TlsFailed => "tls_failed",
            Cause::SendTimeout => "send_timeout",
            Cause::ReadTimeout => "read_timeout",
            Cause::ClosedBeforeResponse => "closed_before_response",
            Cause::ResetBeforeResponse => "reset_before_response",
            Cause::KeepaliveRace => "keepalive_race",
            Cause::InvalidHeader => "invalid_header",
            Cause::HeaderTooLarge => "header_too_large",
            Cause::UpstreamStatus => "upstream_status",
            Cause::ClosedInResponse => "closed_in_response",
            Cause::ResetInResponse => "reset_in_response",
            Cause::InvalidBody => "invalid_body",
        }
    }

    /// The same for people, after "it failed because"; empty for [`Cause::None`].
    #[must_use]
    pub const fn says(self) -> &'static str {
        match self {
            Cause::None => "",
            Cause::ClientClosed => "the client closed or reset the connection",
            Cause::ClientTimeout => "the client was too slow",
            Cause::BadRequest => "the client sent something malformed",
            Cause::RequestHeaderTooLarge => "the request's head exceeds large_client_header_buffers",
            Cause::BodyTooLarge => "the request's body exceeds client_max_body_size",
            Cause::Unauthorized => "the client gave no credentials",
            Cause::Forbidden => "the client may not have this",
            Cause::NotFound => "there is no such thing",
            Cause::MethodNotAllowed => "the method is not allowed there",
            Cause::RangeNotSatisfiable => "the file has no such part",
            Cause::Configured => "the configuration or a script says so",
            Cause::Limit => "a configured limit was hit",
            Cause::File => "a file or the disk failed",
            Cause::Internal => "a handler, a script or a filter failed",
            Cause::Panic => "a handler or filter panicked",
            Cause::DnsFailed => "the name of an upstream server was not resolved",
            Cause::DnsStaleUsed => "no name server responded, and addresses known from before were used",
            Cause::AllPeersDown => "no server of the upstream could be asked",
            Cause::QueueTimeout => {
                "no server of the upstream came free in time, or too many requests wait for one"
            }
            Cause::RetryBudget => {
                "another server would have been asked, but too many requests are retried already"
            }
            Cause::ConnectRefused => "the upstream server refused the connection",
            Cause::ConnectTimeout => "the upstream server did not take the connection in time",
            Cause::ConnectFailed => "no connection to the upstream server could be made",
            Cause::TlsFailed => "the TLS handshake with the upstream server failed",
            Cause::SendTimeout => "the upstream server took nothing of the request in time",
            Cause::ReadTimeout => "the upstream server sent nothing of its response in time",
            Cause::ClosedBeforeResponse => "the upstream server closed the connection without a response",
            Cause::ResetBeforeResponse => "the upstream server reset the connection without a response",
            Cause::KeepaliveRace => {
                "a connection kept alive was closed while a request that may not be repeated was on its way"
            }
            Cause::InvalidHeader => "the upstream server's response is invalid",
            Cause::HeaderTooLarge => "the head of the upstream server's response exceeds the buffer for it",
            Cause::UpstreamStatus => {
                "the status of the upstream server's response is one for which the next server is tried (*_next_upstream)"
            }
            Cause::ClosedInResponse => {
                "the upstream server closed the connection in the middle of its response"
            }
            Cause::ResetInResponse => {
                "the upstream server reset the connection in the middle of its response"
            }
            Cause::InvalidBody => "the framing of the upstream server's response is wrong",
        }
    }

    /// Why the server itself responds with `status`, as far as the status shows.
    #[must_use]
    pub const fn of_status(status: u16) -> Cause {
        match status {
            401 | 407 => Cause::Unauthorized,
            403 => Cause::Forbidden,
            404 => Cause::NotFound,
            405 => Cause::MethodNotAllowed,
            408 => Cause::ClientTimeout,
            413 => Cause::BodyTooLarge,
            414 | 431 | 494 => Cause::RequestHeaderTooLarge,
            416 => Cause::RangeNotSatisfiable,
            499 => Cause::ClientClosed,
            400 | 412 => Cause::BadRequest,
            500 => Cause::Internal,
            _ => Cause::Configured,
        }
    }
}

/// Up to `N` (at most 255) bytes of text held in place, so that a record is copied without allocating.
#[derive(Clone, Copy)]
pub struct InlineText<const N: usize> {
    len: u8,
    /// After `len` whatever was there before.
    bytes: [u8; N],
}

impl<const N: usize> InlineText<N> {
    /// Takes as much of `text` as fits.
    #[must_use]
    pub fn new(text: &[u8]) -> InlineText<N> {
        let mut this = InlineText::default();
        this.set(text);
        this
    }

    /// A constant.
    ///
    /// # Panics
    /// When `text` does not fit; where a constant is made, the compiler says so.
    #[must_use]
    pub const fn of(text: &[u8]) -> InlineText<N> {
        let mut bytes = [0; N];
        bytes.split_at_mut(text.len()).0.copy_from_slice(text);
        InlineText { len: text.len() as u8, bytes }
    }

    /// Takes as much of `text` as fits, in place.
    #[inline]
    pub fn set(&mut self, text: &[u8]) {
        let len = text.len().min(N).min(255);
        self.bytes[..len].copy_from_slice(&text[..len]);
        self.len = len as u8;
    }

    /// The bytes, as they came from the network.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl<const N: usize> PartialEq for InlineText<N> {
    fn eq(&self, other: &InlineText<N>) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl<const N: usize> Eq for InlineText<N> {}

impl<const N: usize> Default for InlineText<N> {
    fn default() -> InlineText<N> {
        InlineText { len: 0, bytes: [0; N] }
    }
}

impl<const N: usize> fmt::Display for InlineText<N> {
    /// Printable ASCII as it is, every other byte as `\xNN`: safe for a terminal and for one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.as_bytes() {
            if (0x20..0x7f).contains(&byte) && byte != b'\\' {
                f.write_str(char::from(byte).encode_utf8(&mut [0; 4]))?;
            } else {
                write!(f, "\\x{byte:02X}")?;
            }
        }
        Ok(())
    }
}

impl<const N: usize> fmt::Debug for InlineText<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_never_enter_a_record() {
        let mut record = RequestRecord::default();
        record.set_path(b"/login?password=secret#top");
        assert_eq!(record.path.as_bytes(), b"/login");
        record.set_path(b"/a#b?c");
        assert_eq!(record.path.as_bytes(), b"/a");
    }

    #[test]
    fn a_cleared_record_is_an_empty_one() {
        let ones = |n: u64| n.wrapping_mul(0x0101_0101_0101_0101);
        let mut record = RequestRecord {
            id: RequestId(7),
            route: Site(3),
            rule: 2,
            status: 200,
            worker: 1,
            protocol: 11,
            cause: Cause::File,
            unix_ms: ones(1),
            start: ones(2),
            total: ones(3),
            run: ones(4),
            waits: [ones(5); WaitKind::COUNT],
            kernel: ones(15),
            accept_wait: ones(6),
            receive_wait: ones(7),
            bytes_in: ones(8),
            bytes_out: ones(9),
            lock: ones(10),
            gc: ones(11),
            jit: ones(12),
            trace_exits: ones(13),
            lua_bytes: ones(14),
            method: InlineText::new(b"GET"),
            path: InlineText::new(b"/a"),
        };
        record.clear();
        assert_eq!(record, RequestRecord::default());
    }

    #[test]
    fn text_is_cut_and_safe_to_print() {
        assert_eq!(InlineText::<4>::new(b"abcdef").as_bytes(), b"abcd");
        assert_eq!(InlineText::<8>::new(b"a\n\x1b[\xff\\").to_string(), "a\\x0A\\x1B[\\xFF\\x5C");
        assert_eq!(RequestId(0xabc).to_string().len(), 32);
    }
}
