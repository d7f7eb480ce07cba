//! Installing a configuration on one worker: the plans of its servers and locations.

use std::rc::{Rc, Weak};
use std::sync::Arc;

use weir_conf::Error;

use super::http_core::HttpCoreConf;
use super::http2::Http2Conf;
use super::http3::Http3Conf;
use super::plans::PlanMaker;
use super::server_core::ServerCoreConf;
use super::title::{ServerTitle, ServerTitles};
use super::{Configuration, LocationConf, LocationMatcher, ServerConf};
use crate::exchange::reuse::RequestCaches;
use crate::exchange::{Exchange, RunOrigin};
use crate::log::{self, LogLevel};
use crate::module::ModuleConfs;
use crate::name_map::NameMap;
use crate::phase::{Handler, Phase, Verdict};
use crate::plan::hosts::{AddressServers, BuildServer, ServedHosts, WorkerServers};
use crate::plan::location::{LocationSet, WorkerLocation};
use crate::plan::server::VirtualServer;
use crate::plan::{NestedPlans, Plan, PlanBuilder, PlanLevel};
use crate::rehearsed::HandlerRehearsal;
use crate::settings::listen::ListenAddress;
use crate::transport::ClientConnection;
use crate::typed_values::TypedValues;
use crate::worker::Worker;
use crate::worker::generation::{ConfigurationLink, WorkerGeneration};

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
        let builder = Rc::new(ServerBuilder::new(configuration, worker, None));
        let servers = builder.servers(worker)?;
        let here = configuration.addresses.iter().filter(|address| !address.stream);
        let mut hosts = builder.hosts(here, &servers, worker)?;
        let nobody = builder.nobody(&servers, worker)?.map(Rc::new);
        let mut stream = None;
        let mut serving = TypedValues::default();
        if let Some(section) = &configuration.stream {
            let builder = Rc::new(ServerBuilder::new(section, worker, Some(builder.link.clone())));
            let servers = builder.servers(worker)?;
            hosts.extend(builder.hosts(section.addresses.iter(), &servers, worker)?);
            if let Some(nobody) = builder.nobody(&servers, worker)?.map(Rc::new) {
                builder.link.set_nobody(&nobody);
                serving.push(Box::new(SectionOrigin { _held: nobody }));
            }
            stream = Some(builder.link.clone());
        }
        serving.push(Box::new(ServedHosts(hosts)));
        if let Some(nobody) = nobody {
            builder.link.set_nobody(&nobody);
            serving.push(Box::new(nobody));
        }
        let link = builder.link.clone();
        Ok(WorkerGeneration { configuration: configuration.clone(), serving, link, stream })
    }

    /// All plans are built when the configuration is installed, and what is wrong is reported then.
    pub fn is_built_at_once(configuration: &Configuration) -> bool {
        configuration.sections().all(|section| {
            let servers = section.servers();
            built_at_once(servers).count() == servers.len()
        })
    }

    /// Does all of installing `configuration` that may fail, for all its blocks, and forgets it.
    ///
    /// # Errors
    /// As [`WorkerGeneration::install`].
    pub fn rehearse(configuration: &Arc<Configuration>, worker: &Rc<Worker>) -> Result<(), Error> {
        if let Some(section) = &configuration.stream {
            Self::rehearse(section, worker)?;
        }
        let link = Rc::new(ConfigurationLink::new(configuration.clone(), None));
        let prepare = |confs: &ModuleConfs| confs.prepare(configuration.modules(), &link, worker);
        for server in configuration.servers() {
            prepare(&server.confs)?;
            server.nested.iter().try_for_each(prepare)?;
            prepare_locations(&server.locations, &prepare)?;
        }
        Ok(())
    }
}

/// The origin of what no client of a section has caused, as long as its configuration takes sessions.
struct SectionOrigin {
    _held: Rc<RunOrigin>,
}

/// Calls `prepare` for all blocks among and inside `locations`.
fn prepare_locations(
    locations: &[LocationConf],
    prepare: &impl Fn(&ModuleConfs) -> Result<(), Error>,
) -> Result<(), Error> {
    for location in locations {
        prepare(&location.confs)?;
        location.nested.iter().try_for_each(prepare)?;
        location.limit_except.iter().try_for_each(|(_, confs)| prepare(confs))?;
        prepare_locations(&location.locations, prepare)?;
    }
    Ok(())
}

/// The servers that are built at once on each worker, by their places: the first ones, and those that would hold a worker
/// up when they are asked for. Of the others most are idle where there are very many.
fn built_at_once(servers: &[ServerConf]) -> impl Iterator<Item = usize> {
    let mut before = 0usize;
    servers.iter().enumerate().filter_map(move |(index, server)| {
        let blocks = 1 + blocks_in(&server.locations);
        before = before.saturating_add(blocks);
        (before <= AT_ONCE || blocks > LATE).then_some(index)
    })
}

/// Number of blocks among and inside `locations`.
fn blocks_in(locations: &[LocationConf]) -> usize {
    locations.iter().map(|location| 1 + blocks_in(&location.locations)).sum()
}

