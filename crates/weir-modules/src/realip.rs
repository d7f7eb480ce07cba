//! `realip`: behind trusted proxies the client's address is what a request field or the PROXY protocol says.
//!
//! It runs first of all, and once more before the access checks where the location has settings of its own; an
//! address that was replaced stays for the rest of the request.

use std::net::{IpAddr, Ipv6Addr, ToSocketAddrs};

use weir_conf::names::{ANY, FLAG, ONE};
use weir_conf::{Directive, LineCx, Result};
use weir_core::plan::{Level, PlanBuilder};
use weir_core::variable::Variable;
use weir_core::{Exchange, Handler, Module, Phase, Text, Verdict, inherit};
use weir_http::Known;
use weir_rt::net::SockAddr;

use crate::cidr::Cidr;

/// The module.
pub struct Realip;

impl Module for Realip {
    const NAME: &'static str = "realip";
    type Conf = RealipConf;
    const DIRECTIVES: &'static [Directive<RealipConf>] = &[
        Directive::new("set_real_ip_from", ANY, ONE, RealipConf::add_proxy)
            .doc("A trusted proxy: an address, a network, a host name or unix:."),
        Directive::new("real_ip_header", ANY, ONE, RealipConf::set_header)
            .doc("The request field with the client's address, or proxy_protocol; X-Real-IP."),
        Directive::<RealipConf>::new("real_ip_recursive", ANY, FLAG, |c, line| line.flag(&mut c.recursive))
            .doc("Takes the last address that is not a trusted proxy's, instead of the last one; off."),
    ];
    const VARIABLES: &'static [Variable] =
        &[Variable::new("realip_remote_addr", remote_addr), Variable::new("realip_remote_port", remote_port)];

    fn inherit(conf: &mut RealipConf, parent: &RealipConf) {
        inherit!(conf, parent, proxies, source, recursive);
    }

    fn install(conf: &RealipConf, plan: &mut PlanBuilder<'_>) -> Result {
        let Some(proxies) = &conf.proxies else { return Ok(()) };
        let source = conf.source.clone().unwrap_or(Source::XRealIp);
        let recursive = conf.recursive == Some(true);
        let replace = || Replace {
            trust: Trust { proxies: proxies.as_slice().into(), recursive },
            source: source.clone(),
        };
        if plan.level == Level::Server {
            plan.handler(Phase::PostRead, Self::NAME, replace());
        }
        plan.handler(Phase::Preaccess, Self::NAME, replace());
        Ok(())
    }
}

/// The module's settings of one block.
#[derive(Default)]
pub struct RealipConf {
    proxies: Option<Vec<Cidr>>,
    source: Option<Source>,
    recursive: Option<bool>,
}

/// Who says what the client's address is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// The field X-Real-IP.
    XRealIp,
    /// All fields X-Forwarded-For, from the last to the first.
    XForwardedFor,
    /// The PROXY protocol header of the connection; its port as well.
    ProxyProtocol,
    /// The first field of this name, which is in lower case.
    Field(Box<[u8]>),
}

impl RealipConf {
    fn add_proxy(&mut self, line: &mut LineCx<'_>) -> Result {
        let found = match Cidr::argument(line, 0) {
            Some(cidr) => vec![cidr],
            None => resolve(line)?,
        };
        self.proxies.get_or_insert_default().extend(found);
        Ok(())
    }

    fn set_header(&mut self, line: &mut LineCx<'_>) -> Result {
        let source = match line.bytes(0) {
            b"X-Real-IP" => Source::XRealIp,
            b"X-Forwarded-For" => Source::XForwardedFor,
            b"proxy_protocol" => Source::ProxyProtocol,
            name => Source::Field(name.to_ascii_lowercase().into()),
        };
        line.once(&mut self.source, source)
    }
}

/// The addresses of a host name, asked for while the configuration is read.
fn resolve(line: &mut LineCx<'_>) -> Result<Vec<Cidr>> {
    let name = line.arg(0);
    let found = (name, 0).to_socket_addrs().map(|addrs| addrs.map(|addr| Cidr::host(addr.ip())).collect());
    match found {
        Ok(addrs) => Ok(addrs),
        Err(_) => Err(line.fail_arg(0, format!("host not found in set_real_ip_from \"{name}\""))),
    }
}

