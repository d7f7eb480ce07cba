//! Files that stacks are written to.

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

use weir_http::json::Json;

use crate::stacks::{Frame, Stacks};

/// A file format for stacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
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
    /// speedscope's.
    Speedscope,
    /// Our own, for programs: every stack with its frames.
    Json,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 7] = [
        Format::Svg,
        Format::Html,
        Format::Folded,
        Format::Pprof,
        Format::Firefox,
        Format::Speedscope,
        Format::Json,
    ];

    /// The name on the command line and in URLs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Format::Svg => "svg",
            Format::Html => "html",
            Format::Folded => "folded",
            Format::Pprof => "pprof",
            Format::Firefox => "firefox",
            Format::Speedscope => "speedscope",
            Format::Json => "json",
        }
    }

    /// The format of that name.
    #[must_use]
    pub fn of(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.as_str() == name)
    }

    /// Its media type.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Format::Svg => "image/svg+xml",
            Format::Html => "text/html; charset=utf-8",
            Format::Folded => "text/plain; charset=utf-8",
            Format::Pprof => "application/octet-stream",
            Format::Firefox | Format::Speedscope | Format::Json => "application/json",
        }
    }

    /// `stacks` in this format.
    #[must_use]
    pub fn write(self, stacks: &Stacks) -> Vec<u8> {
        match self {
            Format::Svg => svg::write(stacks).into_bytes(),
            Format::Html => html::write(stacks).into_bytes(),
            Format::Folded => folded::write(stacks).into_bytes(),
            Format::Pprof => pprof::write(stacks),
            Format::Firefox => firefox::write(stacks).into_bytes(),
            Format::Speedscope => speedscope::write(stacks).into_bytes(),
            Format::Json => json::write(stacks).into_bytes(),
        }
    }
}

/// A frame's name and, where they are known, its file and line.
fn place(json: &mut Json, frame: &Frame) {
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
    use crate::stacks::Unit;

    #[test]
    fn every_format_takes_nothing_at_all() {
        for format in Format::ALL {
            assert_eq!(Format::of(format.as_str()), Some(format));
            assert_eq!(
                format.write(&Stacks::new("cpu", Unit::Nanoseconds)).is_empty(),
                format == Format::Folded
            );
        }
        assert_eq!(Format::of("png"), None);
    }
}
