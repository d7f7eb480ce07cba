//! A configuration installed on one worker: servers with their plans, and which server serves which name.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use weir_conf::Error;
use weir_rt::net::SockAddr;

use super::http_core::HttpCoreConf;
use super::http2::{Http2Conf, Http2Settings};
use super::listen::{ListenAddress, ServerName};
use super::location::{LocationSet, WorkerLocation};
use super::names::NameMap;
use super::plans::PlanMaker;
use super::server_core::{ServerCoreConf, ServerSettings};
use super::title::{ServerTitle, ServerTitles};
use super::{Configuration, LocationConf, LocationMatcher, ServerConf};
use crate::exchange::{Exchange, RunOrigin};
use crate::log::{self, LogLevel};
use crate::phase::{Handler, Phase, Verdict};
use crate::plan::{NestedPlans, Plan, PlanBuilder, PlanLevel};
use crate::regex::{GivenUp, RegexPattern};
use crate::transport::ClientConnection;
use crate::typed_values::TypedValues;
use crate::variable::{VariableSource, VariableTable};
use crate::worker::Worker;

/// A configuration on one worker. Requests hold it through their server; it goes when the last of them ends.
pub struct WorkerGeneration {
    /// What it was made from.
    pub configuration: Arc<Configuration>,
    /// For each of the configuration's addresses, the servers that serve it.
    pub hosts: Vec<Rc<AddressServers>>,
    link: Rc<ConfigurationLink>,
    /// See [`ConfigurationLink::nobody`].
    _nobody: Option<Rc<RunOrigin>>,
}

impl WorkerGeneration {
    /// Builds the plans of `configuration` for `worker`: those of the first servers, of very many the others when they
    /// are asked for.
    ///
    /// # Errors
    /// What a module determines only here.
    pub fn install(
        configuration: &Arc<Configuration>,
        worker: &Rc<Worker>,
    ) -> Result<WorkerGeneration, Error> {
        let servers = Rc::new(WorkerServers::new(configuration, worker));
        for index in 0..configuration.servers.len().min(AT_ONCE) {
            servers.build(index, worker)?;
        }
        let mut hosts = Vec::with_capacity(configuration.addresses.len());
        for address in &configuration.addresses {
            let default = servers.build(address.default, worker)?.clone();
            hosts.push(Rc::new(AddressServers::new(address, default, &servers)));
        }
        let nobody = servers.nobody(worker)?.map(Rc::new);
        if let Some(nobody) = &nobody {
            servers.link.nobody.replace(Rc::downgrade(nobody));
        }
        Ok(WorkerGeneration {
            configuration: configuration.clone(),
            hosts,
            link: servers.link.clone(),
            _nobody: nobody,
        })
    }

    /// All plans are built when the configuration is installed, and what is wrong is reported then.
    pub fn is_built_at_once(configuration: &Configuration) -> bool {
        configuration.servers.len() <= AT_ONCE
    }

    /// Builds all plans of `configuration` and forgets them.
    ///
    /// # Errors
    /// As [`WorkerGeneration::install`].
    pub fn rehearse(configuration: &Arc<Configuration>, worker: &Rc<Worker>) -> Result<(), Error> {
        let servers = WorkerServers::new(configuration, worker);
        (0..configuration.servers.len()).try_for_each(|index| servers.make(index, worker).map(drop))
    }

    /// Does what modules have asked for before the worker serves ([`ConfigurationLink::before_serving`]).
    pub async fn begin(&self) {
        loop {
            let next = self.link.beginning.borrow_mut().pop_front();
            let Some(next) = next else { return };
            next.await;
        }
    }

    /// Marks the generation as no longer in force: when its last request has ended, that is logged.
    pub fn retire(self: Rc<Self>) {
        self.link.retired.set(true);
        self.leave();
    }

    /// The worker is about to end, or goes on with another configuration: what waits for a time to come is notified
    /// ([`ConfigurationLink::on_leave`]).
    pub fn leave(&self) {
        self.link.leaving.set(true);
        for notify in self.link.leave_hooks.take() {
            notify();
        }
    }
}

impl Drop for WorkerGeneration {
    /// What was never notified holds the configuration, perhaps.
    fn drop(&mut self) {
        drop(self.link.leave_hooks.take());
    }
}

