//! JSON as Lua values.

use crate::luajit::state::LuaState;

/// Pushes what `text` says.
///
/// # Errors
/// What was expected where, in cjson's words; nothing is pushed then that the caller has to take away.
pub(crate) fn decode(l: LuaState, text: &[u8], depth: usize, array_mt: bool) -> Result<(), String> {
    if matches!(text, [0, ..] | [_, 0, ..]) {
        return Err("JSON parser does not support UTF-16 or UTF-32".to_owned());
    }
    let mut reader = JsonReader { l, text, at: 0, most: depth, array_mt };
    let top = l.top();
    let done = reader.next().and_then(|token| reader.value(token, 0)).and_then(|()| match reader.next()? {
        (JsonToken::End, _) => Ok(()),
        token => Err(expected("the end", &token)),
    });
    if done.is_err() {
        l.set_top(top);
    }
    done
}

#[derive(Debug, PartialEq)]
enum JsonToken {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Wrong(&'static str),
}

impl JsonToken {
    fn name(&self) -> &'static str {
        match self {
            JsonToken::ObjectBegin => "T_OBJ_BEGIN",
            JsonToken::ObjectEnd => "T_OBJ_END",
            JsonToken::ArrayBegin => "T_ARR_BEGIN",
            JsonToken::ArrayEnd => "T_ARR_END",
            JsonToken::Text(_) => "T_STRING",
            JsonToken::Number(_) => "T_NUMBER",
            JsonToken::Boolean(_) => "T_BOOLEAN",
            JsonToken::Null => "T_NULL",
            JsonToken::Colon => "T_COLON",
            JsonToken::Comma => "T_COMMA",
            JsonToken::End => "T_END",
            JsonToken::Wrong(words) => words,
        }
    }
}

/// A token, and where it begins.
type PlacedToken = (JsonToken, usize);

fn expected(what: &str, (token, at): &PlacedToken) -> String {
    format!("Expected {what} but found {} at character {}", token.name(), at + 1)
}

struct JsonReader<'t> {
    l: LuaState,
    text: &'t [u8],
    at: usize,
    most: usize,
    array_mt: bool,
}