/// Servers and locations that are built at once on each worker. One takes some fifteen microseconds and two to five
/// kilobytes.
const AT_ONCE: usize = 1000;
/// Servers and locations that a request may find unbuilt: some three milliseconds.
const LATE: usize = 200;

/// Builds the servers of a configuration on one worker.
struct ServerBuilder {
    titles: ServerTitles,
    link: Rc<ConfigurationLink>,
    worker: Weak<Worker>,
}

impl ServerBuilder {
    /// For one section of a configuration; `outer` is the link of the section around.
    fn new(
        configuration: &Arc<Configuration>,
        worker: &Rc<Worker>,
        outer: Option<Rc<ConfigurationLink>>,
    ) -> ServerBuilder {
        if outer.is_none() {
            worker.present.begin_rules();
        }
        ServerBuilder {
            titles: ServerTitles::new(configuration),
            link: Rc::new(ConfigurationLink::new(configuration.clone(), outer)),
            worker: Rc::downgrade(worker),
        }
    }

    /// The section's servers, of which the first are built.
    fn servers(self: &Rc<Self>, worker: &Rc<Worker>) -> Result<Rc<WorkerServers>, Error> {
        let confs = self.link.configuration.servers();
        let servers = WorkerServers::new(confs.len(), self.clone());
        for index in built_at_once(confs) {
            servers.get_or_build(index, || self.make(index, worker))?;
        }
        Ok(Rc::new(servers))
    }

    /// The servers of each of `addresses`, which are the section's.
    fn hosts<'a>(
        &self,
        addresses: impl Iterator<Item = &'a ListenAddress>,
        servers: &Rc<WorkerServers>,
        worker: &Rc<Worker>,
    ) -> Result<Vec<Rc<AddressServers>>, Error> {
        let hosts = addresses.map(|address| {
            let index = address.default;
            let default = servers.get_or_build(index, || self.make(index, worker))?.clone();
            Ok(Rc::new(AddressServers::new(address, &self.link.configuration, default, servers)))
        });
        hosts.collect()
    }

    /// Whose settings and whose connection what no client has caused has.
    fn nobody(&self, servers: &Rc<WorkerServers>, worker: &Rc<Worker>) -> Result<Option<RunOrigin>, Error> {
        let Some(conf) = &self.link.configuration.blocks().nobody else { return Ok(None) };
        let server = Rc::new(VirtualServer::nobody(conf, &self.link, worker)?);
        let hosts = Rc::new(AddressServers::nobodys(server.clone(), servers));
        let connection = Rc::new(ClientConnection::nobodys(&hosts, worker));
        Ok(Some(RunOrigin { connection, plan: server.plan.clone(), server }))
    }

    fn make(&self, index: usize, worker: &Rc<Worker>) -> Result<VirtualServer, Error> {
        let configuration = &self.link.configuration;
        let title = self.titles.of(index, configuration);
        VirtualServer::build(&configuration.servers()[index], &self.link, worker, &title)
    }
}

impl BuildServer for ServerBuilder {
    /// A server that is asked for. All were built once before the configuration was taken into use, so one that can't
    /// be built now has met a want of the moment; its requests are failed.
    #[cold]
    fn build_late(&self, index: usize) -> VirtualServer {
        let worker = self.worker.upgrade().expect("a worker outlives its servers");
        let configuration = &self.link.configuration;
        let rules = worker.present.rules().len();
        let made = self.make(index, &worker);
        if worker.present.rules().len() > rules {
            worker.configure_trace(configuration);
        }
        made.unwrap_or_else(|error| {
            log::cycle(LogLevel::Alert, &error.headline(&configuration.source));
            VirtualServer::failing(&configuration.servers()[index], &self.link, &worker)
        })
    }
}

/// Fails all requests.
struct FailHandler;

impl Handler for FailHandler {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, _: &mut Exchange) -> Verdict {
        Verdict::Status(500)
    }
}

impl VirtualServer {
    fn build(
        conf: &ServerConf,
        link: &Rc<ConfigurationLink>,
        worker: &Rc<Worker>,
        title: &ServerTitle<'_>,
    ) -> Result<VirtualServer, Error> {
        let maker = PlanMaker::new(worker, link);
        let level = link.configuration.blocks().level;
        let plan = maker.block(&conf.confs, None, &conf.nested, level, title.server())?;
        let mut named = NameMap::default();
        let locations = Self::locations(&conf.locations, &maker, title, &mut named)?;
        Ok(VirtualServer::of(conf, link, worker, plan, locations, named))
    }

    /// The settings of `http`, for what runs without a request.
    fn nobody(
        conf: &ServerConf,
        link: &Rc<ConfigurationLink>,
        worker: &Rc<Worker>,
    ) -> Result<VirtualServer, Error> {
        let core = conf.confs.get::<HttpCoreConf>().core();
        let mut plan = PlanBuilder::new(worker, link, PlanLevel::Alone, &core, Rc::from("http"));
        conf.confs.install_alone(link.configuration.modules(), &mut plan)?;
        let plan = plan.build(core.clone(), None, NestedPlans::default());
        Ok(VirtualServer::without_locations(conf, link, worker, plan))
    }

