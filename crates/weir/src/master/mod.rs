//! The master process: root, the pid file, the signals. It reads the configuration, opens listeners, logs and
//! directories, and forks the server, which has all of them by inheritance; later ones it passes over a socket pair. It
//! has one thread, never reads a client's byte, and starts the server again when that dies, while the listeners stay
//! open.

mod child;
mod privileged;
mod reload;
mod remains;
mod upgrade;

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_engine::Configuration;
use weir_engine::log::{self, HeldLogs, LogLevel};
use weir_rt::process::{self, EndedChild, ProcessEnd, ProcessTitle};
use weir_rt::signal::{self, ReceivedSignal, Signals};
use weir_rt::zone_memory::ZoneFile;
use weir_server::InheritedSockets;

use crate::bundle::{MasterOrder, ReadFiles, ServerReply};
use crate::inherited::InheritedConf;
use crate::load::ConfLocation;
use crate::notify::NotifySocket;
use crate::pid::{self, PidFile};
use crate::run::{self, ProgramPath, StartedConf, announce, failed, log_signal};
use crate::server::FATAL;
use crate::{control, settings, single};
use child::{MasterChild, RespawnTimer};
use privileged::PrivilegedChild;
use reload::PendingReload;

/// Starts the server and supervises it until a signal ends both.
///
/// # Errors
/// What keeps the server from starting.
pub(crate) fn run(start: StartedConf, program: ProgramPath) -> Result<(), Vec<String>> {
    let readiness = start.readiness;
    let daemon = readiness.is_some() || start.predecessor.is_some();
    let pid_path = start.configuration.main.pid(&start.configuration.prefix);
    let owner = start.configuration.main.run_as().map(|(user, _)| user.uid);
    // A predecessor has moved its own away. That of a server without a master is needed until this one serves.
    let control_path = pid::socket(&pid_path);
    let bound_at = if start.orphan.is_some() { control::beside(&control_path) } else { control_path.clone() };
    let control = control::bind(&bound_at, owner);
    let mut title = ProcessTitle::claim().ok();
    if let Some(title) = &mut title {
        title.set(&master_title(&program));
    }
    let mut hatching = ServerSeed {
        paths: start.paths,
        title,
        control,
        cycle: ConfCycle {
            configuration: Arc::new(start.configuration),
            sockets: start.sockets,
            record: start.record,
            shed: None,
        },
        early: Vec::new(),
        zones_before: None,
    };
    announce();
    let (server, wants_agent) = hatching.first(&start.signals).inspect_err(|_| {
        // The name is ours, as the pid file would have been.
        let _ = std::fs::remove_file(&bound_at);
    })?;
    let pid = PidFile::write(pid_path.clone()).map_err(|error| {
        server.kill(signal::SIGTERM);
        failed(&format!("open() \"{}\" failed", pid_path.display()))(error)
    })?;
    single::tell(&pid, 0, Ok(()));
    if let Some(orphan) = start.orphan {
        hatching.cycle.sockets.own_files();
        control::take_place(&control_path);
        orphan.dismiss();
    }
    start.notify.ready();
    let lead = log::lead_stderr();
    run::ready(readiness);
    let mut master = MasterProcess {
        hatching,
        program,
        signals: start.signals,
        notify: start.notify,
        pid,
        server: Some(server),
        leaving: Vec::new(),
        respawn: RespawnTimer::default(),
        agent: PrivilegedChild::default(),
        stage: MasterStage::Serving,
        retired: false,
        reload: PendingReload::default(),
        predecessor: start.predecessor,
        successor: None,
        daemon,
    };
    if let Err(error) = lead {
        log::cycle(LogLevel::Alert, &error);
    }
    master.employ(wants_agent);
    master.hatching.cycle.shed_blocks();
    master.look_after();
    log::cycle(LogLevel::Notice, &"exit");
    Ok(())
}

fn master_title(program: &ProgramPath) -> String {
    let words = std::iter::once(&program.name).chain(&program.arguments);
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    format!("weir: master process {}", words.join(" "))
}

/// The process.
struct MasterProcess {
    hatching: ServerSeed,
    program: ProgramPath,
    signals: Signals,
    notify: NotifySocket,
    pid: PidFile,
    /// The server in force; `None` between its death and its successor, and after WINCH.
    server: Option<MasterChild>,
    /// Servers and agents that were asked to end.
    leaving: Vec<MasterChild>,
    respawn: RespawnTimer,
    agent: PrivilegedChild,
    stage: MasterStage,
    /// WINCH has sent the server away, until HUP or the end of a new binary.
    retired: bool,
    reload: PendingReload,
    /// The master whose sockets this one has inherited.
    predecessor: Option<u32>,
    /// The master that has inherited from this one.
    successor: Option<u32>,
    /// Whether there is no terminal whose changes of size are signals.
    daemon: bool,
}

/// What a server is made from.
struct ServerSeed {
    paths: ConfLocation,
    title: Option<ProcessTitle>,
    control: Option<UnixListener>,
    cycle: ConfCycle,
    /// Signals that came while the first server was starting.
    early: Vec<ReceivedSignal>,
    /// The zones of a server process that has ended, until another one serves.
    zones_before: Option<Arc<ZoneFile>>,
}

