//! Lua values as JSON.

use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;

/// How tables with holes are written.
pub(crate) struct SparseArrays {
    /// As objects; else they are an error.
    pub(crate) convert: bool,
    /// An array has more than this many places for each element, ...
    pub(crate) ratio: f64,
    /// ... and more places than this.
    pub(crate) safe: f64,
}

/// How values are written.
pub(crate) struct JsonEncoder {
    pub(crate) depth: usize,
    /// Digits of a number.
    pub(crate) precision: usize,
    pub(crate) sparse: SparseArrays,
    pub(crate) empty_as_object: bool,
    /// `/` is not escaped.
    pub(crate) keeps_slash: bool,
    /// Infinity and what is no number are `null`; else they are an error.
    pub(crate) invalid_as_null: bool,
}

/// What a table is.
enum TableShape {
    Array(usize),
    Object,
}

impl JsonEncoder {
    /// Appends the value at `at`.
    pub(crate) fn value(&self, l: LuaState, at: i32, depth: usize, out: &mut Vec<u8>) -> Result<(), String> {
        match l.kind(at) {
            kind::STRING => self.text(l.bytes(at).unwrap_or_default(), out),
            kind::NUMBER => self.number(l.number(at).unwrap_or_default(), out)?,
            kind::BOOLEAN => out.extend_from_slice(if l.boolean(at) { b"true" } else { b"false" }),
            kind::NIL => out.extend_from_slice(b"null"),
            kind::LIGHTUSERDATA if l.is_null(at) => out.extend_from_slice(b"null"),
            kind::LIGHTUSERDATA if l.is_registered(at, c"weir.json_empty_array") => {
                out.extend_from_slice(b"[]");
            }
            kind::TABLE => {
                if depth >= self.depth || !l.reserve(8) {
                    return Err(format!("Cannot serialise, excessive depth ({})", depth + 1));
                }
                let at = if at < 0 { l.top() + at + 1 } else { at };
                match self.shape(l, at)? {
                    TableShape::Array(count) => self.array(l, at, count, depth, out)?,
                    TableShape::Object => self.object(l, at, depth, out)?,
                }
            }
            _ => return Err(format!("Cannot serialise {}: type not supported", l.kind_name(at))),
        }
        Ok(())
    }

    fn shape(&self, l: LuaState, at: i32) -> Result<TableShape, String> {
        if l.has_metatable(at, c"weir.json_array_mt") {
            return Ok(TableShape::Array(l.sequence(at).unwrap_or(0)));
        }
        let (mut most, mut count) = (0.0, 0.0);
        l.push_nil();
        while l.next(at) {
            l.pop(1);
            let number = if l.kind(-1) == kind::NUMBER { l.number(-1) } else { None };
            match number {
                Some(number) if number >= 1.0 && number.fract() == 0.0 => most = f64::max(most, number),
                _ => {
                    l.pop(1);
                    return Ok(TableShape::Object);
                }
            }
            count += 1.0;
        }
        if count == 0.0 {
            let array = !self.empty_as_object || l.has_metatable(at, c"weir.json_empty_mt");
            return Ok(if array { TableShape::Array(0) } else { TableShape::Object });
        }
        if self.sparse.ratio > 0.0 && most > count * self.sparse.ratio && most > self.sparse.safe {
            if !self.sparse.convert {
                return Err("Cannot serialise table: excessively sparse array".to_owned());
            }
            return Ok(TableShape::Object);
        }
        Ok(TableShape::Array(most as usize))
    }

    fn array(
        &self,
        l: LuaState,
        at: i32,
        count: usize,
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        out.push(b'[');
        for index in 1..=count {
            if index > 1 {
                out.push(b',');
            }
            l.raw_get_index(at, index);
            let done = self.value(l, -1, depth + 1, out);
            l.pop(1);
            done?;
        }
        out.push(b']');
        Ok(())
    }

