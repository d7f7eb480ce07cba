//! Files that stacks are written to.

mod compared;
mod firefox;
mod flame;
mod folded;
mod html;
mod json;
pub(crate) mod perfetto;
mod pprof;
pub(crate) mod protobuf;
mod speedscope;
mod svg;
mod text;

use weir_http::json::JsonWriter;

use crate::runtime_frames;
use crate::stacks::{StackFrame, StackSet};

/// A file format for stacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackFormat {
    /// A flame graph as a picture; a browser adds search and zoom.
    Svg,
    /// A page with the flame graph and a table of frames; needs nothing else.
    Html,
    /// One line a stack: `frame;frame;frame value`.
    Folded,
    /// pprof's `profile.proto`, gzipped.
    Pprof,
    /// The Firefox Profiler's processed format.
    Firefox,
    /// The format of speedscope, JSON.
    Speedscope,
    /// Our own, for programs: every stack with its frames. `weir flame --from` and the page read it again.
    Json,
    /// A table of functions, for a terminal.
    Text,
}

impl StackFormat {
    /// Every format.
    pub const ALL: [StackFormat; 8] = [
        StackFormat::Svg,
        StackFormat::Html,
        StackFormat::Folded,
        StackFormat::Pprof,
        StackFormat::Firefox,
        StackFormat::Speedscope,
        StackFormat::Json,
        StackFormat::Text,
    ];

    /// The name on the command line and in URLs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            StackFormat::Svg => "svg",
            StackFormat::Html => "html",
            StackFormat::Folded => "folded",
            StackFormat::Pprof => "pprof",
            StackFormat::Firefox => "firefox",
            StackFormat::Speedscope => "speedscope",
            StackFormat::Json => "json",
            StackFormat::Text => "text",
        }
    }

    /// The format called `name`, as [`StackFormat::as_str`] writes it; `None` for unknown names.
    #[must_use]
    pub fn of(name: &str) -> Option<StackFormat> {
        StackFormat::ALL.into_iter().find(|format| format.as_str() == name)
    }

    /// Its media type.
    #[must_use]
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            StackFormat::Svg => "image/svg+xml",
            StackFormat::Html => "text/html; charset=utf-8",
            StackFormat::Folded | StackFormat::Text => "text/plain; charset=utf-8",
            StackFormat::Pprof => "application/octet-stream",
            StackFormat::Firefox | StackFormat::Speedscope | StackFormat::Json => "application/json",
        }
    }

    /// Renders `stacks` in this format.
    #[must_use]
    pub fn write(self, stacks: &StackSet) -> Vec<u8> {
        let drawn =
            matches!(self, StackFormat::Svg | StackFormat::Html | StackFormat::Text) && !stacks.runtime;
        let folded = drawn.then(|| runtime_frames::folded(stacks));
        let stacks = folded.as_ref().unwrap_or(stacks);
        match self {
            StackFormat::Svg => svg::write(stacks).into_bytes(),
            StackFormat::Html => html::write(stacks).into_bytes(),
            StackFormat::Folded => folded::write(stacks).into_bytes(),
            StackFormat::Pprof => pprof::write(stacks),
            StackFormat::Firefox => firefox::write(stacks).into_bytes(),
            StackFormat::Speedscope => speedscope::write(stacks).into_bytes(),
            StackFormat::Json => json::write(stacks).into_bytes(),
            StackFormat::Text => text::write(stacks).into_bytes(),
        }
    }

    /// Renders the difference of `stacks` to those of `before`; `None`: this format has none.
    #[must_use]
    pub(crate) fn write_difference(self, stacks: &StackSet, before: &StackSet) -> Option<Vec<u8>> {
        let shown = |stacks: &StackSet| match stacks.runtime {
            true => stacks.clone(),
            false => runtime_frames::folded(stacks),
        };
        match self {
            StackFormat::Svg => Some(svg::compared(&shown(stacks), &shown(before)).into_bytes()),
            StackFormat::Text => Some(text::compared(&shown(stacks), &shown(before)).into_bytes()),
            _ => None,
        }
    }
}

/// A function between those that called it and those that it called, as tables.
pub(crate) fn sandwich(stacks: &StackSet, name: &str) -> String {
    text::sandwich(stacks, name)
}

/// Reads what [`StackFormat::Json`] wrote.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read_json(bytes: &[u8]) -> Result<StackSet, String> {
    json::read(bytes)
}

/// A frame's name and, where they are known, its file and line.
fn place(json: &mut JsonWriter, frame: &StackFrame) {
    json.key("name").text(&frame.name);
    if !frame.file.is_empty() {
        json.key("file").text(&frame.file);
    }
    if frame.line > 0 {
        json.key("line").raw(frame.line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::WeightUnit;

    #[test]
    fn every_format_takes_nothing_at_all() {
        for format in StackFormat::ALL {
            assert_eq!(StackFormat::of(format.as_str()), Some(format));
            assert_eq!(
                format.write(&StackSet::new("cpu", WeightUnit::Nanoseconds)).is_empty(),
                format == StackFormat::Folded
            );
        }
        assert_eq!(StackFormat::of("png"), None);
    }
}
