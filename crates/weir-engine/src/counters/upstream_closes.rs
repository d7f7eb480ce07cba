//! Why connections to servers end, counted: by what they spoke, and who closed first.
//!
//! A connection carries a [`UpstreamEnd`] from its opening to its close. What ends it says so ([`UpstreamEnd::ends`]), of
//! several reasons the first counts, and dropping it counts: so there is no close without a count, and one without a
//! reason is a count of its own ([`UpstreamCloseReason::Dropped`]) that no test may see.
//!
//! Counters are of the thread that closes: connections go from worker to worker, and are closed by any of them.

use std::array;
use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::end_errno::EndErrno;
use super::{CloseSide, WorkerCounter};
use crate::explained_kinds::explained_kinds;

/// Makes the enum of protocols with their words, which have one order.
macro_rules! upstream_close_protocols {
    ($($protocol:ident $name:literal $says:literal)*) => {
        /// What a connection to a server speaks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum UpstreamCloseProtocol {
            $(#[doc = $says] $protocol,)*
        }

        impl UpstreamCloseProtocol {
            /// All of them; the position of each is its number.
            pub const ALL: [UpstreamCloseProtocol; [$($name),*].len()] = [$(UpstreamCloseProtocol::$protocol,)*];

            /// The word for it in labels.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(UpstreamCloseProtocol::$protocol => $name,)*
                }
            }

            /// As [`UpstreamCloseProtocol::as_str`], for tables that list connections of clients too.
            pub const fn in_tables(self) -> &'static str {
                match self {
                    $(UpstreamCloseProtocol::$protocol => concat!("to_", $name),)*
                }
            }
        }
    };
}

upstream_close_protocols! {
    Http1 "http1" "HTTP/1 (`proxy_pass`, sources of servers, OCSP)."
    Http2 "http2" "HTTP/2 (`grpc_pass`, `proxy_pass` with `proxy_http_version 2`)."
    FastCgi "fastcgi" "FastCGI."
    Uwsgi "uwsgi" "uwsgi."
    Scgi "scgi" "SCGI."
    Memcached "memcached" "memcached."
    Tunnel "tunnel" "Bytes (`tunnel_pass`)."
    Check "check" "A health check."
    Lua "lua" "A script's socket."
}

explained_kinds! {
    /// Why a connection to a server ended: what was first, where several things came together.
    UpstreamCloseReason: CloseSide =>
    /// Who was first.
    side;
    Idle Upstream "idle" "The server closed a connection that was kept alive."
    ResetIdle Upstream "reset_idle" "The server reset a connection that was kept alive."
    Spoke Upstream "unexpected_data" "The server sent something that nothing had asked for."
    Asked Upstream "asked" "The response said that it is the last: Connection: close, or HTTP/1.0."
    NoLength Upstream "no_length" "The end of the connection marked the end of the response."
    BeforeResponse Upstream "before_response" "The server closed before a response."
    InResponse Upstream "in_response" "The server closed before the response was whole."
    Reset Upstream "reset" "The server reset the connection in the middle of a request or response."
    BadResponse Upstream "bad_response" "What the server sent was no response, or had wrong framing."
    Closed Upstream "closed" "The server closed while a script received."
    GoAway Upstream "goaway" "The server sent GOAWAY."
    HandshakeFailed Upstream "handshake_failed" "The TLS handshake with the server failed."
    Lost Network "lost" "The kernel gave the connection up: the server, or the way to it, is gone."
    ClientGone Client "client_gone" "The client left, and its request was given up."
    KeepaliveOff Server "keepalive_off" "Connections to the server are not kept alive, or the request said so."
    KeepaliveFull Server "keepalive_full" "More were idle than keepalive, or the size of a pool, allows."
    KeepaliveTimeout Server "keepalive_timeout" "It was idle for keepalive_timeout, or for as long as a script allows."
    KeepaliveHabit Server "keepalive_habit" "The server has closed others that were idle for as long."
    KeepaliveRequests Server "keepalive_requests" "It had keepalive_requests requests."
    KeepaliveTime Server "keepalive_time" "It was older than keepalive_time."
    HandshakeTimeout Server "handshake_timeout" "The TLS handshake took longer than allowed."
    SendTimeout Server "send_timeout" "The server took nothing of the request in time."
    ReadTimeout Server "read_timeout" "The server sent nothing of its response in time."
    NextServer Server "next_server" "Another server was asked after this one's response."
    Unwanted Server "unread" "The rest of the response was not wanted."
    RequestUnsent Server "request_unsent" "The response was over before the whole request was sent."
    RequestFailed Server "request_failed" "The request could not be sent to its end: its body failed, or a file."
    Tunnel Server "tunnel" "What followed an upgrade or CONNECT has ended."
    Done Server "done" "It was for one question: a health check, a list of servers, a certificate's state."
    Removed Server "removed" "The server is no member of the upstream any more."
    Refused Server "setkeepalive_refused" "setkeepalive refused it: unread data, an error, or the worker ends."
    Script Server "script" "A script closed it."
    ScriptEnd Server "script_end" "A script ended, or forgot its socket, without having closed it or kept it alive."
    Reload Server "reload" "The configuration that had it is not in force any more."
    Shutdown Server "shutdown" "The server, or the worker, ended."
    Dropped Server "dropped" "It ended otherwise: its request was cut off, or panicked."
}

