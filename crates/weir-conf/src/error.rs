//! Errors with nginx's words, a place, the source line and a hint.

use std::fmt;

use crate::{ConfSource, DiagnosticFix, Span, did_you_mean};

/// What a setter returns.
pub type Result<T = ()> = std::result::Result<T, Error>;

/// One thing wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The severity, as logs name it.
    pub level: LevelName,
    /// nginx's words, without the place.
    pub message: String,
    /// What it is about; `None` when no text is to blame (the main file cannot be opened).
    pub span: Option<Span>,
    /// How to correct it, as far as that is known: `did you mean "gzip"?`; `None` if there is no suggestion.
    pub hint: Option<String>,
    /// What mends it mechanically; `None` where there is no one right way.
    pub fix: Option<Box<DiagnosticFix>>,
    /// What the word at `span` may be, where a table says it; a name that ends with `=` takes a value.
    pub choices: Vec<String>,
}

impl Error {
    /// An error that forbids the start.
    pub fn new(message: impl Into<String>) -> Self {
        let message = message.into();
        Self { level: LevelName::Emerg, message, span: None, hint: None, fix: None, choices: Vec::new() }
    }

    /// A warning: it is shown, and the configuration is used.
    pub fn warning(message: impl Into<String>) -> Self {
        Self { level: LevelName::Warn, ..Self::new(message) }
    }

    /// As [`Error::warning`], of a setting that nginx accepts silently and that is without effect here.
    pub fn notice(message: impl Into<String>) -> Self {
        Self { level: LevelName::Notice, ..Self::new(message) }
    }

    /// As [`Error::warning`], of what should not be in production.
    pub fn alert(message: impl Into<String>) -> Self {
        Self { level: LevelName::Alert, ..Self::new(message) }
    }

    /// Sets the place of the error in the text.
    pub fn at(self, span: Span) -> Self {
        Self { span: Some(span), ..self }
    }

    /// Sets the hint: how to correct it, shown in a line of its own below the source line.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Sets what the word may be instead, and hints at the nearest of `choices`, if `word` may be one of them with a typing
    /// error.
    pub fn choices<'a>(self, word: &str, choices: impl Iterator<Item = &'a str> + Clone) -> Self {
        let error = self.hint_nearest(word, choices.clone());
        Self { choices: choices.map(str::to_owned).collect(), ..error }
    }

    /// Hints at the nearest of `names`, if `name` may be one of them with a typing error.
    pub(crate) fn hint_nearest<'a>(self, name: &str, names: impl Iterator<Item = &'a str>) -> Self {
        match did_you_mean(name, names) {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    /// The first line: nginx's message, with a column: `unknown directive "foo" in /etc/nginx.conf:3:5`.
    ///
    /// It is one line: control characters, which a word may have, are shown as `\n` and the like.
    /// For the text of `-g` the place is `in command line`, as in nginx. The prefix (`nginx: [emerg] `) is the
    /// caller's.
    pub fn headline(&self, source: &ConfSource) -> String {
        let file = self.span.and_then(|span| source.file(span.file));
        let place = self.span.and_then(|span| source.place(span));
        let line = match (file, place) {
            (Some(file), Some(_)) if file.parameter => format!("{} in command line", self.message),
            (Some(_), Some(place)) => format!("{} in {place}", self.message),
            _ => self.message.clone(),
        };
        escaped(&line)
    }

    /// The headline, the source line, carets below what is meant, the hint, and that it can be mended: one to five lines,
    /// without a newline at the end.
    pub fn render(&self, source: &ConfSource) -> String {
        let mut out = self.headline(source);
        if let Some((line, carets)) = self.span.and_then(|span| excerpt(source, span)) {
            out.push('\n');
            out.push_str(&line);
            out.push('\n');
            out.push_str(&carets);
        }
        if let Some(hint) = &self.hint {
            out.push('\n');
            out.push_str(&escaped(hint));
        }
        if let Some(fix) = &self.fix {
            out.push_str("\n\"weir -t --fix\" ");
            out.push_str(&escaped(&fix.about));
        }
        out
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// nginx's names of the levels a configuration gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelName {
    /// The configuration cannot be used.
    Emerg,
    /// It can be used, and should not be in production.
    Alert,
    /// It can be used, and is probably not what was meant.
    Warn,
    /// It can be used, and part of it is without effect.
    Notice,
}

impl LevelName {
    /// As nginx writes it: `emerg`, `alert`, `warn`, `notice`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Emerg => "emerg",
            Self::Alert => "alert",
            Self::Warn => "warn",
            Self::Notice => "notice",
        }
    }
}

/// Everything wrong with a configuration, in the order of discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors(pub Vec<Error>);

impl Errors {
    /// Whether nothing forbids the start; warnings do not.
    pub fn is_ok(&self) -> bool {
        self.0.iter().all(|error| error.level != LevelName::Emerg)
    }

    /// Adds an error or a warning after those found before.
    pub fn push(&mut self, error: Error) {
        self.0.push(error);
    }

    /// The value of `result`; an error is added to the others.
    pub(crate) fn take<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// Whether there are so many that reading on would not help.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MOST
    }

    /// All of them rendered, each followed by a newline.
    pub fn render(&self, source: &ConfSource) -> String {
        self.0.iter().map(|error| error.render(source) + "\n").collect()
    }
}

