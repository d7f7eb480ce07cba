//! The first argument of `listen`: `80`, `*:80`, `127.0.0.1`, `[::]:80`, `host:80`, `unix:/path`, ranges of ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;

use weir_rt::net::{SockAddr, UnixAddr};

use crate::privileged;

/// The addresses that `text` expands to, without duplicates, or nginx's text for what is wrong.
pub(crate) fn parse(text: &[u8]) -> Result<Vec<SockAddr>, &'static str> {
    if text.len() >= 5 && text[..5].eq_ignore_ascii_case(b"unix:") {
        return unix(&text[5..]).map(|addr| vec![addr]);
    }
    if text.starts_with(b"[") {
        return v6(text);
    }
    if text.iter().any(|b| matches!(b, b'/' | b'?')) {
        return Err("invalid host");
    }
    let (host, ports) = match text.iter().position(|b| *b == b':') {
        Some(colon) => (&text[..colon], range(&text[colon + 1..])?),
        None => match alone(text)? {
            Some(ports) => (&b"*"[..], ports),
            None => (text, 80..=80),
        },
    };
    match host {
        b"" => Err("no host"),
        b"*" => Ok(each(&[Ipv4Addr::UNSPECIFIED.into()], ports)),
        host => Ok(each(&resolve(host)?, ports)),
    }
}

/// 0.0.0.0 and this port.
pub(super) fn any(port: u16) -> SockAddr {
    (IpAddr::V4(Ipv4Addr::UNSPECIFIED), port).into()
}

fn unix(path: &[u8]) -> Result<SockAddr, &'static str> {
    let addr = match path {
        [] => return Err("no path in the unix domain socket"),
        [b'@', name @ ..] => UnixAddr::from_abstract(name),
        path => UnixAddr::from_path(std::ffi::OsStr::from_bytes(path).as_ref()),
    };
    addr.map(SockAddr::Unix).map_err(|_| "too long path in the unix domain socket")
}

/// `[address]`, `[address]:ports`
fn v6(text: &[u8]) -> Result<Vec<SockAddr>, &'static str> {
    let end = text.iter().position(|b| *b == b']').ok_or("invalid host")?;
    let ports = match &text[end + 1..] {
        [] => 80..=80,
        ports if ports.contains(&b'/') => return Err("invalid host"),
        [b':', ports @ ..] => range(ports)?,
        _ => return Err("invalid host"),
    };
    let host = &text[1..end];
    if host.is_empty() {
        return Err("no host");
    }
    let ip = std::str::from_utf8(host).ok().and_then(|host| host.parse::<Ipv6Addr>().ok());
    Ok(each(&[ip.ok_or("invalid IPv6 address")?.into()], ports))
}

/// A text without colon is a port or a range of ports if it is one; else it is a host.
fn alone(text: &[u8]) -> Result<Option<RangeInclusive<u16>>, &'static str> {
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let dash = text.iter().position(|b| *b == b'-');
    let numbers = match dash {
        Some(dash) => is_number(&text[..dash]) && is_number(&text[dash + 1..]),
        None => is_number(text),
    };
    if numbers { range(text).map(Some) } else { Ok(None) }
}

/// `80`, `8000-8010`. Port 0, which nginx refuses, is for programs that have a server inside: the system chooses one.
fn range(text: &[u8]) -> Result<RangeInclusive<u16>, &'static str> {
    let port = |text: &[u8]| {
        weir_conf::parse_number(text).and_then(|port| u16::try_from(port).ok()).ok_or("invalid port")
    };
    let Some(dash) = text.iter().position(|b| *b == b'-') else {
        return port(text).map(|port| port..=port);
    };
    let last =
        port(&text[dash + 1..]).and_then(|last| if last == 0 { Err("invalid port") } else { Ok(last) })?;
    let first = port(&text[..dash])?;
    if first > last { Err("invalid port range") } else { Ok(first..=last) }
}

/// IPv4 addresses before IPv6 ones, as nginx orders what a name resolves to. Asks the resolver: for start only.
fn resolve(host: &[u8]) -> Result<Vec<IpAddr>, &'static str> {
    let host = std::str::from_utf8(host).map_err(|_| "host not found")?;
    if let Ok(ip) = host.parse::<Ipv4Addr>() {
        return Ok(vec![ip.into()]);
    }
    let found = privileged::look_up(host, 0).map_err(|_| "host not found")?;
    let mut ips: Vec<IpAddr> = found.iter().map(|address| address.ip()).collect();
    ips.sort_by_key(IpAddr::is_ipv6);
    if ips.is_empty() { Err("host not found") } else { Ok(ips) }
}

fn each(ips: &[IpAddr], ports: RangeInclusive<u16>) -> Vec<SockAddr> {
    // Exactly that many: there may be very many servers.
    let mut addrs: Vec<SockAddr> = Vec::with_capacity(ips.len() * ports.clone().count());
    for port in ports {
        for ip in ips {
            let addr = (*ip, port).into();
            // A name may resolve to an address twice. In a range only the same port can be the same address.
            if !addrs.iter().rev().take(ips.len()).any(|other| *other == addr) {
                addrs.push(addr);
            }
        }
    }
    addrs
}
