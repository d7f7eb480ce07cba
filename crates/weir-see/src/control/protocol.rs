//! What is spoken on the control socket.
//!
//! The client sends one line: a verb and `key=value` pairs, separated by spaces, `%XX` for what is not plain. The server
//! responds in frames: a line `KIND LENGTH` and as many bytes. `out` is part of the response, `note` says how far it is
//! (for people), `done` ends a response, `fail` ends one with the reason. A client that sends `stop` gets what there is
//! so far, then `done`; one that closes gets nothing more.

use std::io::{self, BufRead, Read, Write};

/// A query on the control socket: a command, words and options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlQuestion {
    /// The command, such as `trace`.
    pub verb: String,
    options: Vec<(String, String)>,
}

impl ControlQuestion {
    /// A question without options.
    #[must_use]
    pub fn new(verb: &str) -> ControlQuestion {
        ControlQuestion { verb: verb.to_owned(), options: Vec::new() }
    }

    /// Adds the option `key` with `value`.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl ToString) -> ControlQuestion {
        self.options.push((key.to_owned(), value.to_string()));
        self
    }

    /// The value of an option, empty when it has none; `None` when the option is absent.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        self.options.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Whether an option is there, whatever its value.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// The value of an option as a number; `default` without it.
    ///
    /// # Errors
    /// It is no number.
    pub fn number(&self, key: &str, default: u64) -> Result<u64, String> {
        match self.value(key) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("\"{text}\" is no number for \"{key}\"")),
        }
    }

    /// Whether the response waits for nothing: neither for requests nor for time to pass.
    pub(crate) fn is_quick(&self) -> bool {
        !WAITING.contains(&self.verb.as_str())
    }

    /// The question as a line, its end included.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = escape(&self.verb);
        for (key, value) in &self.options {
            line.push_str(&format!(" {}={}", escape(key), escape(value)));
        }
        line.push('\n');
        line
    }

    /// Reads a line such as `trace n=3 match=...`: a verb and options, separated by blanks, with `%XX` for special
    /// bytes. An option without `=` has an empty value.
    #[must_use]
    pub fn parse(line: &str) -> ControlQuestion {
        let mut words = line.split_ascii_whitespace();
        let mut question = ControlQuestion::new(&unescape(words.next().unwrap_or("")));
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            question.options.push((unescape(key), unescape(value)));
        }
        question
    }
}

/// The kind of a frame of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// Part of the response.
    Out,
    /// How far it is.
    Note,
    /// The response is complete.
    Done,
    /// The end, and why it is not a good one.
    Fail,
}

impl FrameKind {
    const ALL: [(FrameKind, &'static str); 4] = [
        (FrameKind::Out, "out"),
        (FrameKind::Note, "note"),
        (FrameKind::Done, "done"),
        (FrameKind::Fail, "fail"),
    ];

    fn as_str(self) -> &'static str {
        FrameKind::ALL[self as usize].1
    }
}

/// Writes a frame.
///
/// # Errors
/// Those of the stream.
pub(crate) fn write_frame(stream: &mut impl Write, kind: FrameKind, bytes: &[u8]) -> io::Result<()> {
    let mut frame = format!("{} {}\n", kind.as_str(), bytes.len()).into_bytes();
    frame.extend_from_slice(bytes);
    stream.write_all(&frame)
}

/// Reads a frame of at most `most` bytes; `None` at the end of the stream.
///
/// # Errors
/// Those of the stream, and `InvalidData` for what is no frame.
pub fn read_frame(stream: &mut impl BufRead, most: u64) -> io::Result<Option<(FrameKind, Vec<u8>)>> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the server speaks something else");
    let mut line = Vec::new();
    stream.by_ref().take(64).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(&line).ok().and_then(|line| line.strip_suffix('\n')).ok_or_else(wrong)?;
    let (kind, length) = text.split_once(' ').ok_or_else(wrong)?;
    let (kind, _) = FrameKind::ALL.iter().find(|(_, name)| *name == kind).ok_or_else(wrong)?;
    let length: u64 = length.parse().ok().filter(|&length| length <= most).ok_or_else(wrong)?;
    let mut bytes = Vec::new();
    if stream.by_ref().take(length).read_to_end(&mut bytes)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some((*kind, bytes)))
}

/// `text` as one word: everything but letters, digits and a few signs as `%XX`.
pub(crate) fn escape(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./:*^$~,()".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// The reverse; what is no escape stays as it is.
pub(crate) fn unescape(word: &str) -> String {
    let bytes = word.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = word.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A query whose response comes when requests have come, or time has passed.
const WAITING: &[&str] =
    &["trace", "average", "compare", "blocked", "queue", "use", "perf", "flame", "record", "top"];
/// Bytes of a frame at most.
pub const LONGEST_FRAME: u64 = 1 << 30;
/// Bytes of a question at most.
pub(crate) const LONGEST_QUESTION: u64 = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_survives_its_line() {
        let question =
            ControlQuestion::new("trace").with("match", "~ ^/a b=c%").with("n", 3).with("json", "");
        let line = question.line();
        assert_eq!(line, "trace match=~%20^/a%20b%3Dc%25 n=3 json=\n");
        assert_eq!(ControlQuestion::parse(&line), question);
        assert_eq!((question.number("n", 1), question.number("m", 1)), (Ok(3), Ok(1)));
        assert!(question.has("json") && question.number("match", 1).is_err());
        assert_eq!(unescape("%zz%4"), "%zz%4");
    }

    #[test]
    fn frames_are_read_as_written() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, FrameKind::Note, b"half").expect("memory");
        write_frame(&mut bytes, FrameKind::Out, b"a\nb").expect("memory");
        write_frame(&mut bytes, FrameKind::Done, b"").expect("memory");
        assert_eq!(bytes, b"note 4\nhalfout 3\na\nbdone 0\n");
        let mut input = &bytes[..];
        let mut next = || read_frame(&mut input, LONGEST_FRAME).expect("frames");
        assert_eq!(next(), Some((FrameKind::Note, b"half".to_vec())));
        assert_eq!(next(), Some((FrameKind::Out, b"a\nb".to_vec())));
        assert_eq!((next(), next()), (Some((FrameKind::Done, Vec::new())), None));
        for wrong in
            [&b"out\n"[..], b"out x\n", b"out 9\nab", b"what 1\na", b"out 99999999999\n", &[b'a'; 100]]
        {
            assert!(read_frame(&mut &wrong[..], LONGEST_FRAME).is_err(), "{wrong:?}");
        }
    }
}
