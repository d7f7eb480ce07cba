//! A configuration installed on one worker: servers with their plans, and who answers for which name.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use weir_conf::Error;
use weir_rt::net::SockAddr;

use super::core::Core;
use super::http_core::HttpCoreConf;
use super::http2::{Http2Conf, Http2Settings};
use super::listen::{Address, ServerName};
use super::location::{Locations, Place};
use super::names::Names;
use super::server_core::{ServerCoreConf, ServerSettings};
use super::title::{Title, Titles};
use super::{Configuration, LocationConf, Matcher, ServerConf};
use crate::exchange::Exchange;
use crate::log;
use crate::module::Confs;
use crate::phase::Phase;
use crate::plan::{Inside, Level, Plan, PlanBuilder};
use crate::regex::Pattern;
use crate::tls::{ServerTls, SslConf, Verify};
use crate::variable::{Get, Table};
use crate::worker::Worker;

/// A configuration on one worker. Requests hold it through their server; it goes when the last of them ends.
pub struct Generation {
    /// What it was made from.
    pub configuration: Arc<Configuration>,
    /// Its servers, in the order of the file.
    pub servers: Vec<Rc<Server>>,
    /// For each of the configuration's addresses, who answers there.
    pub hosts: Vec<Rc<Hosts>>,
    link: Rc<Link>,
}

impl Generation {
    /// Builds all plans of `configuration` for `worker`.
    ///
    /// # Errors
    /// What a module finds out only here.
    pub fn install(configuration: &Arc<Configuration>, worker: &Rc<Worker>) -> Result<Generation, Error> {
        let (retired, kept) = Default::default();
        let link = Rc::new(Link { configuration: configuration.clone(), retired, kept });
        worker.present.begin_rules();
        let titles = Titles::new(configuration);
        let build = |(index, conf)| Server::build(conf, &link, worker, &titles.of(index)).map(Rc::new);
        let servers = configuration.servers.iter().enumerate().map(build).collect::<Result<Vec<_>, _>>()?;
        let hosts = configuration.addresses.iter();
        let hosts = hosts.map(|address| Rc::new(Hosts::new(address, &servers, configuration)));
        Ok(Generation { configuration: configuration.clone(), hosts: hosts.collect(), servers, link })
    }

    /// It is no longer in force: when its last request has ended, that is logged.
    pub(crate) fn retire(self: Rc<Self>) {
        self.link.retired.set(true);
    }
}

/// What a server knows of its configuration.
pub struct Link {
    /// The configuration.
    pub configuration: Arc<Configuration>,
    /// There is a newer one.
    retired: Cell<bool>,
    /// See [`Link::local`].
    kept: RefCell<Vec<Rc<dyn Any>>>,
}

impl Drop for Link {
    /// Who tests or supervises a reload waits for this line: one of each worker.
    fn drop(&mut self) {
        if self.retired.get() {
            log::worker_exited();
        }
    }
}

impl Link {
    /// The variables that the configuration uses.
    pub fn variables(&self) -> &Table {
        &self.configuration.tables.variables
    }

    /// What a module keeps for this configuration on this worker (a VM, a pool), made by `make` when asked for first.
    ///
    /// # Errors
    /// What `make` fails with.
    pub fn local<T: 'static, E>(&self, make: impl FnOnce() -> Result<Rc<T>, E>) -> Result<Rc<T>, E> {
        if let Some(kept) = self.kept.borrow().iter().find_map(|kept| kept.clone().downcast().ok()) {
            return Ok(kept);
        }
        let made = make()?;
        self.kept.borrow_mut().push(made.clone());
        Ok(made)
    }

    /// What gives a module's variable a value, if it takes one.
    pub fn modules_setter(&self, name: &str) -> Option<fn(&mut Exchange, &[u8])> {
        self.configuration.tables.plain.get(name)?.set
    }

    /// A module's variable by name.
    pub fn modules_variable<'n>(&self, name: &'n str) -> Option<(Get, &'n str)> {
        self.configuration.tables.module_variable(name)
    }
}

