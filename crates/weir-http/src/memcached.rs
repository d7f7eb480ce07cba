//! memcached's text protocol, as much of it as asks for one value: `get key`, and the response to it.
//!
//! Without I/O: [`head`] is shown what has come and says what the response is, once its first line is whole; a value is
//! followed by [`TRAILER`].

use std::fmt;

use crate::Span;
use crate::escape::{EscapeSet, escape};

/// What follows a value.
pub(crate) const TRAILER: &[u8] = b"\r\nEND\r\n";

/// The key that asks for `text`: what would end the command or the key is escaped.
pub fn key(text: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(text.len());
    escape(&mut key, text, EscapeSet::Memcached);
    key
}

/// The command that asks for the value of `key`.
pub fn get(key: &[u8]) -> Vec<u8> {
    [b"get ", key, b"\r\n"].concat()
}

/// What the first line of a response says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemcachedHead {
    /// A value of `length` bytes follows, and then [`TRAILER`].
    Value {
        /// The client's flags as they are in the line.
        flags: Span,
        /// Bytes of the value.
        length: u64,
        /// Bytes of the line.
        len: usize,
    },
    /// The key has no value. The line is the whole response.
    NotFound {
        /// Bytes of the line.
        len: usize,
    },
    /// The line is not whole.
    Incomplete,
}

/// Why a response is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadMemcached {
    /// It is for another key.
    Key,
    /// Its flags are no number.
    Flags,
    /// Its length is no number.
    Length,
    /// It is not a response to `get`.
    Response,
}

impl BadMemcached {
    /// nginx's words for it. `line`: the first line of the response, without its end.
    pub fn message<'t>(self, line: &'t [u8], key: &'t [u8]) -> impl fmt::Display + 't {
        let (line, key) = (String::from_utf8_lossy(line), String::from_utf8_lossy(key));
        fmt::from_fn(move |f| match self {
            BadMemcached::Key => {
                write!(f, "memcached sent invalid key in response \"{line}\" for key \"{key}\"")
            }
            BadMemcached::Flags => {
                write!(f, "memcached sent invalid flags in response \"{line}\" for key \"{key}\"")
            }
            BadMemcached::Length => {
                write!(f, "memcached sent invalid length in response \"{line}\" for key \"{key}\"")
            }
            BadMemcached::Response => write!(f, "memcached sent invalid response: \"{line}\""),
        })
    }
}

/// Reads the first line of the response to `get key` at the start of `bytes`.
///
/// # Errors
/// What is wrong with the line.
pub fn head(bytes: &[u8], key: &[u8]) -> Result<MemcachedHead, BadMemcached> {
    let Some(end) = memchr::memchr(b'\n', bytes) else { return Ok(MemcachedHead::Incomplete) };
    let len = end + 1;
    let line = bytes.get(..end).and_then(|line| line.strip_suffix(b"\r")).ok_or(BadMemcached::Response)?;
    if line == b"END" {
        return Ok(MemcachedHead::NotFound { len });
    }
    let rest = line.strip_prefix(b"VALUE ").ok_or(BadMemcached::Response)?;
    let rest = rest.strip_prefix(key).ok_or(BadMemcached::Key)?;
    let rest = rest.strip_prefix(b" ").ok_or(BadMemcached::Response)?;
    let space = memchr::memchr(b' ', rest).ok_or(BadMemcached::Response)?;
    let start = line.len() - rest.len();
    let length = rest.get(space + 1..).and_then(crate::header::decimal).ok_or(BadMemcached::Length)?;
    Ok(MemcachedHead::Value { flags: Span::new(start, start + space), length, len })
}

/// The flags of a [`MemcachedHead::Value`] as a number.
///
/// # Errors
/// They are invalid.
pub fn flags(text: &[u8]) -> Result<u64, BadMemcached> {
    crate::header::decimal(text).ok_or(BadMemcached::Flags)
}

