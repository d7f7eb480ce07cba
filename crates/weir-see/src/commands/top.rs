//! `weir top`: a table that is drawn again in place.

use std::io::{self, IsTerminal};

use super::control_calls::{client, print, print_as_is, with_form};
use super::help::{CommandOption, TextStyle};
use super::options::CommandLine;
use super::selector::LocateSocket;
use super::visible::{visible, visible_line};
use crate::control::protocol::{ControlQuestion, FrameKind};

pub(super) const CHOICES: &[CommandOption] = &[
    CommandOption::new("-b", "", "print one table and exit (the default if the output is no terminal)"),
    CommandOption::new(
        "-d",
        "TIME",
        "time between tables (default: 1s); 0: one table since the server began",
    ),
    CommandOption::new("-n", "N", "exit after N tables"),
];

pub(super) fn run(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(1)?;
    let view = asked.words.first().map_or("routes", String::as_str);
    let live = !asked.has("-b") && !asked.has("--json") && io::stdout().is_terminal();
    let question =
        ControlQuestion::new("top").with("of", view).with("every", asked.value("-d").unwrap_or("1s"));
    let question = match (asked.value("-n"), live) {
        (Some(count), _) => question.with("n", count),
        (None, true) => question,
        (None, false) => question.with("n", 1),
    };
    let question = with_form(asked, &question);
    client(asked, locate)?.ask(&question, |kind, bytes| match kind {
        FrameKind::Out if live => print_as_is(&drawn(view, bytes, TextStyle::of_stdout())),
        FrameKind::Out => print(bytes),
        _ => Ok(()),
    })?;
    Ok(())
}

/// The table in place of the one before: cursor home, each line cleared after its end, then all below.
fn drawn(view: &str, table: &[u8], style: TextStyle) -> Vec<u8> {
    let (table, view) = (String::from_utf8_lossy(table), visible_line(view));
    let text = visible(&table);
    let heading = style.heading(&format!("weir top {view}"));
    let mut out = format!("\x1b[H{heading}   (Ctrl-C ends)\x1b[K\n\x1b[K\n");
    for line in text.lines() {
        out.push_str(line);
        out.push_str("\x1b[K\n");
    }
    out.push_str("\x1b[J");
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_covers_the_one_before() {
        let text = String::from_utf8(drawn("phases", b"a\nb\n", TextStyle::Plain)).expect("text");
        assert!(text.starts_with("\x1b[H") && text.ends_with("a\x1b[K\nb\x1b[K\n\x1b[J"), "{text:?}");
        let text = String::from_utf8(drawn("a", b"\x1b[2Jb\n", TextStyle::Terminal)).expect("text");
        assert!(text.contains("\n\\x1B[2Jb\x1b[K\n"), "{text:?}");
    }
}