    fn object(&self, l: LuaState, at: i32, depth: usize, out: &mut Vec<u8>) -> Result<(), String> {
        out.push(b'{');
        let mut first = true;
        l.push_nil();
        while l.next(at) {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            match l.kind(-2) {
                kind::STRING => self.text(l.bytes(-2).unwrap_or_default(), out),
                kind::NUMBER => {
                    out.push(b'"');
                    self.number(l.number(-2).unwrap_or_default(), out)?;
                    out.push(b'"');
                }
                _ => {
                    l.pop(2);
                    return Err("Cannot serialise table: table key must be a number or string".to_owned());
                }
            }
            out.push(b':');
            if let Err(message) = self.value(l, -1, depth + 1, out) {
                l.pop(2);
                return Err(message);
            }
            l.pop(1);
        }
        out.push(b'}');
        Ok(())
    }

    fn text(&self, text: &[u8], out: &mut Vec<u8>) {
        out.push(b'"');
        for &byte in text {
            match byte {
                b'"' => out.extend_from_slice(b"\\\""),
                b'\\' => out.extend_from_slice(b"\\\\"),
                b'/' if !self.keeps_slash => out.extend_from_slice(b"\\/"),
                0x08 => out.extend_from_slice(b"\\b"),
                b'\t' => out.extend_from_slice(b"\\t"),
                b'\n' => out.extend_from_slice(b"\\n"),
                0x0c => out.extend_from_slice(b"\\f"),
                b'\r' => out.extend_from_slice(b"\\r"),
                0..0x20 | 0x7f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                _ => out.push(byte),
            }
        }
        out.push(b'"');
    }

    fn number(&self, number: f64, out: &mut Vec<u8>) -> Result<(), String> {
        if number.is_finite() {
            out.extend_from_slice(general(number, self.precision).as_bytes());
        } else if self.invalid_as_null {
            out.extend_from_slice(b"null");
        } else {
            return Err("Cannot serialise number: must not be NaN or Infinity".to_owned());
        }
        Ok(())
    }
}

/// A number as C's `%.*g` writes it.
fn general(number: f64, precision: usize) -> String {
    let precision = precision.max(1);
    if number == 0.0 {
        return if number.is_sign_negative() { "-0".to_owned() } else { "0".to_owned() };
    }
    if number.fract() == 0.0 && number.abs() < 1e14 && precision >= 14 {
        return (number as i64).to_string();
    }
    // The shortest text that means the number is found several times as fast. Up to 15 digits it is the rounded one too,
    // but for numbers so small that they have fewer themselves.
    let shortest = format!("{number:e}");
    let (digits, power) = parts(&shortest);
    let short = digits.bytes().filter(u8::is_ascii_digit).count() <= precision.min(15);
    if short && number.is_normal() {
        return match (-4..precision as i32).contains(&power) {
            true => number.to_string(),
            false => scientific(digits, power),
        };
    }
    let exact = format!("{number:.*e}", precision - 1);
    let (digits, power) = parts(&exact);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if power < -4 || power >= precision as i32 {
        return scientific(&trimmed(digits), power);
    }
    trimmed(&format!("{number:.*}", (precision as i32 - 1 - power).max(0) as usize))
}

/// Digits and power of ten of what `{:e}` has made.
fn parts(text: &str) -> (&str, i32) {
    let (digits, power) = text.split_once('e').unwrap_or((text, "0"));
    (digits, power.parse().unwrap_or(0))
}

fn scientific(digits: &str, power: i32) -> String {
    format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_are_those_of_c() {
        for (number, text) in [
            (0.1, "0.1"),
            (1.0, "1"),
            (-0.0, "-0"),
            (1e14, "1e+14"),
            (123_456_789_012_345.0, "1.2345678901234e+14"),
            (0.000_01, "1e-05"),
            (0.000_123, "0.000123"),
            (1.0 / 3.0, "0.33333333333333"),
            (-2.5, "-2.5"),
            (1234.5678, "1234.5678"),
            (1e15 + 0.5, "1e+15"),
            (5e-324, "4.9406564584125e-324"),
            (1e-7, "1e-07"),
            (1e300, "1e+300"),
        ] {
            assert_eq!(super::general(number, 14), text);
        }
        assert_eq!(super::general(2.0 / 3.0, 3), "0.667");
    }
}
