//! A query's socket: what comes back goes to the engine, until the engine has it closed.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use weir_resolver::SocketToken;
use weir_rt::{RecvOutcome, Stream, clock};

use super::ResolverShared;
use super::thread::ResolverLoop;

/// Why a name server could not be asked.
#[derive(Debug)]
pub(super) struct QueryError {
    /// The system call.
    call: &'static str,
    error: io::Error,
}

impl QueryError {
    fn of(call: &'static str) -> impl FnOnce(io::Error) -> QueryError {
        move |error| QueryError { call, error }
    }

    /// What a receive came to that has brought nothing; a server may close its connection at any time.
    fn received(end: &RecvOutcome) -> Result<(), QueryError> {
        match end {
            RecvOutcome::Err(errno) => Err(QueryError::of("recv()")(io::Error::from_raw_os_error(*errno))),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errno = self.error.raw_os_error().unwrap_or(0);
        write!(f, "{} failed ({errno}: {})", self.call, weir_rt::file::errno_text(errno))
    }
}

/// Sends `bytes` from a new port of the kernel's choosing. Only what comes from `server` is received. Returns when the
/// socket is of no use.
///
/// # Errors
/// The system's.
pub(super) async fn datagram(
    shared: &Arc<ResolverShared>,
    here: &ResolverLoop,
    token: SocketToken,
    server: SocketAddr,
    bytes: &[u8],
) -> Result<(), QueryError> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).map_err(QueryError::of("bind()"))?;
    socket.connect(server).map_err(QueryError::of("connect()"))?;
    socket.send(bytes).map_err(QueryError::of("send()"))?;
    // Of a connected socket of datagrams each receive is one of them.
    let stream = Stream::from_fd(OwnedFd::from(socket)).map_err(QueryError::of("recv()"))?;
    loop {
        match stream.recv(None).await {
            RecvOutcome::Data(bytes) => {
                shared.lock().engine.handle_datagram(clock::monotonic_ms(), token, &bytes);
            }
            end => return QueryError::received(&end),
        }
        here.wake.notify();
    }
}

/// Sends `bytes` over a new connection, and reads messages after their lengths. Returns when it has ended.
///
/// # Errors
/// The system's.
pub(super) async fn stream(
    shared: &Arc<ResolverShared>,
    here: &ResolverLoop,
    token: SocketToken,
    server: SocketAddr,
    bytes: Vec<u8>,
) -> Result<(), QueryError> {
    let stream = Stream::connect(&server.into()).await.map_err(QueryError::of("connect()"))?;
    stream.send(bytes);
    stream.flush();
    let mut received = Vec::new();
    loop {
        let bytes = match stream.recv(None).await {
            RecvOutcome::Data(bytes) => bytes,
            end => return QueryError::received(&end),
        };
        received.extend_from_slice(&bytes);
        while let Some((message, rest)) = message(&received) {
            shared.lock().engine.handle_stream(clock::monotonic_ms(), token, message);
            here.wake.notify();
            received = rest.to_vec();
        }
    }
}

/// The first message, and what is after it, when it is whole.
fn message(received: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = received.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stand_behind_their_length() {
        assert_eq!(message(b"\x00"), None);
        assert_eq!(message(b"\x00\x03ab"), None);
        assert_eq!(message(b"\x00\x03abcd"), Some((&b"abc"[..], &b"d"[..])));
    }
}