/// Servers that are built at once on each worker. One takes some twenty microseconds and kilobytes; of more than that
/// most are idle.
const AT_ONCE: usize = 1000;

/// The servers of a configuration on one worker.
struct WorkerServers {
    /// In the order of the file; those that were asked for.
    built: Box<[OnceCell<Rc<VirtualServer>>]>,
    titles: ServerTitles,
    link: Rc<ConfigurationLink>,
    worker: Weak<Worker>,
}

impl WorkerServers {
    fn new(configuration: &Arc<Configuration>, worker: &Rc<Worker>) -> WorkerServers {
        let (retired, kept, nobody, leaving, leave_hooks, beginning) = Default::default();
        let configuration_of = configuration.clone();
        let link = Rc::new(ConfigurationLink {
            configuration: configuration_of,
            retired,
            kept,
            nobody,
            leaving,
            leave_hooks,
            beginning,
        });
        worker.present.begin_rules();
        let built = configuration.servers.iter().map(|_| OnceCell::new()).collect();
        WorkerServers { built, titles: ServerTitles::new(configuration), link, worker: Rc::downgrade(worker) }
    }

    /// Whose settings and whose connection what no client has caused has.
    fn nobody(self: &Rc<Self>, worker: &Rc<Worker>) -> Result<Option<RunOrigin>, Error> {
        let Some(conf) = &self.link.configuration.nobody else { return Ok(None) };
        let server = Rc::new(VirtualServer::nobody(conf, &self.link, worker)?);
        let hosts = Rc::new(AddressServers::nobodys(server.clone(), self));
        let connection = Rc::new(ClientConnection::nobodys(&hosts, worker));
        Ok(Some(RunOrigin { connection, plan: server.plan.clone(), server }))
    }

    fn make(&self, index: usize, worker: &Rc<Worker>) -> Result<VirtualServer, Error> {
        let configuration = &self.link.configuration;
        let title = self.titles.of(index, configuration);
        VirtualServer::build(&configuration.servers[index], &self.link, worker, &title)
    }

    fn build(&self, index: usize, worker: &Rc<Worker>) -> Result<&Rc<VirtualServer>, Error> {
        if self.built[index].get().is_none() {
            let made = self.make(index, worker)?;
            return Ok(self.built[index].get_or_init(|| Rc::new(made)));
        }
        Ok(self.get(index as u32))
    }

    /// The server with this index in the file.
    #[inline]
    fn get(&self, index: u32) -> &Rc<VirtualServer> {
        let built = &self.built[index as usize];
        built.get().unwrap_or_else(|| built.get_or_init(|| Rc::new(self.late(index as usize))))
    }

    /// A server that is asked for. All were built once before the configuration was taken into use, so one that can't
    /// be built now has met a want of the moment; its requests are failed.
    #[cold]
    fn late(&self, index: usize) -> VirtualServer {
        let worker = self.worker.upgrade().expect("a worker outlives its servers");
        let configuration = &self.link.configuration;
        let rules = worker.present.rules().len();
        let made = self.make(index, &worker);
        if worker.present.rules().len() > rules {
            worker.configure_trace(configuration);
        }
        made.unwrap_or_else(|error| {
            log::cycle(LogLevel::Alert, &error.headline(&configuration.source));
            VirtualServer::failing(&configuration.servers[index], &self.link, &worker)
        })
    }
}

/// Fails all requests.
struct FailHandler;

impl Handler for FailHandler {
    fn handle(&self, _: &mut Exchange) -> Verdict {
        Verdict::Status(500)
    }
}

/// The configuration of one worker, with what lives as long as it: values of modules, and the tasks to run at its
/// beginning and end.
pub struct ConfigurationLink {
    /// The configuration.
    pub configuration: Arc<Configuration>,
    /// True when there is a newer configuration.
    retired: Cell<bool>,
    /// See [`ConfigurationLink::local`].
    kept: RefCell<Vec<Rc<dyn Any>>>,
    nobody: RefCell<Weak<RunOrigin>>,
    /// True when the worker is ending, or goes on with another configuration.
    leaving: Cell<bool>,
    /// See [`ConfigurationLink::on_leave`].
    leave_hooks: RefCell<Vec<Box<dyn FnOnce()>>>,
    /// See [`ConfigurationLink::before_serving`].
    beginning: RefCell<VecDeque<Pin<Box<dyn Future<Output = ()>>>>>,
}

