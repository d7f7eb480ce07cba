//! Regular expressions of the configuration, with the variables that their named groups fill.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use weir_conf::{ConfSource, Error, FileId, LineCx};
use weir_sys::regex::{MatchError, Matcher, Regex, RegexFlags};

use crate::conf::registry::ConfRegistry;
use crate::exchange::Exchange;
use crate::log::LogLevel;
use crate::text::{Span, Text};
use crate::variable::VarIndex;

/// A compiled pattern.
pub struct RegexPattern {
    regex: Regex,
    text: String,
    caseless: bool,
    named: Vec<(VarIndex, usize)>,
    /// File and line, for the error log.
    place: Box<str>,
}

/// A match was given up, for its steps, its time or for memory: whether the subject matches is not known. It is logged
/// already, and the request ends with 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp;

impl Exchange {
    /// Whether a pattern was given up since this was asked last. What depends on it is not known then, be it only a
    /// variable's value (`map`), so the request is refused as long as it can be.
    pub fn refuse_unmatched(&self) -> bool {
        self.unmatched.get() && self.unmatched.take()
    }
}

impl RegexPattern {
    /// Compiles argument `argument` of `line` from byte `skip` on.
    ///
    /// # Errors
    /// PCRE's message in nginx's words, or a named group whose name is taken by a module's variable.
    pub fn compile(
        line: &mut LineCx<'_>,
        argument: usize,
        skip: usize,
        caseless: bool,
    ) -> Result<Arc<RegexPattern>, Error> {
        let word = line.args().get(argument).unwrap_or(&line.line().name);
        RegexPattern::compile_text(line, word.span, word.bytes().get(skip..).unwrap_or_default(), caseless)
    }

    /// Compiles `source`, which stands at `span` of `line`'s file.
    ///
    /// # Errors
    /// As [`RegexPattern::compile`].
    pub fn compile_text(
        line: &mut LineCx<'_>,
        span: weir_conf::Span,
        source: &[u8],
        caseless: bool,
    ) -> Result<Arc<RegexPattern>, Error> {
        let flags = RegexFlags { caseless, ..RegexFlags::default() };
        let regex = Regex::new(source, flags).map_err(|error| Error::new(error.to_string()).at(span))?;
        let files = line.source();
        let registry: &mut ConfRegistry = line.ext();
        let place = registry.shared::<PatternPlaces>().place(files, span);
        let mut named = Vec::new();
        for (name, group) in regex.names() {
            match registry.define_assigned(&name) {
                Ok(index) => named.push((index, group)),
                Err(message) => return Err(Error::new(message).at(span)),
            }
        }
        let text = String::from_utf8_lossy(source).into_owned();
        Ok(Arc::new(RegexPattern { regex, text, caseless, named, place }))
    }

    /// Matches `subject`, a span of the exchange's arena; on success `$1` and named groups are set.
    ///
    /// # Errors
    /// The match was given up, which is logged; the response becomes 500 ([`Exchange::refuse_unmatched`]).
    pub fn captures(&self, x: &mut Exchange, subject: Span) -> Result<bool, GivenUp> {
        let matched = with_matcher(|matcher| {
            let Some(captures) = self.regex.captures(matcher, x.arena.get(subject))? else { return Ok(None) };
            let group = |n| {
                captures.span(n).map_or(Span::default(), |range| Span {
                    start: subject.start + range.start as u32,
                    end: subject.start + range.end as u32,
                })
            };
            Ok(Some((0..captures.len()).map(group).collect::<Vec<_>>()))
        });
        let matched = matched.map_err(|error| self.give_up(x, x.arena.get(subject), error))?;
        let Some(groups) = matched else { return Ok(false) };
        for &(index, group) in &self.named {
            let span = groups.get(group).copied().unwrap_or_default();
            x.set_variable(index, Text::Span(span));
        }
        x.captures.subject = subject;
        x.captures.groups = groups;
        Ok(true)
    }

    /// Where the groups lie in `subject`, the first one the whole match, if it matches; sets nothing. A group that took
    /// no part is empty.
    ///
    /// # Errors
    /// As [`RegexPattern::captures`].
    pub fn find(&self, x: &Exchange, subject: &[u8]) -> Result<Option<Vec<Range<usize>>>, GivenUp> {
        with_matcher(|matcher| {
            let Some(captures) = self.regex.captures(matcher, subject)? else { return Ok(None) };
            Ok(Some((0..captures.len()).map(|group| captures.span(group).unwrap_or_default()).collect()))
        })
        .map_err(|error| self.give_up(x, subject, error))
    }

    /// Whether `subject`, a text of the request `x`, matches; sets nothing.
    ///
    /// # Errors
    /// As [`RegexPattern::captures`].
    pub fn is_match_for(&self, x: &Exchange, subject: &[u8]) -> Result<bool, GivenUp> {
        self.is_match(subject).map_err(|error| self.give_up(x, subject, error))
    }

    /// Whether `subject` matches, where there is no request: the caller decides what an error means, and logs it with
    /// [`RegexPattern::explain`].
    ///
    /// # Errors
    /// The match was given up: whether it matches is not known.
    pub fn is_match(&self, subject: &[u8]) -> Result<bool, MatchError> {
        with_matcher(|matcher| self.regex.is_match(matcher, subject))
    }

