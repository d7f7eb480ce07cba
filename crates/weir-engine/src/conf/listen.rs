//! `listen`: its parameters, the addresses of a configuration, and the servers that serve each.
//!
//! A line gives one address or several (a host name, a range of ports). [`collect`](collect()) puts those of all servers
//! together: one [`ListenAddress`](crate::settings::listen::ListenAddress) for each, with the servers that share it, and reports what contradicts itself.

mod address;
mod collect;
mod names;
mod parameters;
#[cfg(test)]
mod tests;

use weir_conf::{LineCx, Result, Span};
use weir_rt::net::{ListenOptions, SockAddr};

pub(crate) use address::parse as parse_address;
pub(crate) use collect::{collect, join};

/// One `listen` line as written: the addresses and the options of the socket.
#[derive(Clone, Debug, Default)]
pub struct ListenLine {
    /// The addresses it expands to, without duplicates.
    pub addrs: Vec<SockAddr>,
    /// True with `default_server`.
    pub default_server: bool,
    /// True when a parameter of the socket is given (`bind`, `backlog=`, ...): only one line of an address may have
    /// them, and the address gets a socket of its own beside a wildcard.
    pub bind: bool,
    /// The socket's parameters.
    pub options: ListenOptions,
    /// True with `proxy_protocol`: connections begin with a PROXY protocol header.
    pub proxy_protocol: bool,
    /// True with `ssl`: connections begin with a TLS handshake.
    pub ssl: bool,
    /// True with `http2`: HTTP/2 is offered.
    pub http2: bool,
    /// True with `backlog=`.
    pub(crate) has_backlog: bool,
    /// True with `quic`: clients come over QUIC; then the options are of UDP.
    pub quic: bool,
    /// The line; `None` for the address that a server without `listen` has.
    pub span: Option<Span>,
}

impl ListenLine {
    /// Reads the arguments of a `listen` line.
    ///
    /// # Errors
    /// nginx's words for an invalid address or parameter.
    pub fn parse(line: &mut LineCx<'_>) -> Result<ListenLine> {
        let addrs = address::parse(line.bytes(0)).map_err(|problem| {
            line.fail_arg(0, format!("{problem} in \"{}\" of the \"listen\" directive", line.arg(0)))
        })?;
        let mut listen = ListenLine { addrs, span: Some(line.line().name.span), ..ListenLine::default() };
        for i in 1..line.args().len() {
            parameters::set(&mut listen, line, i)?;
        }
        parameters::check_quic(&listen, line)?;
        parameters::check_udp(&listen, line)?;
        listen.options.udp |= listen.quic;
        Ok(listen)
    }

    /// What a server without `listen` has: port 80 of all addresses, or 8000 where the user may not bind 80.
    pub(crate) fn implied() -> ListenLine {
        let port = if crate::privileged::is_root() { 80 } else { 8000 };
        ListenLine { addrs: vec![address::any(port)], ..ListenLine::default() }
    }
}
