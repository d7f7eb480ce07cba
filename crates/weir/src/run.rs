//! Serving: load, bind, tell, wait for signals.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use weir_core::Configuration;
use weir_core::log::{self, Level};
use weir_core::server::{Options, Server, StartError};
use weir_rt::process::Readiness;
use weir_rt::signal::{self, Signals};
use weir_see::Source;

use crate::cli::CommandLine;
use crate::control::Control;
use crate::load::Paths;
use crate::pid::PidFile;
use crate::settings;
use crate::version::NGINX;

/// Serves until a signal ends it.
pub(crate) fn run(line: &CommandLine) -> ExitCode {
    match serve(line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(errors) => {
            for error in errors {
                log::startup(&error);
            }
            log::flush();
            ExitCode::FAILURE
        }
    }
}

fn serve(line: &CommandLine) -> Result<(), Vec<String>> {
    let paths = Paths::of(line);
    let (configuration, warnings) = paths.prepare()?;
    for warning in warnings {
        log::cycle(Level::Warn, &warning);
    }
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| vec![format!("{what} ({})", settings::reason(&error))]
    };
    settings::apply(&configuration.main);
    let readiness = match configuration.main.daemon() && paths.conf.is_some() {
        true => Some(weir_rt::process::daemonize().map_err(failed("daemon() failed"))?),
        false => None,
    };
    let signals = Signals::new(&SIGNALS).map_err(failed("signalfd() failed"))?;
    signal::ignore(signal::SIGPIPE).map_err(failed("sigaction(SIGPIPE) failed"))?;
    weir_rt::set_panic_hook(|message| {
        log::cycle(Level::Crit, &format_args!("a request's task panicked: {message}"));
    });
    let pid_path = configuration.main.pid(&configuration.prefix);
    log::start(&configuration).map_err(|error| vec![error])?;
    let server = start(configuration)?;
    // Where only root may write, perhaps; and what is wrong with it belongs on the terminal.
    let pid = PidFile::write(pid_path.clone())
        .map_err(failed(&format!("open() \"{}\" failed", pid_path.display())))?;
    let source = Source::new(&server);
    let control = Control::start(&pid_path, &source);
    settings::become_user(&server.configuration().main).map_err(|error| vec![error])?;
    announce(&server, &paths);
    log::lead_stderr().map_err(|error| vec![error])?;
    ready(readiness);
    let result = wait(server, &signals, &paths, &source);
    drop(control);
    drop(pid);
    log::cycle(Level::Notice, &"exit");
    log::flush();
    result
}

/// Binds and starts; an address in use is tried again, as nginx does, since the old server may still be leaving.
fn start(configuration: Configuration) -> Result<Server, Vec<String>> {
    let configuration = Arc::new(configuration);
    for _ in 1..BIND_ATTEMPTS {
        match Server::start(configuration.clone(), Options::default()) {
            Err(StartError(error)) if error.contains("(98: ") => {
                for line in error.lines() {
                    log::startup(&line);
                }
                std::thread::sleep(Duration::from_millis(500));
            }
            result => return result.map_err(|StartError(error)| error.lines().map(str::to_owned).collect()),
        }
    }
    Server::start(configuration, Options::default()).map_err(|StartError(error)| {
        let mut lines: Vec<String> = error.lines().map(str::to_owned).collect();
        lines.push("still could not bind()".to_owned());
        lines
    })
}

fn announce(server: &Server, paths: &Paths) {
    if let Some(thread) = server.threads().first() {
        log::cycle(Level::Notice, &format_args!("using the \"{}\" event method", thread.driver));
    }
    log::cycle(Level::Notice, &format_args!("weir/{} (nginx/{NGINX})", env!("CARGO_PKG_VERSION")));
    log::cycle(Level::Notice, &"start worker processes");
    if paths.conf.is_none() {
        for address in server.addresses() {
            println!("Weir serves on http://{address}/ and this folder on http://{address}/files/");
        }
    }
}

fn ready(readiness: Option<Readiness>) {
    if let Some(Err(error)) = readiness.map(Readiness::notify) {
        log::cycle(Level::Alert, &format_args!("the parent process is gone: {error}"));
    }
}

/// Handles signals until the server has ended.
fn wait(mut server: Server, signals: &Signals, paths: &Paths, source: &Source) -> Result<(), Vec<String>> {
    loop {
        let received = signals.wait().map_err(|error| vec![format!("signalfd read failed: {error}")])?;
        match received {
            signal::SIGHUP => {
                reload(&server, paths);
                source.update(&server);
            }
            signal::SIGUSR1 => {
                log::cycle(Level::Notice, &"reopening logs");
                log::reopen();
            }
            signal::SIGQUIT => {
                log::cycle(Level::Notice, &"gracefully shutting down");
                server.quit();
                return drain(server, signals);
            }
            signal::SIGTERM | signal::SIGINT => {
                server.stop();
                server.join(Some(Duration::from_secs(10)));
                return Ok(());
            }
            other => log::cycle(Level::Notice, &format_args!("signal {other} is not supported yet")),
        }
    }
}

/// After QUIT: until the last request has ended, or a TERM says enough.
fn drain(mut server: Server, signals: &Signals) -> Result<(), Vec<String>> {
    while !server.join(Some(Duration::from_millis(20))) {
        if let Some(signal::SIGTERM | signal::SIGINT) = signals.read() {
            server.stop();
            server.join(Some(Duration::from_secs(10)));
            return Ok(());
        }
    }
    Ok(())
}

/// HUP: the new configuration, or the old one and the reason why.
fn reload(server: &Server, paths: &Paths) {
    log::cycle(Level::Notice, &"reconfiguring");
    let (configuration, warnings) = match paths.prepare() {
        Ok(loaded) => loaded,
        Err(errors) => {
            for error in errors {
                log::cycle(Level::Emerg, &error);
            }
            return;
        }
    };
    for warning in warnings {
        log::cycle(Level::Warn, &warning);
    }
    if let Err(error) = log::start(&configuration).and_then(|()| log::lead_stderr()) {
        return log::cycle(Level::Emerg, &error);
    }
    if let Err(StartError(error)) = server.reload(Arc::new(configuration)) {
        for line in error.lines() {
            log::cycle(Level::Emerg, &line);
        }
    }
}

const SIGNALS: [i32; 7] = [
    signal::SIGHUP,
    signal::SIGINT,
    signal::SIGTERM,
    signal::SIGQUIT,
    signal::SIGUSR1,
    signal::SIGUSR2,
    signal::SIGWINCH,
];
/// nginx's: half a second apart.
const BIND_ATTEMPTS: u32 = 5;