/// A configuration with what was opened for it.
struct ConfCycle {
    /// Of a large one, once it is served, the settings outside of blocks alone: [`ConfCycle::shed_blocks`].
    configuration: Arc<Configuration>,
    sockets: InheritedSockets,
    record: ReadFiles,
    /// The logs of the blocks that are left out; `None` as long as the configuration is whole.
    shed: Option<HeldLogs>,
}

impl ConfCycle {
    /// A server has it: of a large configuration all is dropped that only serving needs, which is nearly all of its memory.
    /// A later server, or agent, builds it from the same texts.
    fn shed_blocks(&mut self) {
        let large = self.configuration.lines >= LARGE && self.shed.is_none();
        if let Some(configuration) = Arc::get_mut(&mut self.configuration).filter(|_| large) {
            self.shed = Some(log::hold());
            configuration.drop_blocks();
            process::trim_memory();
        }
    }

    /// In a child: the configuration, or what it is built from.
    fn bequeath(&mut self) -> InheritedConf {
        let configuration = std::mem::take(&mut self.configuration);
        match self.shed.take() {
            None => InheritedConf::Whole(configuration),
            Some(logs) => InheritedConf::Texts(Box::new(std::mem::take(&mut self.record)), logs),
        }
    }
}

/// Where in its life the master is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MasterStage {
    Serving,
    /// QUIT: the server ends with its last request.
    Quitting,
    /// TERM: it ends at once, and is killed at this time.
    Stopping(Option<Instant>),
}

