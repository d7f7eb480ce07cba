//! The server process: holds all worker threads, as the configured user. It ends when its master says so, and serves on
//! when that one is gone (see [`orphan`](crate::orphan)); what needs root it gets from the master.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weir_engine::Configuration;
use weir_engine::log::{self, LogLevel};
use weir_engine::privileged;
use weir_engine::settings::main::MasterGone;
use weir_engine::zone::survival;
use weir_modules::otel::MetricsExporter;
use weir_rt::SharedRings;
use weir_rt::process::{self, ProcessChannel};
use weir_rt::signal::{self, Signals};
use weir_rt::zone_memory::ZoneFile;
use weir_see::remains::{self, CrashRemains};
use weir_see::{AdminListeners, BoundListeners, ServerSource};
use weir_server::{InheritedSockets, Server, ServerOptions, SocketPart};
use weir_sys::socket;

use crate::bundle::{BundledSocket, ConfBundle, MasterOrder, ServerReply, WantsAgent};
use crate::inherited::{InheritedConf, UNBUILT};
use crate::load::ConfLocation;
use crate::orphan::OrphanOffer;
use crate::run::{self, failed, lines};
use crate::{control, settings, single};

/// What the master leaves to its child.
pub(crate) struct ServerInheritance {
    /// The configuration to serve.
    pub configuration: InheritedConf,
    /// The listening sockets.
    pub sockets: InheritedSockets,
    /// The control socket; `None`: there is none.
    pub control: Option<UnixListener>,
    /// The way to the master.
    pub channel: ProcessChannel,
    /// Names and places that stay the same.
    pub paths: ConfLocation,
    /// Memory for the record of a crash; `None`: nothing is recorded.
    pub remains: Option<CrashRemains>,
    /// Memory for lines of logs until they are written; `None`: those of a process that is killed are lost.
    pub lines: Option<SharedRings>,
    /// Memory for zones that the next process finds if this one is killed; `None`: they end with it.
    pub zones: Option<Arc<ZoneFile>>,
    /// That of the process before, which has ended.
    pub zones_before: Option<Arc<ZoneFile>>,
}

/// Serves until the master says enough; the exit status. 2 is nginx's for a start that will not go better a second
/// time, [`UNBUILT`] one that may.
pub(crate) fn run(inheritance: ServerInheritance) -> i32 {
    log::threaded(true);
    run::log_panics();
    let ServerInheritance {
        configuration,
        sockets,
        control,
        channel,
        paths,
        remains,
        lines,
        zones,
        zones_before,
    } = inheritance;
    if let Some(zones) = zones {
        survival::begin(zones, zones_before);
    }
    if let Some(Err(error)) = lines.map(log::keep_lines) {
        log::cycle(
            LogLevel::Warn,
            &format_args!("lines of logs are lost if this process is killed: {error}"),
        );
    }
    let built = configuration.built(&paths);
    let code = if built.is_ok() { FATAL } else { UNBUILT };
    let started = built.and_then(|configuration| start(configuration, sockets, control, remains, &channel));
    let failed = match started {
        Ok(StartedServer { server, admin, metrics, signals, offer, user }) => {
            let master = ServerMaster { channel: Some(channel), offer, user };
            ServerProcess { server, admin, metrics, signals, master, paths }.wait();
            weir_lua::privileged_agent::wait_gone(FAREWELL);
            None
        }
        Err(errors) => {
            errors.iter().for_each(|error| log::startup(error));
            Some((channel, errors))
        }
    };
    weir_modules::otel::flush();
    log::cycle(LogLevel::Notice, &"exit");
    log::flush();
    let Some((channel, errors)) = failed else { return 0 };
    // Last of all: a master that knows of the failure may end this process before it has logged why. One that is gone
    // has no process to notify.
    let _ = channel.send(&ServerReply::Failed(errors).encode(), &[]);
    code
}

/// A server that serves, and what goes with it.
struct StartedServer {
    server: Server,
    admin: AdminListeners,
    metrics: MetricsExporter,
    signals: Signals,
    offer: OrphanOffer,
    user: u32,
}