/// A virtual server on one worker.
pub struct Server {
    /// Its first name (`$server_name`); empty if it has none.
    pub name: Rc<[u8]>,
    /// Settings that hold before a location is known.
    pub settings: ServerSettings,
    /// HTTP/2.
    pub http2: Http2Settings,
    /// Runs post-read and server-rewrite, and requests without a location.
    pub plan: Rc<Plan>,
    pub(crate) locations: Locations,
    named: Names<Rc<Plan>>,
    /// Its side of TLS handshakes, if it has one.
    pub tls: Option<Arc<ServerTls>>,
    /// What it asks of clients' certificates; also of a server that uses another's side of handshakes.
    pub verify_client: Verify,
    link: Rc<Link>,
    plain: bool,
}

impl Server {
    /// Nothing runs between the choice of the server and that of the location, and that one takes no regular expression.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    /// The configuration the server belongs to.
    pub fn generation(&self) -> Rc<Link> {
        self.link.clone()
    }

    /// The plan of location `name`, which begins with `@`.
    pub fn named(&self, name: &[u8]) -> Option<Rc<Plan>> {
        self.named.get(name).cloned()
    }

    fn build(
        conf: &ServerConf,
        link: &Rc<Link>,
        worker: &Rc<Worker>,
        title: &Title<'_>,
    ) -> Result<Server, Error> {
        let settings = conf.confs.get::<ServerCoreConf>().settings();
        let http2 = conf.confs.get::<Http2Conf>().settings();
        let name: Rc<[u8]> = Rc::from(settings.name.clone());
        let modules = &link.configuration.modules;
        let make = |confs: &Confs, level, name: &str, inside| -> Result<Rc<Plan>, Error> {
            let mut core: Core = confs.get::<HttpCoreConf>().core();
            core.http2_chunk_size = confs.get::<Http2Conf>().chunk();
            let mut plan = PlanBuilder::new(worker, link, level, &core, Rc::from(name));
            plan.instructed = &confs.get::<HttpCoreConf>().instructed;
            confs.install(modules, &mut plan)?;
            let (entries, core) = (plan, core.clone());
            Ok(Rc::new(entries.build(core, inside)?))
        };
        let nested = Self::nested(&conf.nested, &make, title.server())?;
        let plan = make(&conf.confs, Level::Server, title.server(), Inside { nested, ..Inside::default() })?;
        let mut named = Names::default();
        let locations = Self::locations(&conf.locations, &make, title, &mut named)?;
        let ssl = conf.confs.find::<SslConf>();
        let tls = ssl.and_then(|ssl| ssl.resolved.clone());
        let verify_client = ssl.map_or(Verify::Off, SslConf::verify_client);
        let plain = plan.is_empty_before(Phase::FindConfig) && locations.is_plain();
        let link = link.clone();
        Ok(Server { name, settings, http2, plan, locations, named, tls, verify_client, link, plain })
    }

    fn locations(
        confs: &[LocationConf],
        make: &impl Fn(&Confs, Level, &str, Inside) -> Result<Rc<Plan>, Error>,
        title: &Title<'_>,
        named: &mut Names<Rc<Plan>>,
    ) -> Result<Locations, Error> {
        let mut places = Vec::new();
        for conf in confs {
            let name = title.location(conf.matcher.name());
            let limit_except = match &conf.limit_except {
                Some((methods, confs)) => {
                    Some((*methods, make(confs, Level::Nested, &name, Inside::default())?))
                }
                None => None,
            };
            let nested = Self::nested(&conf.nested, make, &name)?;
            let plan = make(&conf.confs, Level::Location, &name, Inside { limit_except, nested })?;
            let inner = Self::locations(&conf.locations, make, title, named)?;
            match &conf.matcher {
                Matcher::Named(name) => {
                    named.insert(name.clone().into_boxed_slice(), plan);
                }
                matcher => places.push((matcher.clone(), Place { plan, inner })),
            }
        }
        Ok(Locations::new(places))
    }

    fn nested(
        confs: &[Confs],
        make: &impl Fn(&Confs, Level, &str, Inside) -> Result<Rc<Plan>, Error>,
        name: &str,
    ) -> Result<Vec<Rc<Plan>>, Error> {
        confs.iter().map(|confs| make(confs, Level::Nested, name, Inside::default())).collect()
    }
}

