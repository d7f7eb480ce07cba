//! Values with variables in them (`"$host:${server_port}/$1"`), compiled when the configuration is read.

use std::sync::Arc;

use weir_conf::{Error, LineCx};
use weir_http::escape::EscapeSet;

use super::VarIndex;
use crate::conf::registry::ConfRegistry;
use crate::exchange::Exchange;
use crate::text::Text;

/// A compiled text with variables, such as `"$a/$b"`.
#[derive(Clone, Debug, Default)]
pub struct ValueScript {
    parts: Arc<[ScriptPart]>,
}

#[derive(Clone, Debug)]
enum ScriptPart {
    Literal(Arc<[u8]>),
    Variable(VarIndex),
    Capture(u8),
}

/// How what a capture brings is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CaptureEscape {
    /// As it is.
    None,
    /// Escaped as an argument of a URI.
    Argument,
}

impl ValueScript {
    /// Compiles the argument with the number `argument`, counted from 0 without the directive's name; every variable in
    /// it is declared as used.
    ///
    /// # Errors
    /// nginx's "invalid variable name"; unknown variables are reported when the whole file was read.
    pub fn compile(line: &mut LineCx<'_>, argument: usize) -> Result<ValueScript, Error> {
        ValueScript::compile_text(line, argument, line.bytes(argument))
    }

    /// Compiles `source`, which was made from the argument with the number `argument`, counted from 0: a part of it, or
    /// the whole with a prefix. If the line lacks that argument, errors point at the directive's name.
    ///
    /// # Errors
    /// As [`ValueScript::compile`], at the argument.
    pub fn compile_text(line: &mut LineCx<'_>, argument: usize, source: &[u8]) -> Result<ValueScript, Error> {
        let parsed = parse(source).map_err(|message| line.fail_arg(argument, message))?;
        let span = line.args().get(argument).unwrap_or(&line.line().name).span;
        let registry: &mut ConfRegistry = line.ext();
        let part = |raw| match raw {
            RawPart::Literal(bytes) => ScriptPart::Literal(Arc::from(bytes)),
            RawPart::Variable(name) => ScriptPart::Variable(registry.use_variable(&name, span)),
            RawPart::Capture(n) => ScriptPart::Capture(n),
        };
        Ok(ValueScript { parts: parsed.into_iter().map(part).collect() })
    }

    /// A value without variables.
    pub fn literal(bytes: &[u8]) -> ValueScript {
        ValueScript { parts: Arc::from([ScriptPart::Literal(Arc::from(bytes))]) }
    }

    /// The value when it has no variables in it.
    pub fn constant(&self) -> Option<&[u8]> {
        match &*self.parts {
            [] => Some(b""),
            [ScriptPart::Literal(bytes)] => Some(bytes),
            _ => None,
        }
    }

    /// Whether the value uses `$1` and the like.
    pub fn has_captures(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, ScriptPart::Capture(_)))
    }

    /// The value in `x`; a variable without value is empty.
    pub fn value(&self, x: &mut Exchange) -> Text {
        self.compose(x, CaptureEscape::None)
    }

    /// As [`ValueScript::value`], with what captures bring escaped as an argument of a URI.
    pub fn value_escaped(&self, x: &mut Exchange) -> Text {
        self.compose(x, CaptureEscape::Argument)
    }

    /// Whether `test` holds for what one of the variables or captures brings.
    pub(crate) fn brings(&self, x: &mut Exchange, test: impl Fn(&[u8]) -> bool) -> bool {
        self.parts.iter().any(|part| match part {
            ScriptPart::Literal(_) => false,
            ScriptPart::Variable(index) => {
                let value = x.variable(*index).unwrap_or(Text::EMPTY);
                test(x.text(&value))
            }
            ScriptPart::Capture(n) => test(x.arena.get(x.captures.get(usize::from(*n)).unwrap_or_default())),
        })
    }

    fn compose(&self, x: &mut Exchange, escape: CaptureEscape) -> Text {
        if let [ScriptPart::Variable(index)] = &*self.parts {
            return x.variable(*index).unwrap_or(Text::EMPTY);
        }
        // Variables may write to the arena while they are computed, so they come first; then the pieces are laid
        // down one after the other. Few have many: those of most need no memory from the heap.
        let (mut few, mut many) = ([const { Text::EMPTY }; FEW], Vec::new());
        let count = self.parts.iter().filter(|part| part.variable().is_some()).count();
        let values = match few.get_mut(..count) {
            Some(few) => few,
            None => {
                many.resize(count, Text::EMPTY);
                &mut many[..]
            }
        };
        for (value, index) in values.iter_mut().zip(self.parts.iter().filter_map(ScriptPart::variable)) {
            *value = x.variable(index).unwrap_or(Text::EMPTY);
        }
        let mut values = values.iter();
        let start = x.arena.mark();
        for part in &*self.parts {
            match part {
                ScriptPart::Literal(bytes) => {
                    x.arena.push(bytes);
                }
                ScriptPart::Variable(_) => {
                    if let Some(value) = values.next() {
                        x.arena.append(value);
                    }
                }
                ScriptPart::Capture(n) => {
                    let span = x.captures.get(usize::from(*n)).unwrap_or_default();
                    if escape == CaptureEscape::Argument {
                        let raw = x.arena.get(span).to_vec();
                        x.arena.write(|out| weir_http::escape::escape(out, &raw, EscapeSet::Args));
                    } else {
                        x.arena.copy(span);
                    }
                }
            }
        }
        Text::Span(x.arena.since(start))
    }
}