    /// Logs why a match was given up, and sees to it that the request ends with 500.
    #[cold]
    fn give_up(&self, x: &Exchange, subject: &[u8], error: MatchError) -> GivenUp {
        x.log(LogLevel::Alert, &self.explain(subject, error));
        x.unmatched.set(true);
        GivenUp
    }

    /// Why a match was given up: nginx's words, and where the pattern is written.
    pub fn explain(&self, subject: &[u8], error: MatchError) -> String {
        let subject = String::from_utf8_lossy(subject);
        let place = if self.place.is_empty() { String::new() } else { format!(" in {}", self.place) };
        format!("pcre2_match() failed: {} on \"{subject}\" using \"{}\"{place}", error.code(), self.text)
    }

    /// Where the groups of the first match in `subject` begin and end, the whole match first; one that took no part
    /// is empty. Sets nothing of a request: for who looks at bytes of a body.
    ///
    /// # Errors
    /// The match was given up, for its steps or for memory.
    pub fn groups_of(&self, subject: &[u8], groups: &mut Vec<(usize, usize)>) -> Result<bool, MatchError> {
        groups.clear();
        with_matcher(|matcher| {
            let Some(captures) = self.regex.captures(matcher, subject)? else { return Ok(false) };
            let span = |n| captures.span(n).map_or((0, 0), |span| (span.start, span.end));
            groups.extend((0..captures.len()).map(span));
            Ok(true)
        })
    }

    /// The pattern as a location is written: `~ \.php$`.
    pub fn name(&self) -> String {
        format!("{} {}", if self.caseless { "~*" } else { "~" }, self.text)
    }

    /// The pattern's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many groups it has, `$1` and on.
    pub fn groups(&self) -> usize {
        self.regex.captures_len()
    }

    /// The named groups' variables.
    pub fn named(&self) -> &[(VarIndex, usize)] {
        &self.named
    }
}

/// What a pattern that is known only at run time matched.
#[derive(Clone, Debug, Default)]
pub struct PatternMatch {
    /// Group 0 and on, up to the last one that took part; one that did not is empty.
    pub groups: Vec<Range<usize>>,
    /// Named groups and their numbers.
    pub names: Vec<(String, usize)>,
}

/// Matches `subject` against `pattern`, text of a page or a script; a worker keeps some compiled ones.
///
/// # Errors
/// What is wrong with the pattern, in nginx's words, or that the match was given up.
pub fn match_text(pattern: &[u8], subject: &[u8]) -> Result<Option<PatternMatch>, String> {
    thread_local! {
        static COMPILED: RefCell<HashMap<Box<[u8]>, Rc<Regex>>> = RefCell::default();
    }
    let regex = COMPILED.with_borrow_mut(|compiled| {
        if let Some(regex) = compiled.get(pattern) {
            return Ok(regex.clone());
        }
        let regex = Rc::new(Regex::new(pattern, RegexFlags::default()).map_err(|error| error.to_string())?);
        if compiled.len() >= COMPILED_KEPT {
            compiled.clear();
        }
        compiled.insert(pattern.into(), regex.clone());
        Ok::<_, String>(regex)
    })?;
    with_matcher(|matcher| match regex.captures(matcher, subject) {
        Ok(None) => Ok(None),
        Ok(Some(captures)) => {
            let last = (0..captures.len()).rposition(|n| captures.span(n).is_some()).unwrap_or(0);
            let groups = (0..=last).map(|n| captures.span(n).unwrap_or_default()).collect();
            Ok(Some(PatternMatch { groups, names: regex.names() }))
        }
        Err(error) => {
            let (subject, pattern) = (String::from_utf8_lossy(subject), String::from_utf8_lossy(pattern));
            Err(format!("pcre2_match() failed: {} on \"{subject}\" using \"{pattern}\"", error.code()))
        }
    })
}

/// File and line of patterns, which are compiled in the order in which they are written: lines are counted on from the
/// pattern before, since a large file may hold thousands.
#[derive(Default)]
struct PatternPlaces {
    file: FileId,
    offset: usize,
    line: usize,
}

impl PatternPlaces {
    /// `FILE:LINE`; empty for a text that is in no file.
    fn place(&mut self, source: &ConfSource, span: weir_conf::Span) -> Box<str> {
        let Some(file) = source.file(span.file) else { return Box::default() };
        let start = (span.start as usize).min(file.text.len());
        if self.line == 0 || self.file != span.file || self.offset > start {
            *self = PatternPlaces { file: span.file, offset: 0, line: 1 };
        }
        self.line += memchr::memchr_iter(b'\n', &file.text[self.offset..start]).count();
        self.offset = start;
        format!("{}:{}", file.path.display(), self.line).into()
    }
}

/// Patterns of pages kept by a worker: they may be made of what clients send, so their number is bounded.
const COMPILED_KEPT: usize = 64;

/// Match data is reused by all patterns of a thread.
fn with_matcher<T>(f: impl FnOnce(&mut Matcher) -> T) -> T {
    thread_local! {
        static MATCHER: RefCell<Option<Matcher>> = const { RefCell::new(None) };
    }
    MATCHER
        .with_borrow_mut(|slot| f(slot.get_or_insert_with(|| Matcher::new().expect("memory for match data"))))
}
