//! What the resolver and its caller say to each other: numbers of look-ups and sockets, what is to be sent, what was found.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::dns_answer::{DnsAnswer, DnsFailure};

/// Identifies a look-up of a resolver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LookupId(pub(crate) u64);

/// A socket of the caller: each query wants a new one, so that answers can't be forged without knowing its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketToken(pub(crate) u64);

/// What the caller is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Send one datagram from a new socket. What comes back from that address goes to [`Resolver::handle_datagram`](crate::Resolver::handle_datagram).
    Datagram {
        /// The socket.
        token: SocketToken,
        /// Where to.
        server: SocketAddr,
        /// What.
        bytes: Vec<u8>,
    },
    /// Send this over a new TCP connection. What comes back goes to [`Resolver::handle_stream`](crate::Resolver::handle_stream), message by message
    /// without the two bytes of length.
    Stream {
        /// The socket.
        token: SocketToken,
        /// Where to.
        server: SocketAddr,
        /// What, with its length in front (RFC 1035 section 4.2.2).
        bytes: Vec<u8>,
    },
    /// Nothing more is expected from this socket.
    Close(SocketToken),
}

/// What the caller of a resolver has to do, or should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolverEvent {
    /// A look-up has ended.
    Done(LookupId, Result<Arc<DnsAnswer>, DnsFailure>),
    /// A name server has failed several times in a row: it is asked last from now on.
    ServerDown(SocketAddr),
    /// It answers again.
    ServerUp(SocketAddr),
}
