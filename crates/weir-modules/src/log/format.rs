//! `log_format`: a text with variables, compiled to what appends a line.
//!
//! Numbers and times of the request go straight into the line. nginx has these too as functions of the log module,
//! and for the same reason: their values are those of the moment in which the line is written.

mod object;

use std::collections::HashMap;
use std::sync::Arc;

use weir_conf::{Error, LineCx, Span};
use weir_engine::Exchange;
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::variable::VarIndex;
use weir_http::{Version, escape, h1};

/// A compiled format.
pub(super) struct LogFormat {
    ops: Box<[FormatOp]>,
    escape: LogEscape,
}

/// What is done with the bytes of values that a line can't have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LogEscape {
    /// `\xXX`; `-` for a variable without value.
    #[default]
    Default,
    /// As inside a JSON string.
    Json,
    /// As inside a string of a JSON object that others read: what is not UTF-8 becomes U+FFFD.
    Object,
    /// Nothing.
    None,
}

enum FormatOp {
    Literal(Box<[u8]>),
    Direct(AppendValue),
    Variable(VarIndex),
    /// A member of a JSON object: in quotes, `null` for a variable without value.
    Member(VarIndex),
}

/// Appends something of a request.
type AppendValue = fn(&Exchange, &mut Vec<u8>);

impl LogFormat {
    /// Appends the line of `x`, without newline.
    pub(super) fn write(&self, x: &mut Exchange, out: &mut Vec<u8>) {
        for op in &self.ops {
            match op {
                FormatOp::Literal(text) => out.extend_from_slice(text),
                FormatOp::Direct(write) => write(x, out),
                FormatOp::Variable(index) => {
                    let value = x.variable(*index);
                    self.escape.put(value.as_ref().map(|value| x.text(value)), out);
                }
                FormatOp::Member(index) => match x.variable(*index).as_ref().map(|value| x.text(value)) {
                    Some(value) => {
                        out.push(b'"');
                        LogEscape::Object.put(Some(value), out);
                        out.push(b'"');
                    }
                    None => out.extend_from_slice(b"null"),
                },
            }
        }
    }

    /// Compiles `texts`, which follow each other without anything between.
    fn compile(
        texts: &[(&[u8], Span)],
        escape: LogEscape,
        registry: &mut ConfRegistry,
    ) -> Result<LogFormat, (Span, String)> {
        let mut ops = Vec::new();
        for (text, span) in texts {
            for part in parse(text).map_err(|message| (*span, message))? {
                ops.push(match part {
                    FormatPart::Literal(text) => FormatOp::Literal(text.into()),
                    FormatPart::Variable(name) => match DIRECT.iter().find(|(known, _)| *known == name) {
                        Some((_, write)) => FormatOp::Direct(*write),
                        None => FormatOp::Variable(registry.use_variable(name, *span)),
                    },
                });
            }
        }
        Ok(LogFormat { ops: ops.into(), escape })
    }
}

impl LogEscape {
    fn put(self, value: Option<&[u8]>, out: &mut Vec<u8>) {
        match (self, value) {
            (LogEscape::Default, Some(value)) => escape::log_default(out, value),
            (LogEscape::Default, None) => out.push(b'-'),
            (LogEscape::Json, Some(value)) => escape::json(out, value),
            (LogEscape::Object, Some(value)) => escape::json(out, String::from_utf8_lossy(value).as_bytes()),
            (LogEscape::None, Some(value)) => out.extend_from_slice(value),
            (LogEscape::Json | LogEscape::Object | LogEscape::None, None) => {}
        }
    }
}

/// The formats of a configuration, by name.
#[derive(Default)]
pub(super) struct LogFormats(HashMap<Vec<u8>, Arc<LogFormat>>);

impl LogFormats {
    /// The format called `name`, which does not exist before its `log_format` is read.
    pub(super) fn find(registry: &mut ConfRegistry, name: &[u8], span: Span) -> Option<Arc<LogFormat>> {
        match name {
            COMBINED if !registry.is_stream => Some(LogFormats::combined(registry, span)),
            name => registry.shared::<LogFormats>().0.get(name).cloned(),
        }
    }

