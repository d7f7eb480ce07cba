//! Lines of an access log, read back: what a `log_format` has written, variable by variable.

use weir_http::json::JsonValue;

use super::format::{COMBINED, COMBINED_TEXT, FormatPart, LogEscape, parse};

/// A format whose lines can be read.
#[derive(Debug)]
pub struct LogLineFormat {
    layout: LineLayout,
    escape: LogEscape,
}

#[derive(Debug)]
enum LineLayout {
    /// Text with variables in it.
    Parts(Vec<LinePart>),
    /// An object of JSON: members whose values are one variable each.
    Object(Vec<ObjectVariable>),
}

/// A member of an object.
#[derive(Debug)]
struct ObjectVariable {
    key: String,
    variable: String,
}

#[derive(Debug)]
enum LinePart {
    Literal(Vec<u8>),
    Variable(String),
}

/// A line that was read.
#[derive(Debug)]
pub struct LogLine<'l> {
    format: &'l LogLineFormat,
    values: LineValues<'l>,
}

#[derive(Debug)]
enum LineValues<'l> {
    /// The bytes of each variable as they are in the line.
    Raw(Vec<&'l [u8]>),
    Object(JsonValue),
}

impl LogLineFormat {
    /// The format that `text` describes: `combined`, or what follows the name in a `log_format`, `escape=json` or `json` included.
    ///
    /// # Errors
    /// The text is no format, has no variable, or two variables without anything between.
    pub fn new(text: &str) -> Result<LogLineFormat, String> {
        if let Some(members) = text.strip_prefix("json ").and_then(members) {
            return Ok(LogLineFormat { layout: LineLayout::Object(members), escape: LogEscape::Object });
        }
        let (escape, text) = match text.strip_prefix("escape=").and_then(|rest| rest.split_once(' ')) {
            Some(("json", rest)) => (LogEscape::Json, rest.as_bytes()),
            Some(("none", rest)) => (LogEscape::None, rest.as_bytes()),
            Some(("default", rest)) => (LogEscape::Default, rest.as_bytes()),
            Some((other, _)) => return Err(format!("unknown log format escaping \"{other}\"")),
            None if text.as_bytes() == COMBINED => (LogEscape::Default, COMBINED_TEXT),
            None => (LogEscape::Default, text.as_bytes()),
        };
        Ok(LogLineFormat { layout: LineLayout::Parts(line_parts(text)?), escape })
    }

    /// The variables, in the order of the line.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let (parts, members) = match &self.layout {
            LineLayout::Parts(parts) => (parts.as_slice(), &[][..]),
            LineLayout::Object(members) => (&[][..], members.as_slice()),
        };
        let of_parts = parts.iter().filter_map(|part| match part {
            LinePart::Variable(name) => Some(name.as_str()),
            LinePart::Literal(_) => None,
        });
        of_parts.chain(members.iter().map(|member| member.variable.as_str()))
    }

    /// Reads a line, without its newline; `None`: it is not one of this format. A value reaches to the first place where
    /// what follows it in the format does.
    pub fn read<'l>(&'l self, line: &'l [u8]) -> Option<LogLine<'l>> {
        let parts = match &self.layout {
            LineLayout::Parts(parts) => parts,
            LineLayout::Object(members) => {
                let object = JsonValue::parse(line).ok()?;
                members.iter().find(|member| object.field(&member.key).is_some())?;
                return Some(LogLine { format: self, values: LineValues::Object(object) });
            }
        };
        let mut values = Vec::with_capacity(parts.len());
        let mut rest = line;
        let mut parts = parts.iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                LinePart::Literal(text) => rest = rest.strip_prefix(text.as_slice())?,
                LinePart::Variable(_) => {
                    let end = match parts.peek() {
                        Some(LinePart::Literal(text)) => self.end(rest, text)?,
                        _ => rest.len(),
                    };
                    let (value, after) = rest.split_at_checked(end)?;
                    values.push(value);
                    rest = after;
                }
            }
        }
        rest.is_empty().then_some(LogLine { format: self, values: LineValues::Raw(values) })
    }

    /// Where the value at the beginning of `rest` ends, which `next` follows.
    fn end(&self, rest: &[u8], next: &[u8]) -> Option<usize> {
        let found = rest.windows(next.len()).enumerate().filter(|(_, window)| *window == next);
        // A quote of the value has a backslash before it; two of them are one of the value.
        let is_escaped = |at: usize| {
            let before = rest.get(..at).unwrap_or_default();
            before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
        };
        let quoted = self.escape == LogEscape::Json && next.first() == Some(&b'"');
        found.map(|(at, _)| at).find(|at| !quoted || !is_escaped(*at))
    }
}

