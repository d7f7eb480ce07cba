//! Commands that need no running server: help, and what reads, checks and writes configurations.

mod help;
mod init;
mod serve;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use weir_see::commands::{self, CommandExample, CommandHelp, CommandLine, CommandOption, TextStyle};

pub(crate) use help::{is_lua, print_program_help, unknown_word};

/// A command of the program itself.
struct ToolCommand {
    help: CommandHelp,
    run: fn(&CommandLine) -> Result<ExitCode, String>,
}

/// Whether `word` is a command, of these or of those that ask a server.
pub(crate) fn is_command(word: &OsStr) -> bool {
    commands::is_command(word) || tool(word).is_some()
}

/// Runs the command `name` if it is one of these; `None`: it asks a server.
pub(crate) fn run(name: &OsStr, arguments: &[OsString]) -> Option<ExitCode> {
    let tool = tool(name)?;
    let result = if arguments.iter().any(|word| word == "--help" || word == "-h") {
        print(&tool.help.text(TextStyle::of_stdout()))
    } else {
        CommandLine::parse(arguments, &tool.help).and_then(|asked| (tool.run)(&asked))
    };
    Some(result.unwrap_or_else(|message| {
        eprintln!("weir: {message}");
        ExitCode::from(TROUBLE)
    }))
}

/// What is said of each command of the program, in the order of its help.
fn all_help() -> impl Iterator<Item = &'static CommandHelp> {
    TOOLS.iter().map(|tool| &tool.help).chain(commands::all())
}

fn tool(name: &OsStr) -> Option<&'static ToolCommand> {
    TOOLS.iter().find(|tool| name == tool.help.name)
}

/// Writes `text` to standard output.
fn print(text: &str) -> Result<ExitCode, String> {
    let written = commands::print_as_is(text.as_bytes()).map_err(|error| format!("standard output: {error}"));
    written.map(|()| ExitCode::SUCCESS)
}

/// The exit status of a command that could not do its work: 1 is the response of one that could, as of `diff` and `grep`.
const TROUBLE: u8 = 2;

static TOOLS: &[ToolCommand] = &[
    ToolCommand {
        help: CommandHelp::new(
            "serve",
            "[DIRECTORY]",
            "Serves the files of a directory, the current one without DIRECTORY, until Ctrl-C. Names that begin with a dot \
             are not served. `weir DIRECTORY` does the same.",
            &[CommandOption::new(
                "--listen",
                "ADDRESS",
                "an address and port, or a port of 127.0.0.1: 8080 without",
            )],
            &[
                CommandExample::new("weir serve", "the current directory on http://127.0.0.1:8080/"),
                CommandExample::new("weir serve site --listen 3000", "another one on port 3000"),
            ],
        ),
        run: serve::run,
    },
    ToolCommand {
        help: CommandHelp::new(
            "init",
            "proxy|static|spa|php|lua|gateway [FILE]",
            "Writes a configuration to begin with, with comments, to standard output or into a new file. An existing file \
             is never overwritten.",
            &[],
            &[
                CommandExample::new("weir init proxy", "shows a reverse proxy"),
                CommandExample::new(
                    "weir init static site.conf && weir site.conf",
                    "writes one and serves it",
                ),
            ],
        ),
        run: init::run,
    },
    ToolCommand {
        help: CommandHelp::new(
            "help",
            "[COMMAND]",
            "Shows the help of the program or of a command.",
            &[CommandOption::new("--json", "", "for programs: all commands with their options and examples")],
            &[
                CommandExample::new("weir help", "options and commands"),
                CommandExample::new("weir help trace", "what weir trace takes"),
            ],
        ),
        run: help::run,
    },
    ToolCommand {
        help: CommandHelp::new(
            "version",
            "",
            "Shows the version.",
            &[],
            &[
                CommandExample::new("weir version", "as weir --version"),
                CommandExample::new("weir -V", "with what it is built of"),
            ],
        ),
        run: |asked| {
            asked.at_most(0)?;
            Ok(crate::version::short(&mut std::io::stdout()))
        },
    },
];
