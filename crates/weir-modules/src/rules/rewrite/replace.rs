//! `rewrite`: a pattern, and what becomes of a URI that matches it.

use std::sync::Arc;

use weir_conf::{LineCx, Result};
use weir_engine::log::LogLevel;
use weir_engine::regex::{GivenUp, LetterCase, RegexPattern};
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Span, Text, Verdict};
use weir_http::KnownField;
use weir_http::escape::{UnescapeMode, unescape};

use super::program::{ProgramFlow, ProgramRun, clear_captures, is_quoted};

/// A `rewrite`.
#[derive(Clone)]
pub(super) struct UriReplacement {
    pattern: Arc<RegexPattern>,
    /// What precedes the first `?`; of a redirect all of it.
    path: ValueScript,
    /// What follows the first `?`. A redirect's is not stored separately, but whether there is a `?` counts.
    args: Option<ValueScript>,
    /// The request's arguments follow; a `?` at the end prevents it.
    add_args: bool,
    then: AfterReplacement,
}

/// What happens after the URI was changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterReplacement {
    /// The next instruction.
    Go,
    /// `last`: the URI's location is looked for.
    Last,
    /// `break`: the request stays where it is.
    Break,
    /// A response with this status.
    Redirect(u16),
}

impl UriReplacement {
    pub(super) fn parse(line: &mut LineCx<'_>) -> Result<UriReplacement> {
        let pattern = RegexPattern::compile(line, 0, 0, LetterCase::Distinct)?;
        let replacement = match line.bytes(1) {
            b"" => return Err(line.fail_arg(1, "empty replacement")),
            replacement => replacement,
        };
        let (replacement, add_args) = match replacement.strip_suffix(b"?") {
            Some(rest) => (rest, false),
            None => (replacement, true),
        };
        let elsewhere =
            [&b"http://"[..], b"https://", b"$scheme"].iter().any(|it| replacement.starts_with(it));
        let then = match line.args().get(2).map(|flag| flag.str()) {
            Some("redirect") => AfterReplacement::Redirect(302),
            Some("permanent") => AfterReplacement::Redirect(301),
            Some("last" | "break") | None if elsewhere => AfterReplacement::Redirect(302),
            Some("last") => AfterReplacement::Last,
            Some("break") => AfterReplacement::Break,
            None => AfterReplacement::Go,
            Some(_) => return Err(line.invalid_parameter(2)),
        };
        let cut = replacement.iter().position(|byte| *byte == b'?');
        let (path, args) = match (cut, then) {
            (None, _) => (ValueScript::compile_text(line, 1, replacement)?, None),
            (Some(_), AfterReplacement::Redirect(_)) => {
                (ValueScript::compile_text(line, 1, replacement)?, Some(ValueScript::default()))
            }
            (Some(at), _) => {
                let path = ValueScript::compile_text(line, 1, &replacement[..at])?;
                (path, Some(ValueScript::compile_text(line, 1, &replacement[at + 1..])?))
            }
        };
        Ok(UriReplacement { pattern, path, args, add_args, then })
    }

    pub(super) fn run(&self, x: &mut Exchange, run: &mut ProgramRun) -> ProgramFlow {
        let uri = x.request.uri;
        match matches(&self.pattern, x, uri, run) {
            Ok(true) => {}
            Ok(false) => return ProgramFlow::Next,
            Err(status) => return ProgramFlow::End(Verdict::Status(status)),
        }
        x.internal = true;
        x.request.uri_is_plain = false;
        x.uri_changed = self.then != AfterReplacement::Break;
        x.valid_location &= x.uri_changed;
        run.quote = false;
        match self.then {
            AfterReplacement::Redirect(status) => {
                self.redirect(x, run);
                ProgramFlow::End(Verdict::Status(status))
            }
            then => match self.change(x, run) {
                Ok(()) if then == AfterReplacement::Go => ProgramFlow::Next,
                Ok(()) => ProgramFlow::End(Verdict::Declined),
                Err(status) => ProgramFlow::End(Verdict::Status(status)),
            },
        }
    }

    /// The new URI is the request's.
    fn change(&self, x: &mut Exchange, run: &ProgramRun) -> std::result::Result<(), u16> {
        let path = self.path.value(x);
        let path = span(x, &path);
        match &self.args {
            Some(args) => {
                let args = if is_quoted(x) { args.value_escaped(x) } else { args.value(x) };
                let start = x.arena.mark();
                x.arena.append(&args);
                if self.add_args {
                    self.append_args(x, b"&");
                }
                x.request.args = x.arena.since(start);
            }
            None if !self.add_args => {
                let end = x.arena.mark();
                x.request.args = x.arena.since(end);
            }
            None => {}
        }
        if run.log {
            let (path, args) = (lossy(x, path), lossy(x, x.request.args));
            x.log(LogLevel::Notice, &format_args!("rewritten data: \"{path}\", args: \"{args}\""));
        }
        if path.is_empty() {
            x.log_error(&"the rewritten URI has a zero length");
            return Err(500);
        }
        x.request.set_uri(&x.arena, path);
        Ok(())
    }

    /// The new URI goes into `Location`.
    fn redirect(&self, x: &mut Exchange, run: &ProgramRun) {
        let target = if is_quoted(x) { self.path.value_escaped(x) } else { self.path.value(x) };
        let target = x.text(&target).to_vec();
        let start = x.arena.mark();
        let read = unescape(x.arena.buffer(), &target, UnescapeMode::Redirect);
        x.arena.push(&target[read..]);
        if self.add_args {
            self.append_args(x, if self.args.is_some() { b"&" } else { b"?" });
        }
        let target = x.arena.since(start);
        if run.log {
            let target = lossy(x, target);
            x.log(LogLevel::Notice, &format_args!("rewritten redirect: \"{target}\""));
        }
        x.response.remove(KnownField::Location);
        x.response.location = Some(Text::Span(target));
    }

    /// The request's arguments, when there are any, after `sign`.
    fn append_args(&self, x: &mut Exchange, sign: &[u8]) {
        let args = x.request.args;
        if !args.is_empty() {
            x.arena.push(sign);
            x.arena.copy(args);
        }
    }
}

/// Whether `subject` matches; logs it when `rewrite_log` is on, sets captures or clears them.
///
/// # Errors
/// The status for a match that was given up.
pub(super) fn matches(
    pattern: &RegexPattern,
    x: &mut Exchange,
    subject: Span,
    run: &ProgramRun,
) -> std::result::Result<bool, u16> {
    let matched = pattern.captures(x, subject).map_err(|GivenUp| 500_u16)?;
    if !matched {
        clear_captures(x);
    }
    if run.log {
        let verb = if matched { "matches" } else { "does not match" };
        let subject = lossy(x, subject);
        x.log(LogLevel::Notice, &format_args!("\"{}\" {verb} \"{subject}\"", pattern.text()));
    }
    Ok(matched)
}

fn lossy(x: &Exchange, span: Span) -> String {
    String::from_utf8_lossy(x.arena.get(span)).into_owned()
}

/// `text` in the arena.
pub(super) fn span(x: &mut Exchange, text: &Text) -> Span {
    match text {
        Text::Span(span) => *span,
        text => x.arena.append(text),
    }
}