impl MasterProcess {
    /// Handles signals and the server's words until no child is left.
    fn look_after(&mut self) {
        for received in std::mem::take(&mut self.hatching.early) {
            self.handle(received);
        }
        while self.stage == MasterStage::Serving || self.server.is_some() || !self.leaving.is_empty() {
            if let Err(error) = self.turn() {
                log::cycle(LogLevel::Alert, &format_args!("poll() failed ({})", settings::reason(&error)));
                // The only error left is want of memory.
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    fn turn(&mut self) -> io::Result<()> {
        let limit = self.deadline().map(|at| at.saturating_duration_since(Instant::now()));
        let signals = self.signals.as_fd();
        let channel = self.server.as_ref().and_then(|server| server.channel.as_ref());
        let (signalled, said) = match channel {
            Some(channel) => process::readable([signals, channel.as_fd()], limit)?.into(),
            None => (process::readable([signals], limit)?[0], false),
        };
        if said {
            self.hear();
        }
        while let Some(received) = signalled.then(|| self.signals.receive()).flatten() {
            self.handle(received);
        }
        self.on_time();
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        let kill = if let MasterStage::Stopping(at) = self.stage { at } else { None };
        kill.into_iter().chain(self.respawn.at).chain(self.agent.respawn.at).min()
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        if self.respawn.at.is_some_and(|at| at <= now) {
            self.respawn.at = None;
            self.spawn();
        }
        if self.agent.respawn.at.is_some_and(|at| at <= now) {
            self.spawn_agent();
        }
        if let MasterStage::Stopping(Some(at)) = self.stage
            && at <= now
        {
            self.stage = MasterStage::Stopping(None);
            self.signal_all(signal::SIGKILL);
        }
    }

    fn handle(&mut self, received: ReceivedSignal) {
        match received.signal {
            signal::SIGCHLD => {
                while let Some(ended) = process::reap() {
                    self.ended(ended);
                }
            }
            _ if self.stage != MasterStage::Serving => self.handle_at_the_end(received),
            signal::SIGHUP => self.reconfigure(received),
            signal::SIGUSR1 => self.reopen(received),
            signal::SIGUSR2 => self.upgrade(received),
            signal::SIGWINCH => self.retire(received),
            signal::SIGQUIT => {
                log_signal(received, ", shutting down");
                self.leave();
                self.stage = MasterStage::Quitting;
                self.signal_all(signal::SIGQUIT);
            }
            _ => {
                log_signal(received, ", exiting");
                self.leave();
                self.stop();
            }
        }
    }

    /// What still counts after QUIT or TERM.
    fn handle_at_the_end(&mut self, received: ReceivedSignal) {
        match received.signal {
            signal::SIGTERM | signal::SIGINT if self.stage == MasterStage::Quitting => {
                log_signal(received, ", exiting");
                self.stop();
            }
            signal::SIGUSR1 => self.reopen(received),
            _ => log_signal(received, ", ignoring"),
        }
    }

    fn stop(&mut self) {
        self.stage = MasterStage::Stopping(Some(Instant::now() + PATIENCE));
        self.signal_all(signal::SIGTERM);
    }

    fn signal_all(&self, number: i32) {
        self.server.iter().chain(&self.leaving).for_each(|child| child.kill(number));
    }

    /// The end begins: addresses are left to the other process that has them, or closed.
    fn leave(&mut self) {
        match self.successor {
            Some(pid) => self.notify.successor(pid),
            None => self.notify.stopping(),
        }
        self.respawn.at = None;
        self.dismiss_agent();
        self.fail_reload("the server ends");
        let sockets = std::mem::take(&mut self.hatching.cycle.sockets);
        if self.successor.is_some() {
            sockets.leave_files();
        } else if self.outlived_predecessor() {
            sockets.own_files();
        }
        self.hatching.control = None;
    }

    /// WINCH: the server ends gracefully, the master stays.
    fn retire(&mut self, received: ReceivedSignal) {
        if !self.daemon && received.pid == 0 {
            return; // the terminal has another size
        }
        log_signal(received, ", shutting down worker processes");
        self.retired = true;
        self.respawn.at = None;
        self.fail_reload("the server process was told to end");
        if let Some(server) = self.server.take() {
            server.kill(signal::SIGQUIT);
            self.leaving.push(server);
        }
        self.dismiss_agent();
    }

    /// USR1: all logs again, by the process that may open them.
    fn reopen(&mut self, received: ReceivedSignal) {
        log_signal(received, ", reopening logs");
        let owner = self.hatching.cycle.configuration.main.run_as().map(|(user, _)| user.uid);
        log::reopen_for(owner).iter().for_each(|failed| log::cycle(LogLevel::Emerg, failed));
        // What they hold open may be of an older configuration; they can but try themselves.
        self.leaving.iter().for_each(|child| child.kill(signal::SIGUSR1));
        self.agent.reopen();
        let Some(server) = &self.server else { return };
        let sent = log::opened().and_then(|logs| {
            let (paths, fds): (Vec<_>, Vec<_>) = logs.into_iter().unzip();
            server.send(&MasterOrder::Reopen(paths), &fds)
        });
        if let Err(error) = sent {
            let reason = settings::reason(&error);
            log::cycle(
                LogLevel::Alert,
                &format_args!("the server process can't be given new logs ({reason})"),
            );
        }
    }

    /// Something came from the server.
    fn hear(&mut self) {
        let Some(server) = &mut self.server else { return };
        match server.receive() {
            Some(ServerReply::Ready(wants)) => {
                server.ready = true;
                // It has what it could take over.
                self.hatching.zones_before = None;
                self.replaced();
                self.employ(wants);
                self.hatching.cycle.shed_blocks();
            }
            Some(ServerReply::Reloaded(result)) => self.reloaded(result),
            Some(ServerReply::Failed(reasons)) => server.reasons = reasons,
            // It is about to end; how, SIGCHLD shows.
            None => server.channel = None,
        }
    }

    fn ended(&mut self, EndedChild { pid, how }: EndedChild) {
        if self.successor == Some(pid) {
            child::log_end("new binary process", pid, how);
            return self.successor_ended();
        }
        if let Some(at) = self.leaving.iter().position(|child| child.pid == pid) {
            child::log_end(self.leaving[at].name, pid, how);
            remains::write_lines(&self.leaving.swap_remove(at));
        }
        if self.loses_agent(pid, how) {
            return;
        }
        if self.reload.loses(pid) {
            child::log_end("worker process", pid, how);
        }
        // Else, as process 1, an orphan of another process.
        if let Some(server) = self.server.take_if(|server| server.pid == pid) {
            child::log_end("worker process", pid, how);
            remains::write_lines(&server);
            // One that died before it served may not have had all of them: the next one begins where it did.
            if let Some(zones) = server.zones.as_ref().filter(|zones| zones.is_complete()) {
                self.hatching.zones_before = Some(zones.clone());
            }
            if self.stage == MasterStage::Serving {
                remains::keep(&server, how, self.pid.path());
            }
            self.server_ended(&server, how);
        }
    }

    fn server_ended(&mut self, server: &MasterChild, how: ProcessEnd) {
        if self.stage != MasterStage::Serving || self.restore(server, how) {
            return;
        }
        self.dismiss_agent();
        if how == ProcessEnd::Exited(FATAL) {
            self.fail_reload("the server process ended before it responded");
            return child::log_fatal(server.name, server.pid);
        }
        if !self.hand_over_again() {
            self.respawn.after(server, how);
        }
    }

    /// Starts the server, or tries again later.
    fn spawn(&mut self) {
        // A new server process would keep the addresses of one that is to be replaced from ever being closed.
        match self.hatching.spawn(&mut self.reload) {
            Ok(server) => self.server = Some(server),
            Err(error) => {
                let reason = settings::reason(&error);
                log::cycle(
                    LogLevel::Alert,
                    &format_args!("fork() failed while spawning \"worker process\" ({reason})"),
                );
                self.respawn.at = Some(Instant::now() + child::LATER);
            }
        }
    }
}

/// Lines of a configuration that the master does not keep: as many take some 25 MB and a quarter of a second, by which a
/// server that has crashed is back later.
const LARGE: usize = 20_000;
/// How long the server may take to end at once before it is killed: a disk that does not take the last lines of a log
/// is waited for as long.
const PATIENCE: Duration = Duration::from_secs(6);