impl From<Error> for Errors {
    fn from(error: Error) -> Self {
        Self(vec![error])
    }
}

impl IntoIterator for Errors {
    type Item = Error;
    type IntoIter = std::vec::IntoIter<Error>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The source line of `span` and a line of carets. A long line is cut to a window around the span, and control
/// characters are shown as U+FFFD: a configuration must not drive the terminal it is reported on.
fn excerpt(source: &ConfSource, span: Span) -> Option<(String, String)> {
    let text = &source.file(span.file)?.text;
    let (start, end) = (span.start as usize, span.end as usize);
    let line_start = text.get(..start)?.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
    let line_end = text[start..].iter().position(|&b| b == b'\n').map_or(text.len(), |i| start + i);
    let before = printable(&text[line_start..start]);
    let marked = printable(&text[start..end.clamp(start, line_end)]);
    let after = printable(&text[end.clamp(start, line_end)..line_end]);

    let (before, cut) = match before.len().checked_sub(WINDOW) {
        Some(skip) if skip > 0 => (before[skip..].to_vec(), "..."),
        _ => (before, ""),
    };
    let room = |taken: usize| WINDOW.saturating_sub(taken);
    let marked = &marked[..marked.len().min(room(0))];
    let after: String = after.iter().take(room(marked.len())).collect();

    let line =
        format!("{cut}{}{}{after}", before.iter().collect::<String>(), marked.iter().collect::<String>());
    let indent: String = before.iter().map(|&c| if c == '\t' { '\t' } else { ' ' }).collect();
    let carets = format!("{}{indent}{}", " ".repeat(cut.len()), "^".repeat(marked.len().max(1)));
    Some((line.trim_end().to_owned(), carets))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

fn printable(bytes: &[u8]) -> Vec<char> {
    let shown = |c: char| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    String::from_utf8_lossy(bytes).chars().map(shown).collect()
}

/// Characters shown before a marked text, and from its start.
const WINDOW: usize = 100;

/// See [`Errors::is_full`].
const MOST: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> (ConfSource, impl Fn(usize, usize) -> Span) {
        let mut source = ConfSource::default();
        let id = source.add_file("/n.conf".into(), text.into()).unwrap();
        (source, move |start, end| Span::new(id, start, end))
    }

    #[test]
    fn carets_stand_below_the_span_whatever_precedes_it() {
        let (source, span) = source("\té foo bar;\n");
        let error = Error::new("unknown directive \"foo\"").at(span(4, 7)).hint("did you mean \"for\"?");
        let expected =
            "unknown directive \"foo\" in /n.conf:1:4\n\té foo bar;\n\t  ^^^\ndid you mean \"for\"?";
        assert_eq!(error.render(&source), expected);
    }

    #[test]
    fn what_can_be_mended_says_so() {
        let (source, span) = source("foo;\n");
        let fix = DiagnosticFix { about: "removes it".to_owned(), edits: Vec::new() };
        let error = Error { fix: Some(Box::new(fix)), ..Error::warning("m").at(span(0, 3)) };
        assert_eq!(error.render(&source), "m in /n.conf:1:1\nfoo;\n^^^\n\"weir -t --fix\" removes it");
    }

    #[test]
    fn a_span_of_several_lines_marks_the_first() {
        let (source, span) = source("a \"b\r\nc\";\n");
        assert_eq!(Error::new("m").at(span(2, 8)).render(&source), "m in /n.conf:1:3\na \"b\n  ^^");
    }

    #[test]
    fn end_of_file_has_a_caret_on_an_empty_line() {
        let (source, span) = source("a {\n");
        assert_eq!(Error::new("m").at(span(4, 4)).render(&source), "m in /n.conf:2:1\n\n^");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let (source, span) = source("\x1b[2J a;");
        assert_eq!(
            Error::new("m").at(span(5, 6)).render(&source),
            "m in /n.conf:1:6\n\u{fffd}[2J a;\n     ^"
        );
    }

    #[test]
    fn a_headline_is_one_line() {
        let error = Error::new("unknown directive \"a\nb\x1b\"");
        assert_eq!(error.headline(&ConfSource::default()), "unknown directive \"a\\nb\\u{1b}\"");
    }

    #[test]
    fn long_lines_are_cut_to_a_window() {
        let text = format!("{}foo{};", "a".repeat(500), "b".repeat(500));
        let (source, span) = source(&text);
        let shown = Error::new("m").at(span(500, 503)).render(&source);
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[1], format!("...{}foo{}", "a".repeat(100), "b".repeat(97)));
        assert_eq!(lines[2], format!("{}^^^", " ".repeat(103)));
    }

    #[test]
    fn without_a_place_only_the_message_remains() {
        assert_eq!(Error::new("open() failed").render(&ConfSource::default()), "open() failed");
        let mut source = ConfSource::default();
        let id = source.add_parameter("command line".into(), "daemon off".into()).unwrap();
        let shown = Error::new("m").at(Span::new(id, 7, 10)).render(&source);
        assert_eq!(shown, "m in command line\ndaemon off\n       ^^^");
    }
}