    /// The predefined format; compiled when it is used first.
    pub(super) fn combined(registry: &mut ConfRegistry, span: Span) -> Arc<LogFormat> {
        if let Some(format) = registry.shared::<LogFormats>().0.get(COMBINED) {
            return format.clone();
        }
        let compiled = LogFormat::compile(&[(COMBINED_TEXT, span)], LogEscape::Default, registry);
        let format = Arc::new(compiled.unwrap_or_else(|_| unreachable!("the constant is a good format")));
        registry.shared::<LogFormats>().0.insert(COMBINED.to_vec(), format.clone());
        format
    }

    /// Reads `log_format name [escape=...] text ...`.
    ///
    /// # Errors
    /// nginx's words.
    pub(super) fn define(line: &mut LineCx<'_>) -> Result<(), Error> {
        let name = line.bytes(0).to_vec();
        if name == COMBINED || line.ext::<ConfRegistry>().shared::<LogFormats>().0.contains_key(&name) {
            return Err(line.fail_arg(0, format!("duplicate \"log_format\" name \"{}\"", line.arg(0))));
        }
        let (escape, first) = match line.bytes(1).strip_prefix(b"escape=") {
            Some(b"default") => (LogEscape::Default, 2),
            Some(b"json") => (LogEscape::Json, 2),
            Some(b"none") => (LogEscape::None, 2),
            Some(other) => {
                let other = String::from_utf8_lossy(other);
                return Err(line.fail_arg(1, format!("unknown log format escaping \"{other}\"")));
            }
            None => (LogEscape::Default, 1),
        };
        let words = line.args().get(first..).unwrap_or_default();
        let texts: Vec<_> = words.iter().map(|word| (word.bytes(), word.span)).collect();
        let members = object::members(line)?;
        let registry: &mut ConfRegistry = line.ext();
        let compiled = match &members {
            Some(members) => object::compile(members, registry),
            None => LogFormat::compile(&texts, escape, registry),
        };
        let format = compiled.map_err(|(span, message)| Error::new(message).at(span))?;
        registry.shared::<LogFormats>().0.insert(name, Arc::new(format));
        Ok(())
    }
}

/// A piece of a format's text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FormatPart<'a> {
    Literal(&'a [u8]),
    Variable(&'a str),
}

/// Splits `$name` and `${name}` from the text around them.
pub(super) fn parse(text: &[u8]) -> Result<Vec<FormatPart<'_>>, String> {
    let invalid = || format!("invalid parameter \"{}\"", String::from_utf8_lossy(text));
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(dollar) = rest.iter().position(|byte| *byte == b'$') {
        let (literal, after) = rest.split_at(dollar);
        if !literal.is_empty() {
            parts.push(FormatPart::Literal(literal));
        }
        let after = after.get(1..).unwrap_or_default();
        let (braced, inner) = after.strip_prefix(b"{").map_or((false, after), |inner| (true, inner));
        let end = inner.iter().position(|b| !b.is_ascii_alphanumeric() && *b != b'_').unwrap_or(inner.len());
        let (name, mut tail) = inner.split_at(end);
        // Letters, digits and underscores.
        let name = std::str::from_utf8(name).map_err(|_| invalid())?;
        if braced && !inner.is_empty() {
            let closed = tail.strip_prefix(b"}");
            let unclosed = || format!("the closing bracket in \"{name}\" variable is missing");
            tail = closed.ok_or_else(unclosed)?;
        }
        if name.is_empty() {
            return Err(invalid());
        }
        parts.push(FormatPart::Variable(name));
        rest = tail;
    }
    if !rest.is_empty() {
        parts.push(FormatPart::Literal(rest));
    }
    Ok(parts)
}