impl JsonReader<'_> {
    fn value(&mut self, token: PlacedToken, depth: usize) -> Result<(), String> {
        let l = self.l;
        match token.0 {
            JsonToken::Text(text) => l.push_bytes(&text),
            JsonToken::Number(number) => l.push_number(number),
            JsonToken::Boolean(value) => l.push_boolean(value),
            JsonToken::Null => l.push_null(),
            JsonToken::ObjectBegin => self.object(depth + 1, token.1)?,
            JsonToken::ArrayBegin => self.array(depth + 1, token.1)?,
            _ => return Err(expected("value", &token)),
        }
        Ok(())
    }

    fn deeper(&self, depth: usize, at: usize) -> Result<(), String> {
        if depth <= self.most && self.l.reserve(6) {
            return Ok(());
        }
        Err(format!("Found too many nested data structures ({depth}) at character {}", at + 1))
    }

    fn object(&mut self, depth: usize, at: usize) -> Result<(), String> {
        self.deeper(depth, at)?;
        self.l.new_table(0, 4);
        let mut token = self.next()?;
        if token.0 == JsonToken::ObjectEnd {
            return Ok(());
        }
        loop {
            match token.0 {
                JsonToken::Text(name) => self.l.push_bytes(&name),
                _ => return Err(expected("object key string", &token)),
            }
            token = self.next()?;
            if token.0 != JsonToken::Colon {
                return Err(expected("colon", &token));
            }
            let value = self.next()?;
            self.value(value, depth)?;
            self.l.raw_set(-3);
            token = self.next()?;
            match token.0 {
                JsonToken::ObjectEnd => return Ok(()),
                JsonToken::Comma => token = self.next()?,
                _ => return Err(expected("comma or object end", &token)),
            }
        }
    }

    fn array(&mut self, depth: usize, at: usize) -> Result<(), String> {
        self.deeper(depth, at)?;
        self.l.new_table(4, 0);
        if self.array_mt {
            self.l.push_registered(c"weir.json_array_mt");
            self.l.set_metatable(-2);
        }
        let mut token = self.next()?;
        if token.0 == JsonToken::ArrayEnd {
            return Ok(());
        }
        for index in 1.. {
            self.value(token, depth)?;
            self.l.raw_set_index(-2, index);
            token = self.next()?;
            match token.0 {
                JsonToken::ArrayEnd => return Ok(()),
                JsonToken::Comma => token = self.next()?,
                _ => return Err(expected("comma or array end", &token)),
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Result<PlacedToken, String> {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        let start = self.at;
        let Some(&byte) = self.text.get(start) else { return Ok((JsonToken::End, start)) };
        self.at += 1;
        let token = match byte {
            b'{' => JsonToken::ObjectBegin,
            b'}' => JsonToken::ObjectEnd,
            b'[' => JsonToken::ArrayBegin,
            b']' => JsonToken::ArrayEnd,
            b':' => JsonToken::Colon,
            b',' => JsonToken::Comma,
            b'"' => self.string()?,
            b'-' | b'0'..=b'9' => self.number(start),
            _ => self.word(start),
        };
        Ok((token, start))
    }

    fn word(&mut self, start: usize) -> JsonToken {
        let rest = &self.text[start..];
        for (word, token) in [
            (&b"true"[..], JsonToken::Boolean(true)),
            (b"false", JsonToken::Boolean(false)),
            (b"null", JsonToken::Null),
        ] {
            if rest.starts_with(word) {
                self.at = start + word.len();
                return token;
            }
        }
        // As cjson reads them by default.
        for (word, number) in [(&b"nan"[..], f64::NAN), (b"infinity", f64::INFINITY), (b"inf", f64::INFINITY)]
        {
            if rest.len() >= word.len() && rest[..word.len()].eq_ignore_ascii_case(word) {
                self.at = start + word.len();
                return JsonToken::Number(number);
            }
        }
        JsonToken::Wrong("invalid token")
    }

    fn number(&mut self, start: usize) -> JsonToken {
        let rest = &self.text[start..];
        let digits = rest.strip_prefix(b"-").unwrap_or(rest);
        if digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_digit() {
            return JsonToken::Wrong("invalid number");
        }
        let part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
        let most = rest.iter().take_while(|byte| part(byte)).count();
        // The longest beginning that is a number, as strtod takes it.
        for length in (1..=most).rev() {
            let text = std::str::from_utf8(&rest[..length]).unwrap_or_default();
            if let (Ok(number), true) =
                (text.parse::<f64>(), text.ends_with(|c: char| c.is_ascii_digit() || c == '.'))
            {
                self.at = start + length;
                return JsonToken::Number(number);
            }
        }
        JsonToken::Wrong("invalid number")
    }

    /// A text whose first quote was read.
    fn string(&mut self) -> Result<JsonToken, String> {
        let mut text = Vec::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0)).count();
            text.extend_from_slice(&rest[..plain]);
            self.at += plain;
            match rest.get(plain..) {
                Some([b'"', ..]) => {
                    self.at += 1;
                    return Ok(JsonToken::Text(text));
                }
                Some([b'\\', ..]) => {
                    if !self.escape(&mut text) {
                        return Ok(JsonToken::Wrong("invalid escape code"));
                    }
                }
                _ => return Ok(JsonToken::Wrong("unexpected end of string")),
            }
        }
    }

    /// The escape that begins here.
    fn escape(&mut self, text: &mut Vec<u8>) -> bool {
        let Some(&code) = self.text.get(self.at + 1) else { return false };
        self.at += 2;
        match code {
            b'"' | b'\\' | b'/' => text.push(code),
            b'b' => text.push(8),
            b't' => text.push(b'\t'),
            b'n' => text.push(b'\n'),
            b'f' => text.push(12),
            b'r' => text.push(b'\r'),
            b'u' => return self.unicode(text),
            _ => return false,
        }
        true
    }

    /// Four digits after `\u`, with those of a low surrogate after a high one.
    fn unicode(&mut self, text: &mut Vec<u8>) -> bool {
        let Some(mut code) = self.four() else { return false };
        if (0xd800..0xdc00).contains(&code) {
            if !self.text[self.at..].starts_with(b"\\u") {
                return false;
            }
            self.at += 2;
            match self.four() {
                Some(low) if (0xdc00..0xe000).contains(&low) => {
                    code = 0x10000 + ((code & 0x3ff) << 10) + (low & 0x3ff);
                }
                _ => return false,
            }
        }
        let Some(letter) = char::from_u32(code) else { return false };
        text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        true
    }

    fn four(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        let text =
            std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
        self.at += 4;
        u32::from_str_radix(text, 16).ok()
    }
}
