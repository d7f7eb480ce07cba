//! Text with variables in it, and the conditions of `if`.

use weir_engine::Exchange;
use weir_engine::regex::match_text;

use super::state::SsiState;

/// Why a command does nothing: the line for the error log, in nginx's words.
pub(super) type CommandError = Vec<u8>;

/// The value of `text` with its variables replaced: those of the pages before those of the configuration.
///
/// # Errors
/// An invalid variable name.
pub(super) fn text(x: &mut Exchange, state: &SsiState, text: &[u8]) -> Result<Vec<u8>, CommandError> {
    let mut value = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.first() {
        if *first != b'$' {
            rest = literal(rest, &mut value);
            continue;
        }
        let (name, left) = name(&rest[1..]).map_err(|wrong| match wrong {
            BadName::Empty => [b"invalid variable name in \"", text, b"\""].concat(),
            BadName::Open(name) => [b"the closing bracket in \"", name, b"\" variable is missing"].concat(),
        })?;
        if let Some(part) = variable(x, state, name) {
            value.extend_from_slice(&part);
        }
        rest = left;
    }
    Ok(value)
}

/// As [`text`], for a path: what does not begin with a slash is in the page's directory.
pub(super) fn path(x: &mut Exchange, state: &SsiState, written: &[u8]) -> Result<Vec<u8>, CommandError> {
    let value = text(x, state, written)?;
    if value.first() == Some(&b'/') {
        return Ok(value);
    }
    let uri = x.uri();
    let directory = uri.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    Ok([&uri[..directory], &value].concat())
}

/// The value of a variable, of the pages or of the configuration.
pub(super) fn variable(x: &mut Exchange, state: &SsiState, name: &[u8]) -> Option<Vec<u8>> {
    let name = name.to_ascii_lowercase();
    if let Some(value) = state.variable(&name) {
        return Some(value);
    }
    let value = x.variable_by_name(std::str::from_utf8(&name).ok()?)?;
    Some(x.text(&value).to_vec())
}

/// Whether the condition holds.
///
/// # Errors
/// It can't be read, or its regular expression can't.
pub(super) fn condition(x: &mut Exchange, state: &SsiState, expr: &[u8]) -> Result<bool, CommandError> {
    let invalid = || [b"invalid expression in \"", expr, b"\""].concat();
    let end = expr.iter().position(|byte| !is_operand(*byte)).unwrap_or(expr.len());
    let (left, rest) = expr.split_at(end);
    // The left side is read in lower case, as nginx does.
    let left = text(x, state, &left.to_ascii_lowercase())?;
    let rest = trim(rest);
    let (negative, right) = match rest {
        [] => return Ok(!left.is_empty()),
        [b'=', right @ ..] => (false, trim(right)),
        [b'!', b'=', right @ ..] => (true, trim(right)),
        _ => return Err(invalid()),
    };
    let holds = match right {
        [b'/', pattern @ .., b'/'] => matches(x, state, left, pattern)?,
        [b'/', _, ..] => return Err(invalid()),
        [b'\\', right @ ..] if right.len() > 1 && right[0] == b'/' => left == text(x, state, right)?,
        right => left == text(x, state, right)?,
    };
    Ok(holds != negative)
}

fn matches(
    x: &mut Exchange,
    state: &SsiState,
    subject: Vec<u8>,
    pattern: &[u8],
) -> Result<bool, CommandError> {
    let pattern = text(x, state, pattern)?;
    match match_text(&pattern, &subject) {
        Ok(None) => Ok(false),
        Ok(Some(matched)) => {
            state.matched(subject, matched);
            Ok(true)
        }
        Err(message) => Err(message.into_bytes()),
    }
}

/// Bytes of the left side of a condition.
fn is_operand(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'$' | b'{' | b'}' | b'_' | b'"' | b'\'')
}

fn trim(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|byte| **byte == b' ').count();
    &text[spaces..]
}

/// Takes text up to a variable; a backslash before a quote, a dollar or another one goes.
fn literal<'a>(text: &'a [u8], value: &mut Vec<u8>) -> &'a [u8] {
    let mut quoted = false;
    for (at, byte) in text.iter().enumerate() {
        match (quoted, byte) {
            (false, b'\\') => {
                quoted = true;
                continue;
            }
            (false, b'$') => return &text[at..],
            (true, b'\\' | b'\'' | b'"' | b'$') | (false, _) => {}
            (true, _) => value.push(b'\\'),
        }
        quoted = false;
        value.push(*byte);
    }
    &[]
}

enum BadName<'a> {
    Empty,
    Open(&'a [u8]),
}

/// The name after a dollar, and what follows it.
fn name(text: &[u8]) -> Result<(&[u8], &[u8]), BadName<'_>> {
    let braced = text.first() == Some(&b'{');
    let text = if braced { &text[1..] } else { text };
    if text.is_empty() {
        return Err(BadName::Empty);
    }
    let end = text.iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_'));
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    let rest = match (braced, rest) {
        (false, rest) => rest,
        (true, [b'}', rest @ ..]) => rest,
        (true, _) => return Err(BadName::Open(name)),
    };
    if name.is_empty() { Err(BadName::Empty) } else { Ok((name, rest)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_where_letters_digits_and_underscores_do() {
        let good = |text| name(text).ok();
        assert_eq!(good(b"ab_1-c"), Some((&b"ab_1"[..], &b"-c"[..])));
        assert_eq!(good(b"{a}b"), Some((&b"a"[..], &b"b"[..])));
        assert_eq!(good(b""), None);
        assert_eq!(good(b"-"), None);
        assert_eq!(good(b"{}"), None);
        assert!(matches!(name(b"{a-"), Err(BadName::Open(b"a"))));
    }

    #[test]
    fn backslashes_go_before_what_they_protect() {
        let mut value = Vec::new();
        assert_eq!(literal(b"a\\$b\\c\\\\\\\"$d", &mut value), b"$d");
        assert_eq!(value, b"a$b\\c\\\"");
    }
}
