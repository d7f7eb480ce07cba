//! HUP: the new configuration is built whole, what needs root is opened, and the running server gets both. It swaps them
//! in and says so; until then nothing of the old one is given up.
//!
//! What a running process can't change of itself (its user, limits, environment) takes a new server process, as every
//! reload does in nginx; the old one ends gracefully then.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use weir_engine::log::{self, ErrorLog, LogLevel};
use weir_engine::privileged;
use weir_rt::clock;
use weir_rt::process::{self, ProcessEnd};
use weir_rt::signal::{self, ReceivedSignal};

use super::child::words;
use super::{ConfCycle, MasterChild, MasterProcess};
use crate::bundle::{BundledSocket, ConfBundle, FileRecorder, MasterOrder, WantsAgent};
use crate::run::{self, log_signal};
use crate::{pid, settings, single};

/// What goes on of a reload: at most one of the two.
#[derive(Default)]
pub(super) struct PendingReload {
    asked: Option<AskedServer>,
    replacing: Option<ReplacingServer>,
    /// Another HUP came meanwhile.
    again: bool,
}

/// The server has the new configuration and has not responded yet.
struct AskedServer {
    /// When the signal was seen.
    began: u64,
    next: NextConf,
}

/// A new server process was started with the new configuration, and is not ready yet.
struct ReplacingServer {
    began: u64,
    before: ConfCycle,
    /// The one that goes on until then; `None` at the first start.
    server: Option<MasterChild>,
    /// True when no server was running on purpose.
    retired: bool,
}

/// A configuration that is to be.
struct NextConf {
    cycle: ConfCycle,
    log: ErrorLog,
}

impl PendingReload {
    /// In a server process: lets go of what the master holds.
    pub(super) fn forget(&mut self) {
        if let Some(AskedServer { next, .. }) = self.asked.take() {
            next.cycle.sockets.leave_files();
        }
        if let Some(ReplacingServer { before, .. }) = self.replacing.take() {
            before.sockets.leave_files();
        }
    }

    /// Whether `pid` was the server that is to be replaced; it can't be gone back to any more.
    pub(super) fn loses(&mut self, pid: u32) -> bool {
        let server = self
            .replacing
            .as_mut()
            .and_then(|replacing| replacing.server.take_if(|server| server.pid == pid));
        server.is_some()
    }
}

impl MasterProcess {
    /// HUP.
    pub(super) fn reconfigure(&mut self, received: ReceivedSignal) {
        log_signal(received, ", reconfiguring");
        if self.successor.is_some() {
            return self.come_back();
        }
        match self.reload.asked.is_some() || self.reload.replacing.is_some() {
            true => self.reload.again = true,
            false => self.begin(),
        }
    }

    /// As in nginx a master that has a successor does not read anything again, but starts its server again.
    fn come_back(&mut self) {
        if self.retired {
            log::cycle(LogLevel::Notice, &"start worker processes");
            self.retired = false;
            self.spawn();
        }
    }

    fn begin(&mut self) {
        let began = clock::monotonic_ns();
        log::cycle(LogLevel::Notice, &"reconfiguring");
        self.notify.reloading();
        match self.prepare() {
            Ok(next) => self.hand_over(began, next),
            Err(errors) => self.conclude(began, Err(errors)),
        }
    }

    /// Builds and opens everything.
    fn prepare(&self) -> Result<NextConf, Vec<String>> {
        let recorder = FileRecorder::default();
        let (prepared, findings) = privileged::collect(|| self.hatching.paths.prepare(&recorder));
        let (configuration, warnings) = prepared?;
        for warning in warnings {
            warning.log();
        }
        let log = log::main_of(configuration.main.error_log_open.as_ref(), &configuration.prefix)
            .map_err(|error| vec![error])?;
        let sockets = run::open(&configuration, &self.hatching.cycle.sockets, |line| {
            log::cycle(LogLevel::Emerg, &line);
        })?;
        let (configuration, record) = (Arc::new(configuration), recorder.finish(findings));
        let cycle = ConfCycle { configuration, sockets, record, shed: None };
        Ok(NextConf { cycle, log })
    }

    fn hand_over(&mut self, began: u64, next: NextConf) {
        let (old, new) = (&self.hatching.cycle.configuration.main, &next.cycle.configuration.main);
        match &self.server {
            Some(server) if !settings::differ(old, new) => {
                let asked = bundle(&next.cycle).and_then(|(order, fds)| server.send(&order, &fds));
                match asked {
                    Ok(()) => self.reload.asked = Some(AskedServer { began, next }),
                    // It is gone, or going: the one that takes its place begins with the new configuration.
                    Err(error) if is_gone(&error) => self.replace(began, next),
                    Err(error) => {
                        let reason = settings::reason(&error);
                        let reported =
                            format!("the server process can't be given the configuration ({reason})");
                        self.conclude(began, Err(vec![reported]));
                    }
                }
            }
            _ => self.replace(began, next),
        }
    }

