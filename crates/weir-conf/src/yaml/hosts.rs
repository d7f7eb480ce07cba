//! The file, its hosts and their paths to `events`, `http` and `server` blocks.

use std::cell::RefCell;
use std::collections::HashSet;

use super::fastcgi::UNLIMITED;
use super::handlers;
use super::keys;
use super::level::{KeyLevel, LevelLines, block, line, share, short};
use super::listen::ListenKey;
use super::node::{DOLLAR, YamlNode};
use super::responses::compress_usual;
use super::trace_names;
use crate::{DirectiveLine, Error, Errors, Span};

/// The lines that the document `root` is translated to.
pub(super) fn translate(root: &YamlNode, has_ipv6: bool, errors: &mut Errors) -> Vec<DirectiveLine> {
    let mut global = LevelLines::default();
    keys::read(root, KeyLevel::Global, &mut global, errors);
    let start = root.span;
    if global.hosts.is_none() && errors.is_ok() {
        errors.push(Error::new("\"hosts\" is missing").at(start));
    }
    let mut http = usual(&mut global, start);
    http.append(&mut global.lines);
    http.extend(global.inherited.logs.iter().cloned());
    let pairs = global.hosts.map_or(&[][..], |hosts| keys::entries(hosts, errors));
    let mut hosts: Vec<HostKey<'_>> =
        pairs.iter().map(|(key, value)| HostKey::read(&global, key, value, errors)).collect();
    let mut shared = std::mem::take(&mut global.shared);
    let listeners = Listeners { global: &global, has_ipv6, described: RefCell::default() };
    let mut servers = Vec::new();
    for at in 0..hosts.len() {
        servers.extend(listeners.servers(&mut hosts, at, &mut shared, errors));
    }
    servers.extend(listeners.refusals(&hosts));
    // Variables of the environment are known to every server, also where no level sets them.
    let (mut variables, shared): (Vec<_>, Vec<_>) = shared.into_iter().partition(|line| line.name.is("set"));
    let named = variables.first().map(|line| trace_names::of_environment(line.span));
    variables.extend(named);
    for server in &mut servers {
        let lines = server.block.as_mut().map(|block| &mut block.lines);
        lines.into_iter().for_each(|lines| lines.splice(0..0, variables.iter().cloned()).for_each(drop));
    }
    http.splice(0..0, shared);
    http.extend(servers);
    let mut lines = std::mem::take(&mut global.main);
    let connections = global.limits.connections.map(|(most, span)| {
        let each = most.div_ceil(global.limits.threads.max(1)).to_string();
        line("worker_connections", span, &[(&each, span)])
    });
    global.events.extend(connections);
    lines.push(block("events", start, &[], std::mem::take(&mut global.events)));
    lines.push(block("http", start, &[], http));
    lines
}

/// What H2O does where nothing is said, and nginx does otherwise.
fn usual(global: &mut LevelLines<'_>, at: Span) -> Vec<DirectiveLine> {
    let name = format!("${DOLLAR}");
    let mut lines = vec![block("geo", at, &[(&name, at)], vec![short("default", at, &["$"])])];
    lines.extend(global.inherited.files.types.lines(Some(at)));
    lines.extend(compress_usual(at));
    lines.retain(|line| !global.lines.iter().any(|own| own.name.bytes() == line.name.bytes()));
    if global.limits.refuses_upgrade {
        lines.push(short("http2_upgrade", at, &["off"]));
    }
    let idle = global.limits.idle.unwrap_or((10, at));
    lines.push(short("keepalive_timeout", idle.1, &[&format!("{}s", idle.0)]));
    for (name, value) in USUAL {
        if !global.lines.iter().any(|line| line.name.is(name)) {
            lines.push(short(name, at, value));
        }
    }
    lines.extend(trace_names::everywhere(at));
    if global.inherited.logs.is_empty() {
        lines.push(short("access_log", at, &["off"]));
    }
    lines
}

const USUAL: &[(&str, &[&str])] = &[
    ("http2", &["on"]),
    ("http2_reprioritize_blocking_assets", &["on"]),
    ("keepalive_requests", &[UNLIMITED]),
    ("keepalive_time", &["3650d"]),
    ("client_max_body_size", &["1g"]),
    // The window of a connection bounds what all of its streams may send ahead.
    ("http2_body_preread_size", &["16m"]),
    // H2O takes heads of 417,792 bytes.
    ("large_client_header_buffers", &["4", "102k"]),
    ("client_header_timeout", &["10s"]),
    ("client_body_timeout", &["5s"]),
    ("index", &["index.html", "index.htm", "index.txt"]),
    ("text_error_pages", &["on"]),
    ("compress_hint", &["on"]),
    ("file_lookup_first", &["on"]),
    ("autoindex_format", &["links"]),
    ("absolute_redirect", &["off"]),
    ("merge_slashes", &["off"]),
    ("underscores_in_headers", &["on"]),
    ("log_not_found", &["off"]),
    ("sendfile", &["on"]),
];

