//! Reading: records as they come, and the pairs in them.

use std::fmt;
use std::ops::Range;

use super::{HEAD, RecordKind};

/// Which side writes the records that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordWriter {
    /// A web server, whose records an application reads.
    Server,
    /// An application, whose records a web server reads.
    Application,
}

impl RecordWriter {
    fn writes(self, kind: RecordKind) -> bool {
        let answers = matches!(kind, RecordKind::End | RecordKind::Stdout | RecordKind::Stderr);
        answers == (self == RecordWriter::Application)
    }
}

/// Reads one direction of a connection. Whatever the pieces are that the bytes come in, the content is the same.
#[derive(Clone, Debug)]
pub struct RecordReader {
    side: RecordWriter,
    kind: RecordKind,
    /// Bytes of the head that were read.
    have: usize,
    length: usize,
    left: usize,
    padding: usize,
}

/// What [`RecordReader::read`] found. Ranges are of its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordEvent {
    /// All is read; more bytes are needed.
    More,
    /// Some of a record's content.
    Data(RecordKind, Range<usize>),
    /// A record is over, and its padding.
    End {
        /// Its kind.
        kind: RecordKind,
        /// It had no content: the end of a stream.
        empty: bool,
    },
}

/// Why bytes are no record. The text is nginx's, for the error log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRecord {
    /// Not version 1.
    Version(u8),
    /// A kind that this side does not send.
    Kind(u8),
    /// Not request 1: the upper byte.
    RequestHigh(u8),
    /// Not request 1: the lower byte.
    RequestLow(u8),
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadRecord::Version(byte) => {
                write!(f, "upstream sent unsupported FastCGI protocol version: {byte}")
            }
            BadRecord::Kind(byte) => write!(f, "upstream sent invalid FastCGI record type: {byte}"),
            BadRecord::RequestHigh(byte) => {
                write!(f, "upstream sent unexpected FastCGI request id high byte: {byte}")
            }
            BadRecord::RequestLow(byte) => {
                write!(f, "upstream sent unexpected FastCGI request id low byte: {byte}")
            }
        }
    }
}

impl RecordReader {
    /// A reader of what `side` writes.
    pub fn new(side: RecordWriter) -> RecordReader {
        RecordReader { side, kind: RecordKind::Begin, have: 0, length: 0, left: 0, padding: 0 }
    }

    /// Reads up to the next event; how many bytes of `input` it took. To be called again with what follows them,
    /// until it says [`RecordEvent::More`].
    ///
    /// # Errors
    /// [`BadRecord`] as soon as its byte is seen; the reader is of no further use.
    pub fn read(&mut self, input: &[u8]) -> Result<(usize, RecordEvent), BadRecord> {
        let mut at = 0;
        while self.have < HEAD {
            let Some(&byte) = input.get(at) else { return Ok((at, RecordEvent::More)) };
            self.head(byte)?;
            at += 1;
        }
        if self.left > 0 {
            let end = input.len().min(at + self.left);
            self.left -= end - at;
            let event = if end > at { RecordEvent::Data(self.kind, at..end) } else { RecordEvent::More };
            return Ok((end, event));
        }
        let skipped = self.padding.min(input.len() - at);
        self.padding -= skipped;
        at += skipped;
        if self.padding > 0 {
            return Ok((at, RecordEvent::More));
        }
        self.have = 0;
        Ok((at, RecordEvent::End { kind: self.kind, empty: self.length == 0 }))
    }

    /// The last `count` bytes of the last [`RecordEvent::Data`] were not used: they will be read again.
    pub fn unread(&mut self, count: usize) {
        self.left += count;
    }

    /// Takes the next byte of a head (section 3.3).
    fn head(&mut self, byte: u8) -> Result<(), BadRecord> {
        let value = usize::from(byte);
        match self.have {
            0 if byte != 1 => return Err(BadRecord::Version(byte)),
            1 => {
                let kind = RecordKind::of(byte).filter(|kind| self.side.writes(*kind));
                self.kind = kind.ok_or(BadRecord::Kind(byte))?;
            }
            2 if byte != 0 => return Err(BadRecord::RequestHigh(byte)),
            3 if byte != 1 => return Err(BadRecord::RequestLow(byte)),
            4 => self.length = value << 8,
            5 => {
                self.length |= value;
                self.left = self.length;
            }
            6 => self.padding = value,
            _ => {}
        }
        self.have += 1;
        Ok(())
    }
}

/// The name-value pairs in `content` (section 3.4), up to the first that is not whole.
pub fn pairs(content: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = content;
    std::iter::from_fn(move || {
        let (name, after) = length(rest)?;
        let (value, after) = length(after)?;
        let (name, after) = after.split_at_checked(name)?;
        let (value, after) = after.split_at_checked(value)?;
        rest = after;
        Some((name, value))
    })
}

/// A length of one byte, or of four of which the first has its upper bit set.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes {
        [short @ 0..=127, rest @ ..] => Some((usize::from(*short), rest)),
        [a, b, c, d, rest @ ..] => Some((u32::from_be_bytes([a & 0x7f, *b, *c, *d]) as usize, rest)),
        _ => None,
    }
}
