//! `weir flame`: a flame graph, or a profile in another program's format.

use std::io::{self, IsTerminal, Read};
use std::path::Path;

use super::control_calls::{gather, print, print_as_is};
use super::help::CommandOption;
use super::options::CommandLine;
use super::questions::{MATCH, options};
use super::selector::LocateSocket;
use crate::control::protocol::ControlQuestion;
use crate::formats::{self, StackFormat};
use crate::raw_stacks::RawStacks;
use crate::runtime_frames;
use crate::stack_views;
use crate::stacks::StackSet;
use crate::symbols::ProcessSymbols;

pub(super) const CHOICES: &[CommandOption] = &[
    CommandOption::new("-t", "TIME", "how long to record (default: 10s)"),
    CommandOption::new("--last", "", "cpu: the last seconds, from the samples that are always taken"),
    CommandOption::new("--hz", "N", "cpu: samples per second of CPU time (default: 99)"),
    CommandOption::new(
        "--samples",
        "",
        "off: by the watchdog's samples, although the kernel would record each switch",
    ),
    CommandOption::new(
        "-o",
        "FORMAT",
        "text, svg, html, folded, pprof, firefox, speedscope or json, or a file with such a suffix",
    ),
    CommandOption::new("--route", "LOCATION", "only requests of this location"),
    CommandOption::new("--phase", "PHASE", "only this phase"),
    MATCH,
    CommandOption::new(
        "--from",
        "FILE",
        "a recording that -o FILE.json, --raw or the page has saved (- for standard input); no server is asked",
    ),
    CommandOption::new("--diff", "BEFORE", "what changed since that recording: red takes more, blue less"),
    CommandOption::new(
        "--callers",
        "NAME",
        "one function, by a part of its name: who calls it, and what it calls",
    ),
    CommandOption::new("--invert", "", "from the innermost frame outwards"),
    CommandOption::new("--grep", "TEXT", "only stacks with a frame that has TEXT in its name"),
    CommandOption::new(
        "--all",
        "",
        "text, svg, html: the frames of the server's runtime, too, which are one else",
    ),
    CommandOption::new("--raw", "", "write the stacks as the server sends them"),
];

pub(super) fn run(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(1)?;
    let (mut format, file) = output(asked.value("-o"))?;
    if asked.value("-o").is_none() && io::stdout().is_terminal() {
        format = StackFormat::Text;
    }
    if asked.has("--json") {
        if asked.value("-o").is_some_and(|_| format != StackFormat::Json) {
            return Err("--json is a format by itself: either that or -o".to_owned());
        }
        format = StackFormat::Json;
    }
    if file.is_none() && !asked.has("--raw") && io::stdout().is_terminal() {
        for_a_terminal(format)?;
    }
    let look = StackLook::of(asked, format)?;
    let recording = match asked.value("--from") {
        Some(from) => Recording::read(from)?,
        None => Recording::Raw(RawStacks::parse(&record(asked, locate)?)?),
    };
    let bytes = match (asked.has("--raw"), recording) {
        (true, Recording::Raw(raw)) => raw.write().into_bytes(),
        (true, Recording::Named(_)) => return Err("--raw: this recording has names already".to_owned()),
        (false, recording) => look.write(recording.named(), format)?,
    };
    match file {
        Some(path) => std::fs::write(path, &bytes).map_err(|error| format!("\"{path}\": {error}")),
        None if io::stdout().is_terminal() => print(&bytes).map_err(|error| error.to_string()),
        None => print_as_is(&bytes).map_err(|error| error.to_string()),
    }
}

/// A recording, as it was read.
enum Recording {
    /// Addresses, which get their names here.
    Raw(RawStacks),
    Named(StackSet),
}

impl Recording {
    /// What a file holds: JSON, or the lines of `--raw`.
    fn read(from: &str) -> Result<Recording, String> {
        let text = read(from).map_err(|error| format!("\"{from}\": {error}"))?;
        let read = match text.trim_start().starts_with('{') {
            true => formats::read_json(text.as_bytes()).map(Recording::Named),
            false => RawStacks::parse(&text).map(Recording::Raw),
        };
        read.map_err(|error| format!("\"{from}\": {error}"))
    }

    fn named(self) -> StackSet {
        match self {
            Recording::Raw(raw) => raw.resolve(&mut symbols(&raw)),
            Recording::Named(stacks) => stacks,
        }
    }
}

/// How a recording is looked at.
struct StackLook<'a> {
    before: Option<StackSet>,
    callers: Option<&'a str>,
    grep: Option<&'a str>,
    invert: bool,
    all: bool,
}

