//! The addresses of a configuration.

use weir_rt::net::{ListenOptions, SockAddr};

/// An address that is listened on.
#[derive(Clone, Debug)]
pub struct ListenAddress {
    /// The address and port, or the path.
    pub addr: SockAddr,
    /// How its socket is set up; those of the line that sets any.
    pub options: ListenOptions,
    /// True of an address of `stream`: its servers are those of that section.
    pub stream: bool,
    /// The servers that serve it, by their index in their section, in that order; never empty.
    pub servers: Vec<usize>,
    /// Index of the default server: it serves hosts that no `server_name` matches.
    pub default: usize,
    /// `proxy_protocol`: connections begin with a PROXY protocol header.
    pub proxy_protocol: bool,
    /// True with `ssl`: connections begin with a TLS handshake.
    pub ssl: bool,
    /// True with `http2`: HTTP/2 is offered.
    pub http2: bool,
    /// True with `quic`: datagrams of QUIC come; then the socket is one of UDP.
    pub quic: bool,
    /// The address of the same port that takes this one's connections: it has no socket of its own, and its servers
    /// are found by a connection's local address.
    pub wildcard_of: Option<usize>,
}

impl ListenAddress {
    /// What its socket is found by: TCP and UDP have ports of their own.
    pub fn key(&self) -> SocketKey {
        (self.addr.clone(), self.options.udp)
    }

    /// How its connections begin.
    pub fn protocols(&self) -> ListenProtocols {
        ListenProtocols {
            proxy_protocol: self.proxy_protocol,
            ssl: self.ssl,
            http2: self.http2,
            flows: self.options.udp && !self.quic,
            quic: self.quic,
        }
    }
}

/// What connections to an address have in common. One that is made under one configuration goes on under the next only if they
/// are the same there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenProtocols {
    /// They begin with a PROXY protocol header.
    pub proxy_protocol: bool,
    /// They begin with a TLS handshake.
    pub ssl: bool,
    /// HTTP/2 is offered, whatever the server says.
    pub http2: bool,
    /// They are flows of datagrams of `stream`.
    pub flows: bool,
    /// They are QUIC's.
    pub quic: bool,
}

/// An address, and whether it is one of UDP.
pub type SocketKey = (SockAddr, bool);
