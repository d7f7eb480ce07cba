//! The commands that look into a running server: `weir trace`, `weir top` and their like.

mod attach;
pub(crate) mod blocked;
mod compare;
mod control_calls;
mod diff;
mod doctor;
mod flame;
mod fleet;
mod help;
mod load;
mod options;
mod questions;
mod record;
mod selector;
pub(crate) mod stall_summary;
mod table;
mod top;
mod visible;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

pub use control_calls::print_as_is;
pub use help::{CommandExample, CommandHelp, CommandOption, TextStyle, filled};
pub use options::CommandLine;
pub use selector::{LocateSocket, ServerSelector};
use table::COMMANDS;

/// A command: what is said of it, and what it does.
struct SeeCommand {
    help: CommandHelp,
    run: fn(&CommandLine, LocateSocket<'_>) -> Result<(), String>,
}

/// What is said of each of these commands.
pub fn all() -> impl Iterator<Item = &'static CommandHelp> {
    COMMANDS.iter().map(|command| &command.help)
}

/// Whether `word` is the name of one of these commands.
#[must_use]
pub fn is_command(word: &OsStr) -> bool {
    COMMANDS.iter().any(|command| word == command.help.name)
}

/// Runs the command `name` with what follows it on the command line.
#[must_use]
pub fn run(name: &OsStr, arguments: &[OsString], locate: LocateSocket<'_>) -> ExitCode {
    let Some(command) = COMMANDS.iter().find(|command| name == command.help.name) else {
        return fail(&format!("\"{}\" is no command", name.to_string_lossy()));
    };
    if arguments.iter().any(|word| word == "--help" || word == "-h") {
        return match print_as_is(command.help.text(TextStyle::of_stdout()).as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    match CommandLine::parse(arguments, &command.help).and_then(|asked| (command.run)(&asked, locate)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => fail(&message),
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("weir: {}", visible::visible(message));
    ExitCode::FAILURE
}
