//! Reading: a text becomes a value, or an error with its place.

use std::fmt;

/// A value of JSON (RFC 8259).
#[derive(Clone, Debug, PartialEq)]
pub enum JsonValue {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A number as it is written: what reads it knows how large it may be.
    Number(Box<str>),
    /// A string. Halves of surrogate pairs that are unpaired become U+FFFD.
    Text(String),
    /// An array of values.
    List(Vec<JsonValue>),
    /// An object in its order; of a repeated key both are included.
    Object(Vec<(String, JsonValue)>),
}

/// Why a text is no JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedJson {
    /// The byte that is not allowed there.
    pub at: usize,
}

impl fmt::Display for MalformedJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no JSON at byte {}", self.at)
    }
}

impl std::error::Error for MalformedJson {}

impl JsonValue {
    /// Reads a text that is one value; arrays and objects nest [`DEPTH`] deep at most.
    ///
    /// # Errors
    /// The first byte that is not allowed where it is.
    pub fn parse(text: &[u8]) -> Result<JsonValue, MalformedJson> {
        let mut reader = JsonReader { text, at: 0 };
        let value = reader.value(0)?;
        reader.blank();
        if reader.at == text.len() { Ok(value) } else { Err(reader.malformed()) }
    }

    /// The value of a key of an object; where the key is repeated, the last one. `None` when the key is absent or this
    /// is not an object.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&JsonValue> {
        match self {
            JsonValue::Object(fields) => {
                fields.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// The value at the end of a path of keys: `path(&["a", "b"])` is the `b` of the object `a`. `None` when a key is
    /// absent or a value on the way is not an object.
    #[must_use]
    pub fn path(&self, keys: &[&str]) -> Option<&JsonValue> {
        keys.iter().try_fold(self, |value, key| value.field(key))
    }

    /// The text of a string, with its escapes decoded; `None` for other values.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        if let JsonValue::Text(text) = self { Some(text) } else { None }
    }

    /// A whole number; also one in a string, as protocol buffers write those of 64 bits. `None` for negative numbers,
    /// fractions, exponents and other values.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self {
            JsonValue::Number(text) => text.parse().ok(),
            JsonValue::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// `true` or `false`; `None` for other values.
    #[must_use]
    pub fn bool(&self) -> Option<bool> {
        if let JsonValue::Bool(value) = self { Some(*value) } else { None }
    }

    /// The elements of an array; `None` for other values.
    #[must_use]
    pub fn list(&self) -> Option<&[JsonValue]> {
        if let JsonValue::List(list) = self { Some(list) } else { None }
    }
}

struct JsonReader<'t> {
    text: &'t [u8],
    at: usize,
}

