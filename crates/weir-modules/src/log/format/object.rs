//! `log_format name json field=value ...`: a JSON object a line.
//!
//! Only words of the form `field=value` after an unquoted `json` are this: any other format that begins with the
//! letters `json` is text, as in nginx.

use weir_conf::{Error, LineCx, Span, Word};
use weir_engine::conf::registry::ConfRegistry;
use weir_http::{escape, h1};

use super::{AppendValue, DIRECT, FormatOp, FormatPart, LogEscape, LogFormat, parse, status};

/// A name, a value and its place.
pub(super) type ObjectMember<'l> = (&'l [u8], &'l [u8], Span);

/// The members that `line` lists; `None` when it is of another form.
///
/// # Errors
/// A word after the first member that is not one.
pub(super) fn members<'l>(line: &LineCx<'l>) -> Result<Option<Vec<ObjectMember<'l>>>, Error> {
    let Some((first, words)) = line.args().get(1..).and_then(<[Word]>::split_first) else { return Ok(None) };
    if first.quoted || !first.is("json") || words.first().and_then(member).is_none() {
        return Ok(None);
    }
    let one = |(at, word): (usize, &'l Word)| {
        let message = || format!("invalid member \"{word}\" of a json format, it must be name=value");
        member(word).ok_or_else(|| line.fail_arg(at + 2, message()))
    };
    words.iter().enumerate().map(one).collect::<Result<_, _>>().map(Some)
}

fn member(word: &Word) -> Option<ObjectMember<'_>> {
    let at = word.bytes().iter().position(|byte| *byte == b'=')?;
    let (name, value) = word.bytes().split_at(at);
    let good = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.@".contains(byte);
    (!name.is_empty() && name.iter().all(good)).then_some((name, &value[1..], word.span))
}

/// Compiles an object.
///
/// # Errors
/// As [`LogFormat::compile`].
pub(super) fn compile(
    members: &[ObjectMember<'_>],
    registry: &mut ConfRegistry,
) -> Result<LogFormat, (Span, String)> {
    let mut ops = Vec::new();
    let mut literal = Vec::new();
    for (at, (name, value, span)) in members.iter().enumerate() {
        literal.extend_from_slice(if at == 0 { b"{\"" } else { b",\"" });
        literal.extend_from_slice(name);
        literal.extend_from_slice(b"\":");
        let parts = parse(value).map_err(|message| (*span, message))?;
        if let [FormatPart::Variable(name)] = parts[..] {
            let number = NUMBERS.iter().chain(DIRECT).find(|(known, _)| *known == name && is_number(name));
            if let Some((_, write)) = number {
                ops.push(FormatOp::Literal(std::mem::take(&mut literal).into()));
                ops.push(FormatOp::Direct(*write));
                continue;
            }
            if !DIRECT.iter().any(|(known, _)| *known == name) {
                ops.push(FormatOp::Literal(std::mem::take(&mut literal).into()));
                ops.push(FormatOp::Member(registry.use_variable(name, *span)));
                continue;
            }
        }
        literal.push(b'"');
        for part in parts {
            match part {
                FormatPart::Literal(text) => {
                    escape::json(&mut literal, String::from_utf8_lossy(text).as_bytes());
                }
                FormatPart::Variable(name) => {
                    ops.push(FormatOp::Literal(std::mem::take(&mut literal).into()));
                    ops.push(match DIRECT.iter().find(|(known, _)| *known == name) {
                        Some((_, write)) => FormatOp::Direct(*write),
                        None => FormatOp::Variable(registry.use_variable(name, *span)),
                    });
                }
            }
        }
        literal.push(b'"');
    }
    literal.push(b'}');
    ops.push(FormatOp::Literal(literal.into()));
    Ok(LogFormat { ops: ops.into(), escape: LogEscape::Object })
}

/// Variables that are always numbers as JSON has them.
fn is_number(name: &str) -> bool {
    matches!(
        name,
        "status"
            | "bytes_sent"
            | "body_bytes_sent"
            | "request_length"
            | "request_time"
            | "msec"
            | "connection"
    )
}

/// Numbers that text has otherwise: JSON has no zeros in front.
const NUMBERS: &[(&str, AppendValue)] = &[("status", |x, out| h1::number(out, u64::from(status(x))))];