/// A host of the file.
struct HostKey<'n> {
    key: &'n YamlNode,
    /// `server_name`; `_` for `*`.
    name: String,
    port: Option<u16>,
    level: LevelLines<'n>,
    /// The lines of its servers, after names and addresses.
    lines: Vec<DirectiveLine>,
}

impl<'n> HostKey<'n> {
    fn read(
        global: &LevelLines<'n>,
        key: &'n YamlNode,
        value: &'n YamlNode,
        errors: &mut Errors,
    ) -> HostKey<'n> {
        let mut level = global.inner();
        let inherited = level.inherited.logs.len();
        keys::read(value, KeyLevel::Host, &mut level, errors);
        let text = key.text().unwrap_or_default();
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => (name, port.parse().ok()),
            _ => (text, None),
        };
        let name = if name == "*" { "_" } else { name }.to_owned();
        let mut lines = std::mem::take(&mut level.lines);
        if level.inherited.logs.len() > inherited {
            lines.extend(level.inherited.logs.iter().cloned());
        }
        let pages = handlers::documents(&level.inherited, false);
        lines.extend(errors.take(pages).unwrap_or_default());
        let documents = handlers::document_locations(&level.inherited, &mut level.shared);
        lines.extend(errors.take(documents).unwrap_or_default());
        let paths = level.paths.map_or(&[][..], |paths| keys::entries(paths, errors));
        for (key, value) in paths {
            let mut path = level.inner();
            let logs = path.inherited.logs.len();
            keys::read(value, KeyLevel::Path, &mut path, errors);
            let own = path.inherited.logs.len() > logs;
            path.shared.drain(..).for_each(|line| share(&mut level.shared, line));
            let types = path.inherited.files.types.lines(None);
            path.lines.extend(types);
            // Those of the levels around are there.
            let documents = handlers::document_locations(&path.inherited, &mut level.shared);
            let documents = errors.take(documents).unwrap_or_default();
            documents.into_iter().for_each(|block| share(&mut lines, block));
            let locations = handlers::locations(key, path, own, &mut level.shared);
            lines.extend(errors.take(locations).unwrap_or_default());
        }
        if !paths.iter().any(|(key, _)| key.text().is_ok_and(|path| path == "/")) {
            let nothing = vec![short("return", key.span, &["404"])];
            lines.push(block("location", key.span, &[("/", key.span)], nothing));
        }
        HostKey { key, name, port, level, lines }
    }
}

/// Which host responds at which address.
struct Listeners<'g, 'n> {
    global: &'g LevelLines<'n>,
    has_ipv6: bool,
    /// Addresses whose socket has its parameters by now: a second line must not repeat them.
    described: RefCell<HashSet<String>>,
}