/// Variables that are written without being made first.
const DIRECT: &[(&str, AppendValue)] = &[
    ("time_local", |x, out| x.worker.dates(|dates| out.extend_from_slice(dates.local()))),
    ("time_iso8601", |x, out| x.worker.dates(|dates| out.extend_from_slice(dates.iso8601()))),
    ("msec", |_, out| {
        let (seconds, ms) = weir_rt::unix_time();
        h1::thousandths(out, seconds * 1000 + u64::from(ms));
    }),
    ("request_time", |x, out| {
        let ms = weir_rt::now_ms().saturating_sub(x.start_ms);
        h1::thousandths(out, ms);
    }),
    ("status", |x, out| three_digits(out, u64::from(status(x)))),
    ("bytes_sent", |x, out| h1::number(out, x.bytes_sent())),
    ("body_bytes_sent", |x, out| h1::number(out, x.body_bytes_sent())),
    ("apache_bytes_sent", |x, out| match x.body_bytes_sent() {
        0 => out.push(b'-'),
        sent => h1::number(out, sent),
    }),
    ("request_length", |x, out| {
        let head = x.request.head.len.saturating_sub(x.request.head.leading_crlf);
        h1::number(out, head as u64 + x.body.framed());
    }),
    ("connection", |x, out| h1::number(out, x.connection.number)),
    ("pipe", |x, out| out.push(if x.pipelined { b'p' } else { b'.' })),
];

/// The status with which `error_page` was entered, that of the response, nginx's 009 for HTTP/0.9 without a response,
/// or 000.
fn status(x: &Exchange) -> u16 {
    match (x.response.err_status, x.response.status) {
        (0, 0) if x.request.head.version == Version::V09 => 9,
        (0, status) => status,
        (status, _) => status,
    }
}

fn three_digits(out: &mut Vec<u8>, number: u64) {
    let digit = |power| b'0' + (number / power % 10) as u8;
    out.extend_from_slice(&[digit(100), digit(10), digit(1)]);
}

pub(super) const COMBINED: &[u8] = b"combined";
pub(super) const COMBINED_TEXT: &[u8] =
    b"$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
    \"$http_referer\" \"$http_user_agent\"";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shape(text: &str) -> Result<String, String> {
        let part = |part: &FormatPart<'_>| match part {
            FormatPart::Literal(text) => format!("[{}]", String::from_utf8_lossy(text)),
            FormatPart::Variable(name) => format!("<{name}>"),
        };
        Ok(parse(text.as_bytes())?.iter().map(part).collect())
    }

    #[test]
    fn variables_and_the_text_between() {
        for (text, parts) in [
            ("", ""),
            ("plain", "[plain]"),
            ("$a", "<a>"),
            ("$a$b-${c}d", "<a><b>[-]<c>[d]"),
            ("[$time_local] \"$request\"", "[[]<time_local>[] \"]<request>[\"]"),
            ("$1", "<1>"),
        ] {
            assert_eq!(shape(text).as_deref(), Ok(parts), "{text}");
        }
    }

    #[test]
    fn what_is_no_variable_is_refused_in_nginx_words() {
        for (text, message) in [
            ("$", "invalid parameter \"$\""),
            ("a$ b", "invalid parameter \"a$ b\""),
            ("${", "invalid parameter \"${\""),
            ("${}", "invalid parameter \"${}\""),
            ("${a", "the closing bracket in \"a\" variable is missing"),
            ("${a-b}", "the closing bracket in \"a\" variable is missing"),
        ] {
            assert_eq!(shape(text), Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn escapes_and_missing_values() {
        for (escape, value, written) in [
            (LogEscape::Default, Some("a\"\n\u{e9}"), "a\\x22\\x0A\\xC3\\xA9"),
            (LogEscape::Default, Some(""), ""),
            (LogEscape::Default, None, "-"),
            (LogEscape::Json, Some("a\"\n\u{e9}"), "a\\\"\\n\u{e9}"),
            (LogEscape::Json, None, ""),
            (LogEscape::None, Some("a\"\n\u{e9}"), "a\"\n\u{e9}"),
            (LogEscape::None, None, ""),
        ] {
            let mut out = Vec::new();
            escape.put(value.map(str::as_bytes), &mut out);
            assert_eq!(String::from_utf8_lossy(&out), written, "{escape:?} {value:?}");
        }
    }

    #[test]
    fn times_and_statuses_have_three_decimals() {
        let mut out = Vec::new();
        h1::thousandths(&mut out, 12_007);
        out.push(b' ');
        three_digits(&mut out, 9);
        assert_eq!(out, b"12.007 009");
    }

    proptest! {
        #[test]
        fn any_text_is_split_or_refused(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(parts) = parse(&text) {
                let names = parts.iter().filter(|part| matches!(part, FormatPart::Variable(_))).count();
                prop_assert_eq!(names, text.iter().filter(|byte| **byte == b'$').count());
            }
        }
    }
}
