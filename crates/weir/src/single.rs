//! `master_process off`: one process does everything. It has no one to restart it, keeps the user it was started as
//! unless `user` names one, and can't be upgraded under way.

use std::sync::Arc;
use std::time::Duration;

use weir_conf::RealFiles;
use weir_engine::log::{self, LogLevel};
use weir_modules::otel::MetricsExporter;
use weir_rt::clock;
use weir_rt::signal::{self, Signals};
use weir_see::{AdminListeners, BoundListeners, ServerSource};
use weir_server::{Server, ServerOptions};

use crate::cli::EmbeddedConf;
use crate::load::ConfLocation;
use crate::notify::NotifySocket;
use crate::orphan::OrphanOffer;
use crate::pid::PidFile;
use crate::run::{self, StartedConf, announce, failed, lines, log_signal};
use crate::status::ReloadOutcome;
use crate::{control, settings};

/// Serves until a signal ends it.
///
/// # Errors
/// What keeps it from starting.
pub(crate) fn run(start: StartedConf) -> Result<(), Vec<String>> {
    let StartedConf { paths, record, configuration, sockets, signals, readiness, notify, orphan, .. } = start;
    // The files' contents, which a server process would need.
    drop(record);
    settings::apply(&configuration.main);
    log::threaded(true);
    run::log_panics();
    let pid_path = configuration.main.pid(&configuration.prefix);
    let server =
        Server::start_with(Arc::new(configuration), ServerOptions::default(), sockets).map_err(lines)?;
    let source = ServerSource::new(&server);
    // The configuration is not held: it is freed when a reload has taken it out of force.
    let user = server.configuration().main.run_as().map(|(user, _)| user.uid);
    if let Some(listener) = control::bind(&crate::pid::socket(&pid_path), user) {
        // It has no master that could be lost.
        control::serve(listener, &source, &OrphanOffer::default());
    }
    let admin = BoundListeners::new(&server.configuration(), user).open(&source);
    let metrics = metrics_exporter(&server, &source);
    // A process that waits for this file may use up all descriptors as soon as it is there, so what needs some comes
    // before it. It lies where only root may write, perhaps; and what is wrong with it belongs on the terminal.
    let pid = PidFile::write(pid_path.clone())
        .map_err(failed(&format!("open() \"{}\" failed", pid_path.display())))?;
    settings::become_user(&server.configuration().main).map_err(|error| vec![error])?;
    tell(&pid, 0, Ok(()));
    if let Some(orphan) = orphan {
        server.sockets().own_files();
        orphan.dismiss();
    }
    run::log_event_method(&server);
    announce();
    if paths.conf.is_none() {
        greet(&server, &paths, &admin);
    }
    if let Err(error) = log::lead_stderr() {
        // Messages reach the log all the same; only what libraries print does not.
        log::cycle(LogLevel::Alert, &error);
    }
    notify.ready();
    run::ready(readiness);
    let one = SingleProcess { server, admin, metrics, signals, paths, pid, notify };
    let result = one.wait();
    log::cycle(LogLevel::Notice, &"exit");
    result
}

/// Says what is served where, and where the server can be looked into.
fn greet(server: &Server, paths: &ConfLocation, admin: &AdminListeners) {
    let directory = std::fs::canonicalize(&paths.prefix).unwrap_or_else(|_| paths.prefix.clone());
    for address in server.addresses() {
        match &paths.embedded {
            EmbeddedConf::Welcome => {
                println!(
                    "Weir serves a welcome page on http://{address}/ and this directory on http://{address}/files/"
                );
            }
            EmbeddedConf::Directory(_) => {
                println!("Weir serves {} on http://{address}/ until Ctrl-C", directory.display());
            }
        }
    }
    for page in admin.pages() {
        println!("What it does is shown on {page}");
    }
}

/// The process.
struct SingleProcess {
    server: Server,
    admin: AdminListeners,
    metrics: MetricsExporter,
    signals: Signals,
    paths: ConfLocation,
    pid: PidFile,
    notify: NotifySocket,
}

