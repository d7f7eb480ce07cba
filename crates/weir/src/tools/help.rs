//! `weir help`, `--help` and `-h`: options and commands; what a word that is neither may have meant.

use std::fmt::Write;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use weir_conf::nearest;
use weir_http::json::JsonWriter;
use weir_see::commands::{CommandLine, CommandOption, TextStyle, filled};

use super::{all_help, print, reference_help};
use crate::version;

/// `weir help [COMMAND|DIRECTIVE]`
pub(super) fn run(asked: &CommandLine) -> Result<ExitCode, String> {
    asked.at_most(1)?;
    if asked.has("--json") {
        return print(&(json() + "\n"));
    }
    let Some(name) = asked.words.first() else { return print(&text(TextStyle::of_stdout())) };
    let style = TextStyle::of_stdout();
    let command = all_help().find(|command| command.name == *name).map(|command| command.text(style));
    match command.or_else(|| reference_help::text(name, style)) {
        Some(text) => print(&text),
        None => Err(format!("\"{name}\" is neither a command nor a directive; {}", named(name))),
    }
}

/// `-h`, `--help`
pub(crate) fn print_program_help(out: &mut dyn io::Write, style: TextStyle) -> ExitCode {
    match out.write_all(text(style).as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

/// The message for a first word that is no command, no file and no directory: nginx's words for what it takes for an
/// option, and what may have been meant.
pub(crate) fn unknown_word(word: &str) -> String {
    format!("invalid option: \"{word}\"\nthere is no such command, file or directory; {}", meant(word))
}

/// What to do about a word that is no command.
fn meant(word: &str) -> String {
    match nearest(word, all_help().map(|command| command.name)) {
        Some(name) if !word.contains(['.', '/']) => format!("did you mean \"weir {name}\"?"),
        _ => "\"weir help\" lists the commands".to_owned(),
    }
}

/// What to do about a word that is neither a command nor a directive.
fn named(word: &str) -> String {
    let commands = nearest(word, all_help().map(|command| command.name));
    match commands.or_else(|| reference_help::nearest_name(word)) {
        Some(name) => format!("did you mean \"weir help {name}\"?"),
        None => "\"weir help\" lists the commands".to_owned(),
    }
}

/// Whether a file is a program in Lua by its name.
pub(crate) fn is_lua(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "lua")
}

/// Usage, options and commands.
fn text(style: TextStyle) -> String {
    let mut out = format!("{}\n{}\n", version::product(), style.heading("Usage:"));
    for (line, about) in USAGE {
        writeln!(out, "  {line:<34} {about}").expect("writing to a String");
    }
    writeln!(out, "{}", style.heading("\nOptions:")).expect("writing to a String");
    for option in OPTIONS {
        let name = format!("{} {}", option.name, option.value);
        out.push_str(&filled(&format!("  {:<14}: ", name.trim_end()), option.about));
    }
    writeln!(out, "{}", style.heading("\nCommands (\"weir help COMMAND\" shows more; of a directive, too):"))
        .expect("writing to a String");
    for command in all_help() {
        out.push_str(&filled(&format!("  weir {:<14} ", command.name), command.summary()));
    }
    out
}

/// The same as JSON, for programs that make man pages and completions.
fn json() -> String {
    JsonWriter::object(|json| {
        json.key("program").text("weir");
        json.key("version").text(env!("CARGO_PKG_VERSION"));
        json.key("usage").list(|json| {
            for (line, about) in USAGE {
                json.nested(|json| {
                    json.key("line").text(line);
                    json.key("about").text(about);
                });
            }
        });
        json.key("options").list(|json| OPTIONS.iter().for_each(|option| option.json(json)));
        json.key("commands").list(|json| all_help().for_each(|command| command.json(json)));
    })
}

/// Ways to call the program.
const USAGE: [(&str, &str); 6] = [
    ("weir", "a welcome page on http://127.0.0.1:8080/"),
    ("weir DIRECTORY", "serve the files of a directory"),
    ("weir FILE, weir -c FILE", "serve with an nginx configuration"),
    ("weir -t [-q] [-c FILE]", "test a configuration"),
    ("weir -s SIGNAL [-c FILE]", "speak to a running server"),
    ("weir COMMAND [-c FILE] [-p PREFIX]", "one of the commands below"),
];

/// Options without a command: nginx's, with its words.
const OPTIONS: [CommandOption; 13] = [
    CommandOption::new("-?,-h,--help", "", "this help"),
    CommandOption::new("-v,--version", "", "show version and exit"),
    CommandOption::new("-V", "", "show version and configure options then exit"),
    CommandOption::new("-t", "", "test configuration and exit"),
    CommandOption::new("--fix", "", "with -t: write what can be mended mechanically"),
    CommandOption::new("--diff", "", "with -t: show what --fix would write"),
    CommandOption::new("-T", "", "test configuration, dump it and exit"),
    CommandOption::new("-q", "", "suppress non-error messages during configuration testing"),
    CommandOption::new("-s", "signal", "send signal to a running server: stop, quit, reopen, reload"),
    CommandOption::new("-p", "prefix", "set prefix path (default: the directory of the configuration file)"),
    CommandOption::new("-e", "filename", "set error log file; stderr: standard error"),
    CommandOption::new(
        "-c",
        "filename",
        "set configuration file (default of -t, -T, -s and commands: /etc/weir/weir.conf)",
    ),
    CommandOption::new("-g", "directives", "set global directives out of configuration file"),
];
