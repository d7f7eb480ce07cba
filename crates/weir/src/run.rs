//! Serving: what a start does whichever way it goes on, as a master with a server below it or as one process.

use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

use weir_engine::Configuration;
use weir_engine::log::{self, LogLevel};
use weir_engine::privileged;
use weir_rt::net;
use weir_rt::process::inherit::{self, InheritedDescriptors};
use weir_rt::process::{self, DaemonReadiness};
use weir_rt::signal::{self, ReceivedSignal, Signals};
use weir_server::{InheritedSockets, Server, ServerOptions, SocketPart, StartError};

use crate::bundle::{FileRecorder, ReadFiles};
use crate::cli::CommandLine;
use crate::load::ConfLocation;
use crate::notify::NotifySocket;
use crate::orphan::OrphanServer;
use crate::version::NGINX;
use crate::{master, settings, single};

/// How this program was called: a binary upgrade calls it again.
#[derive(Clone, Debug)]
pub(crate) struct ProgramPath {
    /// As which it was called.
    pub name: OsString,
    /// The arguments of the program.
    pub arguments: Vec<OsString>,
}

/// A start, as far as it is the same for both ways.
pub(crate) struct StartedConf {
    /// The paths of the configuration file and its prefix.
    pub paths: ConfLocation,
    /// The files that were read, with their texts.
    pub record: ReadFiles,
    /// The configuration that they contain.
    pub configuration: Configuration,
    /// The listening sockets.
    pub sockets: InheritedSockets,
    /// The signals, blocked.
    pub signals: Signals,
    /// The process that waits for the daemon to be ready; `None` if none does.
    pub readiness: Option<DaemonReadiness>,
    /// systemd.
    pub notify: NotifySocket,
    /// A server whose master is gone, which ends when this one serves.
    pub orphan: Option<OrphanServer>,
    /// The id of the process that this one takes over from; `None` at a first start.
    pub predecessor: Option<u32>,
}

/// Serves until a signal ends it.
pub(crate) fn run(line: &CommandLine, program: ProgramPath) -> ExitCode {
    process::keep_free_memory(FREE_MEMORY);
    let result = start(line).and_then(|start| match start.configuration.main.master_process() {
        true => master::run(start, program),
        false => single::run(start),
    });
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(errors) => {
            for error in errors {
                log::startup(&error);
            }
            ExitCode::FAILURE
        }
    };
    weir_modules::otel::flush();
    log::flush();
    code
}

fn start(line: &CommandLine) -> Result<StartedConf, Vec<String>> {
    // A process that forks has no threads.
    log::threaded(false);
    let mut inherited = InheritedDescriptors::take();
    let (upgrade, notify) = (inherited.upgrade, NotifySocket::from_environment());
    if let Some(secret) = inherited.secret.take() {
        weir_server::conn::inherit_quic_secret(secret);
    }
    let (paths, recorder) = (ConfLocation::of(line), FileRecorder::default());
    let (prepared, findings) = privileged::collect(|| paths.prepare(&recorder));
    let (configuration, warnings) = prepared?;
    let record = recorder.finish(findings);
    for warning in warnings {
        warning.log();
    }
    // What was only needed to read it: the server that this process forks would have it, too.
    process::trim_memory();
    // The predecessor is in the background already, or wants to be in the foreground.
    let readiness = match configuration.main.daemon() && paths.conf.is_some() && !upgrade {
        true => Some(process::daemonize().map_err(failed("daemon() failed"))?),
        false => None,
    };
    let signals = Signals::new(&SIGNALS).map_err(failed("signalfd() failed"))?;
    signal::ignore(signal::SIGPIPE).map_err(failed("sigaction(SIGPIPE) failed"))?;
    // A file that reaches RLIMIT_FSIZE is an error of its write (EFBIG), as a full disk is, and not the end of the process.
    signal::ignore(signal::SIGXFSZ).map_err(failed("sigaction(SIGXFSZ) failed"))?;
    log::start(configuration.main.error_log_open.as_ref(), &configuration.prefix)
        .map_err(|error| vec![error])?;
    let mut orphan = None;
    if !upgrade && inherited.sockets.is_empty() {
        orphan = OrphanServer::find(&configuration.main.pid(&configuration.prefix));
        if let Some(orphan) = &mut orphan {
            let pid = &orphan.pid;
            log::cycle(
                LogLevel::Notice,
                &format_args!("taking over from server process {pid}, whose master is gone"),
            );
            inherited.sockets = std::mem::take(&mut orphan.sockets);
        }
    }
    let sockets =
        open(&configuration, &import(inherited)?, |line| log::startup(&line)).map_err(|mut lines| {
            if paths.conf.is_none() && lines.iter().any(|line| line.contains("(98: ")) {
                lines.push(
                    "another program listens there: \"weir serve --listen 8081\" takes another port"
                        .to_owned(),
                );
            }
            lines
        })?;
    let predecessor = upgrade.then(process::parent);
    Ok(StartedConf { paths, record, configuration, sockets, signals, readiness, notify, orphan, predecessor })
}

