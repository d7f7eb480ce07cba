//! Commands that need no running server: help, and what reads, checks and writes configurations.

mod diff;
mod explain;
mod fmt;
mod help;
mod init;
mod lsp;
mod plan;
mod reference_help;
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
        say!("weir: {message}");
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
            "Serves the files of a directory until Ctrl-C. Without DIRECTORY that is the current one. Names that \
             begin with a dot are not served. `weir DIRECTORY` does the same.",
            &[CommandOption::new(
                "--listen",
                "ADDRESS",
                "an address and port, or a port of 127.0.0.1 (default: 8080)",
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
            "Writes a commented configuration to begin with. It goes to standard output, or into a new file. An \
             existing file is never overwritten.",
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
            "diff-config",
            "OLD NEW --log FILE",
            "Shows which logged requests a new configuration changes. Each line of the access log goes \
             through both without being served, and what changes (server, location, decisions of phases, status, fields, \
             upstream) is shown in groups, with the lines that differ. The exit status is 1 if anything changes. No upstream \
             is asked and no script runs: what could not be compared for that reason is counted by name.",
            &[
                CommandOption::new(
                    "--log",
                    "FILE",
                    "the access log, packed with gzip or not, or - for standard input; may be given several times",
                ),
                CommandOption::new(
                    "--format",
                    "FORMAT",
                    "combined, the name of a log_format of OLD, or its text; without it the one that fits the log",
                ),
                CommandOption::new(
                    "--host",
                    "NAME",
                    "the host of lines that have none: without, the name of OLD's server with the most lines",
                ),
                CommandOption::new(
                    "--scheme",
                    "SCHEME",
                    "http or https for lines without: https without, if OLD has TLS",
                ),
                CommandOption::new("--limit", "N", "reads the first N lines"),
                CommandOption::new("--json", "", "as one JSON object"),
                CommandOption::new(
                    "-p",
                    "PREFIX",
                    "the prefix of both: the directories of the configurations without",
                ),
            ],
            &[
                CommandExample::new(
                    "weir diff-config /etc/weir/weir.conf new.conf --log access.log",
                    "what the new one would change",
                ),
                CommandExample::new(
                    "weir diff-config old.conf new.conf --log access.log.2.gz --format main",
                    "an older log, packed, in the format that old.conf calls main",
                ),
            ],
        ),
        run: diff::run,
    },
    ToolCommand {
        help: CommandHelp::new(
            "explain-config",
            "--url URL",
            "Says what would become of a request, without serving it. It names the address, server and location that \
             take the request and why, the lines of the configuration that apply there, and the response. The request \
             goes through the real phases. Nothing is bound, no upstream is asked, no log is written, and no script \
             runs; what can't be known for that reason is named.",
            &[
                CommandOption::new(
                    "--url",
                    "URL",
                    "the URL as a browser has it; --url itself may be omitted",
                ),
                CommandOption::new("--method", "METHOD", "the method (default: GET)"),
                CommandOption::new(
                    "--header",
                    "'NAME: VALUE'",
                    "a header field of the request; may be repeated",
                ),
                CommandOption::new("--from", "ADDRESS", "the client's address (default: 192.0.2.1)"),
                CommandOption::new(
                    "--listen",
                    "ADDRESS",
                    "which \"listen\" receives it, where the URL fits several",
                ),
                CommandOption::new(
                    "--defaults",
                    "",
                    "also show the defaults of directives that no line sets",
                ),
                CommandOption::new("--json", "", "print one JSON object"),
                CommandOption::new(
                    "-c",
                    "FILE",
                    "the configuration (default: /etc/weir/weir.conf, if it exists)",
                ),
                CommandOption::new("-p", "PREFIX", "the prefix (default: the configuration's directory)"),
            ],
            &[
                CommandExample::new(
                    "weir explain-config --url https://example.com/api/",
                    "a GET of the installed configuration",
                ),
                CommandExample::new(
                    "weir explain-config -c site.conf http://a/x --method POST --from 10.0.0.7",
                    "a POST from another client",
                ),
                CommandExample::new(
                    "weir explain-config -c site.conf http://a/ --header 'Cookie: b=1' --json",
                    "with a field, for programs",
                ),
            ],
        ),
        run: explain::run,
    },
    ToolCommand {
        help: CommandHelp::new(
            "fmt",
            "[--check] [--diff] FILE...|-",
            "Formats configuration files. Each block is indented by four spaces, each directive has a line of its \
             own, and one space separates words. Words, quotes, comments and Lua stay as they are written, and so do \
             columns that several lines have in common. A file with a syntax error is left as it is. `-` is standard \
             input; its result goes to standard output.",
            &[
                CommandOption::new(
                    "--check",
                    "",
                    "write nothing; list the files that would change, and exit with 1",
                ),
                CommandOption::new("--diff", "", "write nothing; show what would change"),
            ],
            &[
                CommandExample::new("weir fmt weir.conf", "formats a file"),
                CommandExample::new("weir fmt --check conf.d/*.conf", "for continuous integration"),
                CommandExample::new("weir fmt --diff weir.conf", "shows what would change"),
            ],
        ),
        run: fmt::run,
    },
    ToolCommand {
        help: CommandHelp::new(
            "lsp",
            "",
            "Serves an editor over the Language Server Protocol. It uses standard input and output. An editor gets \
             errors and warnings as of `weir -t`, completion, descriptions, formatting, quick fixes and definitions.",
            &[CommandOption::new(
                "-c",
                "FILE",
                "the main configuration (default: the nearest one that includes the open file)",
            )],
            &[CommandExample::new("weir lsp", "an editor starts this: see docs/guides/editors.md")],
        ),
        run: lsp::run,
    },
    ToolCommand {
        help: CommandHelp::new(
            "help",
            "[COMMAND|DIRECTIVE]",
            "Shows the help of the program, a command or a directive.",
            &[CommandOption::new("--json", "", "JSON for programs: all commands with options and examples")],
            &[
                CommandExample::new("weir help", "options and commands"),
                CommandExample::new("weir help trace", "what weir trace takes"),
                CommandExample::new("weir help listen", "syntax, default and meaning of a directive"),
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