impl JsonReader<'_> {
    fn value(&mut self, depth: usize) -> Result<JsonValue, MalformedJson> {
        self.blank();
        match self.peek() {
            Some(b'{') if depth < DEPTH => self.object(depth),
            Some(b'[') if depth < DEPTH => self.array(depth),
            Some(b'"') => self.string().map(JsonValue::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", JsonValue::Bool(true)),
            Some(b'f') => self.word("false", JsonValue::Bool(false)),
            Some(b'n') => self.word("null", JsonValue::Null),
            _ => Err(self.malformed()),
        }
    }

    fn object(&mut self, depth: usize) -> Result<JsonValue, MalformedJson> {
        let mut fields = Vec::new();
        self.sequence(b'}', |this| {
            this.blank();
            let key = this.string()?;
            this.blank();
            this.expect(b':')?;
            fields.push((key, this.value(depth + 1)?));
            Ok(())
        })?;
        Ok(JsonValue::Object(fields))
    }

    fn array(&mut self, depth: usize) -> Result<JsonValue, MalformedJson> {
        let mut list = Vec::new();
        self.sequence(b']', |this| {
            list.push(this.value(depth + 1)?);
            Ok(())
        })?;
        Ok(JsonValue::List(list))
    }

    /// From the opening bracket to the closing one, with commas between.
    fn sequence(
        &mut self,
        close: u8,
        mut element: impl FnMut(&mut Self) -> Result<(), MalformedJson>,
    ) -> Result<(), MalformedJson> {
        self.at += 1;
        self.blank();
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(());
        }
        loop {
            element(self)?;
            self.blank();
            if self.peek() == Some(close) {
                self.at += 1;
                return Ok(());
            }
            self.expect(b',')?;
        }
    }

    fn string(&mut self) -> Result<String, MalformedJson> {
        self.expect(b'"')?;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
            let plain = end.map_or(rest, |end| &rest[..end]);
            let plain = std::str::from_utf8(plain)
                .map_err(|error| MalformedJson { at: self.at + error.valid_up_to() })?;
            out.push_str(plain);
            self.at += plain.len();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escaped()?),
                _ => return Err(self.malformed()),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, MalformedJson> {
        self.at += 1;
        let c = match self.peek() {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.malformed()),
        };
        self.at += 1;
        Ok(c)
    }

    fn unicode(&mut self) -> Result<char, MalformedJson> {
        let first = self.unit()?;
        if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with(b"\\u") {
            let before = self.at;
            self.at += 1;
            let second = self.unit()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10 | (second - 0xdc00));
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before;
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// The four digits after `u`, at which the reader is.
    fn unit(&mut self) -> Result<u32, MalformedJson> {
        self.at += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            unit = unit << 4 | digit.ok_or_else(|| self.malformed())?;
            self.at += 1;
        }
        Ok(unit)
    }

    fn number(&mut self) -> Result<JsonValue, MalformedJson> {
        let start = self.at;
        self.skip(b'-');
        let zero = self.peek() == Some(b'0');
        match self.digits() {
            0 => return Err(self.malformed()),
            2.. if zero => return Err(MalformedJson { at: start }),
            _ => {}
        }
        if self.skip(b'.') && self.digits() == 0 {
            return Err(self.malformed());
        }
        if self.skip(b'e') || self.skip(b'E') {
            let _ = self.skip(b'-') || self.skip(b'+');
            if self.digits() == 0 {
                return Err(self.malformed());
            }
        }
        Ok(JsonValue::Number(String::from_utf8_lossy(&self.text[start..self.at]).into()))
    }

    /// How many digits were skipped.
    fn digits(&mut self) -> usize {
        let count = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        count
    }

    fn word(&mut self, word: &str, value: JsonValue) -> Result<JsonValue, MalformedJson> {
        if !self.text[self.at..].starts_with(word.as_bytes()) {
            return Err(self.malformed());
        }
        self.at += word.len();
        Ok(value)
    }

    fn blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), MalformedJson> {
        if self.skip(byte) { Ok(()) } else { Err(self.malformed()) }
    }

    fn skip(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn malformed(&self) -> MalformedJson {
        MalformedJson { at: self.at }
    }
}

/// How deep arrays and objects nest at most: readers of values recurse.
const DEPTH: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::JsonWriter;
    use super::*;

    #[test]
    fn values_are_read() {
        let value = JsonValue::parse(
            br#" {"a":[1,-2.5e3,true,null],"b":{"c":"x\n\u00e9\ud83d\ude00\ud800"},"a":"7"} "#,
        );
        let value = value.expect("JSON");
        assert_eq!(value.path(&["b", "c"]).and_then(JsonValue::text), Some("x\n\u{e9}\u{1f600}\u{fffd}"));
        assert_eq!(value.field("a").and_then(JsonValue::number), Some(7), "the last one, in quotes");
        let JsonValue::Object(fields) = &value else { panic!("{value:?}") };
        let list = fields[0].1.list().expect("an array");
        assert_eq!((list[0].number(), list[1].number(), list[2].bool()), (Some(1), None, Some(true)));
    }

    #[test]
    fn what_is_none_is_refused_at_its_place() {
        for (text, at) in [
            ("", 0),
            ("[1,]", 3),
            ("{\"a\"}", 4),
            ("01", 0),
            ("-", 1),
            ("1.", 2),
            ("1e", 2),
            ("\"\t\"", 1),
            ("\"\\x\"", 2),
            ("tru", 0),
            ("[1] 2", 4),
            ("{a:1}", 1),
            ("\"\\u12g4\"", 5),
            ("-01", 0),
            ("\"", 1),
        ] {
            assert_eq!(JsonValue::parse(text.as_bytes()), Err(MalformedJson { at }), "{text}");
        }
        assert!(JsonValue::parse("[".repeat(100_000).as_bytes()).is_err());
        assert!(JsonValue::parse(&[b"[".repeat(DEPTH), b"]".repeat(DEPTH)].concat()).is_ok());
    }

    proptest! {
        /// Whatever the bytes, they are read or refused inside of them.
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Err(MalformedJson { at }) = JsonValue::parse(&bytes) {
                prop_assert!(at <= bytes.len());
            }
        }

        /// What the writer writes is read as it was.
        #[test]
        fn texts_survive(key in ".*", text in ".*", number in any::<u64>()) {
            let written = JsonWriter::object(|json| {
                json.key(&key).text(&text);
                json.key("number").raw(number);
            });
            let value = JsonValue::parse(written.as_bytes()).expect("JSON");
            prop_assert_eq!(value.field("number").and_then(JsonValue::number), Some(number));
            if key != "number" {
                prop_assert_eq!(value.field(&key).and_then(JsonValue::text), Some(&*text));
            }
        }
    }
}