struct Replace {
    trust: Trust,
    source: Source,
}

impl Handler for Replace {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        if x.client.is_none() {
            x.client = self.client(x);
        }
        Verdict::Declined
    }
}

impl Replace {
    /// The client's address; `None` where the connection's stays.
    fn client(&self, x: &Exchange) -> Option<SockAddr> {
        let peer = &x.connection.peer;
        let fields = x.request.fields.iter();
        match &self.source {
            Source::XRealIp => {
                let mut named =
                    fields.filter(|field| x.arena.get(field.name).eq_ignore_ascii_case(b"x-real-ip"));
                self.trust.one(peer, x.arena.get(named.next()?.value))
            }
            Source::Field(name) => {
                let mut named = fields.filter(|field| x.arena.get(field.name).eq_ignore_ascii_case(name));
                self.trust.one(peer, x.arena.get(named.next()?.value))
            }
            Source::XForwardedFor => {
                let named = fields.rev().filter(|field| field.known == Known::XForwardedFor);
                self.trust.many(peer, named.map(|field| x.arena.get(field.value)))
            }
            Source::ProxyProtocol => {
                let source = &x.connection.proxied.get()?.source;
                let trusted = self.trust.is_proxy(peer);
                trusted.then(|| source.clone())
            }
        }
    }
}

/// Whom to believe.
struct Trust {
    proxies: Box<[Cidr]>,
    recursive: bool,
}

/// How reading one field ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Nothing was taken from it.
    Nothing,
    /// This is the address; fields before it do not count.
    Found(SockAddr),
    /// The whole field was used up, down to this address: fields before it count if it is a proxy's.
    Used(SockAddr),
}

impl Trust {
    fn is_proxy(&self, addr: &SockAddr) -> bool {
        self.proxies.iter().any(|proxy| proxy.contains(addr))
    }

    /// The address that a single field gives.
    fn one(&self, peer: &SockAddr, value: &[u8]) -> Option<SockAddr> {
        match self.read(peer, value) {
            End::Nothing => None,
            End::Found(addr) | End::Used(addr) => Some(addr),
        }
    }

    /// The address that several fields give, the last of them first.
    fn many<'a>(&self, peer: &SockAddr, values: impl Iterator<Item = &'a [u8]>) -> Option<SockAddr> {
        let mut found: Option<SockAddr> = None;
        for value in values {
            match self.read(found.as_ref().unwrap_or(peer), value) {
                End::Nothing => break,
                End::Found(addr) => return Some(addr),
                End::Used(addr) => found = Some(addr),
            }
            if !self.recursive {
                break;
            }
        }
        found
    }

    /// Reads the list in `value` from its end, as `peer` sent it: each address counts that a proxy told.
    fn read(&self, peer: &SockAddr, value: &[u8]) -> End {
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
                return found.map_or(End::Nothing, End::Used);
            }
        }
        found.map_or(End::Nothing, End::Found)
    }
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn parse(text: &[u8]) -> Option<SockAddr> {
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

/// `$realip_remote_addr`: the connection's own address, whatever was put in its place.
fn remote_addr(x: &mut Exchange) -> Option<Text> {
    let text = x.connection.peer.host().to_string();
    Some(Text::Span(x.arena.push(text.as_bytes())))
}

/// `$realip_remote_port`; empty for a unix socket.
fn remote_port(x: &mut Exchange) -> Option<Text> {
    let port = x.connection.peer.port().filter(|port| *port > 0);
    let text = port.map_or(String::new(), |port| port.to_string());
    Some(Text::Span(x.arena.push(text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trust(proxies: &[&str], recursive: bool) -> Trust {
        let cidr = |text: &&str| Cidr::parse(text.as_bytes()).expect("a network").0;
        Trust { proxies: proxies.iter().map(cidr).collect(), recursive }
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
