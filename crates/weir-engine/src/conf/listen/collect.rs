//! The addresses of all servers together.

use weir_conf::{ConfSource, Contexts, Error, Span};
use weir_rt::net::SockAddr;

use super::{ListenLine, names};
use crate::conf::http_core::HttpCoreConf;
use crate::conf::server_core::ServerCoreConf;
use crate::conf::{Configuration, ServerConf};
use crate::module::{ModuleDef, SectionContexts};
use crate::settings::listen::{ListenAddress, SocketKey};

/// The addresses that the `servers` of the section `here` listen on, in the order of their first mention, and what is wrong
/// with them; warnings are among it. `source` is what they were read from.
pub(crate) fn collect(
    servers: &[ServerConf],
    here: SectionContexts,
    source: &ConfSource,
    modules: &[&ModuleDef],
) -> (Vec<ListenAddress>, Vec<Error>) {
    let stream = here.section == Contexts::STREAM;
    let confs: Vec<&ServerCoreConf> = servers.iter().map(|server| server.confs.get()).collect();
    let mut collector = ListenCollector::default();
    for (index, conf) in confs.iter().enumerate() {
        if !conf.listening && stream {
            let message = "no \"listen\" is defined for server";
            collector.errors.push(at_line(Error::new(message), conf.span));
        } else if !conf.listening {
            collector.line(index, &ListenLine { span: conf.span, ..ListenLine::implied() });
        }
        for listen in &conf.listens {
            collector.line(index, listen);
        }
    }
    let ListenCollector { mut entries, mut errors, .. } = collector;
    share_sockets(&mut entries);
    let mut addresses: Vec<ListenAddress> = entries.into_iter().map(|entry| entry.address).collect();
    for address in &mut addresses {
        // Set once on the listener instead of on each connection: before a request there is only the default server.
        let default = servers[address.default].confs.get::<HttpCoreConf>();
        address.options.nodelay = default.tcp_nodelay.unwrap_or(true);
        address.stream = stream;
        names::check(address, &confs, &mut errors);
    }
    for check in modules.iter().filter_map(|module| module.hooks.check_addresses) {
        errors.extend(check(&addresses, servers, source));
    }
    (addresses, errors)
}

/// Adds the addresses of `section` to those of the configuration around, and says which of them both have: sections do not share
/// sockets.
pub(crate) fn join(configuration: &mut Configuration, section: &mut Configuration) -> Vec<Error> {
    let before = configuration.addresses.len();
    let mut errors = Vec::new();
    for address in &section.addresses {
        let both = configuration.addresses[..before].iter().any(|known| known.key() == address.key());
        if both {
            let span = section.servers()[address.default].confs.get::<ServerCoreConf>().span;
            let message = format!("{} is listened on in \"http\" and in \"stream\"", address.addr);
            errors.push(at_line(Error::new(message), span));
        }
        let wildcard_of = address.wildcard_of.map(|at| at + before);
        configuration.addresses.push(ListenAddress { wildcard_of, ..address.clone() });
    }
    errors
}

#[derive(Default)]
struct ListenCollector {
    entries: Vec<ListenEntry>,
    index: std::collections::HashMap<SocketKey, usize>,
    errors: Vec<Error>,
}

/// An address being put together.
struct ListenEntry {
    address: ListenAddress,
    /// A line said `default_server`.
    has_default: bool,
    /// A line set the socket's options.
    bind: bool,
    protocols: LineProtocols,
    /// The protocols a line without all of them has, and whether that was warned about; see
    /// [`ProtocolAgreement::note`].
    agreed: ProtocolAgreement,
}

impl ListenCollector {
    fn line(&mut self, server: usize, listen: &ListenLine) {
        for addr in &listen.addrs {
            let key = (addr.clone(), listen.options.udp);
            match self.index.get(&key) {
                Some(&at) => self.again(at, server, listen),
                None => {
                    self.index.insert(key, self.entries.len());
                    self.entries.push(ListenEntry::new(addr, server, listen));
                }
            }
        }
    }