impl Drop for ConfigurationLink {
    /// A person or program that tests or supervises a reload waits for this line: one of each worker.
    fn drop(&mut self) {
        if self.retired.get() {
            log::worker_exited();
        }
    }
}

impl ConfigurationLink {
    /// The variables that the configuration uses.
    pub fn variables(&self) -> &VariableTable {
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

    /// The origin of what no client has caused: the settings of `http`. `None` once nothing may begin there any more.
    pub fn nobody(&self) -> Option<Rc<RunOrigin>> {
        self.nobody.borrow().upgrade()
    }

    /// Whether this configuration takes no more requests on this worker: it ends, or there is a newer one.
    pub fn is_leaving(&self) -> bool {
        self.leaving.get()
    }

    /// Calls `notify` on this thread when [`ConfigurationLink::is_leaving`] becomes true; drops it if the worker ends without.
    pub fn on_leave(&self, notify: impl FnOnce() + 'static) {
        self.leave_hooks.borrow_mut().push(Box::new(notify));
    }

    /// Has the worker wait for `work` before it takes the configuration into use: a module asks for it while the
    /// configuration is installed. A reload gives up after `weir_server::ServerOptions::patience`.
    pub fn before_serving(&self, work: impl Future<Output = ()> + 'static) {
        self.beginning.borrow_mut().push_back(Box::pin(work));
    }

    /// What gives a module's variable a value, if it takes one.
    pub fn modules_setter(&self, name: &str) -> Option<fn(&mut Exchange, &[u8])> {
        self.configuration.tables.plain.get(name)?.set
    }

    /// A module's variable by its name without `$`, whether or not the configuration uses it: how it is computed, and
    /// for a prefix variable (`http_`) the part of the name after the prefix. `None` if no module has such a variable.
    pub fn modules_variable<'n>(&self, name: &'n str) -> Option<(VariableSource, &'n str)> {
        self.configuration.tables.module_variable(name)
    }
}

/// A virtual server on one worker.
pub struct VirtualServer {
    /// Its first name (`$server_name`); empty if it has none.
    pub name: Rc<[u8]>,
    /// Settings that hold before a location is known.
    pub settings: ServerSettings,
    /// The settings of HTTP/2.
    pub http2: Http2Settings,
    /// Runs post-read and server-rewrite, and requests without a location.
    pub plan: Rc<Plan>,
    pub(crate) locations: LocationSet,
    named: NameMap<Rc<Plan>>,
    /// See [`VirtualServer::part`].
    parts: TypedValues,
    link: Rc<ConfigurationLink>,
    plain: bool,
}

impl VirtualServer {
    /// Nothing runs between the choice of the server and that of the location, and that one takes no regular expression.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// There is a newer configuration than the server's: what is cached of it would keep it, and its scripts.
    pub(crate) fn is_retired(&self) -> bool {
        self.link.retired.get()
    }

