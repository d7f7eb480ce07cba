//! `realip`: takes the client's address from a request field or the PROXY protocol header if the connection comes
//! from a trusted proxy (nginx's `ngx_http_realip_module`).
//!
//! It runs first of all handlers, and once more before the access checks where the location has settings of its own.
//! A replaced address stays for the rest of the request.

use weir_conf::names::{ANY, ANY_OR_STREAM, FLAG, ONE};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::plan::{PlanBuilder, PlanLevel};
use weir_engine::privileged;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::variable::Variable;
use weir_engine::{Exchange, Handler, Module, Phase, Text, Verdict, inherit};
use weir_http::KnownField;
use weir_rt::net::SockAddr;

use crate::support::forwarded::ProxyTrust;
use weir_engine::cidr::Cidr;

/// The module `realip`.
pub struct Realip;

impl Module for Realip {
    const NAME: &'static str = "realip";
    type Conf = RealipConf;
    const DIRECTIVES: &'static [Directive<RealipConf>] = &[
        Directive::new("set_real_ip_from", ANY_OR_STREAM, ONE, RealipConf::add_proxy)
            .syntax("set_real_ip_from address | CIDR | hostname | unix:")
            .doc(
                "Trusted proxy, whose requests state the client address in `real_ip_header`: \
                 an address, a network, a host name (resolved when the configuration is read) \
                 or all UNIX-domain sockets.",
            )
            .example(
                "set_real_ip_from 10.0.0.0/8;\n\
                 real_ip_header X-Forwarded-For;\n\
                 real_ip_recursive on;",
            ),
        Directive::new("real_ip_header", ANY, ONE, RealipConf::set_header)
            .syntax("real_ip_header field | X-Real-IP | X-Forwarded-For | proxy_protocol")
            .default("X-Real-IP")
            .doc(
                "Request header field that states the client address, or `proxy_protocol` for \
                 the address of the PROXY protocol header.",
            ),
        Directive::<RealipConf>::new("real_ip_recursive", ANY, FLAG, |c, line| line.flag(&mut c.recursive))
            .syntax("real_ip_recursive on | off")
            .default("off")
            .doc(
                "Replaces the client address by the last address in the field that is not a \
                 trusted proxy, instead of by the last one.",
            ),
    ];
    const VARIABLES: &'static [Variable] =
        &[Variable::new("realip_remote_addr", remote_addr), Variable::new("realip_remote_port", remote_port)];

    fn inherit(conf: &mut RealipConf, parent: &RealipConf) {
        inherit!(conf, parent, proxies, source, recursive);
    }

    fn install(conf: &RealipConf, plan: &mut PlanBuilder<'_>) {
        let Some(proxies) = &conf.proxies else { return };
        let source = match plan.level {
            // Nothing else states it before the first byte.
            PlanLevel::Session => AddressSource::ProxyProtocol,
            _ => conf.source.clone().unwrap_or(AddressSource::XRealIp),
        };
        let recursive = conf.recursive == Some(true);
        let replace =
            || AddressReplacer { trust: ProxyTrust::new(proxies, recursive), source: source.clone() };
        if matches!(plan.level, PlanLevel::Server | PlanLevel::Session) {
            plan.handler(Phase::PostRead, Self::NAME, replace());
        }
        if plan.level != PlanLevel::Session {
            plan.handler(Phase::Preaccess, Self::NAME, replace());
        }
    }
}

/// The module's settings of one block.
#[derive(Default)]
pub struct RealipConf {
    proxies: Option<Vec<Cidr>>,
    source: Option<AddressSource>,
    recursive: Option<bool>,
}

/// Where the client's address is taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AddressSource {
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
            b"X-Real-IP" => AddressSource::XRealIp,
            b"X-Forwarded-For" => AddressSource::XForwardedFor,
            b"proxy_protocol" => AddressSource::ProxyProtocol,
            name => AddressSource::Field(name.to_ascii_lowercase().into()),
        };
        line.once(&mut self.source, source)
    }
}

/// The addresses of a host name, asked for while the configuration is read.
fn resolve(line: &mut LineCx<'_>) -> Result<Vec<Cidr>> {
    let name = line.arg(0);
    match privileged::look_up(name, 0) {
        Ok(found) => Ok(found.iter().map(|address| Cidr::host(address.ip())).collect()),
        Err(_) => Err(line.fail_arg(0, format!("host not found in set_real_ip_from \"{name}\""))),
    }
}

struct AddressReplacer {
    trust: ProxyTrust,
    source: AddressSource,
}

impl Handler for AddressReplacer {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        if x.client.is_none() {
            x.client = self.client(x);
        }
        Verdict::Declined
    }
}