impl LogLine<'_> {
    /// The value of a variable; `None`: the format does not have it, or the request had none.
    pub fn value(&self, name: &str) -> Option<Vec<u8>> {
        let at = self.format.variables().position(|variable| variable == name)?;
        let raw = match (&self.values, &self.format.layout) {
            (LineValues::Raw(values), _) => *values.get(at)?,
            (LineValues::Object(object), LineLayout::Object(members)) => {
                let text = match object.field(&members.get(at)?.key)? {
                    JsonValue::Text(text) => text.as_str(),
                    JsonValue::Number(text) => text,
                    _ => return None,
                };
                return (!text.is_empty()).then(|| text.as_bytes().to_vec());
            }
            (LineValues::Object(_), LineLayout::Parts(_)) => return None,
        };
        match self.format.escape {
            LogEscape::Default if raw == b"-" => None,
            LogEscape::Json | LogEscape::None | LogEscape::Object if raw.is_empty() => None,
            LogEscape::Default => Some(unescaped(raw)),
            LogEscape::Json | LogEscape::Object => Some(from_json(raw)),
            LogEscape::None => Some(raw.to_vec()),
        }
    }

    /// The bytes of each variable as they are in the line; without any where the line is an object.
    pub fn raw(&self) -> &[&[u8]] {
        match &self.values {
            LineValues::Raw(values) => values,
            LineValues::Object(_) => &[],
        }
    }
}

/// The members of a format `json key=value ...` whose values are one variable; `None`: none is.
fn members(text: &str) -> Option<Vec<ObjectVariable>> {
    let one = |word: &str| {
        let (key, value) = word.split_once('=')?;
        let [FormatPart::Variable(name)] = parse(value.as_bytes()).ok()?[..] else { return None };
        Some(ObjectVariable { key: key.to_owned(), variable: name.to_owned() })
    };
    let members: Vec<ObjectVariable> = text.split_whitespace().filter_map(one).collect();
    (!members.is_empty()).then_some(members)
}

/// The parts of a text with variables.
///
/// # Errors
/// As [`LogLineFormat::new`].
fn line_parts(text: &[u8]) -> Result<Vec<LinePart>, String> {
    let mut parts: Vec<LinePart> = Vec::new();
    for part in parse(text)? {
        parts.push(match (part, parts.last()) {
            (FormatPart::Variable(name), Some(LinePart::Variable(before))) => {
                return Err(format!("nothing is between ${before} and ${name}: where one ends is not known"));
            }
            (FormatPart::Variable(name), _) => LinePart::Variable(name.to_owned()),
            (FormatPart::Literal(text), _) => LinePart::Literal(text.to_vec()),
        });
    }
    match parts.iter().any(|part| matches!(part, LinePart::Variable(_))) {
        true => Ok(parts),
        false => Err("the format has no variable".to_owned()),
    }
}