    /// Responds with 500 to every request.
    fn failing(conf: &ServerConf, link: &Rc<ConfigurationLink>, worker: &Rc<Worker>) -> VirtualServer {
        let core = conf.confs.get::<HttpCoreConf>().core();
        let mut plan = PlanBuilder::new(worker, link, PlanLevel::Server, &core, Rc::from("failing"));
        plan.handler(Phase::PostRead, "core", FailHandler);
        let plan = plan.build(core.clone(), None, NestedPlans::default());
        VirtualServer::without_locations(conf, link, worker, plan)
    }

    fn without_locations(
        conf: &ServerConf,
        link: &Rc<ConfigurationLink>,
        worker: &Worker,
        plan: Plan,
    ) -> VirtualServer {
        VirtualServer::of(conf, link, worker, Rc::new(plan), LocationSet::default(), NameMap::default())
    }

    fn of(
        conf: &ServerConf,
        link: &Rc<ConfigurationLink>,
        worker: &Worker,
        plan: Rc<Plan>,
        locations: LocationSet,
        named: NameMap<Rc<Plan>>,
    ) -> VirtualServer {
        let settings = conf.confs.get::<ServerCoreConf>().settings();
        VirtualServer {
            name: Rc::from(settings.name.clone()),
            settings,
            http2: conf.confs.get::<Http2Conf>().settings(),
            http3: conf.confs.get::<Http3Conf>().settings(),
            plain: plan.is_empty_before(Phase::FindConfig) && locations.is_plain(),
            plan,
            locations,
            named,
            parts: conf.confs.server_parts(link.configuration.modules()),
            link: link.clone(),
            tables: link.configuration.blocks().tables.clone(),
            caches: RequestCaches::of(worker).clone(),
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

impl AddressServers {
    fn new(
        address: &ListenAddress,
        configuration: &Configuration,
        default: Rc<VirtualServer>,
        servers: &Rc<WorkerServers>,
    ) -> AddressServers {
        let mut hosts = AddressServers::nobodys(default, servers);
        hosts.addr = address.addr.clone();
        hosts.protocols = address.protocols();
        hosts.words = address.servers.iter().map(|index| configuration.servers()[*index].words).collect();
        let conf = |index: usize| configuration.servers()[index].confs.get::<ServerCoreConf>();
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
}

#[cfg(test)]
mod tests {
    use weir_conf::{Contexts, Directive, names::FLAG};
    use weir_trace::{Recorder, RecorderSettings};

    use super::*;
    use crate::conf::{CORE_MODULES, test, with_core};
    use crate::module::{BuildHooks, Module, ModuleDef};

    /// A module that can't be installed where `refuse on` is in force.
    struct Refusing;

    #[derive(Default)]
    struct RefusingConf {
        refuse: Option<bool>,
    }

    impl Module for Refusing {
        const NAME: &'static str = "refusing";
        type Conf = RefusingConf;
        const DIRECTIVES: &'static [Directive<RefusingConf>] = &[Directive::new(
            "refuse",
            Contexts::ANY_OR_IF.or(Contexts::LIMIT_EXCEPT),
            FLAG,
            |conf: &mut RefusingConf, line| line.flag(&mut conf.refuse),
        )];
        const HOOKS: BuildHooks<RefusingConf> = BuildHooks {
            prepare: Some(|conf, _, _| match conf.refuse {
                Some(true) => Err(Error::new("refused")),
                _ => Ok(()),
            }),
            ..BuildHooks::NONE
        };
    }

    static WITH_REFUSING: [ModuleDef; CORE_MODULES.len() + 1] = with_core(&[ModuleDef::of::<Refusing>()]);

    /// Whether a configuration with `lines` in its last server can be taken into use. Its servers before that one are as many
    /// as are built at once.
    fn is_taken(lines: &str) -> bool {
        let first = "server { } ".repeat(AT_ONCE);
        let text = format!("events {{}} http {{ {first} server {{ server_name last; {lines} }} }}");
        let configuration = Arc::new(test::load(&text, &WITH_REFUSING).expect("good"));
        assert!(!WorkerGeneration::is_built_at_once(&configuration));
        let worker = Worker::new(0, Arc::default(), Recorder::new(0, RecorderSettings::default()));
        WorkerGeneration::rehearse(&configuration, &worker).is_ok()
    }

    #[test]
    fn whatever_block_can_not_be_installed_the_configuration_is_refused() {
        assert!(is_taken("location / { }"));
        for lines in [
            "refuse on;",
            "location / { refuse on; }",
            "location / { } location /a { location /a/b { refuse on; } }",
            "location /a { limit_except GET { refuse on; } }",
        ] {
            assert!(!is_taken(lines), "{lines}");
        }
    }
}
