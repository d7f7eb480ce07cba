//! `weir trace`: asks a running server for the tree of its next request, its figures by site, or another level.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::cli::CommandLine;
use crate::load::Paths;
use crate::pid;

/// `weir trace --once|--sites|--level` and what goes with them: see [`USAGE`].
pub(crate) fn command(arguments: &[OsString]) -> ExitCode {
    match ask(arguments) {
        Ok(answer) if !answer.is_empty() && !answer.starts_with("error:") => {
            print!("{answer}");
            ExitCode::SUCCESS
        }
        Ok(answer) => {
            eprintln!(
                "weir: {}",
                if answer.is_empty() { "the server ended before a request came" } else { answer.trim() }
            );
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("weir: {message}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Default)]
struct Question {
    text: Option<String>,
    json: bool,
    matching: String,
    socket: Option<PathBuf>,
    line: CommandLine,
}

fn ask(arguments: &[OsString]) -> Result<String, String> {
    let question = parse(arguments)?;
    let Some(text) = question.text else { return Err(USAGE.to_owned()) };
    let path = match question.socket {
        Some(path) => path,
        None => socket(&question.line)?,
    };
    let fail = |error: std::io::Error| format!("no server answers at \"{}\": {error}", path.display());
    let mut stream = UnixStream::connect(&path).map_err(fail)?;
    let json = if question.json { " --json" } else { "" };
    writeln!(stream, "{text}{json} {}", question.matching).map_err(fail)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(fail)?;
    Ok(answer)
}

fn parse(arguments: &[OsString]) -> Result<Question, String> {
    let mut question = Question::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value =
            || words.next().cloned().ok_or_else(|| format!("{} needs a value", word.to_string_lossy()));
        match word.to_str() {
            Some("--once") => question.text = Some("trace once".to_owned()),
            Some("--sites") => question.text = Some("trace sites".to_owned()),
            Some("--json") => question.json = true,
            Some("--level") => question.text = Some(format!("trace level {}", value()?.to_string_lossy())),
            Some("--match") => question.matching = value()?.to_string_lossy().into_owned(),
            Some("--socket") => question.socket = Some(value()?.into()),
            Some("-c") => question.line.conf = Some(value()?.into()),
            Some("-p") => question.line.prefix = Some(value()?.into()),
            _ => return Err(format!("unknown option \"{}\"; {USAGE}", word.to_string_lossy())),
        }
    }
    Ok(question)
}

/// The control socket of the server that runs with this configuration.
fn socket(line: &CommandLine) -> Result<PathBuf, String> {
    let (configuration, _) = Paths::of(line).load().map_err(|errors| errors.join("\n"))?;
    Ok(pid::socket(&configuration.main.pid(&configuration.prefix)))
}

const USAGE: &str =
    "usage: weir trace --once [--match PATH] [--json] | --sites [--json] | --level off|sampled|full
                  [--socket FILE] [-c FILE] [-p PREFIX]";