/// Without `\xXX`; another backslash is one of the value.
fn unescaped(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let [first, after @ ..] = rest {
        match after {
            [b'x', high, low, tail @ ..]
                if *first == b'\\' && hex(*high).is_some() && hex(*low).is_some() =>
            {
                out.push(hex(*high).unwrap_or(0) << 4 | hex(*low).unwrap_or(0));
                rest = tail;
            }
            _ => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// The text that is inside a JSON string; as it is where that is malformed.
fn from_json(raw: &[u8]) -> Vec<u8> {
    let quoted = [b"\"", raw, b"\""].concat();
    let value = JsonValue::parse(&quoted).ok();
    value.and_then(|value| value.text().map(|text| text.as_bytes().to_vec())).unwrap_or_else(|| raw.to_vec())
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_http::escape;

    use super::*;

    fn read(format: &str, line: &str, name: &str) -> Option<String> {
        let format = LogLineFormat::new(format).expect("a format");
        let line = format.read(line.as_bytes())?;
        line.value(name).map(|value| String::from_utf8_lossy(&value).into_owned())
    }

    #[test]
    fn lines_of_the_predefined_format() {
        let line = r#"10.0.0.1 - - [23/Nov/2026:13:00:00 +0000] "GET /a\x22b HTTP/1.1" 200 5 "-" "x \x5C y""#;
        let of = |name: &str| read("combined", line, name);
        assert_eq!(of("remote_addr").as_deref(), Some("10.0.0.1"));
        assert_eq!(of("request").as_deref(), Some("GET /a\"b HTTP/1.1"));
        assert_eq!(of("http_user_agent").as_deref(), Some("x \\ y"));
        assert_eq!((of("http_referer"), of("remote_user"), of("host")), (None, None, None));
        assert_eq!(read("combined", "nonsense", "status"), None);
        assert_eq!(read("combined", &format!("{line} more"), "status"), None);
    }

    #[test]
    fn lines_of_json() {
        let format = r#"escape=json {"a":"$a","b":"$b"}"#;
        assert_eq!(read(format, r#"{"a":"x\",\"b\":\"","b":"y\n"}"#, "a").as_deref(), Some("x\",\"b\":\""));
        assert_eq!(read(format, r#"{"a":"x\\","b":"y"}"#, "a").as_deref(), Some("x\\"));
        assert_eq!(read(format, r#"{"a":"","b":"y"}"#, "a"), None);
    }

    #[test]
    fn lines_that_are_objects() {
        let format = "json uri=$request_uri status=$status text=x-$host";
        let line = r#"{"more":[1],"status":404,"uri":"/\u00e4\"","text":"x-a"}"#;
        assert_eq!(read(format, line, "request_uri").as_deref(), Some("/\u{e4}\""));
        assert_eq!(read(format, line, "status").as_deref(), Some("404"));
        assert_eq!(read(format, line, "host"), None);
        assert_eq!(read(format, r#"{"uri":null}"#, "request_uri"), None);
        for bad in ["{}", "[]", "{\"uri\":", "x"] {
            let format = LogLineFormat::new(format).expect("a format");
            assert!(format.read(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn formats_that_cannot_be_read_are_refused() {
        for bad in ["$a$b", "nothing", "escape=xml $a", "${a"] {
            assert!(LogLineFormat::new(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(values in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..20), 2)) {
            prop_assume!(values.iter().all(|value| value != b"-"));
            let format = LogLineFormat::new("\"$a\" [x] \"$b\"").expect("a format");
            let mut line = b"\"".to_vec();
            escape::log_default(&mut line, &values[0]);
            line.extend_from_slice(b"\" [x] \"");
            escape::log_default(&mut line, &values[1]);
            line.push(b'"');
            let read = format.read(&line).expect("a line");
            prop_assert_eq!(read.value("a"), Some(values[0].clone()));
            prop_assert_eq!(read.value("b"), Some(values[1].clone()));
        }

        #[test]
        fn any_line_is_read_or_refused(format in "[ -~]{0,30}", line in proptest::collection::vec(any::<u8>(), 0..60)) {
            crate::fuzzed::log_line(&[format.as_bytes(), b"\n", &line].concat());
        }
    }
}
