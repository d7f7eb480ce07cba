//! Values with variables in them (`"$host:${server_port}/$1"`), compiled when the configuration is read (`conf::scripts`)
//! and composed for a request (`exchange::value`).

use std::sync::Arc;

use crate::variable_index::VarIndex;

/// A compiled text with variables, such as `"$a/$b"`.
#[derive(Clone, Debug, Default)]
pub struct ValueScript {
    pub(crate) parts: Arc<[ScriptPart]>,
}

#[derive(Clone, Debug)]
pub(crate) enum ScriptPart {
    Literal(Arc<[u8]>),
    Variable(VarIndex),
    Capture(u8),
}

impl ValueScript {
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
}

impl ScriptPart {
    pub(crate) fn variable(&self) -> Option<VarIndex> {
        match self {
            ScriptPart::Variable(index) => Some(*index),
            _ => None,
        }
    }
}

pub(crate) enum RawPart {
    Literal(Vec<u8>),
    Variable(String),
    Capture(u8),
}

/// Splits `$name`, `${name}` and `$1` from the text around them. A lone `$` at the end, or before what can't begin
/// a name, is nginx's "invalid variable name".
pub(crate) fn parse(source: &[u8]) -> Result<Vec<RawPart>, String> {
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