/// What was inherited, as a set of sockets whose owners are not known yet.
fn import(inherited: InheritedDescriptors) -> Result<InheritedSockets, Vec<String>> {
    for complaint in &inherited.complaints {
        log::cycle(LogLevel::Emerg, complaint);
    }
    if inherited.sockets.is_empty() {
        return Ok(InheritedSockets::default());
    }
    let fds: Vec<_> = inherited.sockets.iter().map(std::os::fd::AsFd::as_fd).collect();
    log::cycle(LogLevel::Notice, &format_args!("using inherited sockets from \"{}\"", inherit::list(&fds)));
    let parts = inherited.sockets.into_iter().enumerate().filter_map(|(index, fd)| {
        let part = part(fd, index);
        part.inspect_err(|error| {
            log::cycle(LogLevel::Emerg, &format_args!("inherited socket, ignored: {error}"));
        })
        .ok()
    });
    InheritedSockets::import(parts.collect()).map_err(failed("getsockname() of an inherited socket failed"))
}

fn part(fd: OwnedFd, index: usize) -> io::Result<SocketPart> {
    // Only the flag is set; which kind of socket it is does not matter. systemd's wait.
    let socket = TcpListener::from(fd);
    socket.set_nonblocking(true)?;
    let fd = OwnedFd::from(socket);
    Ok(SocketPart { addr: net::local_addr(fd.as_raw_fd())?, reuseport: false, index, fd })
}

/// Opens what `open` has not; an address in use is tried again, as nginx does: the old server may still be leaving, or
/// workers that listened there until the last reload. Each failure but the last one is logged.
pub(crate) fn open(
    configuration: &Configuration,
    open: &InheritedSockets,
    tell: impl Fn(&str),
) -> Result<InheritedSockets, Vec<String>> {
    let workers = ServerOptions::default().workers(configuration);
    for _ in 1..BIND_ATTEMPTS {
        match open.reopen(configuration, workers) {
            Err(StartError(error)) if error.contains("(98: ") => {
                error.lines().for_each(&tell);
                std::thread::sleep(Duration::from_millis(500));
            }
            result => return result.map_err(lines),
        }
    }
    open.reopen(configuration, workers).map_err(|error| {
        let mut lines = lines(error);
        lines.push("still could not bind()".to_owned());
        if lines.iter().any(|line| line.contains("(98: ")) {
            lines.push(IN_USE.to_owned());
        }
        lines
    })
}

/// What to do about an address in use.
const IN_USE: &str =
    "another program listens there: \"ss -ltnp\" names it (\"weir -s reload\" speaks to a running server)";

/// The lines of an error, each of which is logged as one.
pub(crate) fn lines(StartError(error): StartError) -> Vec<String> {
    error.lines().map(str::to_owned).collect()
}

/// nginx's form of an error of the system.
pub(crate) fn failed(what: &str) -> impl FnOnce(io::Error) -> Vec<String> + use<> {
    let what = what.to_owned();
    move |error| vec![format!("{what} ({})", settings::reason(&error))]
}

/// Logs which event method the workers use, as nginx does, and why it is epoll where nobody asked for that.
pub(crate) fn log_event_method(server: &Server) {
    let Some(thread) = server.threads().into_iter().next() else { return };
    let chosen = server.configuration().main.driver;
    match thread.why_epoll(chosen).filter(|_| chosen.is_none()) {
        Some(why) => {
            log::cycle(LogLevel::Notice, &format_args!("using the \"epoll\" event method, since {why}"));
        }
        None => log::cycle(LogLevel::Notice, &format_args!("using the \"{}\" event method", thread.driver)),
    }
}

/// What nginx says when it begins to serve.
pub(crate) fn announce() {
    log::cycle(LogLevel::Notice, &format_args!("weir/{} (nginx/{NGINX})", env!("CARGO_PKG_VERSION")));
    log::cycle(LogLevel::Notice, &"start worker processes");
}

/// What nginx says of a signal, with what it leads to.
pub(crate) fn log_signal(received: ReceivedSignal, action: &str) {
    let name = match received.signal {
        signal::SIGHUP => "SIGHUP",
        signal::SIGINT => "SIGINT",
        signal::SIGTERM => "SIGTERM",
        signal::SIGQUIT => "SIGQUIT",
        signal::SIGUSR1 => "SIGUSR1",
        signal::SIGUSR2 => "SIGUSR2",
        signal::SIGWINCH => "SIGWINCH",
        signal::SIGCHLD => "SIGCHLD",
        _ => "a signal",
    };
    let number = received.signal;
    let sender = match received.pid {
        0 => String::new(),
        pid => format!(" from {pid}"),
    };
    log::cycle(LogLevel::Notice, &format_args!("signal {number} ({name}) received{sender}{action}"));
}

/// The process that started a daemon may go on.
pub(crate) fn ready(readiness: Option<DaemonReadiness>) {
    if let Some(Err(error)) = readiness.map(DaemonReadiness::notify) {
        log::cycle(LogLevel::Alert, &format_args!("the parent process is gone: {error}"));
    }
}

/// A panic of a request's task goes to the log.
pub(crate) fn log_panics() {
    weir_rt::set_panic_hook(|message| {
        log::cycle(LogLevel::Crit, &format_args!("a request's task panicked: {message}"));
    });
}

const SIGNALS: [i32; 8] = [
    signal::SIGHUP,
    signal::SIGINT,
    signal::SIGTERM,
    signal::SIGQUIT,
    signal::SIGUSR1,
    signal::SIGUSR2,
    signal::SIGWINCH,
    signal::SIGCHLD,
];
/// Bytes of free memory that each worker keeps: a response of 120 KB through a filter has taken and given back 150 KB, and
/// costs a fifth less (84 us, 67 us) where these stay.
const FREE_MEMORY: i32 = 256 * 1024;
/// nginx's: half a second apart.
const BIND_ATTEMPTS: u32 = 5;
