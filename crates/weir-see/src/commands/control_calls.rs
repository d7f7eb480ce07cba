//! Asking and showing: what comes goes to standard output, how far it is to standard error when that is a terminal.

use std::io::{self, IsTerminal, Write};

use super::options::CommandLine;
use super::selector::LocateSocket;
use super::visible::{visible, visible_line};
use crate::control::client::{ControlClient, QuestionOutcome, append};
use crate::control::protocol::{ControlQuestion, FrameKind, LONGEST_FRAME};

/// Asks the server that is meant and prints the response as it comes.
pub(super) fn show(
    asked: &CommandLine,
    locate: LocateSocket<'_>,
    question: &ControlQuestion,
) -> Result<QuestionOutcome, String> {
    let question = with_form(asked, question);
    let (mut shown, mut noted) = (false, false);
    let end = client(asked, locate)?.ask(&question, |kind, bytes| {
        shown |= kind == FrameKind::Out;
        if kind == FrameKind::Note {
            noted = true;
            return note(bytes);
        }
        // What comes is not put after the note, in its line.
        if std::mem::take(&mut noted) {
            note(b"")?;
        }
        print(bytes)
    });
    if noted {
        note(b"").map_err(|error| error.to_string())?;
    }
    let end = end?;
    if !shown && end == QuestionOutcome::Stopped {
        return Err("stopped before anything came".to_owned());
    }
    Ok(end)
}

/// The whole response of the server that is meant.
pub(super) fn gather(
    asked: &CommandLine,
    locate: LocateSocket<'_>,
    question: &ControlQuestion,
) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    client(asked, locate)?.ask(question, |kind, bytes| match kind {
        FrameKind::Note => note(bytes),
        _ => append(&mut out, bytes, LONGEST_FRAME),
    })?;
    note(b"").map_err(|error| error.to_string())?;
    Ok(out)
}

/// A connection to the server that is meant.
pub(super) fn client(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<ControlClient, String> {
    let path = match &asked.place.socket {
        Some(path) => path.clone(),
        None => locate(&asked.place)?,
    };
    ControlClient::connect(&path)
}

/// The question in the form that the command line wants.
pub(super) fn with_form(asked: &CommandLine, question: &ControlQuestion) -> ControlQuestion {
    let question = question.clone();
    if asked.has("--json") { question.with("json", "") } else { question }
}

/// Prints text that others have a part in: escape sequences are shown, not obeyed.
pub(super) fn print(bytes: &[u8]) -> io::Result<()> {
    print_as_is(visible(&String::from_utf8_lossy(bytes)).as_bytes())
}

/// Writes to standard output. A reader that has gone (`| head`) has enough: that is the end, and no failure.
///
/// # Errors
/// Those of writing.
pub fn print_as_is(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => result,
    }
}

/// One line that the next one overwrites; nothing when standard error is not a terminal.
pub(super) fn note(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stderr().lock();
    if !out.is_terminal() {
        return Ok(());
    }
    write!(out, "\r\x1b[K{}", visible_line(&String::from_utf8_lossy(bytes)))?;
    out.flush()
}
