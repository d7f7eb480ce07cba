//! `weir trace`, `weir top` and their like: which server they ask.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;

use weir_conf::RealFiles;
use weir_see::commands::{self, ServerSelector};

use crate::cli::CommandLine;
use crate::load::ConfLocation;
use crate::{installed, pid, running};

/// Runs the command `name`.
pub(crate) fn command(name: &OsStr, arguments: &[OsString]) -> ExitCode {
    commands::run(name, arguments, &socket)
}

/// The control socket of the server that runs with this configuration. Where none is named and none runs with the usual
/// one, it is that of the only server that this user runs.
fn socket(place: &ServerSelector) -> Result<PathBuf, String> {
    let line =
        CommandLine { conf: place.conf.clone(), prefix: place.prefix.clone(), ..CommandLine::default() };
    let usual = ConfLocation::of(&installed::running(&line));
    let found = usual.pid(&RealFiles).map(|pid| pid::socket(&pid)).map_err(|errors| errors.join("\n"));
    let is_named = place.conf.is_some() || place.prefix.is_some();
    if is_named || found.as_ref().is_ok_and(|socket| socket.exists()) {
        return found;
    }
    let servers = running::servers();
    if let Some((file, process)) = servers.first_key_value()
        && servers.len() == 1
    {
        eprintln!(
            "weir: no -c: this is about the only server that runs, process {process} ({})",
            file.display()
        );
        return Ok(pid::socket(file));
    }
    let assumed = usual.name();
    Err(match servers.is_empty() {
        true => format!(
            "no server runs with {assumed}, which is assumed without -c, and this user runs no other; \
             \"-c FILE\" says which one is meant"
        ),
        false => format!(
            "no server runs with {assumed}, which is assumed without -c; \"-c FILE\" says which of these is meant:{}",
            servers
                .iter()
                .map(|(file, pid)| format!("\n  process {pid}, {}", file.display()))
                .collect::<String>()
        ),
    })
}
