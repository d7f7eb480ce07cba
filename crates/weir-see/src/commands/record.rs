//! `weir record`: a timeline of the workers, for ui.perfetto.dev.

use std::io::{self, IsTerminal};

use super::control_calls::{gather, print_as_is};
use super::help::CommandOption;
use super::options::CommandLine;
use super::questions::{MATCH, matching, options};
use super::selector::LocateSocket;
use crate::control::protocol::ControlQuestion;

pub(super) const CHOICES: &[CommandOption] = &[
    CommandOption::new("-t", "TIME", "how long (default: 10s)"),
    CommandOption::new("--next", "", "all requests of the next seconds, not the retained ones of the last"),
    CommandOption::new("-o", "FILE", "the output file (default: weir.pftrace); - for standard output"),
    CommandOption::new("--last-crash", "", "the record that a crashed server process left"),
    MATCH,
];

pub(super) fn run(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    let question = options(asked, matching(asked, ControlQuestion::new("record"))?, &[("-t", "for")]);
    let question = if asked.has("--next") { question.with("next", "") } else { question };
    let path = asked.value("-o").unwrap_or("weir.pftrace");
    if path == "-" && io::stdout().is_terminal() {
        return Err("a timeline is no text: -o FILE or a pipe takes it".to_owned());
    }
    if asked.has("--last-crash") {
        return write(path, &last_crash(asked, locate)?);
    }
    let out = gather(asked, locate, &question)?;
    write(path, &out)?;
    if out.len() < EMPTY {
        eprintln!(
            "weir: it is empty: in that time no request was retained and no loop was blocked; --next has all requests to come"
        );
    }
    Ok(())
}

/// Bytes of a timeline with the process and nothing in it, and some more; the track of a worker alone takes as many again.
const EMPTY: usize = 32;

/// The file that the master has written beside the control socket.
fn last_crash(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<Vec<u8>, String> {
    let socket = match &asked.place.socket {
        Some(path) => path.clone(),
        None => locate(&asked.place)?,
    };
    let path = crate::remains::beside(&socket);
    std::fs::read(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "no server process has crashed here".to_owned(),
        _ => format!("\"{}\": {error}", path.display()),
    })
}

fn write(path: &str, out: &[u8]) -> Result<(), String> {
    match path {
        "-" => print_as_is(out).map_err(|error| error.to_string()),
        path => {
            std::fs::write(path, out).map_err(|error| format!("\"{path}\": {error}"))?;
            println!("{path}: for https://ui.perfetto.dev");
            Ok(())
        }
    }
}
