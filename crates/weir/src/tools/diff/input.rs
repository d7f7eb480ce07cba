//! The log: a file or standard input, plain or packed with gzip, line by line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use weir_modules::filters::gunzip::GunzipReader;
use weir_modules::log::LogLineFormat;

use crate::tools::plan::LoadedPlan;

/// A log that is being read.
pub(super) struct LogInput {
    name: String,
    bytes: Box<dyn BufRead>,
}

impl LogInput {
    /// Opens the file `name`; `-` is standard input.
    ///
    /// # Errors
    /// It can't be opened.
    pub(super) fn open(name: &str) -> Result<LogInput, String> {
        let failed = |error: io::Error| format!("\"{name}\": {error}");
        let mut plain: Box<dyn BufRead> = match name {
            "-" => Box::new(BufReader::with_capacity(BUFFER, io::stdin())),
            _ => Box::new(BufReader::with_capacity(BUFFER, File::open(name).map_err(failed)?)),
        };
        let is_packed = plain.fill_buf().map_err(failed)?.starts_with(&GZIP);
        let bytes: Box<dyn BufRead> = match is_packed {
            true => Box::new(BufReader::with_capacity(BUFFER, GunzipReader::new(plain))),
            false => plain,
        };
        Ok(LogInput { name: name.to_owned(), bytes })
    }

    /// The beginning of the log, which is read again.
    ///
    /// # Errors
    /// It can't be read.
    pub(super) fn beginning(&mut self) -> Result<&[u8], String> {
        let name = &self.name;
        self.bytes.fill_buf().map_err(|error| format!("\"{name}\": {error}"))
    }

    /// Reads the next line into `line`, without its end; of a line that is too long for a request the beginning. `false` at the
    /// end of the log.
    ///
    /// # Errors
    /// The log can't be read.
    pub(super) fn next(&mut self, line: &mut Vec<u8>) -> Result<bool, String> {
        line.clear();
        let read = self.line(line).map_err(|error| format!("\"{}\": {error}", self.name))?;
        for end in [b'\n', b'\r'] {
            line.pop_if(|byte| *byte == end);
        }
        Ok(read)
    }

    fn line(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        let read = Read::take(&mut self.bytes, LONGEST).read_until(b'\n', line)?;
        if read as u64 == LONGEST && !line.ends_with(b"\n") {
            self.bytes.skip_until(b'\n')?;
        }
        Ok(read > 0)
    }
}

/// The format of a log: the one that is named or written out, else the one among `combined` and those of the old configuration
/// that fits the beginning of the log best.
pub(super) fn format(
    wanted: Option<&str>,
    old: &LoadedPlan,
    beginning: &[u8],
) -> Result<(String, LogLineFormat), String> {
    let defined = old.log_formats();
    match wanted {
        Some(text) if text == COMBINED || text.contains('$') => {
            Ok((text.to_owned(), LogLineFormat::new(text)?))
        }
        Some(name) => {
            let text = defined.iter().find(|(other, _)| *other == name).map(|(_, text)| text);
            let text = text.ok_or_else(|| no_format(name, &defined))?;
            let format = LogLineFormat::new(text);
            Ok((name.to_owned(), format.map_err(|why| format!("log_format \"{name}\": {why}"))?))
        }
        None => {
            let known = defined.iter().map(|(name, text)| (*name, text.as_str()));
            let known = known.chain([(COMBINED, COMBINED)]);
            let formats = known.filter_map(|(name, text)| Some((name, LogLineFormat::new(text).ok()?)));
            let best = formats.max_by_key(|(_, format)| fit(format, beginning));
            let (name, format) = best.ok_or("there is no format")?;
            Ok((name.to_owned(), format))
        }
    }
}

fn no_format(name: &str, defined: &[(&str, String)]) -> String {
    let names: Vec<&str> = defined.iter().map(|(name, _)| *name).chain([COMBINED]).collect();
    format!("there is no log_format \"{name}\" in OLD; there are: {}", names.join(", "))
}

/// How many of the first lines a format reads, and how much it says of them.
fn fit(format: &LogLineFormat, beginning: &[u8]) -> (usize, usize) {
    let lines = beginning.split(|byte| *byte == b'\n').take(SAMPLE);
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    (lines.filter(|line| format.read(line).is_some()).count(), format.variables().count())
}

const COMBINED: &str = "combined";
/// How a gzip file begins (RFC 1952).
const GZIP: [u8; 3] = [0x1f, 0x8b, 8];
const BUFFER: usize = 1 << 18;
/// Bytes of a line that are read. A request's head is smaller with any sensible `large_client_header_buffers`.
const LONGEST: u64 = 1 << 20;
/// Lines that choose the format.
const SAMPLE: usize = 50;