/// Serves; `channel` is notified of it.
fn start(
    configuration: Arc<Configuration>,
    sockets: InheritedSockets,
    control: Option<UnixListener>,
    remains: Option<CrashRemains>,
    channel: &ProcessChannel,
) -> Result<StartedServer, Vec<String>> {
    let signals = Signals::new(&SIGNALS).map_err(failed("signalfd() failed"))?;
    for fault in [signal::SIGSEGV, signal::SIGBUS] {
        signal::set_default(fault).map_err(failed("sigaction() failed"))?;
    }
    settings::apply(&configuration.main);
    let user = socket::effective_user();
    let admin = BoundListeners::new(&configuration, configuration.main.run_as().map(|(user, _)| user.uid));
    settings::become_user(&configuration.main).map_err(|error| vec![error])?;
    let server = Server::start_with(configuration, ServerOptions::default(), sockets).map_err(lines)?;
    let source = ServerSource::new(&server);
    let offer = OrphanOffer::default();
    if let Some(listener) = control {
        control::serve(listener, &source, &offer);
    }
    let admin = admin.open(&source);
    let metrics = single::metrics_exporter(&server, &source);
    if let Some(Err(error)) = remains.map(|remains| remains::keep(remains, source.clone())) {
        log::cycle(LogLevel::Warn, &format_args!("nothing will be known of a crash: {error}"));
    }
    run::log_event_method(&server);
    let ready = ServerReply::Ready(WantsAgent(server.configuration().wants_agent()));
    channel.send(&ready.encode(), &[]).map_err(failed("the master process can't be told"))?;
    log::lead_stderr().map_err(|error| vec![error])?;
    Ok(StartedServer { server, admin, metrics, signals, offer, user })
}

/// The process.
struct ServerProcess {
    server: Server,
    admin: AdminListeners,
    metrics: MetricsExporter,
    signals: Signals,
    master: ServerMaster,
    paths: ConfLocation,
}

/// The master, as the server knows it.
struct ServerMaster {
    /// The way to it; `None` when it is gone.
    channel: Option<ProcessChannel>,
    /// What the next one gets.
    offer: OrphanOffer,
    /// Whom it runs as.
    user: u32,
}

/// What becomes of the server after a message.
enum ServerCourse {
    GoOn,
    /// Its master is gone.
    Orphaned,
    Quit,
}

impl ServerProcess {
    /// Executes commands until it is to end.
    fn wait(mut self) {
        loop {
            let ready = self.ready();
            // Signals first: a master that ends says so, and is gone then.
            while let Some(signal) = self.signals.read() {
                match signal {
                    signal::SIGQUIT | signal::SIGWINCH => return self.quit(),
                    signal::SIGTERM | signal::SIGINT => {
                        log::cycle(LogLevel::Notice, &"exiting");
                        self.master.offer.withdraw();
                        return single::stop(self.server);
                    }
                    signal::SIGUSR1 => reopen(),
                    _ => {}
                }
            }
            let course = match ready {
                Ok(false) => ServerCourse::GoOn,
                Ok(true) => self.obey(),
                Err(error) => {
                    log::cycle(
                        LogLevel::Alert,
                        &format_args!("poll() failed ({})", settings::reason(&error)),
                    );
                    ServerCourse::Quit
                }
            };
            match course {
                ServerCourse::GoOn => {}
                ServerCourse::Orphaned if self.serves_on() => {}
                ServerCourse::Orphaned | ServerCourse::Quit => return self.quit(),
            }
        }
    }

    /// Waits for a signal or the master; whether there is something from the master.
    fn ready(&self) -> io::Result<bool> {
        let signals = self.signals.as_fd();
        match &self.master.channel {
            Some(channel) => process::readable([signals, channel.as_fd()], None).map(|[_, said]| said),
            None => process::readable([signals], None).map(|_| false),
        }
    }

    /// The master is gone: whether the server goes on without one, as its configuration says.
    fn serves_on(&mut self) -> bool {
        if self.server.configuration().main.master_gone() == MasterGone::Quit {
            log::cycle(LogLevel::Alert, &"the master process is gone");
            return false;
        }
        let text = "the master process is gone; this server serves on without it, and is not started again if it dies: \
                    \"weir\", started again, takes over from it, \"weir -s quit\" ends it";
        log::cycle(LogLevel::Alert, &text);
        self.master.channel = None;
        self.master.offer.make(self.server.sockets(), self.master.user);
        true
    }

    fn quit(self) {
        self.master.offer.withdraw();
        log::cycle(LogLevel::Notice, &"gracefully shutting down");
        self.server.quit();
        single::drain(self.server, &self.signals);
    }

