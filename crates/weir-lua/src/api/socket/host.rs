//! The peer that a script names for a socket: `host`, `host:port`, `[address]:port`, `unix:path`.

use std::net::{IpAddr, Ipv6Addr};

use weir_engine::resolver;

/// Where a socket goes. A port that is in the name goes before the one that is given beside it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PeerHost<'a> {
    Address(IpAddr, Option<u16>),
    /// To be looked up.
    Name(&'a str, Option<u16>),
    Unix(&'a str),
}

/// Reads what a script gives as host.
///
/// # Errors
/// What is wrong with it, in nginx's words.
pub(super) fn parse(host: &str) -> Result<PeerHost<'_>, &'static str> {
    if is_unix(host.as_bytes()) {
        return match host.len() - UNIX.len() {
            0 => Err("no path in the unix domain socket"),
            LONGEST_PATH.. => Err("too long path in the unix domain socket"),
            _ => Ok(PeerHost::Unix(&host[UNIX.len()..])),
        };
    }
    if let Ok(address) = host.parse() {
        return Ok(PeerHost::Address(address, None));
    }
    if let Some(rest) = host.strip_prefix('[') {
        return bracketed(rest);
    }
    if host.contains(['/', '?']) {
        return Err("invalid host");
    }
    let (name, port) = match host.split_once(':') {
        Some((name, port)) => (name, Some(port_of(port)?)),
        None => (host, None),
    };
    if name.is_empty() {
        return Err("no host");
    }
    Ok(match resolver::literal(name) {
        Some(address) => PeerHost::Address(address, port),
        None => PeerHost::Name(name, port),
    })
}

/// `address]`, `address]:port`
fn bracketed(rest: &str) -> Result<PeerHost<'_>, &'static str> {
    let (address, after) = rest.split_once(']').ok_or("invalid host")?;
    let port = match after.strip_prefix(':') {
        Some(port) => Some(port_of(port)?),
        None if after.is_empty() => None,
        None => return Err("invalid host"),
    };
    let address: Ipv6Addr = address.parse().map_err(|_| "invalid IPv6 address")?;
    Ok(PeerHost::Address(address.into(), port))
}

fn port_of(text: &str) -> Result<u16, &'static str> {
    match text.parse() {
        Ok(port @ 1..) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(port),
        _ => Err("invalid port"),
    }
}

/// Whether it names a unix socket, in letters of any case.
pub(super) fn is_unix(host: &[u8]) -> bool {
    host.get(..UNIX.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(UNIX.as_bytes()))
}

const UNIX: &str = "unix:";
/// Of `sun_path`, the NUL after it included.
const LONGEST_PATH: usize = 108;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_from_addresses_and_ports() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let local6 = IpAddr::from(Ipv6Addr::LOCALHOST);
        for (text, wanted) in [
            ("127.0.0.1", PeerHost::Address(local, None)),
            ("127.0.0.1:80", PeerHost::Address(local, Some(80))),
            ("::1", PeerHost::Address(local6, None)),
            ("[::1]", PeerHost::Address(local6, None)),
            ("[::1]:65535", PeerHost::Address(local6, Some(65535))),
            ("localhost", PeerHost::Name("localhost", None)),
            ("localhost:8080", PeerHost::Name("localhost", Some(8080))),
            ("1:2", PeerHost::Name("1", Some(2))),
            ("unix:a", PeerHost::Unix("a")),
            ("Unix:/tmp/x:80", PeerHost::Unix("/tmp/x:80")),
        ] {
            assert_eq!(parse(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_in_nginxs_words() {
        let long = format!("unix:{}", "x".repeat(108));
        for (text, wrong) in [
            ("", "no host"),
            (":80", "no host"),
            ("a:", "invalid port"),
            ("a:0", "invalid port"),
            ("a:65536", "invalid port"),
            ("a:+1", "invalid port"),
            ("1:2:3", "invalid port"),
            ("a/b", "invalid host"),
            ("a:80/b", "invalid host"),
            ("a?b", "invalid host"),
            ("[::1", "invalid host"),
            ("[::1]80", "invalid host"),
            ("[127.0.0.1]", "invalid IPv6 address"),
            ("[]", "invalid IPv6 address"),
            ("unix:", "no path in the unix domain socket"),
            (&long, "too long path in the unix domain socket"),
        ] {
            assert_eq!(parse(text), Err(wrong), "{text}");
        }
    }
}