    /// What a module has added to the server ([`BuildHooks::server_part`](crate::module::BuildHooks::server_part));
    /// `None` if no module adds a `P`.
    pub fn part<P: 'static>(&self) -> Option<&P> {
        self.parts.find()
    }

    /// The configuration the server belongs to.
    pub fn generation(&self) -> Rc<ConfigurationLink> {
        self.link.clone()
    }

    /// The plan of the named location `name`, with its `@`; `None` if the server does not have it.
    pub fn named(&self, name: &[u8]) -> Option<Rc<Plan>> {
        self.named.get(name).cloned()
    }

    fn build(
        conf: &ServerConf,
        link: &Rc<ConfigurationLink>,
        worker: &Rc<Worker>,
        title: &ServerTitle<'_>,
    ) -> Result<VirtualServer, Error> {
        let maker = PlanMaker::new(worker, link);
        let plan = maker.block(&conf.confs, None, &conf.nested, PlanLevel::Server, title.server())?;
        let mut named = NameMap::default();
        let locations = Self::locations(&conf.locations, &maker, title, &mut named)?;
        Ok(VirtualServer::of(conf, link, plan, locations, named))
    }

    /// The settings of `http`, for what runs without a request.
    fn nobody(
        conf: &ServerConf,
        link: &Rc<ConfigurationLink>,
        worker: &Rc<Worker>,
    ) -> Result<VirtualServer, Error> {
        let core = conf.confs.get::<HttpCoreConf>().core();
        let mut plan = PlanBuilder::new(worker, link, PlanLevel::Alone, &core, Rc::from("http"));
        conf.confs.install_alone(&link.configuration.modules, &mut plan)?;
        let plan = Rc::new(plan.build(core.clone(), None, NestedPlans::default()));
        Ok(VirtualServer::of(conf, link, plan, LocationSet::default(), NameMap::default()))
    }

    /// Responds with 500 to every request.
    fn failing(conf: &ServerConf, link: &Rc<ConfigurationLink>, worker: &Rc<Worker>) -> VirtualServer {
        let core = conf.confs.get::<HttpCoreConf>().core();
        let mut plan = PlanBuilder::new(worker, link, PlanLevel::Server, &core, Rc::from("failing"));
        plan.handler(Phase::PostRead, "core", FailHandler);
        let plan = Rc::new(plan.build(core.clone(), None, NestedPlans::default()));
        VirtualServer::of(conf, link, plan, LocationSet::default(), NameMap::default())
    }

    fn of(
        conf: &ServerConf,
        link: &Rc<ConfigurationLink>,
        plan: Rc<Plan>,
        locations: LocationSet,
        named: NameMap<Rc<Plan>>,
    ) -> VirtualServer {
        let settings = conf.confs.get::<ServerCoreConf>().settings();
        VirtualServer {
            name: Rc::from(settings.name.clone()),
            settings,
            http2: conf.confs.get::<Http2Conf>().settings(),
            plain: plan.is_empty_before(Phase::FindConfig) && locations.is_plain(),
            plan,
            locations,
            named,
            parts: conf.confs.server_parts(&link.configuration.modules),
            link: link.clone(),
        }
    }

    fn locations(
        confs: &[LocationConf],
        maker: &PlanMaker<'_>,
        title: &ServerTitle<'_>,
        named: &mut NameMap<Rc<Plan>>,
    ) -> Result<LocationSet, Error> {
        let mut places = Vec::new();
        for conf in confs {
            let name = title.location(conf.matcher.name());
            let except = conf.limit_except.as_ref();
            let plan = maker.block(&conf.confs, except, &conf.nested, PlanLevel::Location, &name)?;
            let inner = Self::locations(&conf.locations, maker, title, named)?;
            match &conf.matcher {
                LocationMatcher::Named(name) => {
                    named.insert(name.clone().into_boxed_slice(), plan);
                }
                matcher => places.push((matcher.clone(), WorkerLocation { plan, inner })),
            }
        }
        Ok(LocationSet::new(places))
    }
}

/// The servers of one address, by name.
pub struct AddressServers {
    /// The address it listens on.
    pub addr: SockAddr,
    /// How its connections begin: with a PROXY protocol header, TLS, HTTP/2. A connection made under one configuration
    /// goes on under the next only if they are the same there.
    pub protocols: [bool; 3],
    /// What the blocks of its servers say ([`ServerConf::words`]), in order.
    pub(crate) words: Vec<u64>,
    default: Rc<VirtualServer>,
    /// Those below, by their index in the file.
    servers: Rc<WorkerServers>,
    exact: NameMap<u32>,
    /// `*.example.com`: what follows the star, dot included.
    heads: NameMap<u32>,
    /// `example.*`: what precedes the star, dot included.
    tails: NameMap<u32>,
    patterns: Vec<(Arc<RegexPattern>, u32)>,
}

impl AddressServers {
    fn new(
        address: &ListenAddress,
        default: Rc<VirtualServer>,
        servers: &Rc<WorkerServers>,
    ) -> AddressServers {
        let configuration = &servers.link.configuration;
        let mut hosts = AddressServers {
            addr: address.addr.clone(),
            protocols: [address.proxy_protocol, address.ssl, address.http2],
            words: address.servers.iter().map(|index| configuration.servers[*index].words).collect(),
            ..AddressServers::nobodys(default, servers)
        };
        let conf = |index: usize| configuration.servers[index].confs.get::<ServerCoreConf>();
        if address.servers.len() == 1 && !conf(address.default).has_captures() {
            return hosts;
        }
        for &index in &address.servers {
            for name in conf(index).names() {
                hosts.add(name, index as u32);
            }
        }
        hosts
    }