/// The first line of `bytes`, as messages show it.
pub fn line(bytes: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
    let line = bytes.get(..end).unwrap_or_default();
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Reads a value of known length, piece by piece, and the line end and `END` after it.
#[derive(Clone, Copy, Debug)]
pub struct MemcachedValue {
    /// Bytes of the value that are to come.
    rest: u64,
    /// Bytes of [`TRAILER`] that have come.
    seen: usize,
}

impl MemcachedValue {
    /// A value of this many bytes.
    pub fn new(length: u64) -> MemcachedValue {
        MemcachedValue { rest: length, seen: 0 }
    }

    /// How many bytes of `input` are the value's. What follows them is the trailer, or `Err`.
    ///
    /// # Errors
    /// What follows the value, which is whole, is not its trailer.
    pub fn take(&mut self, input: &[u8]) -> Result<usize, BadTrailer> {
        let value = usize::try_from(self.rest).map_or(input.len(), |rest| rest.min(input.len()));
        self.rest -= value as u64;
        let after = input.get(value..).unwrap_or_default();
        let expected = TRAILER.get(self.seen..).unwrap_or_default();
        if !expected.starts_with(after) {
            return Err(BadTrailer { value });
        }
        self.seen += after.len();
        Ok(value)
    }

    /// Value and trailer are there.
    pub fn is_over(&self) -> bool {
        self.rest == 0 && self.seen == TRAILER.len()
    }
}

/// Something else is in the place of [`TRAILER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadTrailer {
    /// Bytes of the input that are the value's all the same.
    pub value: usize,
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_stays_one_word() {
        assert_eq!(get(&key(b"/a b%\r\n\x7f")), b"get /a%20b%25%0D%0A\x7f\r\n");
    }

    #[test]
    fn lines_say_what_follows() {
        let found = head(b"VALUE /k 12 5\r\nhello\r\nEND\r\n", b"/k");
        assert_eq!(found, Ok(MemcachedHead::Value { flags: Span::new(9, 11), length: 5, len: 15 }));
        assert_eq!(head(b"END\r\nrest", b"/k"), Ok(MemcachedHead::NotFound { len: 5 }));
        assert_eq!(head(b"VALUE /k 12 5\r", b"/k"), Ok(MemcachedHead::Incomplete));
        for (line, wrong) in [
            (&b"END\n"[..], BadMemcached::Response),
            (b"ERROR\r\n", BadMemcached::Response),
            (b"VALUE /other 0 5\r\n", BadMemcached::Key),
            (b"VALUE /k\r\n", BadMemcached::Response),
            (b"VALUE /kk 0 5\r\n", BadMemcached::Response),
            (b"VALUE /k 0\r\n", BadMemcached::Response),
            (b"VALUE /k 0 \r\n", BadMemcached::Length),
            (b"VALUE /k 0 5 7\r\n", BadMemcached::Length),
        ] {
            assert_eq!(head(line, b"/k"), Err(wrong), "{line:?}");
        }
        assert_eq!(flags(b"x"), Err(BadMemcached::Flags));
    }

    proptest! {
        /// Whatever a value holds and however it is cut, it is found whole, and nothing after it.
        #[test]
        fn values_are_found_however_they_are_cut(value: Vec<u8>, name in vec(0u8..=255, 1..40), cut in 1usize..20) {
            let name = key(&name);
            let mut text = [b"VALUE ", &name[..], format!(" 3 {}\r\n", value.len()).as_bytes()].concat();
            let line = text.len();
            text.extend_from_slice(&value);
            text.extend_from_slice(TRAILER);
            for end in 0..line {
                prop_assert_eq!(head(&text[..end], &name), Ok(MemcachedHead::Incomplete));
            }
            let Ok(MemcachedHead::Value { flags: span, length, len }) = head(&text, &name) else { panic!("it is a value") };
            prop_assert_eq!((span.of(&text), len), (&b"3"[..], line));
            let mut reader = MemcachedValue::new(length);
            let mut found = Vec::new();
            for piece in text[len..].chunks(cut) {
                prop_assert!(!reader.is_over());
                let taken = reader.take(piece).expect("the trailer is right");
                found.extend_from_slice(&piece[..taken]);
            }
            prop_assert!(reader.is_over());
            prop_assert_eq!(found, value);
        }

        /// A wrong byte in the trailer is found at once.
        #[test]
        fn other_bytes_behind_a_value_are_told(value: Vec<u8>, at in 0..TRAILER.len()) {
            let mut text = [&value[..], TRAILER].concat();
            text[value.len() + at] ^= 1;
            prop_assert_eq!(MemcachedValue::new(value.len() as u64).take(&text), Err(BadTrailer { value: value.len() }));
        }
    }
}
