//! Addresses that trusted proxies report: lists in fields such as X-Forwarded-For, read from their end.

use std::net::{IpAddr, Ipv6Addr};

use weir_rt::net::SockAddr;

use weir_engine::cidr::Cidr;

/// Whom to believe.
pub(crate) struct ProxyTrust {
    proxies: Box<[Cidr]>,
    recursive: bool,
}

/// How reading one field ended.
#[derive(Debug, PartialEq, Eq)]
enum FieldEnd {
    /// Nothing was taken from it.
    Nothing,
    /// This is the address; fields before it do not count.
    Found(SockAddr),
    /// The whole field was used up, down to this address: fields before it count if it is a proxy's.
    Used(SockAddr),
}

impl ProxyTrust {
    /// Believes these proxies.
    pub(crate) fn new(proxies: &[Cidr], recursive: bool) -> ProxyTrust {
        ProxyTrust { proxies: proxies.into(), recursive }
    }

    pub(crate) fn is_proxy(&self, addr: &SockAddr) -> bool {
        self.proxies.iter().any(|proxy| proxy.contains(addr))
    }

    /// The address that a single field gives.
    pub(crate) fn one(&self, peer: &SockAddr, value: &[u8]) -> Option<SockAddr> {
        match self.read(peer, value) {
            FieldEnd::Nothing => None,
            FieldEnd::Found(addr) | FieldEnd::Used(addr) => Some(addr),
        }
    }

    /// The address that several fields give, the last of them first.
    pub(crate) fn many<'a>(
        &self,
        peer: &SockAddr,
        values: impl Iterator<Item = &'a [u8]>,
    ) -> Option<SockAddr> {
        let mut found: Option<SockAddr> = None;
        for value in values {
            match self.read(found.as_ref().unwrap_or(peer), value) {
                FieldEnd::Nothing => break,
                FieldEnd::Found(addr) => return Some(addr),
                FieldEnd::Used(addr) => found = Some(addr),
            }
            if !self.recursive {
                break;
            }
        }
        found
    }

    /// Reads the list in `value` from its end, as `peer` sent it: each address counts that a trusted proxy gave.
    fn read(&self, peer: &SockAddr, value: &[u8]) -> FieldEnd {
        let separator = |byte: &u8| matches!(byte, b' ' | b',');
        let mut rest = value;
        let mut found: Option<SockAddr> = None;
        loop {
            if !self.is_proxy(found.as_ref().unwrap_or(peer)) {
                break;
            }
            let end = rest.iter().rposition(|byte| !separator(byte)).map_or(0, |last| last + 1);
            let start = rest[..end].iter().rposition(separator).map_or(0, |before| before + 1);
            match parse(&rest[start..end]) {
                Some(addr) => found = Some(addr),
                None => break,
            }
            rest = &rest[..start];
            if !self.recursive || rest.is_empty() {
                return found.map_or(FieldEnd::Nothing, FieldEnd::Used);
            }
        }
        found.map_or(FieldEnd::Nothing, FieldEnd::Found)
    }
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
pub(crate) fn parse(text: &[u8]) -> Option<SockAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(SockAddr::from((ip, 0)));
    }
    let (ip, port) = match text.strip_prefix('[') {
        Some(inner) => {
            let (ip, port) = inner.split_once("]:")?;
            (IpAddr::V6(ip.parse::<Ipv6Addr>().ok()?), port)
        }
        None => {
            let (ip, port) = text.split_once(':')?;
            (IpAddr::V4(ip.parse().ok()?), port)
        }
    };
    let port = weir_conf::parse_number(port.as_bytes()).and_then(|port| u16::try_from(port).ok())?;
    (port > 0).then(|| SockAddr::from((ip, port)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trust(proxies: &[&str], recursive: bool) -> ProxyTrust {
        let cidr = |text: &&str| Cidr::parse(text.as_bytes()).expect("a network").0;
        ProxyTrust { proxies: proxies.iter().map(cidr).collect(), recursive }
    }

    fn peer() -> SockAddr {
        parse(b"10.0.0.1:1").expect("an address")
    }

    fn shown(addr: Option<SockAddr>) -> String {
        addr.map_or("-".to_owned(), |addr| addr.to_string())
    }

    #[test]
    fn one_field_gives_its_last_address_or_the_last_that_no_proxy_has() {
        for (value, last, recursive) in [
            ("192.0.2.1", "192.0.2.1:0", "192.0.2.1:0"),
            ("192.0.2.1:80", "192.0.2.1:80", "192.0.2.1:80"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80", "[2001:db8::1]:80"),
            ("2001:db8::1", "[2001:db8::1]:0", "[2001:db8::1]:0"),
            ("192.0.2.1, 10.0.0.2", "10.0.0.2:0", "192.0.2.1:0"),
            ("192.0.2.1,10.0.0.2 ,, ", "10.0.0.2:0", "192.0.2.1:0"),
            ("198.51.100.1, 192.0.2.1, 10.0.0.2", "10.0.0.2:0", "192.0.2.1:0"),
            ("10.0.0.3, 10.0.0.2", "10.0.0.2:0", "10.0.0.3:0"),
            ("bad, 10.0.0.2", "10.0.0.2:0", "10.0.0.2:0"),
            ("192.0.2.1, bad", "-", "-"),
            ("192.0.2.1:0", "-", "-"),
            ("[::1]", "-", "-"),
            ("unix:", "-", "-"),
            ("", "-", "-"),
        ] {
            let found = trust(&["10.0.0.0/8"], false).one(&peer(), value.as_bytes());
            assert_eq!(shown(found), last, "{value}");
            let found = trust(&["10.0.0.0/8"], true).one(&peer(), value.as_bytes());
            assert_eq!(shown(found), recursive, "{value}");
        }
    }

    #[test]
    fn nobody_else_is_believed() {
        let found = trust(&["10.0.0.2", "unix:"], true).one(&peer(), b"192.0.2.1");
        assert_eq!(found, None);
    }

    #[test]
    fn several_fields_are_read_from_the_last() {
        let many = |values: &[&str], recursive| {
            let values = values.iter().rev().map(|value| value.as_bytes());
            shown(trust(&["10.0.0.0/8"], recursive).many(&peer(), values))
        };
        assert_eq!(many(&["192.0.2.1", "10.0.0.2"], true), "192.0.2.1:0");
        assert_eq!(many(&["192.0.2.1", "10.0.0.2"], false), "10.0.0.2:0");
        assert_eq!(many(&["192.0.2.1", "192.0.2.2, 10.0.0.2"], true), "192.0.2.2:0");
        assert_eq!(many(&["192.0.2.1", "bad"], true), "-");
        assert_eq!(many(&["bad", "10.0.0.2"], true), "10.0.0.2:0");
        assert_eq!(many(&[], true), "-");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(value in proptest::collection::vec(any::<u8>(), 0..40), list in "[0-9.:, \\[\\]]{0,40}") {
            trust(&["0.0.0.0/0", "::/0"], true).one(&peer(), &value);
            trust(&["0.0.0.0/0", "::/0"], true).one(&peer(), list.as_bytes());
        }
    }
}
