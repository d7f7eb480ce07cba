//! `weir blocked`: stalls, with names for the addresses in their stacks.

use super::control_calls::{client, note, print, with_form};
use super::help::CommandOption;
use super::options::CommandLine;
use super::questions::options;
use super::selector::LocateSocket;
use super::stall_summary::{StallLine, table};
use crate::control::protocol::{ControlQuestion, FrameKind};
use crate::raw_stacks::RawStacks;
use crate::stacks::StackFrame;
use crate::symbols::{BareAddresses, SymbolSource};
use weir_http::json::escape;

pub(super) const CHOICES: &[CommandOption] = &[
    CommandOption::new("--over", "TIME", "only those of at least TIME"),
    CommandOption::new("-n", "N", "only the last N"),
    CommandOption::new("--follow", "", "go on with new ones until Ctrl-C"),
    CommandOption::new("-v", "", "show each by itself, with its stack and the requests that waited"),
    RAW,
    CommandOption::new("--blame", "", "show which locations make others wait inside the loop"),
];

const RAW: CommandOption =
    CommandOption::new("--raw", "", "show native code as addresses, without reading symbols");

/// Of `weir bt`.
pub(super) const OF_STACKS: &[CommandOption] = &[RAW];

pub(super) fn run(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(0)?;
    if asked.has("--blame") {
        return super::control_calls::show(asked, locate, &ControlQuestion::new("blame")).map(drop);
    }
    let given = [("--over", "over"), ("-n", "n"), ("--follow", "follow")];
    let question = options(asked, ControlQuestion::new("blocked"), &given);
    if !["-v", "--raw", "--json"].iter().any(|option| asked.has(option)) {
        return summary(asked, locate, &question);
    }
    let mut symbols = symbols(asked, locate)?;
    let question = with_form(asked, &question);
    client(asked, locate)?.ask(&question, |kind, bytes| match kind {
        FrameKind::Note => note(bytes),
        _ => print(named(&String::from_utf8_lossy(bytes), &mut *symbols).as_bytes()),
    })?;
    Ok(())
}

/// A row for all equal stalls; with `--follow` a line for each as it comes.
fn summary(asked: &CommandLine, locate: LocateSocket<'_>, question: &ControlQuestion) -> Result<(), String> {
    let mut symbols = symbols(asked, locate)?;
    let (mut stalls, mut rest, mut wrong) = (Vec::new(), String::new(), None);
    let follow = asked.has("--follow");
    client(asked, locate)?.ask(&question.clone().with("json", ""), |kind, bytes| {
        if kind == FrameKind::Note {
            return note(bytes);
        }
        rest.push_str(&String::from_utf8_lossy(bytes));
        while let Some((line, after)) = rest.split_once('\n') {
            match StallLine::parse(&named(line, &mut *symbols)) {
                Ok(stall) if follow => print(stall.text().as_bytes())?,
                Ok(stall) => stalls.push(stall),
                Err(error) => wrong = Some(error),
            }
            rest = after.to_owned();
        }
        Ok(())
    })?;
    if let Some(error) = wrong {
        return Err(format!("the server reports what is no stall: {error}"));
    }
    if !stalls.is_empty() {
        print(table(&stalls).as_bytes()).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// `weir bt`
pub(super) fn stacks_now(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(1)?;
    let question = match asked.words.first() {
        Some(worker) => ControlQuestion::new("bt").with("worker", worker),
        None => ControlQuestion::new("bt"),
    };
    let mut symbols = symbols(asked, locate)?;
    let text = client(asked, locate)?.text(&with_form(asked, &question))?;
    print(named(&text, &mut *symbols).as_bytes()).map_err(|error| error.to_string())
}

/// What knows the names of the server's addresses, or with `--raw` none.
fn symbols(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<Box<dyn SymbolSource>, String> {
    if asked.has("--raw") {
        return Ok(Box::new(BareAddresses));
    }
    let maps = client(asked, locate)?.text(&ControlQuestion::new("maps"))?;
    Ok(Box::new(super::flame::symbols(&RawStacks::parse(&maps)?)))
}

/// `text` with every `@ADDRESS@` replaced by the names of its frames, innermost first: a line each, or a string each where
/// it is in quotes. Names of an `@ADDRESS?@`, which was guessed, end with a question mark.
pub(crate) fn named(text: &str, symbols: &mut dyn SymbolSource) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('@') {
        let address = after.split_once('@').and_then(|(hex, behind)| {
            let (hex, mark) = hex.strip_suffix('?').map_or((hex, ""), |hex| (hex, GUESS));
            Some((u64::from_str_radix(hex, 16).ok()?, mark, behind))
        });
        let Some((address, mark, behind)) = address else {
            out.push_str(before);
            out.push('@');
            rest = after;
            continue;
        };
        let mut frames = Vec::new();
        symbols.frames(address, &mut frames);
        let names: Vec<String> = frames.iter().rev().map(|frame| shown(frame) + mark).collect();
        match (before.strip_suffix('"'), behind.strip_prefix('"')) {
            (Some(before), Some(behind)) => {
                out.push_str(before);
                for (number, name) in names.iter().enumerate() {
                    out.push_str(if number > 0 { "," } else { "" });
                    escape(&mut out, name);
                }
                rest = behind;
            }
            _ => {
                out.push_str(before);
                out.push_str(&names.join("\n    "));
                rest = behind;
            }
        }
    }
    out.push_str(rest);
    out
}

/// After the name of a frame that was guessed.
const GUESS: &str = " ?";

fn shown(frame: &StackFrame) -> String {
    match (frame.file.is_empty(), frame.line) {
        (true, _) => frame.name.clone(),
        (false, line) => format!("{} ({}:{line})", frame.name, frame.file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two frames for each address: one inlined into the other.
    struct Two;

    impl SymbolSource for Two {
        fn frames(&mut self, address: u64, out: &mut Vec<StackFrame>) {
            BareAddresses.frames(address, out);
            out.push(StackFrame {
                name: "inner".to_owned(),
                file: "a.rs".to_owned(),
                line: 3,
                ..StackFrame::default()
            });
        }
    }

    #[test]
    fn addresses_become_names_where_they_stand() {
        assert_eq!(named("  x\n    @ab@\n", &mut Two), "  x\n    inner (a.rs:3)\n    0xab\n");
        assert_eq!(named(r#"["@ab@","b"]"#, &mut Two), r#"["inner (a.rs:3)","0xab","b"]"#);
        assert_eq!(named("  @ab?@\n", &mut Two), "  inner (a.rs:3) ?\n    0xab ?\n");
        assert_eq!(named("a@b.c @1@", &mut BareAddresses), "a@b.c 0x1");
    }
}