    /// An address that was mentioned before.
    fn again(&mut self, at: usize, server: usize, listen: &ListenLine) {
        let ListenEntry { address, has_default, bind, protocols, agreed } = &mut self.entries[at];
        let problem = |text: &str| format!("{text} {}", address.addr);
        // Servers come in their order.
        if address.servers.last() == Some(&server) {
            return self.errors.push(at_line(Error::new(problem("a duplicate listen")), listen.span));
        }
        if listen.bind && *bind {
            return self
                .errors
                .push(at_line(Error::new(problem("duplicate listen options for")), listen.span));
        }
        if listen.default_server && *has_default {
            return self
                .errors
                .push(at_line(Error::new(problem("a duplicate default server for")), listen.span));
        }
        let line = LineTerms { protocols: LineProtocols::of(listen), binds: listen.bind };
        if !agreed.note(line, LineTerms { protocols: *protocols, binds: *bind }) {
            let warning = Error::warning(problem("protocol options redefined for"));
            self.errors.push(at_line(warning, listen.span));
        }
        if listen.bind {
            address.options = listen.options.clone();
            *bind = true;
        }
        if listen.default_server {
            address.default = server;
            *has_default = true;
        }
        *protocols = protocols.with(LineProtocols::of(listen));
        address.proxy_protocol |= listen.proxy_protocol;
        address.ssl |= listen.ssl;
        address.http2 |= listen.http2;
        // Of its own key: all lines of the address have it, or none.
        address.quic = listen.quic;
        address.servers.push(server);
    }
}

impl ListenEntry {
    fn new(addr: &SockAddr, server: usize, listen: &ListenLine) -> ListenEntry {
        let address = ListenAddress {
            addr: addr.clone(),
            options: listen.options.clone(),
            stream: false,
            servers: vec![server],
            default: server,
            proxy_protocol: listen.proxy_protocol,
            ssl: listen.ssl,
            http2: listen.http2,
            quic: listen.quic,
            wildcard_of: None,
        };
        ListenEntry {
            address,
            has_default: listen.default_server,
            bind: listen.bind,
            protocols: LineProtocols::of(listen),
            agreed: ProtocolAgreement::default(),
        }
    }
}

fn at_line(error: Error, span: Option<Span>) -> Error {
    Error { span, ..error }
}

/// An address without options of its own is served by the socket of the wildcard of its family and port.
fn share_sockets(entries: &mut [ListenEntry]) {
    let wildcards: Vec<(usize, SocketKey)> = entries
        .iter()
        .map(|entry| &entry.address)
        .enumerate()
        .filter(|(_, address)| address.addr.is_wildcard())
        .map(|(at, address)| (at, address.key()))
        .collect();
    for entry in entries.iter_mut().filter(|entry| !entry.bind && !entry.address.addr.is_wildcard()) {
        let address = &entry.address;
        let same = |(wildcard, udp): &SocketKey| {
            wildcard.is_wildcard_of(&address.addr) && *udp == address.options.udp
        };
        let found = wildcards.iter().find(|(_, wildcard)| same(wildcard)).map(|(at, _)| *at);
        entry.address.wildcard_of = found;
    }
}

/// The protocols of a line: what every connection to an address has in common.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct LineProtocols(u8);

impl LineProtocols {
    fn of(listen: &ListenLine) -> LineProtocols {
        LineProtocols(
            u8::from(listen.proxy_protocol) | u8::from(listen.ssl) << 1 | u8::from(listen.http2) << 2,
        )
    }

    fn with(self, other: LineProtocols) -> LineProtocols {
        LineProtocols(self.0 | other.0)
    }

    fn has(self, other: LineProtocols) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What of a line, or of those before it, is compared.
#[derive(Clone, Copy)]
struct LineTerms {
    protocols: LineProtocols,
    /// It sets the socket's options.
    binds: bool,
}

/// Whether the lines of an address agree on its protocols: one may name them and the others leave them out, but then
/// all others.
#[derive(Default)]
struct ProtocolAgreement {
    /// What lines that leave protocols out have, once there was one to compare.
    others: Option<LineProtocols>,
    changed: bool,
}

impl ProtocolAgreement {
    /// Takes a line to an address that has had another; `false` where nginx warns. The line that sets the socket's
    /// options should be the one that names protocols.
    fn note(&mut self, line: LineTerms, before: LineTerms) -> bool {
        let LineTerms { protocols: new, binds: set } = line;
        let LineTerms { protocols: before, binds: was_set } = before;
        if !before.has(new) {
            let agrees = (set || !was_set) && !self.changed && new.has(before);
            (self.others, self.changed) = (Some(before), true);
            return agrees;
        }
        let differs = self.others.is_some_and(|others| others != new);
        let agrees = if new == before { !(set && self.changed || differs) } else { !(set || differs) };
        self.changed |= new != before;
        self.others = Some(new);
        agrees
    }
}