impl AddressReplacer {
    /// The client's address; `None` where the connection's stays.
    fn client(&self, x: &Exchange) -> Option<SockAddr> {
        let peer = &x.connection.peer;
        let fields = x.request.head.fields.iter();
        match &self.source {
            AddressSource::XRealIp => {
                let mut named =
                    fields.filter(|field| x.arena.get(field.name).eq_ignore_ascii_case(b"x-real-ip"));
                self.trust.one(peer, x.arena.get(named.next()?.value))
            }
            AddressSource::Field(name) => {
                let mut named = fields.filter(|field| x.arena.get(field.name).eq_ignore_ascii_case(name));
                self.trust.one(peer, x.arena.get(named.next()?.value))
            }
            AddressSource::XForwardedFor => {
                let named = fields.rev().filter(|field| field.known == KnownField::XForwardedFor);
                self.trust.many(peer, named.map(|field| x.arena.get(field.value)))
            }
            AddressSource::ProxyProtocol => {
                let source = &x.connection.proxied.get()?.source;
                let trusted = self.trust.is_proxy(peer);
                trusted.then(|| source.clone())
            }
        }
    }
}

/// `$realip_remote_addr`: the connection's own address, whatever was put in its place.
fn remote_addr(x: &mut Exchange) -> Option<Text> {
    Some(Text::Span(x.push_peer()))
}

/// `$realip_remote_port`; empty for a unix socket.
fn remote_port(x: &mut Exchange) -> Option<Text> {
    let port = x.connection.peer.port().filter(|port| *port > 0);
    let text = port.map_or(String::new(), |port| port.to_string());
    Some(Text::Span(x.arena.push(text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use weir_engine::ModuleDef;
    use weir_engine::testing::value;

    use super::*;
    use crate::testing::{WITH_ONE, asked, decided, whole_core_and};

    static WHOLE: [ModuleDef; WITH_ONE] = whole_core_and::<Realip>();

    /// The client's address of a request of 192.0.2.1 with these fields.
    fn client(http: &str, fields: &str) -> String {
        asked(&WHOLE, http, ("/", fields), |x| {
            assert_eq!(decided(x, Phase::Preaccess), "Declined");
            assert_eq!(value(x, "realip_remote_addr").as_deref(), Some("192.0.2.1"));
            assert_eq!(value(x, "realip_remote_port").as_deref(), Some("54321"));
            value(x, "remote_addr").expect("the client has an address")
        })
    }

    #[test]
    fn only_a_trusted_proxy_says_whose_request_it_is() {
        let (real, custom) =
            ("X-Real-IP: 203.0.113.5\r\n", "x-client: 203.0.113.6\r\nX-Client: 203.0.113.7\r\n");
        let list = "X-Forwarded-For: 203.0.113.8\r\nX-Forwarded-For: 203.0.113.9, 192.0.2.2\r\n";
        let fields = format!("{real}{custom}{list}");
        for (lines, found) in [
            ("set_real_ip_from 192.0.2.0/24;", "203.0.113.5"),
            ("set_real_ip_from 10.0.0.0/8;", "192.0.2.1"),
            ("set_real_ip_from unix:;", "192.0.2.1"),
            ("set_real_ip_from 10.0.0.0/8; set_real_ip_from 192.0.2.1;", "203.0.113.5"),
            ("set_real_ip_from 192.0.2.0/24; real_ip_header X-Real-IP;", "203.0.113.5"),
            ("set_real_ip_from 192.0.2.0/24; real_ip_header X-CLIENT;", "203.0.113.6"),
            ("set_real_ip_from 10.0.0.0/8; real_ip_header X-Client;", "192.0.2.1"),
            ("set_real_ip_from 192.0.2.0/24; real_ip_header X-Absent;", "192.0.2.1"),
            ("set_real_ip_from 192.0.2.0/24; real_ip_header X-Forwarded-For;", "192.0.2.2"),
            (
                "set_real_ip_from 192.0.2.0/24; real_ip_header X-Forwarded-For; real_ip_recursive on;",
                "203.0.113.9",
            ),
            (
                "set_real_ip_from 192.0.2.1; real_ip_header X-Forwarded-For; real_ip_recursive on;",
                "192.0.2.2",
            ),
            ("set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For;", "192.0.2.1"),
            ("set_real_ip_from 192.0.2.0/24; real_ip_header proxy_protocol;", "192.0.2.1"),
            ("real_ip_header X-Real-IP;", "192.0.2.1"),
        ] {
            for http in [format!("server {{ {lines} }}"), format!("{lines} server {{ location / {{ }} }}")] {
                assert_eq!(client(&http, &fields), found, "{http}");
            }
        }
    }

    #[test]
    fn an_address_that_was_replaced_stays() {
        let http = "server { set_real_ip_from 0.0.0.0/0; }";
        asked(&WHOLE, http, ("/", "X-Real-IP: 203.0.113.5\r\n"), |x| {
            decided(x, Phase::Preaccess);
            x.client = Some(SockAddr::from((std::net::IpAddr::from([203, 0, 113, 9]), 0)));
            decided(x, Phase::Preaccess);
            assert_eq!(value(x, "remote_addr").as_deref(), Some("203.0.113.9"));
        });
    }
}
