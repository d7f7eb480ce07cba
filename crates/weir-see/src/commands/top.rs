//! `weir top`: a table that is drawn again in place.

use std::io::{self, IsTerminal};
use std::time::Duration;

use super::control_calls::{client, print, print_as_is, with_form};
use super::fleet::ServerFleet;
use super::help::{CommandOption, TextStyle};
use super::options::CommandLine;
use super::selector::LocateSocket;
use super::visible::{visible, visible_line};
use crate::control::protocol::{ControlQuestion, FrameKind};
use crate::filter::duration_ns;
use crate::responses;

pub(super) const CHOICES: &[CommandOption] = &[
    CommandOption::new("-b", "", "print one table and exit (the default if the output is no terminal)"),
    CommandOption::new(
        "-d",
        "TIME",
        "time between tables (default: 1s); 0: one table since the server began",
    ),
    CommandOption::new("-n", "N", "exit after N tables"),
    CommandOption::new(
        "--hosts",
        "A,B,...",
        "add up several servers: HOST:PORT or unix:PATH of their admin listeners; \"hosts\" is a table of them",
    ),
    CommandOption::new("--token-file", "FILE", "file with the token of these listeners"),
];

pub(super) fn run(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(1)?;
    let view = asked.words.first().map_or("routes", String::as_str);
    let live = !asked.has("-b") && !asked.has("--json") && io::stdout().is_terminal();
    if let Some(hosts) = asked.value("--hosts") {
        return of_hosts(asked, hosts, view, live);
    }
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

/// Tables of several servers.
fn of_hosts(asked: &CommandLine, hosts: &str, view: &str, live: bool) -> Result<(), String> {
    let every = Duration::from_nanos(duration_ns(asked.value("-d").unwrap_or("1s"))?);
    let count = match asked.value("-n") {
        Some(count) => count.parse().map_err(|_| format!("\"{count}\" is no number of tables"))?,
        None if live => u64::MAX,
        None => 1,
    };
    let json = asked.has("--json");
    let mut fleet = ServerFleet::new(hosts, token(asked)?)?;
    for _ in 0..count {
        if !every.is_zero() {
            std::thread::sleep(every);
        }
        let mut window = if every.is_zero() { fleet.all_time() } else { fleet.window() };
        let is_idle = window.is_idle() && !every.is_zero() && !json && !matches!(view, "closes" | "hosts");
        if is_idle {
            window = fleet.all_time();
        }
        if json && !window.silent().is_empty() {
            eprint!("{}", visible(window.silent()));
        }
        let mut table = window.shown(view, json)?;
        if is_idle {
            table.push_str(&responses::top::nothing_ended(every));
        }
        let printed = match live {
            true => print_as_is(&drawn(view, table.as_bytes(), TextStyle::of_stdout())),
            false => print(table.as_bytes()),
        };
        printed.map_err(|error| error.to_string())?;
        if every.is_zero() {
            break;
        }
    }
    Ok(())
}

/// The token of a file, which others that see this process do not see.
fn token(asked: &CommandLine) -> Result<Option<String>, String> {
    let Some(file) = asked.value("--token-file") else { return Ok(None) };
    let text = std::fs::read_to_string(file).map_err(|error| format!("\"{file}\": {error}"))?;
    match text.trim() {
        token if token.is_empty() || token.contains(char::is_whitespace) => {
            Err(format!("\"{file}\" holds no token"))
        }
        token => Ok(Some(token.to_owned())),
    }
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