    fn replace(&mut self, began: u64, next: NextConf) {
        log::cycle(LogLevel::Notice, &"start worker processes");
        let before = std::mem::replace(&mut self.hatching.cycle, next.cycle);
        let (server, retired) = (self.server.take(), std::mem::take(&mut self.retired));
        self.respawn.at = None;
        log::set_main(next.log);
        self.reload.replacing = Some(ReplacingServer { began, before, server, retired });
        self.spawn();
    }

    /// The server process has ended while it was asked to take a new configuration: the next one begins with that, and where
    /// it ends, too, before it is ready, with the one before. `false`: it was not asked.
    pub(super) fn hand_over_again(&mut self) -> bool {
        let Some(AskedServer { began, next }) = self.reload.asked.take() else { return false };
        self.replace(began, next);
        true
    }

    /// The new server process is ready: the one before may go.
    pub(super) fn replaced(&mut self) {
        let Some(ReplacingServer { began, server, .. }) = self.reload.replacing.take() else { return };
        if let Some(server) = server {
            server.kill(signal::SIGQUIT);
            self.leaving.push(server);
        }
        self.settle();
        self.conclude(began, Ok(()));
    }

    /// The server process has ended. When it was to replace another, that one goes on: `true`.
    pub(super) fn restore(&mut self, child: &MasterChild, how: ProcessEnd) -> bool {
        let Some(ReplacingServer { began, before, server, retired }) = self.reload.replacing.take() else {
            return false;
        };
        self.hatching.cycle = before;
        if let Err(error) = log::start(
            self.hatching.cycle.configuration.main.error_log_open.as_ref(),
            &self.hatching.cycle.configuration.prefix,
        ) {
            log::cycle(LogLevel::Emerg, &error);
        }
        if server.is_none() && !retired {
            self.respawn.at = Some(Instant::now());
        }
        (self.server, self.retired) = (server, retired);
        let ended = format!("the new worker process {} before it was ready", words(how));
        log::cycle(LogLevel::Emerg, &ended);
        self.notify.unchanged();
        // The process has logged its reasons itself.
        single::tell(&self.pid, began, Err(child.reasons.iter().cloned().chain([ended]).collect()));
        self.begin_again();
        true
    }

    /// The running server has responded.
    pub(super) fn reloaded(&mut self, result: Result<WantsAgent, Vec<String>>) {
        let Some(AskedServer { began, next }) = self.reload.asked.take() else { return };
        let result = result.map(|wants_agent| {
            self.hatching.cycle = next.cycle;
            log::set_main(next.log);
            self.settle();
            self.employ(wants_agent);
            self.hatching.cycle.shed_blocks();
        });
        self.conclude(began, result);
    }

    /// The new configuration is in force.
    fn settle(&mut self) {
        if self.outlived_predecessor() {
            self.hatching.cycle.sockets.own_files();
        }
        if let Err(error) = log::lead_stderr() {
            log::cycle(LogLevel::Alert, &error);
        }
        let configuration = &self.hatching.cycle.configuration;
        let path = configuration.main.pid(&configuration.prefix);
        // The name itself is the successor's as long as it is there.
        let path = if self.successor.is_some() { pid::oldbin(&path) } else { path };
        if path != self.pid.path()
            && let Err(error) = self.pid.rename(path.clone())
        {
            let (from, reason) = (self.pid.path().display(), settings::reason(&error));
            let text = format_args!("rename() {from} to {} failed ({reason})", path.display());
            log::cycle(LogLevel::Alert, &text);
        }
    }

    /// Says what became of it, and does what was asked for meanwhile.
    fn conclude(&mut self, began: u64, result: Result<(), Vec<String>>) {
        single::conclude(&self.notify, &self.pid, began, result);
        // The configuration that is not in force, and what was only needed to read the other.
        process::trim_memory();
        self.begin_again();
    }

    /// HUP came while a reload was under way: the next one.
    fn begin_again(&mut self) {
        if std::mem::take(&mut self.reload.again) {
            self.begin();
        }
    }

    /// Gives a reload under way up.
    pub(super) fn fail_reload(&mut self, why: &str) {
        self.reload.again = false;
        if let Some(AskedServer { began, .. }) = self.reload.asked.take() {
            self.conclude(began, Err(vec![why.to_owned()]));
        }
        if let Some(ReplacingServer { began, server, .. }) = self.reload.replacing.take() {
            if let Some(server) = server {
                server.kill(signal::SIGQUIT);
                self.leaving.push(server);
            }
            self.conclude(began, Err(vec![why.to_owned()]));
        }
    }
}

/// Whether the process at the other end of a channel has closed it.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected
    )
}

/// A configuration as the server gets it.
fn bundle(cycle: &ConfCycle) -> io::Result<(MasterOrder, Vec<OwnedFd>)> {
    let (mut sockets, mut fds) = (Vec::new(), Vec::new());
    for part in cycle.sockets.export()? {
        sockets.push(BundledSocket {
            address: part.addr.to_string(),
            reuseport: part.reuseport,
            index: part.index,
        });
        fds.push(part.fd);
    }
    let mut logs = Vec::new();
    for (path, fd) in log::opened()? {
        logs.push(path);
        fds.push(fd);
    }
    Ok((MasterOrder::Reload(ConfBundle { record: cycle.record.clone(), sockets, logs }), fds))
}
