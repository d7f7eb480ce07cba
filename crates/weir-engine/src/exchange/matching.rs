//! Patterns matched for a request: their captures become the request's, and one that is given up refuses it.

use std::ops::Range;

use weir_sys::regex::MatchError;

use super::Exchange;
use crate::deep_traces::{self, PatternRole};
use crate::log::LogLevel;
use crate::regex::{GivenUp, RegexPattern, with_matcher};
use crate::text::{Span, Text};

impl Exchange {
    /// Whether a pattern was given up since this was asked last. What depends on it is not known then, be it only a
    /// variable's value (`map`), so the request is refused as long as it can be.
    pub fn refuse_unmatched(&self) -> bool {
        self.unmatched.get() && self.unmatched.take()
    }

    /// Whether the request's server has the name `host`, which is in lower case, whatever the client has asked for. A pattern that is
    /// given up, which is logged, does not match.
    pub fn is_server_name(&self, host: &[u8]) -> bool {
        let is_match = |pattern: &RegexPattern| pattern.is_match_for(self, host).unwrap_or(false);
        self.server.settings.names.iter().any(|own| own.matches(host, is_match))
    }
}

impl RegexPattern {
    /// Matches `subject`, a span of the exchange's arena; on success `$1` and named groups are set.
    ///
    /// # Errors
    /// The match was given up, which is logged; the response becomes 500 ([`Exchange::refuse_unmatched`]).
    pub fn captures(&self, x: &mut Exchange, subject: Span) -> Result<bool, GivenUp> {
        self.captures_as(PatternRole::Module, x, subject)
    }

    /// [`RegexPattern::captures`] that traces call by its role.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn captures_as(
        &self,
        role: PatternRole,
        x: &mut Exchange,
        subject: Span,
    ) -> Result<bool, GivenUp> {
        // What does not match leaves those of the last match.
        let mut groups = std::mem::take(&mut x.captures.groups);
        let matched = self.watched(
            role,
            x,
            |matched| *matched,
            || {
                with_matcher(|matcher| {
                    let Some(captures) = self.regex.captures(matcher, x.arena.get(subject))? else {
                        return Ok(false);
                    };
                    let group = |n| {
                        captures.span(n).map_or(Span::default(), |range| Span {
                            start: subject.start + range.start as u32,
                            end: subject.start + range.end as u32,
                        })
                    };
                    groups.clear();
                    groups.extend((0..captures.len()).map(group));
                    Ok(true)
                })
            },
        );
        x.captures.groups = groups;
        if !matched.map_err(|error| self.give_up(x, x.arena.get(subject), error))? {
            return Ok(false);
        }
        for &(index, group) in &self.named {
            let span = x.captures.get(group).unwrap_or_default();
            x.set_variable(index, Text::Span(span));
        }
        x.captures.subject = subject;
        Ok(true)
    }

    /// Where the groups lie in `subject`, the first one the whole match, if it matches; sets nothing. A group that took
    /// no part is empty.
    ///
    /// # Errors
    /// As [`RegexPattern::captures`].
    pub fn find(&self, x: &Exchange, subject: &[u8]) -> Result<Option<Vec<Range<usize>>>, GivenUp> {
        let found = self.watched(PatternRole::Module, x, Option::is_some, || {
            with_matcher(|matcher| {
                let Some(captures) = self.regex.captures(matcher, subject)? else { return Ok(None) };
                Ok(Some((0..captures.len()).map(|group| captures.span(group).unwrap_or_default()).collect()))
            })
        });
        found.map_err(|error| self.give_up(x, subject, error))
    }

    /// Whether `subject`, a text of the request `x`, matches; sets nothing.
    ///
    /// # Errors
    /// As [`RegexPattern::captures`].
    pub fn is_match_for(&self, x: &Exchange, subject: &[u8]) -> Result<bool, GivenUp> {
        let look = || self.is_match(subject);
        let found = self.watched(PatternRole::Module, x, |is_match| *is_match, look);
        found.map_err(|error| self.give_up(x, subject, error))
    }

    /// What `look` finds, in a boundary of its own where one is asked for; `is_match`: whether that is a match.
    #[inline(always)]
    fn watched<R>(
        &self,
        role: PatternRole,
        x: &Exchange,
        is_match: fn(&R) -> bool,
        look: impl FnOnce() -> Result<R, MatchError>,
    ) -> Result<R, MatchError> {
        match deep_traces::is_asked() {
            false => look(),
            true => x.watched_pattern(role, &self.name(), |found| found.as_ref().is_ok_and(is_match), look),
        }
    }

    /// Logs why a match was given up, and sees to it that the request ends with 500.
    #[cold]
    fn give_up(&self, x: &Exchange, subject: &[u8], error: MatchError) -> GivenUp {
        x.log(LogLevel::Alert, &self.explain(subject, error));
        x.unmatched.set(true);
        GivenUp
    }
}
