//! `-s signal`: speaks to a running server.

use std::process::ExitCode;

use weir_rt::signal;

use crate::cli::{CommandLine, Signal};
use crate::load::Paths;
use crate::pid;

/// Sends `signal` to the server whose pid file the configuration names.
pub(crate) fn send(line: &CommandLine, which: Signal) -> ExitCode {
    let configuration = match Paths::of(line).load() {
        Ok((configuration, _)) => configuration,
        Err(errors) => {
            for error in errors {
                eprintln!("weir: [emerg] {error}");
            }
            return ExitCode::FAILURE;
        }
    };
    let path = configuration.main.pid(&configuration.prefix);
    let number = match which {
        Signal::Stop => signal::SIGTERM,
        Signal::Quit => signal::SIGQUIT,
        Signal::Reopen => signal::SIGUSR1,
        Signal::Reload => signal::SIGHUP,
    };
    let sent = pid::read(&path).and_then(|pid| signal::kill(pid, number));
    match sent {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir: [error] can't signal the server of \"{}\": {error}", path.display());
            ExitCode::FAILURE
        }
    }
}