    /// Does what the master asks.
    fn obey(&self) -> ServerCourse {
        let Some(channel) = &self.master.channel else { return ServerCourse::GoOn };
        let message = match channel.receive() {
            Ok(Some(message)) => message,
            Ok(None) => return ServerCourse::Orphaned,
            Err(error) => {
                let reason = settings::reason(&error);
                log::cycle(
                    LogLevel::Alert,
                    &format_args!("the master process can't be understood ({reason})"),
                );
                return ServerCourse::Quit;
            }
        };
        match MasterOrder::decode(&message.bytes) {
            Some(MasterOrder::Reload(bundle)) => {
                let reloaded = self.reload(bundle, message.fds);
                let wants = || WantsAgent(self.server.configuration().wants_agent());
                let answer = ServerReply::Reloaded(reloaded.map(|()| wants()));
                if let Err(error) = channel.send(&answer.encode(), &[]) {
                    let reason = settings::reason(&error);
                    log::cycle(LogLevel::Alert, &format_args!("the master process can't be told ({reason})"));
                }
            }
            Some(MasterOrder::Reopen(logs)) => {
                let given = log::give(logs.into_iter().zip(message.fds).collect());
                reopen();
                drop(given);
            }
            Some(MasterOrder::Agent) => self.serve_agent(message.fds),
            None => log::cycle(LogLevel::Alert, &"the master process asks for something unknown"),
        }
        ServerCourse::GoOn
    }

    /// The privileged agent has begun: what its scripts share is here.
    fn serve_agent(&self, fds: Vec<OwnedFd>) {
        let mut sockets = fds.into_iter().map(UnixStream::from);
        let (Some(calls), Some(heard)) = (sockets.next(), sockets.next()) else {
            return log::cycle(LogLevel::Alert, &"the privileged agent comes without its sockets");
        };
        if let Err(error) = weir_lua::privileged_agent::serve(&self.server, calls, heard) {
            let reason = settings::reason(&error);
            log::cycle(LogLevel::Alert, &format_args!("the privileged agent can't be served ({reason})"));
        }
    }

    /// Builds what the master has built, and takes it into use.
    fn reload(&self, bundle: ConfBundle, fds: Vec<OwnedFd>) -> Result<(), Vec<String>> {
        let ConfBundle { mut record, sockets, logs } = bundle;
        let found = privileged::give(std::mem::take(&mut record.findings));
        let mut fds = fds.into_iter();
        let parts: Vec<(BundledSocket, OwnedFd)> = sockets.into_iter().zip(fds.by_ref()).collect();
        let given = log::give(logs.into_iter().zip(fds).collect::<Vec<(PathBuf, OwnedFd)>>());
        // The master has logged the warnings.
        let (configuration, _) = self.paths.load(&record)?;
        let main_log = log::main_of(configuration.main.error_log_open.as_ref(), &configuration.prefix)
            .map_err(|error| vec![error])?;
        drop(given);
        drop(found);
        let sockets = import(&configuration, parts)?;
        self.server.reload_with(Arc::new(configuration), sockets).map_err(lines)?;
        self.admin.update(&self.server.configuration());
        self.metrics.update(&self.server.configuration());
        log::set_main(main_log);
        log::lead_stderr().map_err(|error| vec![error])
    }
}

fn reopen() {
    log::cycle(LogLevel::Notice, &"reopening logs");
    log::reopen();
}

/// The master's sockets, for the addresses that the configuration has by the same words.
fn import(
    configuration: &Configuration,
    parts: Vec<(BundledSocket, OwnedFd)>,
) -> Result<InheritedSockets, Vec<String>> {
    let part = |(BundledSocket { address, reuseport, index }, fd)| {
        let known = configuration.addresses.iter().find(|known| known.addr.to_string() == address);
        let known = known.ok_or_else(|| vec![format!("the address {address} is another one here")])?;
        Ok(SocketPart { addr: known.addr.clone(), reuseport, index, fd })
    };
    let parts = parts.into_iter().map(part).collect::<Result<Vec<SocketPart>, Vec<String>>>()?;
    InheritedSockets::import(parts).map_err(failed("getsockname() failed"))
}

const SIGNALS: [i32; 6] =
    [signal::SIGQUIT, signal::SIGWINCH, signal::SIGTERM, signal::SIGINT, signal::SIGUSR1, signal::SIGHUP];
/// How long a server that has ended otherwise is there for the privileged agent, which was asked to end with it.
const FAREWELL: Duration = Duration::from_secs(1);
/// nginx's exit status of a process that could not even begin.
pub(crate) const FATAL: i32 = 2;
