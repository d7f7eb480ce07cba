//! Regular expressions of the configuration, with the variables that their named groups fill.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use weir_sys::regex::{MatchError, Matcher, Regex, RegexFlags};

use crate::variable_index::VarIndex;

/// A match was given up, for its steps, its time or for memory: whether the subject matches is not known. It is logged
/// already, and the request ends with 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp;

/// A compiled regular expression with its named groups as variables; shared by all workers.
pub struct RegexPattern {
    pub(crate) regex: Regex,
    pub(crate) text: String,
    pub(crate) caseless: bool,
    pub(crate) named: Vec<(VarIndex, usize)>,
    /// File and line, for the error log.
    pub(crate) place: Box<str>,
}

/// Whether a pattern distinguishes capital letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterCase {
    /// `~`
    Distinct,
    /// `~*`
    Ignored,
}

impl LetterCase {
    /// [`LetterCase::Ignored`] if `ignored`.
    pub const fn ignored_if(ignored: bool) -> LetterCase {
        if ignored { LetterCase::Ignored } else { LetterCase::Distinct }
    }
}

impl RegexPattern {
    /// Whether `subject` matches, where there is no request: the caller decides what an error means, and logs it with
    /// [`RegexPattern::explain`].
    ///
    /// # Errors
    /// The match was given up: whether it matches is not known.
    pub fn is_match(&self, subject: &[u8]) -> Result<bool, MatchError> {
        with_matcher(|matcher| self.regex.is_match(matcher, subject))
    }

    /// Why a match was given up: nginx's words, and where the pattern is written.
    pub fn explain(&self, subject: &[u8], error: MatchError) -> String {
        let subject = String::from_utf8_lossy(subject);
        let place = if self.place.is_empty() { String::new() } else { format!(" in {}", self.place) };
        format!("pcre2_match() failed: {} on \"{subject}\" using \"{}\"{place}", error.code(), self.text)
    }

    /// Where the capture groups of the first match in `subject` begin and end, the whole match first; one that took no
    /// part is empty. Sets nothing of a request: for a caller that looks at bytes of a body.
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

    /// Number of capture groups, `$1` and on.
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

/// Patterns of pages cached by a worker: they may be made of what clients send, so their number is bounded.
const COMPILED_KEPT: usize = 64;

/// Match data is reused by all patterns of a thread.
pub(crate) fn with_matcher<T>(f: impl FnOnce(&mut Matcher) -> T) -> T {
    thread_local! {
        static MATCHER: RefCell<Option<Matcher>> = const { RefCell::new(None) };
    }
    MATCHER
        .with_borrow_mut(|slot| f(slot.get_or_insert_with(|| Matcher::new().expect("memory for match data"))))
}
