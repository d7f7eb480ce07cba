//! `weir trace`, `weir top` and their like: which server they ask.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;

use weir_conf::RealFiles;
use weir_see::commands::{self, ServerSelector};

use crate::cli::CommandLine;
use crate::load::ConfLocation;
use crate::{installed, pid};

/// Runs the command `name`.
pub(crate) fn command(name: &OsStr, arguments: &[OsString]) -> ExitCode {
    commands::run(name, arguments, &socket)
}

/// The control socket of the server that runs with this configuration.
fn socket(place: &ServerSelector) -> Result<PathBuf, String> {
    let line =
        CommandLine { conf: place.conf.clone(), prefix: place.prefix.clone(), ..CommandLine::default() };
    let pid =
        ConfLocation::of(&installed::running(&line)).pid(&RealFiles).map_err(|errors| errors.join("\n"))?;
    Ok(pid::socket(&pid))
}
