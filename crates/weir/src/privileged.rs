//! The privileged agent's process: scripts with the master's rights and without listeners, in a process of their own so
//! that no byte of a client ever comes near them. What they share is in the server, which it is connected with; it ends
//! when its master says so, or with the server.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use weir_engine::Configuration;
use weir_engine::log::{self, LogLevel};
use weir_rt::process;
use weir_rt::signal::{self, Signals};
use weir_server::{AgentProcess, ServerOptions};

use crate::inherited::{InheritedConf, UNBUILT};
use crate::load::ConfLocation;
use crate::run::{failed, lines, log_panics};
use crate::server::FATAL;
use crate::settings;

/// What the master leaves to it.
pub(crate) struct PrivilegedInheritance {
    /// Whose scripts it runs.
    pub configuration: InheritedConf,
    /// Names and places that stay the same.
    pub paths: ConfLocation,
    /// The way to the server.
    pub link: PrivilegedLink,
}

/// One end of the connection of agent and server.
pub(crate) struct PrivilegedLink {
    /// What the agent asks, and its responses.
    pub calls: UnixStream,
    /// What it hears.
    pub heard: UnixStream,
}

impl PrivilegedLink {
    /// The agent's end and the server's.
    ///
    /// # Errors
    /// The errno of socketpair(2).
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (calls, asked) = UnixStream::pair()?;
        let (heard, reported) = UnixStream::pair()?;
        Ok((PrivilegedLink { calls, heard }, PrivilegedLink { calls: asked, heard: reported }))
    }
}

/// Runs scripts until the master says enough; the exit status.
pub(crate) fn run(inheritance: PrivilegedInheritance) -> i32 {
    log::threaded(true);
    log_panics();
    let PrivilegedInheritance { configuration, paths, link } = inheritance;
    let built = configuration.built(&paths);
    let code = if built.is_ok() { FATAL } else { UNBUILT };
    let code = match built.and_then(|configuration| start(configuration, link)) {
        Ok(process) => {
            process.wait();
            0
        }
        Err(errors) => {
            for error in errors {
                log::cycle(LogLevel::Emerg, &error);
            }
            code
        }
    };
    weir_modules::otel::flush();
    log::cycle(LogLevel::Notice, &"exit");
    log::flush();
    code
}

fn start(configuration: Arc<Configuration>, link: PrivilegedLink) -> Result<PrivilegedProcess, Vec<String>> {
    let signals = Signals::new(&SIGNALS).map_err(failed("signalfd() failed"))?;
    settings::apply(&configuration.main);
    let gone = || {
        // Only a process that is not there can't be signalled.
        let _ = signal::kill(std::process::id() as i32, signal::SIGQUIT);
    };
    weir_lua::privileged_agent::connect(link.calls, link.heard, gone)
        .map_err(failed("a thread can't start"))?;
    let agent = AgentProcess::start(&configuration, &ServerOptions::default()).map_err(lines)?;
    Ok(PrivilegedProcess { agent, signals })
}

/// The process.
struct PrivilegedProcess {
    agent: AgentProcess,
    signals: Signals,
}

impl PrivilegedProcess {
    fn wait(mut self) {
        loop {
            if let Err(error) = process::readable([self.signals.as_fd()], None) {
                log::cycle(LogLevel::Alert, &format_args!("poll() failed ({})", settings::reason(&error)));
                return self.stop();
            }
            while let Some(signal) = self.signals.read() {
                match signal {
                    signal::SIGQUIT | signal::SIGWINCH => return self.quit(),
                    signal::SIGTERM | signal::SIGINT => {
                        log::cycle(LogLevel::Notice, &"exiting");
                        return self.stop();
                    }
                    signal::SIGUSR1 => {
                        log::cycle(LogLevel::Notice, &"reopening logs");
                        log::reopen();
                    }
                    _ => {}
                }
            }
        }
    }

    fn quit(mut self) {
        log::cycle(LogLevel::Notice, &"gracefully shutting down");
        self.agent.quit();
        while !self.agent.join(Duration::from_millis(20)) {
            if let Some(signal::SIGTERM | signal::SIGINT) = self.signals.read() {
                return self.stop();
            }
        }
    }

    fn stop(&mut self) {
        self.agent.stop();
        self.agent.join(Duration::from_secs(10));
    }
}

const SIGNALS: [i32; 6] =
    [signal::SIGQUIT, signal::SIGWINCH, signal::SIGTERM, signal::SIGINT, signal::SIGUSR1, signal::SIGHUP];
