//! Weir, the program: command line and process. What it serves with is the library's.
#![forbid(unsafe_code)]

mod bundle;
mod cli;
mod control;
mod load;
mod lua;
mod master;
mod notify;
mod pid;
mod privileged;
mod run;
mod server;
mod settings;
mod signals;
mod single;
mod status;
mod trace;
mod version;

use std::process::ExitCode;

use cli::CommandAction;
use weir_rt::Heap;
use weir_see::commands;

#[global_allocator]
static HEAP: Heap = Heap;

fn main() -> ExitCode {
    // Before anything gives the process another title.
    let mut arguments = std::env::args_os();
    let called = arguments.next().unwrap_or_default();
    let arguments: Vec<_> = arguments.collect();
    if let Some((name, rest)) = cli::command(&arguments, commands::is_command) {
        return match name == "lua" && !lua::asks_a_server(&rest) {
            true => lua::run(&rest),
            false => trace::command(name, &rest),
        };
    }
    let line = match cli::parse(&arguments) {
        Ok(line) => line,
        Err(message) => {
            eprintln!("weir: {message}");
            return ExitCode::FAILURE;
        }
    };
    if matches!(line.action, CommandAction::Test | CommandAction::Dump | CommandAction::Run) {
        load::open_error_log(&line);
    }
    match line.action {
        CommandAction::Help => version::help(&mut std::io::stderr()),
        CommandAction::LongHelp => version::help(&mut std::io::stdout()),
        CommandAction::Version => version::short(&mut std::io::stderr()),
        CommandAction::LongVersion => version::short(&mut std::io::stdout()),
        CommandAction::Configure => version::long(),
        CommandAction::Test => load::test(&line),
        CommandAction::Dump => load::dump(&line),
        CommandAction::Signal(signal) => signals::send(&line, signal),
        CommandAction::Run => run::run(&line, run::ProgramPath { name: called, arguments }),
    }
}
