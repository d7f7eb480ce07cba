//! Weir, the program: command line and process. What it serves with is the library's.
#![forbid(unsafe_code)]

/// Writes a line to standard error. A reader that has gone (`weir -T 2>&1 | head`) is no fault of the program's.
macro_rules! say {
    ($($text:tt)*) => {{
        let _gone = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($text)*)));
    }};
}

mod bundle;
mod cli;
mod control;
mod diff;
mod inherited;
mod installed;
mod load;
mod lua;
mod master;
mod mending;
mod notify;
mod orphan;
mod pid;
mod privileged;
mod rewrite;
mod run;
mod running;
mod server;
mod settings;
mod signals;
mod single;
mod status;
mod tools;
mod trace;
mod version;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cli::{CommandAction, CommandLine, DIRECTORY_ADDRESS, EmbeddedConf};
use run::ProgramPath;
use weir_rt::Heap;
use weir_see::commands::TextStyle;

#[global_allocator]
static HEAP: Heap = Heap;

fn main() -> ExitCode {
    // Before anything gives the process another title.
    let mut arguments = std::env::args_os();
    let called = arguments.next().unwrap_or_default();
    let arguments: Vec<_> = arguments.collect();
    // OpenResty's program of that name, for which a link may stand.
    if Path::new(&called).file_name().is_some_and(|name| name == "resty") {
        return lua::run(&arguments, true);
    }
    if let Some((name, rest)) = cli::command(&arguments, tools::is_command) {
        return match name == "lua" && !lua::asks_a_server(&rest) {
            true => lua::run(&rest, false),
            false => tools::run(name, &rest).unwrap_or_else(|| trace::command(name, &rest)),
        };
    }
    match cli::parse(&arguments).and_then(|line| with_word(line, |path| path.metadata().ok())) {
        Ok(line) => act(&line, ProgramPath { name: called, arguments }),
        Err(message) => {
            say!("weir: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Takes the word that is no option for what there is of that name: a configuration file, or a directory to serve.
fn with_word(
    mut line: CommandLine,
    metadata: impl Fn(&Path) -> Option<std::fs::Metadata>,
) -> Result<CommandLine, String> {
    let Some(word) = line.word.take() else { return Ok(line) };
    let path = PathBuf::from(&word);
    match metadata(&path) {
        Some(found) if found.is_dir() && line.conf.is_none() && line.prefix.is_none() => {
            line.prefix = Some(path);
            line.embedded = EmbeddedConf::Directory(DIRECTORY_ADDRESS.to_owned());
        }
        Some(found) if !found.is_dir() && tools::is_lua(&path) => {
            let name = path.display();
            return Err(format!(
                "\"{name}\" is a Lua program, no configuration; \"weir lua {name}\" runs it"
            ));
        }
        Some(found) if !found.is_dir() && line.conf.is_none() => line.conf = Some(path),
        Some(_) => return Err(format!("invalid option: \"{}\"", word.to_string_lossy())),
        None => return Err(tools::unknown_word(&word.to_string_lossy())),
    }
    Ok(line)
}

/// Does what the command line asks for.
fn act(line: &CommandLine, program: ProgramPath) -> ExitCode {
    let line = &match line.action {
        CommandAction::Test | CommandAction::Dump => installed::tested(line),
        CommandAction::Signal(_) => installed::running(line),
        _ => line.clone(),
    };
    if matches!(line.action, CommandAction::Test | CommandAction::Dump | CommandAction::Run) {
        load::open_error_log(line);
    }
    match line.action {
        CommandAction::Help => tools::print_program_help(&mut std::io::stderr(), TextStyle::Plain),
        CommandAction::LongHelp => tools::print_program_help(&mut std::io::stdout(), TextStyle::of_stdout()),
        CommandAction::Version => version::short(&mut std::io::stderr()),
        CommandAction::LongVersion => version::short(&mut std::io::stdout()),
        CommandAction::Configure => version::long(),
        CommandAction::Test => load::test(line),
        CommandAction::Dump => load::dump(line),
        CommandAction::Signal(signal) => signals::send(line, signal),
        CommandAction::Run => run::run(line, program),
    }
}