/// The servers of one address, by name.
pub struct Hosts {
    /// The address.
    pub addr: SockAddr,
    /// How its connections begin: with a PROXY protocol header, TLS, HTTP/2. A connection made under one configuration
    /// goes on under the next only if they are the same there.
    pub(crate) protocols: [bool; 3],
    /// What the blocks of its servers say ([`ServerConf::words`]), in order.
    pub(crate) words: Vec<u64>,
    default: Rc<Server>,
    exact: Names<Rc<Server>>,
    /// `*.example.com`: what follows the star, dot included.
    heads: Names<Rc<Server>>,
    /// `example.*`: what precedes the star, dot included.
    tails: Names<Rc<Server>>,
    patterns: Vec<(Arc<Pattern>, Rc<Server>)>,
}

impl Hosts {
    fn new(address: &Address, servers: &[Rc<Server>], configuration: &Configuration) -> Hosts {
        let mut hosts = Hosts {
            addr: address.addr.clone(),
            protocols: [address.proxy_protocol, address.ssl, address.http2],
            words: address.servers.iter().map(|index| configuration.servers[*index].words).collect(),
            default: servers[address.default].clone(),
            exact: Names::default(),
            heads: Names::default(),
            tails: Names::default(),
            patterns: Vec::new(),
        };
        let conf = |index: usize| configuration.servers[index].confs.get::<ServerCoreConf>();
        if address.servers.len() == 1 && !conf(address.default).has_captures() {
            return hosts;
        }
        for &index in &address.servers {
            for name in conf(index).names() {
                hosts.add(name, &servers[index]);
            }
        }
        hosts
    }

    fn add(&mut self, name: &ServerName, server: &Rc<Server>) {
        let put = |map: &mut Names<Rc<Server>>, key: &[u8]| {
            // The first server of that name keeps it, as nginx warns ("conflicting server name ..., ignored").
            map.entry(key.into()).or_insert_with(|| server.clone());
        };
        match name {
            ServerName::Exact(name) => put(&mut self.exact, name),
            ServerName::Head(rest) => put(&mut self.heads, rest),
            ServerName::Dot(rest) => {
                put(&mut self.heads, rest);
                put(&mut self.exact, rest.get(1..).unwrap_or_default());
            }
            ServerName::Tail(rest) => put(&mut self.tails, rest),
            ServerName::Regex(pattern) => self.patterns.push((pattern.clone(), server.clone())),
        }
    }

    /// The address has one server and no pattern whose captures may be wanted: names need not be looked at.
    #[inline]
    pub fn is_single(&self) -> bool {
        self.exact.is_empty() && self.heads.is_empty() && self.tails.is_empty() && self.patterns.is_empty()
    }

    /// Some names are regular expressions.
    #[inline]
    pub(crate) fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }

    /// The address' default server.
    pub fn default(&self) -> &Rc<Server> {
        &self.default
    }

    /// Points `x` at the server for its host: exact name, longest leading wildcard, longest trailing wildcard, first
    /// matching pattern, default.
    pub fn choose(&self, x: &mut Exchange) {
        let host = x.arena.get(x.request.host);
        let found = self.by_name(host).cloned();
        let server = found.or_else(|| self.by_pattern(x)).unwrap_or_else(|| self.default.clone());
        x.plan = server.plan.clone();
        x.server = server;
    }

    /// The server for `host` by its plain and wildcard names.
    pub fn by_name(&self, host: &[u8]) -> Option<&Rc<Server>> {
        if let Some(server) = self.exact.get(host) {
            return Some(server);
        }
        if !self.heads.is_empty() {
            let dots = host.iter().enumerate().filter(|(_, b)| **b == b'.');
            if let Some(server) = dots.map(|(at, _)| &host[at..]).find_map(|rest| self.heads.get(rest)) {
                return Some(server);
            }
        }
        if !self.tails.is_empty() {
            let dots = host.iter().enumerate().rev().filter(|(_, b)| **b == b'.');
            return dots.map(|(at, _)| &host[..=at]).find_map(|rest| self.tails.get(rest));
        }
        None
    }

    /// The server for `host`, by patterns as well; their captures are not wanted.
    pub fn by_any_name(&self, host: &[u8]) -> Option<Rc<Server>> {
        let by_pattern =
            || self.patterns.iter().find(|(pattern, _)| pattern.is_match(host)).map(|(_, it)| it);
        self.by_name(host).or_else(by_pattern).cloned()
    }

    fn by_pattern(&self, x: &mut Exchange) -> Option<Rc<Server>> {
        let host = x.request.host;
        if host.start == host.end {
            return None;
        }
        self.patterns.iter().find(|(pattern, _)| pattern.captures(x, host)).map(|(_, server)| server.clone())
    }
}
