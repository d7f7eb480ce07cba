//! Why clients' connections end, counted: by what they spoke, and who closed first.

use std::array;

use super::WorkerCounter;
use super::end_errno::EndErrno;
use crate::explained_kinds::explained_kinds;

/// Who was the first to end a connection, or to say that it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CloseSide {
    /// The client.
    Client,
    /// This server.
    Server,
    /// Neither: what is between them.
    Network,
    /// A server that this one asks.
    Upstream,
}

impl CloseSide {
    /// The word for it in labels and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            CloseSide::Client => "client",
            CloseSide::Server => "server",
            CloseSide::Network => "network",
            CloseSide::Upstream => "upstream",
        }
    }
}

/// What a connection spoke when it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum CloseProtocol {
    /// HTTP/1, with or without TLS; also a connection that sent nothing.
    #[default]
    Http1,
    /// HTTP/2.
    Http2,
    /// HTTP/3.
    Http3,
    /// A TLS handshake that was not complete.
    Tls,
    /// A session of `stream`.
    Session,
}

impl CloseProtocol {
    /// All of them.
    pub const ALL: [CloseProtocol; 5] = [
        CloseProtocol::Http1,
        CloseProtocol::Http2,
        CloseProtocol::Http3,
        CloseProtocol::Tls,
        CloseProtocol::Session,
    ];

    /// The word for it in labels and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            CloseProtocol::Http1 => "http1",
            CloseProtocol::Http2 => "http2",
            CloseProtocol::Http3 => "http3",
            CloseProtocol::Tls => "tls",
            CloseProtocol::Session => "stream",
        }
    }
}

explained_kinds! {
    /// Why a client's connection ended: what was first, where several things came together.
    CloseReason: CloseSide =>
    /// Who was first.
    side;
    Idle Client "idle" "The client closed a connection that waited for its next request."
    Unused Client "unused" "The client closed without a request."
    InHead Client "in_head" "The client closed in the middle of a request's head."
    InBody Client "in_body" "The client closed in the middle of a request's body."
    InResponse Client "in_response" "The client closed before the response was whole."
    Asked Client "asked" "The request said that it is the last: Connection: close, or HTTP/1.0."
    GoAway Client "goaway" "The client sent GOAWAY."
    ResetIdle Client "reset_idle" "The client reset a connection that waited for its next request."
    Reset Client "reset" "The client reset the connection in the middle of a request or response."
    HandshakeClosed Client "handshake_closed" "The client closed in the middle of a TLS handshake."
    HandshakeAlert Client "handshake_alert" "The client ended a TLS handshake with an alert."
    Lost Network "lost" "The kernel gave the connection up: the client, or the way to it, is gone."
    KeepaliveTimeout Server "keepalive_timeout" "No further request came within keepalive_timeout."
    KeepaliveRequests Server "keepalive_requests" "The connection had keepalive_requests requests."
    KeepaliveTime Server "keepalive_time" "The connection was older than keepalive_time."
    KeepaliveOff Server "keepalive_off" "The location keeps none: keepalive_timeout 0, or keepalive_disable."
    HeaderTimeout Server "header_timeout" "A request's head did not come within client_header_timeout."
    BodyTimeout Server "body_timeout" "A request's body did not come within client_body_timeout."
    SendTimeout Server "send_timeout" "The client took nothing of its response for send_timeout."
    BadRequest Server "bad_request" "The head of a request was refused, or its body had wrong framing."
    UnreadBody Server "unread_body" "The request's body was not read to its end."
    ErrorStatus Server "error_status" "The status was an error after which nothing more is read."
    NoLength Server "no_length" "Only the end of the connection can mark the end of the response."
    ResponseAsked Server "response_asked" "A handler, a module or a script ended it with the response."
    Broken Server "response_broken" "The response broke off: its source failed."
    NoResponse Server "no_response" "The connection was closed without a response (444)."
    Tunnel Server "tunnel" "What followed an upgrade or CONNECT has ended."
    HandshakeTimeout Server "handshake_timeout" "A TLS handshake was not complete within client_header_timeout."
    HandshakeFailed Server "handshake_failed" "A TLS handshake failed here: nothing in common, or a bad certificate."
    TlsBroken Server "tls_error" "A record of TLS was invalid, or an alert came after the handshake."
    ProxyProtocol Server "proxy_protocol" "The header of the PROXY protocol was absent or invalid."
    ProtocolError Server "protocol_error" "The client broke the rules of HTTP/2."
    Abuse Server "abuse" "The client did too much of something in HTTP/2."
    Reload Server "reload" "The configuration has the address no more, or with other settings."
    Room Server "room" "The connection was idle, and its place was needed for another."
    EvenedOut Server "evened_out" "The worker had many more connections than the others."
    Shutdown Server "shutdown" "The server, or the worker, ended."
    ShutdownTimeout Server "shutdown_timeout" "The request was not over within worker_shutdown_timeout."
    Dropped Server "dropped" "The connection's task ended otherwise: in a panic, or with the worker."
}

