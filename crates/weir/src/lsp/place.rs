//! Places as editors count them: lines from 0, columns in units of UTF-16.

use std::path::{Path, PathBuf};

use weir_http::json::{JsonValue, JsonWriter};

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EditorPlace {
    pub line: u64,
    pub column: u64,
}

/// From a place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EditorRange {
    pub start: EditorPlace,
    pub end: EditorPlace,
}

impl EditorPlace {
    /// The place of the byte `at`, or of the end.
    pub(super) fn of(text: &[u8], at: usize) -> EditorPlace {
        let before = &text[..at.min(text.len())];
        let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let line = before.iter().filter(|&&byte| byte == b'\n').count();
        let column = String::from_utf8_lossy(&before[line_start..]).encode_utf16().count();
        EditorPlace { line: line as u64, column: column as u64 }
    }

    /// The byte of the place; the end of its line where that is shorter, and of the text.
    pub(super) fn offset(self, text: &[u8]) -> usize {
        let mut start = 0;
        for _ in 0..self.line {
            match text[start..].iter().position(|&byte| byte == b'\n') {
                Some(end) => start += end + 1,
                None => return text.len(),
            }
        }
        let line = text[start..].split(|&byte| byte == b'\n').next().unwrap_or_default();
        let mut column = 0;
        let mut at = start;
        for chunk in line.utf8_chunks() {
            for letter in chunk.valid().chars() {
                if column >= self.column {
                    return at;
                }
                column += letter.len_utf16() as u64;
                at += letter.len_utf8();
            }
            if !chunk.invalid().is_empty() {
                if column >= self.column {
                    return at;
                }
                column += 1;
                at += chunk.invalid().len();
            }
        }
        at
    }

    /// That of a message.
    pub(super) fn read(value: &JsonValue) -> Option<EditorPlace> {
        let number = |key| value.field(key).and_then(JsonValue::number);
        Some(EditorPlace { line: number("line")?, column: number("character")? })
    }

    fn write(self, json: &mut JsonWriter) {
        json.nested(|json| {
            json.key("line").raw(self.line);
            json.key("character").raw(self.column);
        });
    }
}

impl EditorRange {
    /// The bytes from `start` to `end`.
    pub(super) fn of(text: &[u8], start: usize, end: usize) -> EditorRange {
        EditorRange { start: EditorPlace::of(text, start), end: EditorPlace::of(text, end) }
    }

    /// That of a message.
    pub(super) fn read(value: &JsonValue) -> Option<EditorRange> {
        let place = |key| value.field(key).and_then(EditorPlace::read);
        Some(EditorRange { start: place("start")?, end: place("end")? })
    }

    /// Whether they have a place in common.
    pub(super) fn touches(self, other: EditorRange) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// As an object: the next value of `json`.
    pub(super) fn write(self, json: &mut JsonWriter) {
        json.nested(|json| {
            json.key("start");
            self.start.write(json);
            json.key("end");
            self.end.write(json);
        });
    }
}

/// The path of a `file:` URI; the URI itself as a name where it is another one.
pub(super) fn path_of(uri: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let Some(rest) = uri.strip_prefix("file://") else { return PathBuf::from(uri) };
    let path = rest.find('/').map_or("", |start| &rest[start..]);
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let (mut out, mut rest) = (Vec::new(), path.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        let code = match after {
            [high, low, ..] if byte == b'%' => digit(high).zip(digit(low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        out.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

/// The URI of a full path.
pub(super) fn uri_of(path: &Path) -> String {
    let mut out = "file://".to_owned();
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_units_of_utf16() {
        let text = "a\u{1f600}é;\nb".as_bytes();
        for (at, line, column) in
            [(0, 0, 0), (1, 0, 1), (5, 0, 3), (7, 0, 4), (8, 0, 5), (9, 1, 0), (10, 1, 1)]
        {
            let place = EditorPlace { line, column };
            assert_eq!(EditorPlace::of(text, at), place, "{at}");
            assert_eq!(place.offset(text), at, "{place:?}");
        }
        assert_eq!(EditorPlace { line: 0, column: 99 }.offset(text), 8, "the end of the line");
        assert_eq!(EditorPlace { line: 9, column: 0 }.offset(text), 10, "the end of the text");
        assert_eq!(EditorPlace { line: 0, column: 2 }.offset(text), 5, "inside of a pair: after it");
        assert_eq!(EditorPlace::of(b"a\xff\xfeb", 3).column, 3);
        assert_eq!(EditorPlace { line: 0, column: 3 }.offset(b"a\xff\xfeb"), 3);
    }

    #[test]
    fn paths_survive_as_uris() {
        for path in ["/etc/nginx.conf", "/a b/ü%.conf"] {
            assert_eq!(path_of(&uri_of(Path::new(path))), Path::new(path));
        }
        assert_eq!(path_of("file:///a%20b/%zz%2"), Path::new("/a b/%zz%2"));
        assert_eq!(path_of("file://host/a"), Path::new("/a"));
        assert_eq!(path_of("untitled:1"), Path::new("untitled:1"));
        assert_eq!(path_of("file://"), Path::new(""));
    }
}