    /// Of no address.
    fn nobodys(default: Rc<VirtualServer>, servers: &Rc<WorkerServers>) -> AddressServers {
        AddressServers {
            addr: SockAddr::UNSPECIFIED,
            protocols: Default::default(),
            words: Vec::new(),
            default,
            servers: servers.clone(),
            exact: NameMap::default(),
            heads: NameMap::default(),
            tails: NameMap::default(),
            patterns: Vec::new(),
        }
    }

    fn add(&mut self, name: &ServerName, server: u32) {
        let put = |map: &mut NameMap<u32>, key: &[u8]| {
            // The first server of that name keeps it, as nginx warns ("conflicting server name ..., ignored").
            map.entry(key.into()).or_insert(server);
        };
        match name {
            ServerName::Exact(name) => put(&mut self.exact, name),
            ServerName::Head(rest) => put(&mut self.heads, rest),
            ServerName::Dot(rest) => {
                put(&mut self.heads, rest);
                put(&mut self.exact, rest.get(1..).unwrap_or_default());
            }
            ServerName::Tail(rest) => put(&mut self.tails, rest),
            ServerName::Regex(pattern) => self.patterns.push((pattern.clone(), server)),
        }
    }

    /// The address has one server and no pattern whose captures may be wanted: names need not be looked at.
    #[inline]
    pub fn is_single(&self) -> bool {
        self.exact.is_empty() && self.heads.is_empty() && self.tails.is_empty() && self.patterns.is_empty()
    }

    /// Some names are regular expressions.
    #[inline]
    pub fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }

    /// The address' default server.
    pub fn default(&self) -> &Rc<VirtualServer> {
        &self.default
    }

    /// Points `x` at the server for its host: exact name, longest leading wildcard, longest trailing wildcard, first
    /// matching pattern, default.
    ///
    /// # Errors
    /// A pattern was given up; `x` stays with the default server.
    pub fn choose(&self, x: &mut Exchange) -> Result<(), GivenUp> {
        let host = x.arena.get(x.request.host);
        let (found, error) = match self.by_name(host).cloned() {
            Some(server) => (Some(server), None),
            None => match self.by_pattern(x) {
                Ok(found) => (found, None),
                Err(error) => (None, Some(error)),
            },
        };
        let server = found.unwrap_or_else(|| self.default.clone());
        x.plan = server.plan.clone();
        x.server = server;
        error.map_or(Ok(()), Err)
    }

    /// The server for `host` by its plain and wildcard names.
    pub(crate) fn by_name(&self, host: &[u8]) -> Option<&Rc<VirtualServer>> {
        self.index(host).map(|index| self.servers.get(index))
    }

    fn index(&self, host: &[u8]) -> Option<u32> {
        if let Some(server) = self.exact.get(host) {
            return Some(*server);
        }
        if !self.heads.is_empty() {
            let dots = host.iter().enumerate().filter(|(_, b)| **b == b'.');
            if let Some(server) = dots.map(|(at, _)| &host[at..]).find_map(|rest| self.heads.get(rest)) {
                return Some(*server);
            }
        }
        if !self.tails.is_empty() {
            let dots = host.iter().enumerate().rev().filter(|(_, b)| **b == b'.');
            return dots.map(|(at, _)| &host[..=at]).find_map(|rest| self.tails.get(rest)).copied();
        }
        None
    }

    /// The server for `host`, by patterns as well; their captures are not wanted.
    ///
    /// # Errors
    /// Why a pattern was given up, for the log.
    pub(crate) fn by_any_name(&self, host: &[u8]) -> Result<Option<Rc<VirtualServer>>, String> {
        if let Some(index) = self.index(host) {
            return Ok(Some(self.servers.get(index).clone()));
        }
        for (pattern, index) in &self.patterns {
            if pattern.is_match(host).map_err(|error| pattern.explain(host, error))? {
                return Ok(Some(self.servers.get(*index).clone()));
            }
        }
        Ok(None)
    }

    fn by_pattern(&self, x: &mut Exchange) -> Result<Option<Rc<VirtualServer>>, GivenUp> {
        let host = x.request.host;
        if host.start == host.end {
            return Ok(None);
        }
        for (pattern, index) in &self.patterns {
            if pattern.captures(x, host)? {
                return Ok(Some(self.servers.get(*index).clone()));
            }
        }
        Ok(None)
    }
}