impl StackLook<'_> {
    /// What the command line wants; reads the recording to compare with, before anything is recorded.
    fn of(asked: &CommandLine, format: StackFormat) -> Result<StackLook<'_>, String> {
        let before = asked.value("--diff").map(|file| Recording::read(file).map(Recording::named));
        let look = StackLook {
            before: before.transpose()?,
            callers: asked.value("--callers"),
            grep: asked.value("--grep"),
            invert: asked.has("--invert"),
            all: asked.has("--all"),
        };
        let (diff, callers) = (look.before.is_some(), look.callers.is_some());
        if asked.has("--raw") && (diff || callers || look.invert || look.grep.is_some()) {
            return Err("--raw saves all as it is; look at it with --from".to_owned());
        }
        if callers && look.invert {
            return Err("--callers goes from the function outwards: --invert is too much".to_owned());
        }
        if diff && !matches!(format, StackFormat::Text | StackFormat::Svg) {
            return Err(format!("a difference is text or svg, not {}", format.as_str()));
        }
        Ok(look)
    }

    fn write(&self, stacks: StackSet, format: StackFormat) -> Result<Vec<u8>, String> {
        let mut stacks = self.chosen(stacks);
        let mut before = self.before.clone().map(|before| self.chosen(before));
        if let Some(before) = &before
            && before.kind != stacks.kind
        {
            return Err(format!("{} can't be compared with {}", stacks.kind, before.kind));
        }
        if let Some(text) = self.callers {
            // A function may have been there before alone.
            let name = match (stack_views::function(&stacks, text), &before) {
                (Err(_), Some(before)) => stack_views::function(before, text)?.to_owned(),
                (found, _) => found?.to_owned(),
            };
            if format == StackFormat::Text && before.is_none() {
                return Ok(formats::sandwich(&stacks, &name).into_bytes());
            }
            stacks = stack_views::callers(&stacks, &name);
            before = before.map(|before| stack_views::callers(&before, &name));
        }
        match before {
            Some(before) => format
                .write_difference(&stacks, &before)
                .ok_or_else(|| format!("{} has no differences", format.as_str())),
            None => Ok(format.write(&stacks)),
        }
    }

    /// The stacks that are wanted, with the runtime's frames as they are wanted.
    fn chosen(&self, stacks: StackSet) -> StackSet {
        let looks = self.callers.is_some() || self.grep.is_some() || self.invert;
        // What is drawn is what is searched; the frames of the runtime are found in stacks that begin outermost.
        let mut stacks = if looks && !self.all { runtime_frames::folded(&stacks) } else { stacks };
        if let Some(text) = self.grep {
            stacks = stack_views::with_text(&stacks, text);
        }
        if self.invert {
            stacks = stack_views::inverted(&stacks);
        }
        stacks.runtime = self.all || looks;
        stacks
    }
}

/// Refuses, before anything is recorded, what nobody reads on a terminal.
fn for_a_terminal(format: StackFormat) -> Result<(), String> {
    let ending = match format {
        StackFormat::Folded | StackFormat::Json | StackFormat::Text => return Ok(()),
        StackFormat::Svg => "svg",
        StackFormat::Html => "html",
        StackFormat::Pprof => "pprof",
        StackFormat::Firefox => "firefox.json",
        StackFormat::Speedscope => "speedscope.json",
    };
    Err(format!("this is for a file, not for a terminal: -o flame.{ending}, or -o text"))
}

fn record(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<String, String> {
    let kind = asked.words.first().map_or("cpu", String::as_str);
    let question =
        ControlQuestion::new("flame").with("kind", kind).with("for", asked.value("-t").unwrap_or("10s"));
    let given = [
        ("--route", "route"),
        ("--phase", "phase"),
        ("--match", "match"),
        ("--last", "last"),
        ("--samples", "samples"),
        ("--hz", "hz"),
    ];
    let out = gather(asked, locate, &options(asked, question, &given))?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// A format's name, or a file whose name ends in one.
fn output(value: Option<&str>) -> Result<(StackFormat, Option<&str>), String> {
    let Some(value) = value else { return Ok((StackFormat::Svg, None)) };
    if let Some(format) = StackFormat::of(value) {
        return Ok((format, None));
    }
    let name = Path::new(value).file_name().and_then(|name| name.to_str()).unwrap_or(value);
    let format = ENDINGS.iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, format)| *format);
    match format {
        Some(format) => Ok((format, Some(value))),
        None => Err(format!(
            "\"{value}\" is no format: text, svg, html, folded, pprof, firefox, speedscope and json are"
        )),
    }
}

fn read(from: &str) -> io::Result<String> {
    let mut text = String::new();
    match from {
        "-" => io::stdin().lock().read_to_string(&mut text)?,
        path => std::fs::File::open(path)?.read_to_string(&mut text)?,
    };
    Ok(text)
}

/// What knows the names of these addresses.
pub(super) fn symbols(raw: &RawStacks) -> ProcessSymbols {
    ProcessSymbols::with_maps(raw.pid, &raw.maps)
}

const ENDINGS: [(&str, StackFormat); 11] = [
    (".svg", StackFormat::Svg),
    (".html", StackFormat::Html),
    (".folded", StackFormat::Folded),
    (".txt", StackFormat::Folded),
    (".pprof", StackFormat::Pprof),
    (".pb.gz", StackFormat::Pprof),
    (".firefox.json", StackFormat::Firefox),
    (".firefox", StackFormat::Firefox),
    (".speedscope.json", StackFormat::Speedscope),
    (".speedscope", StackFormat::Speedscope),
    (".json", StackFormat::Json),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_a_format_or_a_file_named_after_one() {
        assert_eq!(output(None), Ok((StackFormat::Svg, None)));
        assert_eq!(output(Some("folded")), Ok((StackFormat::Folded, None)));
        for (file, format) in [
            ("/tmp/a.svg", StackFormat::Svg),
            ("a.pb.gz", StackFormat::Pprof),
            ("x.firefox.json", StackFormat::Firefox),
            ("x.json", StackFormat::Json),
        ] {
            assert_eq!(output(Some(file)), Ok((format, Some(file))));
        }
        assert!(output(Some("a.png")).is_err());
    }
}