impl CloseReason {
    /// The reason where the system reports `errno`; `reset` where the client has reset the connection.
    pub(crate) fn of_errno(errno: i32, reset: CloseReason) -> CloseReason {
        match EndErrno::of(errno) {
            EndErrno::Reset => reset,
            EndErrno::NoTls => CloseReason::TlsBroken,
            EndErrno::Lost => CloseReason::Lost,
        }
    }
}

/// How many connections ended for each reason: the counts of one thread.
#[derive(Debug)]
pub struct CloseCounters([[WorkerCounter; CloseReason::ALL.len()]; CloseProtocol::ALL.len()]);

impl Default for CloseCounters {
    fn default() -> CloseCounters {
        CloseCounters(array::from_fn(|_| array::from_fn(|_| WorkerCounter::default())))
    }
}

impl CloseCounters {
    /// Counts a connection; only from the one writing thread.
    pub fn count(&self, protocol: CloseProtocol, reason: CloseReason) {
        self.0[protocol as usize][reason as usize].add(1);
    }

    /// Those with this protocol and reason so far.
    pub fn get(&self, protocol: CloseProtocol, reason: CloseReason) -> u64 {
        self.0[protocol as usize][reason as usize].get()
    }
}

/// Who ended a stream of HTTP/2 before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StreamCloseSide {
    /// The client, by RST_STREAM.
    Client,
    /// This server, by RST_STREAM.
    Server,
}

/// Streams of HTTP/2 that were ended early: the counts of one thread. Those that ended by themselves are all others.
#[derive(Debug, Default)]
pub struct StreamCloseCounters {
    resets: [[WorkerCounter; weir_http::h2::ErrorCode::COUNT]; 2],
    /// Those that were open when their connection ended.
    pub with_connection: WorkerCounter,
}

impl StreamCloseCounters {
    /// Counts a reset; only from the one writing thread.
    pub fn count(&self, side: StreamCloseSide, code: weir_http::h2::ErrorCode) {
        self.resets[side as usize][code as usize].add(1);
    }

    /// The resets by `side` with `code` so far.
    pub fn get(&self, side: StreamCloseSide, code: weir_http::h2::ErrorCode) -> u64 {
        self.resets[side as usize][code as usize].get()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn reasons_have_names_of_their_own_and_whole_sentences() {
        let names: BTreeSet<&str> = CloseReason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(names.len(), CloseReason::ALL.len());
        for (number, reason) in CloseReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, number);
            assert!(reason.says().ends_with('.'), "{reason:?}");
            assert!(reason.as_str().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{reason:?}");
        }
    }

    #[test]
    fn each_protocol_and_reason_has_a_count_of_its_own() {
        let counters = CloseCounters::default();
        counters.count(CloseProtocol::Http2, CloseReason::GoAway);
        counters.count(CloseProtocol::Http2, CloseReason::GoAway);
        counters.count(CloseProtocol::Http1, CloseReason::Idle);
        let mut all = Vec::new();
        for protocol in CloseProtocol::ALL {
            for &reason in CloseReason::ALL {
                let count = counters.get(protocol, reason);
                all.extend((count > 0).then_some((protocol, reason, count)));
            }
        }
        let expected =
            [(CloseProtocol::Http1, CloseReason::Idle, 1), (CloseProtocol::Http2, CloseReason::GoAway, 2)];
        assert_eq!(all, expected);
    }
}
