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
    /// The address of the same port that takes this one's connections: it has no socket of its own, and its servers
    /// are found by a connection's local address.
    pub wildcard_of: Option<usize>,
}

impl ListenAddress {
    /// What its socket is found by: TCP and UDP have ports of their own.
    pub fn key(&self) -> SocketKey {
        (self.addr.clone(), self.options.udp)
    }

    /// How its connections begin: with a PROXY protocol header, TLS, HTTP/2; and whether they are flows of datagrams.
    pub fn protocols(&self) -> [bool; 4] {
        [self.proxy_protocol, self.ssl, self.http2, self.options.udp]
    }
}

/// An address, and whether it is one of UDP.
pub type SocketKey = (SockAddr, bool);
