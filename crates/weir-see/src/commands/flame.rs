//! `weir flame`: a flame graph, or a profile in another program's format.

use std::io::{self, IsTerminal, Read};
use std::path::Path;

use super::control_calls::{gather, print, print_as_is};
use super::help::CommandOption;
use super::options::CommandLine;
use super::questions::{MATCH, options};
use super::selector::LocateSocket;
use crate::control::protocol::ControlQuestion;
use crate::formats::StackFormat;
use crate::raw_stacks::RawStacks;
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
        "svg, html, folded, pprof, firefox, speedscope or json, or a file with such a suffix",
    ),
    CommandOption::new("--route", "LOCATION", "only requests of this location"),
    CommandOption::new("--phase", "PHASE", "only this phase"),
    MATCH,
    CommandOption::new(
        "--from",
        "FILE",
        "draw stacks that --raw wrote (- for standard input); no server is asked",
    ),
    CommandOption::new("--all", "", "svg, html: the frames of the server's runtime, too, which are one else"),
    CommandOption::new("--raw", "", "write the stacks as the server sends them"),
];

pub(super) fn run(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(1)?;
    let (mut format, file) = output(asked.value("-o"))?;
    if asked.has("--json") {
        if asked.value("-o").is_some_and(|_| format != StackFormat::Json) {
            return Err("--json is a format by itself: either that or -o".to_owned());
        }
        format = StackFormat::Json;
    }
    if file.is_none() && !asked.has("--raw") && io::stdout().is_terminal() {
        for_a_terminal(format)?;
    }
    let raw = match asked.value("--from") {
        Some(from) => RawStacks::parse(&read(from).map_err(|error| format!("\"{from}\": {error}"))?)?,
        None => RawStacks::parse(&record(asked, locate)?)?,
    };
    let bytes = match asked.has("--raw") {
        true => raw.write().into_bytes(),
        false => {
            let mut stacks = raw.resolve(&mut symbols(&raw));
            stacks.runtime = asked.has("--all");
            format.write(&stacks)
        }
    };
    match file {
        Some(path) => std::fs::write(path, &bytes).map_err(|error| format!("\"{path}\": {error}")),
        None if io::stdout().is_terminal() => print(&bytes).map_err(|error| error.to_string()),
        None => print_as_is(&bytes).map_err(|error| error.to_string()),
    }
}

/// Refuses, before anything is recorded, what nobody reads on a terminal.
fn for_a_terminal(format: StackFormat) -> Result<(), String> {
    let ending = match format {
        StackFormat::Folded | StackFormat::Json => return Ok(()),
        StackFormat::Svg => "svg",
        StackFormat::Html => "html",
        StackFormat::Pprof => "pprof",
        StackFormat::Firefox => "firefox.json",
        StackFormat::Speedscope => "speedscope.json",
    };
    Err(format!("this is for a file, not for a terminal: -o flame.{ending}, or -o folded for text"))
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
            "\"{value}\" is no format: svg, html, folded, pprof, firefox, speedscope and json are"
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