impl UpstreamCloseReason {
    /// The reason where the system reports `errno`; `reset` where the server has reset the connection.
    pub fn of_errno(errno: i32, reset: UpstreamCloseReason) -> UpstreamCloseReason {
        match EndErrno::of(errno) {
            EndErrno::Reset => reset,
            EndErrno::NoTls => UpstreamCloseReason::BadResponse,
            EndErrno::Lost => UpstreamCloseReason::Lost,
        }
    }
}

/// A connection to a server from its opening on: dropping it counts its end.
#[derive(Debug)]
pub struct UpstreamEnd {
    protocol: Cell<UpstreamCloseProtocol>,
    reason: Cell<Option<UpstreamCloseReason>>,
    /// What it will end for if nothing else happens.
    expected: Cell<UpstreamCloseReason>,
}

impl UpstreamEnd {
    /// Of a connection that is open from now on.
    pub fn of(protocol: UpstreamCloseProtocol) -> UpstreamEnd {
        OWN.with(|own| own.0.opened.add(1));
        UpstreamEnd {
            protocol: Cell::new(protocol),
            reason: Cell::new(None),
            expected: Cell::new(UpstreamCloseReason::Dropped),
        }
    }

    /// Notes why it ends, unless that is known already.
    pub fn ends(&self, reason: UpstreamCloseReason) {
        if self.reason.get().is_none() {
            self.reason.set(Some(reason));
        }
    }

    /// Notes why it ends unless something happens before that.
    pub fn expects(&self, reason: UpstreamCloseReason) {
        self.expected.set(reason);
    }

    /// Notes what it speaks.
    pub fn speaks(&self, protocol: UpstreamCloseProtocol) {
        self.protocol.set(protocol);
    }
}

impl Drop for UpstreamEnd {
    fn drop(&mut self) {
        let reason = self.reason.get().unwrap_or(self.expected.get());
        // A thread that ends may close connections after its counters are gone: those count with the ended ones.
        let counted = OWN.try_with(|own| own.0.count(self.protocol.get(), reason));
        if counted.is_err() {
            let mut all = registry();
            all.ended.closes[self.protocol.get() as usize][reason as usize] += 1;
        }
    }
}

/// How many connections were opened, and how many ended for each reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamCloses {
    /// Connections that were opened.
    pub opened: u64,
    closes: [[u64; UpstreamCloseReason::ALL.len()]; UpstreamCloseProtocol::ALL.len()],
}

impl UpstreamCloses {
    const NONE: UpstreamCloses = UpstreamCloses {
        opened: 0,
        closes: [[0; UpstreamCloseReason::ALL.len()]; UpstreamCloseProtocol::ALL.len()],
    };