impl SingleProcess {
    /// Handles signals until the server has ended.
    fn wait(self) -> Result<(), Vec<String>> {
        loop {
            // The number alone: its sender is known to `receive`, which does not wait.
            let number = self.signals.wait().map_err(failed("reading signals failed"))?;
            match number {
                signal::SIGHUP => self.reload(),
                signal::SIGUSR1 => {
                    log::cycle(LogLevel::Notice, &"reopening logs");
                    log::reopen();
                }
                signal::SIGQUIT => {
                    log::cycle(LogLevel::Notice, &"gracefully shutting down");
                    self.notify.stopping();
                    self.server.quit();
                    drain(self.server, &self.signals);
                    return Ok(());
                }
                signal::SIGTERM | signal::SIGINT => {
                    log::cycle(LogLevel::Notice, &"exiting");
                    self.notify.stopping();
                    stop(self.server);
                    return Ok(());
                }
                signal::SIGCHLD => {}
                signal => {
                    let received = signal::ReceivedSignal { signal, pid: 0, uid: 0 };
                    log_signal(received, ", ignoring: there is no master process");
                }
            }
        }
    }

    /// HUP: the new configuration, or the old one and the reason why.
    fn reload(&self) {
        let began = clock::monotonic_ns();
        log::cycle(LogLevel::Notice, &"reconfiguring");
        self.notify.reloading();
        conclude(&self.notify, &self.pid, began, self.replace());
    }

    fn replace(&self) -> Result<(), Vec<String>> {
        let (configuration, warnings) = self.paths.prepare(&RealFiles)?;
        for warning in warnings {
            warning.log();
        }
        let main_log = log::main_of(configuration.main.error_log_open.as_ref(), &configuration.prefix)
            .map_err(|error| vec![error])?;
        let sockets =
            run::open(&configuration, &self.server.sockets(), |line| log::cycle(LogLevel::Emerg, &line))?;
        self.server.reload_with(Arc::new(configuration), sockets).map_err(lines)?;
        self.admin.update(&self.server.configuration());
        self.metrics.update(&self.server.configuration());
        log::set_main(main_log);
        log::lead_stderr().map_err(|error| vec![error])
    }
}

/// What sends the metrics of `server`, as its configuration says.
pub(crate) fn metrics_exporter(server: &Server, source: &Arc<ServerSource>) -> MetricsExporter {
    let source = source.clone();
    let exporter = MetricsExporter::new(move || weir_see::metrics_text(&source));
    exporter.update(&server.configuration());
    exporter
}

/// Reports what became of a reload: to the service manager, in the log, and in the file beside the pid file.
pub(crate) fn conclude(notify: &NotifySocket, pid: &PidFile, began: u64, result: Result<(), Vec<String>>) {
    match &result {
        Ok(()) => notify.ready(),
        Err(errors) => {
            errors.iter().for_each(|error| log::cycle(LogLevel::Emerg, error));
            notify.unchanged();
        }
    }
    tell(pid, began, result);
}

/// Writes the outcome of a reload, or that there will be one, beside the pid file.
pub(crate) fn tell(pid: &PidFile, began: u64, result: Result<(), Vec<String>>) {
    if let Err(error) = (ReloadOutcome { began, result }).write(pid.path()) {
        let reason = settings::reason(&error);
        log::cycle(
            LogLevel::Warn,
            &format_args!("\"weir -s reload\" can't be answered beside the pid file ({reason})"),
        );
    }
}

/// After [`Server::quit`]: until the last request has ended, or a TERM says enough.
pub(crate) fn drain(server: Server, signals: &Signals) {
    while !server.join(Some(Duration::from_millis(20))) {
        if let Some(signal::SIGTERM | signal::SIGINT) = signals.read() {
            return stop(server);
        }
    }
}

/// Ends at once.
pub(crate) fn stop(server: Server) {
    server.stop();
    server.join(Some(Duration::from_secs(10)));
}