impl Listeners<'_, '_> {
    /// The servers of the host number `at`: by its name, and where it responds to names that no host has.
    fn servers(
        &self,
        hosts: &mut [HostKey<'_>],
        at: usize,
        shared: &mut Vec<DirectiveLine>,
        errors: &mut Errors,
    ) -> Vec<DirectiveLine> {
        hosts[at].level.shared.drain(..).for_each(|line| share(shared, line));
        let host = &hosts[at];
        let (mut named, mut others): (Vec<&ListenKey>, Vec<&ListenKey>) = (Vec::new(), Vec::new());
        for listen in self.of(host) {
            let is_meant = host.port.is_none() || listen.port == host.port || listen.port.is_none();
            match (is_meant, self.default_host(hosts, listen) == Some(at)) {
                (true, _) => named.push(listen),
                (false, true) => others.push(listen),
                (false, false) => {}
            }
        }
        if named.is_empty() && others.is_empty() && self.of(host).next().is_none() && errors.is_ok() {
            errors.push(
                Error::new(format!("nothing to listen on for host \"{}\"", host.name)).at(host.key.span),
            );
        }
        let name = host.name.clone();
        let mut servers =
            self.grouped(host, &name, &named, |listen| self.default_host(hosts, listen) == Some(at));
        servers.extend(self.grouped(host, "_", &others, |_| true));
        servers
    }

    /// The addresses of a host, its own first: one of the whole file at the same address is not meant then.
    fn of<'h>(&'h self, host: &'h HostKey<'_>) -> impl Iterator<Item = &'h ListenKey> {
        let own = &host.level.listens;
        let is_own = |listen: &&ListenKey| {
            !own.iter().any(|own| own.address == listen.address && own.is_quic == listen.is_quic)
        };
        own.iter().chain(self.global.listens.iter().filter(is_own))
    }

    /// The host that responds to names that no host of an address has: the one called `*`, or the first that is not
    /// strict.
    fn default_host(&self, hosts: &[HostKey<'_>], listen: &ListenKey) -> Option<usize> {
        let there = |host: &&HostKey<'_>| self.of(host).any(|at| at.address == listen.address);
        let meant = |host: &HostKey<'_>| host.port.is_none() || host.port == listen.port;
        let star = hosts.iter().position(|host| host.name == "_" && there(&host) && meant(host));
        star.or_else(|| hosts.iter().position(|host| !host.level.is_strict && there(&host)))
    }

    /// Servers of addresses whose hosts are all strict: what none of them has a name for is not found.
    fn refusals(&self, hosts: &[HostKey<'_>]) -> Vec<DirectiveLine> {
        let mut servers = Vec::new();
        let mut seen: Vec<&str> = Vec::new();
        let all = hosts.iter().flat_map(|host| self.of(host).map(move |listen| (host, listen)));
        for (host, listen) in all {
            if seen.contains(&listen.address.as_str()) || self.default_host(hosts, listen).is_some() {
                continue;
            }
            seen.push(&listen.address);
            let at = host.key.span;
            let mut lines = vec![short("server_name", at, &["_"])];
            lines.extend(self.lines(listen, true));
            lines.extend(listen.settings.iter().cloned());
            lines.push(short("return", at, &["404"]));
            servers.push(block("server", at, &[], lines));
        }
        servers
    }

    /// A server for each set of TLS settings, since a server has but one; addresses without TLS are in the first.
    fn grouped(
        &self,
        host: &HostKey<'_>,
        name: &str,
        listens: &[&ListenKey],
        is_default: impl Fn(&ListenKey) -> bool,
    ) -> Vec<DirectiveLine> {
        let mut groups: Vec<(Option<&ListenKey>, Vec<&ListenKey>)> = Vec::new();
        for listen in listens {
            let fits = |(tls, _): &&mut (Option<&ListenKey>, _)| {
                !listen.is_tls || tls.is_none_or(|tls: &ListenKey| same(&tls.settings, &listen.settings))
            };
            match groups.iter_mut().find(fits) {
                Some((tls, group)) => {
                    *tls = tls.or(listen.is_tls.then_some(*listen));
                    group.push(listen);
                }
                None => groups.push((listen.is_tls.then_some(*listen), vec![*listen])),
            }
        }
        let mut servers = Vec::new();
        for (tls, group) in groups {
            let mut lines = vec![line("server_name", host.key.span, &[(name, host.key.span)])];
            let mut seen: Vec<(&str, bool)> = Vec::new();
            let header = group.iter().find(|listen| listen.has_proxy_header).map(|listen| listen.span);
            for listen in group {
                if !seen.contains(&(&listen.address, listen.is_quic)) {
                    seen.push((&listen.address, listen.is_quic));
                    lines.extend(self.lines(listen, is_default(listen)));
                }
            }
            lines.extend(header.into_iter().flat_map(client_of_header));
            lines.extend(tls.iter().flat_map(|tls| tls.settings.iter().cloned()));
            lines.extend(host.lines.iter().cloned());
            servers.push(block("server", host.key.span, &[], lines));
        }
        servers
    }

    fn lines(&self, listen: &ListenKey, is_default: bool) -> Vec<DirectiveLine> {
        let one = |address: &str| {
            let mut args = vec![(address, listen.span)];
            let fastopen = self.global.limits.fastopen.filter(|_| listen.port.is_some() && !listen.is_quic);
            let fastopen = fastopen.map(|number| format!("fastopen={number}"));
            let flags = [
                (is_default, "default_server"),
                (listen.is_tls && !listen.is_quic, "ssl"),
                (listen.is_quic, "quic"),
                (listen.has_proxy_header, "proxy_protocol"),
            ];
            args.extend(flags.iter().filter(|(on, _)| *on).map(|(_, name)| (*name, listen.span)));
            let is_first = self.described.borrow_mut().insert(format!("{address} {}", listen.is_quic));
            let parameters = listen.parameters.iter().chain(&fastopen).filter(|_| is_first);
            args.extend(parameters.map(|text| (text.as_str(), listen.span)));
            line("listen", listen.span, &args)
        };
        let mut lines = vec![one(&listen.address)];
        if listen.is_any && self.has_ipv6 {
            lines.push(one(&format!("[::]:{}", listen.address)));
        }
        lines
    }
}

/// The client is the one that the PROXY header names, whoever sends it: a listener that takes the header is reached by
/// balancers only.
fn client_of_header(at: Span) -> Vec<DirectiveLine> {
    let mut lines: Vec<_> =
        ["0.0.0.0/0", "::/0", "unix:"].iter().map(|from| short("set_real_ip_from", at, &[from])).collect();
    lines.push(short("real_ip_header", at, &["proxy_protocol"]));
    lines
}

/// Whether two lists of settings say the same.
fn same(one: &[DirectiveLine], other: &[DirectiveLine]) -> bool {
    let text = |line: &DirectiveLine| line.words().map(|word| word.bytes().to_vec()).collect::<Vec<_>>();
    one.iter().map(text).eq(other.iter().map(text))
}
