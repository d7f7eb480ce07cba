//! The connection's two ends, what is known of it, and the process it ends in.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::sync::OnceLock;

use weir_http::{h1, proxy_protocol};
use weir_rt::net::{self, SockAddr, TcpInfo};

use crate::exchange::Exchange;
use crate::text::{Arena, Span, Text};
use crate::transport::ProxiedAddresses;

pub(super) fn remote_addr(x: &mut Exchange) -> Option<Text> {
    Some(Text::Span(x.push_client()))
}

impl Exchange {
    /// Appends the [client's](Exchange::client) address to the arena, as `$remote_addr` has it.
    pub fn push_client(&mut self) -> Span {
        let Exchange { arena, client, connection, .. } = self;
        host(arena, client.as_ref().unwrap_or(&connection.peer))
    }

    /// Appends the address of the connection's other end, whatever was put in its place.
    pub fn push_peer(&mut self) -> Span {
        let Exchange { arena, connection, .. } = self;
        host(arena, &connection.peer)
    }
}

/// `$remote_port`: empty for a unix socket.
pub(super) fn remote_port(x: &mut Exchange) -> Option<Text> {
    let port = x.client().port();
    port_text(x, port)
}

/// `$binary_remote_addr`: 4 or 16 bytes; `unix:` for a unix socket.
pub(super) fn binary_remote_addr(x: &mut Exchange) -> Option<Text> {
    let Exchange { arena, client, connection, .. } = x;
    Some(Text::Span(match client.as_ref().unwrap_or(&connection.peer) {
        SockAddr::V4(addr) => arena.push(&addr.ip().octets()),
        SockAddr::V6(addr) => arena.push(&addr.ip().octets()),
        addr @ SockAddr::Unix(_) => host(arena, addr),
    }))
}

pub(super) fn server_addr(x: &mut Exchange) -> Option<Text> {
    let connection = x.connection.clone();
    Some(Text::Span(host(&mut x.arena, connection.local())))
}

pub(super) fn server_port(x: &mut Exchange) -> Option<Text> {
    let port = x.connection.local().port();
    port_text(x, port)
}

pub(super) fn scheme(x: &mut Exchange) -> Option<Text> {
    Some(Text::Static(if x.connection.is_tls() { b"https" } else { b"http" }))
}

/// `$https`: `on`, or empty.
pub(super) fn https(x: &mut Exchange) -> Option<Text> {
    Some(if x.connection.is_tls() { Text::Static(b"on") } else { Text::EMPTY })
}

pub(super) fn number(x: &mut Exchange) -> Option<Text> {
    let serial = x.connection.number;
    super::number(x, serial)
}

/// `$connection_requests`: the current one is counted.
pub(super) fn requests(x: &mut Exchange) -> Option<Text> {
    let nth = x.nth;
    super::number(x, nth)
}

/// `$pipe`: `p` for a request that had come before the last response left, else `.`.
pub(super) fn pipe(x: &mut Exchange) -> Option<Text> {
    Some(Text::Static(if x.pipelined { b"p" } else { b"." }))
}

pub(super) fn proxy_protocol_addr(x: &mut Exchange) -> Option<Text> {
    proxied_addr(x, |proxied| &proxied.source)
}

pub(super) fn proxy_protocol_port(x: &mut Exchange) -> Option<Text> {
    proxied_port(x, |proxied| &proxied.source)
}

pub(super) fn proxy_protocol_server_addr(x: &mut Exchange) -> Option<Text> {
    proxied_addr(x, |proxied| &proxied.destination)
}

pub(super) fn proxy_protocol_server_port(x: &mut Exchange) -> Option<Text> {
    proxied_port(x, |proxied| &proxied.destination)
}

/// `$proxy_protocol_tlv_name`: a type-length-value of a version 2 header.
pub(super) fn proxy_protocol_tlv(x: &mut Exchange, name: &str) -> Option<Text> {
    let connection = x.connection.clone();
    match proxy_protocol::tlv(&connection.proxied.get()?.tlvs, name) {
        Ok(value) => value.map(|bytes| Text::Span(x.arena.push(&bytes))),
        Err(error) => {
            x.log_error(&error);
            None
        }
    }
}

fn proxied_addr(x: &mut Exchange, side: fn(&ProxiedAddresses) -> &SockAddr) -> Option<Text> {
    let connection = x.connection.clone();
    let proxied = connection.proxied.get()?;
    Some(Text::Span(host(&mut x.arena, side(proxied))))
}

fn proxied_port(x: &mut Exchange, side: fn(&ProxiedAddresses) -> &SockAddr) -> Option<Text> {
    let port = side(x.connection.proxied.get()?).port();
    port_text(x, port)
}

pub(super) fn tcpinfo_rtt(x: &mut Exchange) -> Option<Text> {
    tcpinfo(x, |info| info.rtt_us)
}

pub(super) fn tcpinfo_rttvar(x: &mut Exchange) -> Option<Text> {
    tcpinfo(x, |info| info.rttvar_us)
}

pub(super) fn tcpinfo_snd_cwnd(x: &mut Exchange) -> Option<Text> {
    tcpinfo(x, |info| info.snd_cwnd)
}

pub(super) fn tcpinfo_rcv_space(x: &mut Exchange) -> Option<Text> {
    tcpinfo(x, |info| info.rcv_space)
}

/// Asks the socket each time; no value where it is not TCP.
fn tcpinfo(x: &mut Exchange, field: fn(&TcpInfo) -> u32) -> Option<Text> {
    let info = net::tcp_info(x.connection.fd).ok()?;
    super::number(x, u64::from(field(&info)))
}

/// `$nginx_version`: that of the nginx whose behaviour is followed, as `-v` says. Applications compare it
/// (`SERVER_SOFTWARE`), whatever the server calls itself.
pub(super) fn version(_: &mut Exchange) -> Option<Text> {
    Some(Text::Static(crate::NGINX_VERSION.as_bytes()))
}

/// `$hostname`: in lower case; asked for once.
pub(super) fn hostname(_: &mut Exchange) -> Option<Text> {
    static NAME: OnceLock<String> = OnceLock::new();
    let name = NAME.get_or_init(|| weir_rt::process::hostname().unwrap_or_default().to_ascii_lowercase());
    Some(Text::Static(name.as_bytes()))
}

pub(super) fn pid(x: &mut Exchange) -> Option<Text> {
    super::number(x, u64::from(weir_rt::process::pid()))
}

/// An address without port: IPv4 digit by digit, since nearly every log line has one; the others are rarer and
/// harder.
fn host(arena: &mut Arena, addr: &SockAddr) -> Span {
    arena.write(|out| match addr {
        SockAddr::V4(addr) => ipv4(out, *addr.ip()),
        SockAddr::V6(_) => write!(out, "{}", addr.host()).expect("a Vec takes every write"),
        SockAddr::Unix(name) => write!(out, "{name}").expect("a Vec takes every write"),
    })
}

fn ipv4(out: &mut Vec<u8>, ip: Ipv4Addr) {
    let [first, others @ ..] = ip.octets();
    h1::number(out, u64::from(first));
    for octet in others {
        out.push(b'.');
        h1::number(out, u64::from(octet));
    }
}

fn port_text(x: &mut Exchange, port: Option<u16>) -> Option<Text> {
    match port {
        Some(port) if port > 0 => super::number(x, u64::from(port)),
        _ => Some(Text::EMPTY),
    }
}
