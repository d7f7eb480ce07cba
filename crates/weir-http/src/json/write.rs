//! Writing, value after value.

use std::fmt::Write;

use weir_sys::json::escape;

/// A value being written: objects and arrays nest, commas come by themselves.
#[derive(Debug, Default)]
pub struct JsonWriter {
    out: String,
    /// A value or an opening bracket is last, so that the next needs no comma or does.
    comma: bool,
}

impl JsonWriter {
    /// Everything inside is one object.
    #[must_use]
    pub fn object(f: impl FnOnce(&mut JsonWriter)) -> String {
        let mut json = JsonWriter::default();
        json.nest('{', '}', f);
        json.out
    }

    /// Everything inside is one array.
    #[must_use]
    pub fn array(f: impl FnOnce(&mut JsonWriter)) -> String {
        let mut json = JsonWriter::default();
        json.nest('[', ']', f);
        json.out
    }

    /// `"key":`; a value must follow.
    pub fn key(&mut self, key: &str) -> &mut JsonWriter {
        self.separate();
        escape(&mut self.out, key);
        self.out.push(':');
        self.comma = false;
        self
    }

    /// Writes an object as the next value; `f` writes its keys and values.
    pub fn nested(&mut self, f: impl FnOnce(&mut JsonWriter)) {
        self.nest('{', '}', f);
    }

    /// Writes an array as the next value; `f` writes its elements.
    pub fn list(&mut self, f: impl FnOnce(&mut JsonWriter)) {
        self.nest('[', ']', f);
    }

    /// Writes a string in quotes as the next value, with what JSON requires escaped.
    pub fn text(&mut self, text: &str) {
        self.separate();
        escape(&mut self.out, text);
    }

    /// A number, `true`, `false` or `null`, or JSON that is whole already.
    pub fn raw(&mut self, value: impl std::fmt::Display) {
        self.separate();
        write!(self.out, "{value}").expect("writing to a String does not fail");
    }

    /// An array of numbers or whole JSON values.
    pub fn raws(&mut self, values: impl IntoIterator<Item = impl std::fmt::Display>) {
        self.list(|json| values.into_iter().for_each(|value| json.raw(value)));
    }

    fn nest(&mut self, open: char, close: char, f: impl FnOnce(&mut JsonWriter)) {
        self.separate();
        self.out.push(open);
        self.comma = false;
        f(self);
        self.out.push(close);
        self.comma = true;
    }

    fn separate(&mut self) {
        if std::mem::replace(&mut self.comma, true) {
            self.out.push(',');
        }
    }
}

impl From<JsonWriter> for String {
    /// What was written.
    fn from(json: JsonWriter) -> String {
        json.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_stand_between_values_only() {
        let text = JsonWriter::object(|json| {
            json.key("a").raw(1);
            json.key("b").list(|json| {
                json.raw(true);
                json.text("x\"\n<");
                json.nested(|_| {});
            });
            json.key("c").raws([1, 2]);
        });
        assert_eq!(text, r#"{"a":1,"b":[true,"x\"\u000a\u003c",{}],"c":[1,2]}"#);
    }
}
