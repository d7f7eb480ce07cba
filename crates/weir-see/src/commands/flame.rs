//! `weir flame`: a flame graph, or a profile in another program's format.

use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;

use super::ask::{gather, print};
use super::options::{Asked, Choice};
use super::questions::{MATCH, options};
use super::selector::Locate;
use crate::control::protocol::Question;
use crate::formats::Format;
use crate::raw_stacks::Raw;
use crate::symbols::ProcessSymbols;

pub(super) const CHOICES: &[Choice] = &[
    Choice { name: "-t", value: "TIME", about: "how long is recorded: 10s without" },
    Choice {
        name: "--last",
        value: "",
        about: "cpu: the time before, out of what is always sampled, instead of the time to come",
    },
    Choice { name: "--hz", value: "N", about: "cpu: samples per second of CPU time: 99 without" },
    Choice {
        name: "-o",
        value: "FORMAT",
        about: "svg, html, folded, pprof, firefox, speedscope or json; or a file named after one",
    },
    Choice { name: "--route", value: "LOCATION", about: "requests of this location only" },
    Choice { name: "--phase", value: "PHASE", about: "what happens in this phase only" },
    MATCH,
    Choice {
        name: "--from",
        value: "FILE",
        about: "stacks that --raw wrote before, - for standard input; asks no server",
    },
    Choice { name: "--raw", value: "", about: "stacks as the server sends them" },
];

pub(super) fn run(asked: &Asked, locate: Locate<'_>) -> Result<(), String> {
    asked.at_most(1)?;
    let (mut format, file) = output(asked.value("-o"))?;
    if asked.has("--json") {
        if asked.value("-o").is_some_and(|_| format != Format::Json) {
            return Err("--json is a format by itself: either that or -o".to_owned());
        }
        format = Format::Json;
    }
    let raw = match asked.value("--from") {
        Some(from) => Raw::parse(&read(from).map_err(|error| format!("\"{from}\": {error}"))?)?,
        None => Raw::parse(&record(asked, locate)?)?,
    };
    let bytes = match asked.has("--raw") {
        true => raw.write().into_bytes(),
        false => format.write(&raw.resolve(&mut symbols(&raw))),
    };
    match file {
        Some(path) => std::fs::write(path, &bytes).map_err(|error| format!("\"{path}\": {error}")),
        None if format == Format::Pprof && !asked.has("--raw") && io::stdout().is_terminal() => {
            Err("a profile is no text: -o FILE.pprof or a pipe takes it".to_owned())
        }
        None if io::stdout().is_terminal() => print(&bytes).map_err(|error| error.to_string()),
        None => io::stdout().lock().write_all(&bytes).map_err(|error| error.to_string()),
    }
}

fn record(asked: &Asked, locate: Locate<'_>) -> Result<String, String> {
    let kind = asked.words.first().map_or("cpu", String::as_str);
    let question = Question::new("flame").with("kind", kind).with("for", asked.value("-t").unwrap_or("10s"));
    let given = [
        ("--route", "route"),
        ("--phase", "phase"),
        ("--match", "match"),
        ("--last", "last"),
        ("--hz", "hz"),
    ];
    let out = gather(asked, locate, &options(asked, question, &given))?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// A format's name, or a file whose name ends in one.
fn output(value: Option<&str>) -> Result<(Format, Option<&str>), String> {
    let Some(value) = value else { return Ok((Format::Svg, None)) };
    if let Some(format) = Format::of(value) {
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
pub(super) fn symbols(raw: &Raw) -> ProcessSymbols {
    ProcessSymbols::with_maps(raw.pid, &raw.maps)
}

const ENDINGS: [(&str, Format); 11] = [
    (".svg", Format::Svg),
    (".html", Format::Html),
    (".folded", Format::Folded),
    (".txt", Format::Folded),
    (".pprof", Format::Pprof),
    (".pb.gz", Format::Pprof),
    (".firefox.json", Format::Firefox),
    (".firefox", Format::Firefox),
    (".speedscope.json", Format::Speedscope),
    (".speedscope", Format::Speedscope),
    (".json", Format::Json),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_a_format_or_a_file_named_after_one() {
        assert_eq!(output(None), Ok((Format::Svg, None)));
        assert_eq!(output(Some("folded")), Ok((Format::Folded, None)));
        for (file, format) in [
            ("/tmp/a.svg", Format::Svg),
            ("a.pb.gz", Format::Pprof),
            ("x.firefox.json", Format::Firefox),
            ("x.json", Format::Json),
        ] {
            assert_eq!(output(Some(file)), Ok((format, Some(file))));
        }
        assert!(output(Some("a.png")).is_err());
    }
}