/// As many variables of a value are computed without memory from the heap.
const FEW: usize = 6;

impl ScriptPart {
    fn variable(&self) -> Option<VarIndex> {
        match self {
            ScriptPart::Variable(index) => Some(*index),
            _ => None,
        }
    }
}

enum RawPart {
    Literal(Vec<u8>),
    Variable(String),
    Capture(u8),
}

/// Splits `$name`, `${name}` and `$1` from the text around them. A lone `$` at the end, or before what can't begin
/// a name, is nginx's "invalid variable name".
fn parse(source: &[u8]) -> Result<Vec<RawPart>, String> {
    let mut parts = Vec::new();
    let mut literal = Vec::new();
    let mut rest = source;
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'$' {
            literal.push(byte);
            rest = after;
            continue;
        }
        if !literal.is_empty() {
            parts.push(RawPart::Literal(std::mem::take(&mut literal)));
        }
        let (raw, left) = name(after)?;
        parts.push(raw);
        rest = left;
    }
    if !literal.is_empty() {
        parts.push(RawPart::Literal(literal));
    }
    Ok(parts)
}

fn name(after: &[u8]) -> Result<(RawPart, &[u8]), String> {
    if let [digit @ b'1'..=b'9', left @ ..] = after {
        return Ok((RawPart::Capture(digit - b'0'), left));
    }
    let (inner, braced) = match after {
        [b'{', inner @ ..] => (inner, true),
        _ => (after, false),
    };
    let end = inner.iter().position(|b| !b.is_ascii_alphanumeric() && *b != b'_').unwrap_or(inner.len());
    let (name, mut left) = inner.split_at(end);
    if braced && !inner.is_empty() {
        left = left.strip_prefix(b"}").ok_or_else(|| {
            format!("the closing bracket in \"{}\" variable is missing", String::from_utf8_lossy(name))
        })?;
    }
    match name {
        [] => Err("invalid variable name".to_owned()),
        [digit @ b'1'..=b'9'] => Ok((RawPart::Capture(digit - b'0'), left)),
        name => Ok((RawPart::Variable(String::from_utf8_lossy(name).into_owned()), left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(source: &str) -> Result<String, String> {
        let part = |raw| match raw {
            RawPart::Literal(bytes) => format!("[{}]", String::from_utf8_lossy(&bytes)),
            RawPart::Variable(name) => format!("<{name}>"),
            RawPart::Capture(n) => format!("<#{n}>"),
        };
        Ok(parse(source.as_bytes())?.into_iter().map(part).collect())
    }

    #[test]
    fn splits_variables_from_text() {
        for (source, parts) in [
            ("plain", "[plain]"),
            ("", ""),
            ("$host", "<host>"),
            ("a${b}c$d-$1", "[a]<b>[c]<d>[-]<#1>"),
            ("${1}0", "<#1>[0]"),
            ("$10", "<#1>[0]"),
        ] {
            assert_eq!(shape(source).as_deref(), Ok(parts), "{source}");
        }
        for source in ["$", "a$ b", "${", "${}", "$$"] {
            assert_eq!(shape(source), Err("invalid variable name".to_owned()), "{source}");
        }
        let unclosed = Err("the closing bracket in \"a\" variable is missing".to_owned());
        assert_eq!((shape("${a"), shape("x${a-}")), (unclosed.clone(), unclosed));
    }
}
