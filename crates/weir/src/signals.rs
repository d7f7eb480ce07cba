//! `-s signal`: speaks to a running server.

use std::process::ExitCode;

use weir_conf::RealFiles;
use weir_engine::log::LogFile;
use weir_rt::signal;

use crate::cli::{CommandLine, SignalName};
use crate::load::ConfLocation;
use crate::status::ReloadWaiter;
use crate::{orphan, pid, settings};

/// Sends `signal` to the server whose pid file the configuration names. A reload is waited for: its outcome is the
/// exit status, its reasons are on standard error.
pub(crate) fn send(line: &CommandLine, which: SignalName) -> ExitCode {
    match sent(line, which) {
        Ok(()) => ExitCode::SUCCESS,
        Err(lines) => {
            for line in lines {
                say!("weir: {line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn sent(line: &CommandLine, which: SignalName) -> Result<(), Vec<String>> {
    let emerg = |lines: Vec<String>| lines.iter().map(|line| format!("[emerg] {line}")).collect::<Vec<_>>();
    // As in nginx a file that is wrong stops every signal, a reload above all.
    // Its logs are the server's: here none is opened, so that none is made with this user as its owner.
    let loaded = LogFile::discard_during(|| ConfLocation::of(line).load(&RealFiles));
    let (configuration, _) = loaded.map_err(emerg)?;
    let path = configuration.main.pid(&configuration.prefix);
    let number = match which {
        SignalName::Stop => signal::SIGTERM,
        SignalName::Quit => signal::SIGQUIT,
        SignalName::Reopen => signal::SIGUSR1,
        SignalName::Reload => signal::SIGHUP,
    };
    if which == SignalName::Reload && orphan::is_there(&path) {
        return Err(vec![
            "[error] the master process is gone: \"weir\", started again, takes over from its server"
                .to_owned(),
        ]);
    }
    if which != SignalName::Reload && orphan::signalled(&path, number) {
        return Ok(());
    }
    let pid = pid::read(&path).map_err(|error| vec![format!("[error] {error}")])?;
    let waiter = ReloadWaiter::new(&path);
    signal::kill(pid, number).map_err(|error| {
        vec![format!("[alert] kill({pid}, {number}) failed ({})", settings::reason(&error))]
    })?;
    if which == SignalName::Reload {
        let lives = || signal::kill(pid, 0).is_ok();
        waiter.wait(&path, lives).map_err(|lines| {
            let mut lines = emerg(lines);
            lines.push("[error] the reload failed, the configuration before stays in force".to_owned());
            lines
        })?;
    }
    Ok(())
}