    /// Those of all threads so far.
    pub fn now() -> UpstreamCloses {
        let all = registry();
        let mut sum = all.ended.clone();
        all.threads.iter().for_each(|thread| sum.add(thread));
        sum
    }

    /// Those of `protocol` that ended for `reason`.
    pub fn get(&self, protocol: UpstreamCloseProtocol, reason: UpstreamCloseReason) -> u64 {
        self.closes[protocol as usize][reason as usize]
    }

    fn add(&mut self, thread: &ThreadCloses) {
        self.opened += thread.opened.get();
        for (sum, counters) in self.closes.iter_mut().zip(&thread.closes) {
            sum.iter_mut().zip(counters).for_each(|(sum, counter)| *sum += counter.get());
        }
    }
}

/// What one thread counts; others read it.
#[derive(Debug)]
struct ThreadCloses {
    opened: WorkerCounter,
    closes: [[WorkerCounter; UpstreamCloseReason::ALL.len()]; UpstreamCloseProtocol::ALL.len()],
}

impl ThreadCloses {
    fn count(&self, protocol: UpstreamCloseProtocol, reason: UpstreamCloseReason) {
        self.closes[protocol as usize][reason as usize].add(1);
    }
}

/// The counters of this thread, in the list of all as long as it lives.
struct OwnCloses(Arc<ThreadCloses>);

impl OwnCloses {
    fn new() -> OwnCloses {
        let closes = array::from_fn(|_| array::from_fn(|_| WorkerCounter::default()));
        let own = Arc::new(ThreadCloses { opened: WorkerCounter::default(), closes });
        registry().threads.push(own.clone());
        OwnCloses(own)
    }
}

impl Drop for OwnCloses {
    fn drop(&mut self) {
        let mut all = registry();
        all.threads.retain(|thread| !Arc::ptr_eq(thread, &self.0));
        all.ended.add(&self.0);
    }
}

/// The counters of all threads.
struct CloseRegistry {
    threads: Vec<Arc<ThreadCloses>>,
    /// What threads that have ended had counted.
    ended: UpstreamCloses,
}

static REGISTRY: Mutex<CloseRegistry> =
    Mutex::new(CloseRegistry { threads: Vec::new(), ended: UpstreamCloses::NONE });

thread_local! {
    static OWN: OwnCloses = OwnCloses::new();
}

/// A thread that panics while it has the lock leaves it consistent: what is done under it adds numbers and an entry.
fn registry() -> MutexGuard<'static, CloseRegistry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn reasons_have_names_of_their_own_and_whole_sentences() {
        let names: BTreeSet<&str> = UpstreamCloseReason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(names.len(), UpstreamCloseReason::ALL.len());
        for (number, reason) in UpstreamCloseReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, number);
            assert!(reason.says().ends_with('.'), "{reason:?}");
        }
        for (number, protocol) in UpstreamCloseProtocol::ALL.iter().enumerate() {
            assert_eq!(*protocol as usize, number);
            assert_eq!(protocol.in_tables().strip_prefix("to_"), Some(protocol.as_str()));
        }
    }

    /// Connections are opened by one thread and closed by another, and threads end: nothing is lost.
    #[test]
    fn each_end_is_counted_once_by_the_first_reason_whoever_drops_it() {
        use UpstreamCloseProtocol::Scgi;
        let of = |reason| UpstreamCloses::now().get(Scgi, reason);
        let ends: Vec<UpstreamEnd> = (0..4).map(|_| UpstreamEnd::of(Scgi)).collect();
        ends[0].ends(UpstreamCloseReason::Lost);
        ends[0].ends(UpstreamCloseReason::Done);
        ends[1].ends(UpstreamCloseReason::Done);
        std::thread::spawn(move || drop(ends)).join().expect("the thread ends");
        let found =
            [UpstreamCloseReason::Lost, UpstreamCloseReason::Done, UpstreamCloseReason::Dropped].map(of);
        assert_eq!(found, [1, 1, 2]);
    }
}
