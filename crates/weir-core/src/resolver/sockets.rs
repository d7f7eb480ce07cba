//! A query's socket: what comes back goes to the engine, until the engine has it closed.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use weir_resolver::Token;
use weir_rt::{Recv, Stream, clock};

use super::Shared;
use super::thread::Loop;

/// Sends `bytes` from a new port of the kernel's choosing. Only what comes from `server` is received. Returns when the
/// socket is of no use.
pub(super) async fn datagram(
    shared: &Arc<Shared>,
    here: &Loop,
    token: Token,
    server: SocketAddr,
    bytes: &[u8],
) {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let open = || {
        let socket = UdpSocket::bind(any)?;
        socket.connect(server)?;
        socket.send(bytes)?;
        // Of a connected socket of datagrams each receive is one of them.
        Stream::from_fd(OwnedFd::from(socket))
    };
    let Ok(stream) = open() else { return };
    while let Recv::Data(bytes) = stream.recv(None).await {
        shared.lock().engine.handle_datagram(clock::monotonic_ms(), token, &bytes);
        here.wake.notify();
    }
}

/// Sends `bytes` over a new connection, and reads messages behind their lengths. Returns when it has ended.
pub(super) async fn stream(
    shared: &Arc<Shared>,
    here: &Loop,
    token: Token,
    server: SocketAddr,
    bytes: Vec<u8>,
) {
    let Ok(stream) = Stream::connect(&server.into()).await else { return };
    stream.send(bytes);
    stream.flush();
    let mut received = Vec::new();
    while let Recv::Data(bytes) = stream.recv(None).await {
        received.extend_from_slice(&bytes);
        while let Some((message, rest)) = message(&received) {
            shared.lock().engine.handle_stream(clock::monotonic_ms(), token, message);
            here.wake.notify();
            received = rest.to_vec();
        }
    }
}

/// The first message, and what is behind it, when it is whole.
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
