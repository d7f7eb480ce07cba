//! Matching within bounds of time.
//!
//! PCRE2 counts steps for each place of the subject at which a match may begin, not for the subject as a whole, and its
//! machine code does not count what single characters repeat (`.*`): a pattern may stay below the limit at each of
//! 8,000 places and take minutes. So
//!
//! - places are tried a window at a time, with a look at the clock between windows, and with a tenth of the steps: the
//!   window where they do not suffice is tried again one place after the other with all of them;
//! - a pattern whose uncounted repeats could take long over a subject of that length runs without machine code, where
//!   every step is counted, as in nginx without `pcre_jit`;
//! - a subject that is too long for the JIT's stack is matched without machine code, too.
//!
//! What results is [`TIME`] of the thread's own time and the steps of one place: with the JIT 0.6 s at most, without it
//! 1.3 s. (nginx has no such bound.)

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use pcre2_sys as pcre2;

use super::{MatchError, Matcher, Regex, RegexFlags, outcome};

/// How one call of PCRE2 is bounded.
#[derive(Clone, Copy)]
struct MatchWindow {
    /// Where the match may begin: from here, and not after `last`.
    start: usize,
    last: Option<usize>,
    /// [`pcre2::PCRE2_NO_JIT`] or nothing.
    options: u32,
}

impl Regex {
    /// Matches `subject` from `start` on, which is inside it or at its end: how many groups were set, if it matches.
    pub(super) fn run(
        &self,
        matcher: &mut Matcher,
        subject: &[u8],
        start: usize,
    ) -> Result<Option<usize>, MatchError> {
        let places = subject.len() - start + 1;
        let options = if subject.len() > self.uncounted { pcre2::PCRE2_NO_JIT } else { 0 };
        let machine = self.jit && options == 0;
        let width = if machine { PLACES } else { PLACES_WITHOUT_JIT };
        if !self.windowed || places <= width {
            return self.call(matcher, subject, MatchWindow { start, last: None, options });
        }
        let limit = matcher.limit;
        matcher.set_limit(limit.min(FIRST_LIMIT));
        let result = self.windows(matcher, subject, MatchWindow { start, last: None, options }, width, limit);
        matcher.set_limit(limit);
        result
    }

    /// Tries the places of `subject` from `all.start` on, `width` of them at a time.
    fn windows(
        &self,
        matcher: &mut Matcher,
        subject: &[u8],
        all: MatchWindow,
        width: usize,
        limit: u32,
    ) -> Result<Option<usize>, MatchError> {
        let clock = MatchClock::start();
        let first = matcher.limit;
        let mut at = all.start;
        while at <= subject.len() {
            let last = at + width - 1;
            let mut found = self.call(matcher, subject, MatchWindow { start: at, last: Some(last), ..all });
            if found == Err(MatchError::Limit) && limit > first {
                matcher.set_limit(limit);
                found = self.one_by_one(
                    matcher,
                    subject,
                    MatchWindow { start: at, last: Some(last), ..all },
                    &clock,
                );
                matcher.set_limit(first);
            }
            if !matches!(found, Ok(None)) {
                return found;
            }
            clock.check()?;
            at = last + 1;
        }
        Ok(None)
    }

    /// The places of one window, each by itself.
    fn one_by_one(
        &self,
        matcher: &mut Matcher,
        subject: &[u8],
        window: MatchWindow,
        clock: &MatchClock,
    ) -> Result<Option<usize>, MatchError> {
        let last = window.last.unwrap_or(subject.len()).min(subject.len());
        for start in window.start..=last {
            let found = self.call(matcher, subject, MatchWindow { start, last: Some(start), ..window })?;
            if found.is_some() {
                return Ok(found);
            }
            clock.check()?;
        }
        Ok(None)
    }

    /// One call of PCRE2, and another one without the JIT where its stack was too small.
    fn call(
        &self,
        matcher: &mut Matcher,
        subject: &[u8],
        window: MatchWindow,
    ) -> Result<Option<usize>, MatchError> {
        matcher.heavy |= window.options != 0;
        match self.call_once(matcher, subject, window) {
            Err(MatchError::JitStack) => {
                matcher.heavy = true;
                self.call_once(matcher, subject, MatchWindow { options: pcre2::PCRE2_NO_JIT, ..window })
            }
            result => result,
        }
    }

    fn call_once(
        &self,
        matcher: &mut Matcher,
        subject: &[u8],
        window: MatchWindow,
    ) -> Result<Option<usize>, MatchError> {
        // A pattern of which places are not limited was compiled without the means to limit them.
        if self.windowed {
            matcher.set_last_place(window.last);
        }
        // What PCRE2's own way to the machine code looks at holds here; where there is none after all (`(*NO_JIT)`), this says so.
        let direct = self.direct && window.options == 0;
        let matching: MatchCall = if direct { pcre2::pcre2_jit_match_8 } else { pcre2::pcre2_match_8 };
        let mut result = self.call_by(matching, matcher, subject, window);
        if direct && result == pcre2::PCRE2_ERROR_JIT_BADOPTION {
            result = self.call_by(pcre2::pcre2_match_8, matcher, subject, window);
        }
        if self.windowed && window.last.is_some() {
            matcher.set_last_place(None);
        }
        outcome(result)
    }

    #[inline]
    fn call_by(
        &self,
        matching: MatchCall,
        matcher: &mut Matcher,
        subject: &[u8],
        window: MatchWindow,
    ) -> c_int {
        // SAFETY: the code is alive as long as `self`; subject and its length describe one live slice with `start`
        // inside or at its end; the caller's `reserve` left valid match data and context in `matcher`, which is
        // borrowed mutably, so no other match writes them now. Results hold offsets only: no pointer into the subject
        // is read later. `pcre2_jit_match_8` is called for subjects that are not UTF alone, which it does not check.
        unsafe {
            matching(
                self.code.as_ptr(),
                subject.as_ptr(),
                subject.len(),
                window.start,
                window.options,
                matcher.data.as_ptr(),
                matcher.context.as_ptr(),
            )
        }
    }
}

/// PCRE2's functions that match.
type MatchCall = unsafe extern "C" fn(
    *const pcre2::pcre2_code_8,
    *const u8,
    usize,
    usize,
    u32,
    *mut pcre2::pcre2_match_data_8,
    *mut pcre2::pcre2_match_context_8,
) -> c_int;

impl Matcher {
    pub(super) fn set_limit(&mut self, steps: u32) {
        self.limit = steps;
        // SAFETY: the context is this value's own and alive.
        unsafe { pcre2::pcre2_set_match_limit_8(self.context.as_ptr(), steps) };
    }

    /// No match begins after `last`; `None` takes the limit away, which patterns without places must not meet.
    fn set_last_place(&mut self, last: Option<usize>) {
        // SAFETY: the context is this value's own and alive.
        unsafe { pcre2::pcre2_set_offset_limit_8(self.context.as_ptr(), last.unwrap_or(usize::MAX)) };
    }
}

/// The time of one match.
struct MatchClock {
    start: Instant,
    /// The thread's own time was asked for, at the first look after [`TIME`] had gone by.
    own: std::cell::Cell<Option<Duration>>,
}

impl MatchClock {
    fn start() -> MatchClock {
        MatchClock { start: Instant::now(), own: std::cell::Cell::new(None) }
    }

    /// An error when [`TIME`] is over. A machine that has no time for this thread is no fault of the pattern: once the
    /// wall clock says so, what counts is the thread's own time from then on.
    fn check(&self) -> Result<(), MatchError> {
        if self.start.elapsed() < TIME {
            return Ok(());
        }
        match self.own.get() {
            None => self.own.set(Some(thread_time())),
            Some(before) if thread_time().saturating_sub(before) > TIME => return Err(MatchError::Limit),
            Some(_) => {}
        }
        Ok(())
    }
}

/// Time that the processor gave this thread.
fn thread_time() -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the kernel writes one timespec to live memory; zeros are one, too, should it refuse.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, time.as_mut_ptr());
        time.assume_init()
    };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Whether `pattern` may be tried at later places as if the subject began there: no `\G`, which is the place where a
/// match begins, no verb such as `(*COMMIT)`, which ends the search. (UTF-8 has positions within a character, where no
/// match begins.)
pub(super) fn begins_anywhere(pattern: &[u8], flags: RegexFlags) -> bool {
    let has = |what: &[u8]| pattern.windows(what.len()).any(|part| part == what);
    !flags.utf && !flags.lenient && !flags.anchored && !has(b"\\G") && !has(b"(*")
}

/// The longest subject over which the repeats of `pattern` can't take more than [`UNCOUNTED`] steps that are not counted:
/// with k repeats one after the other a subject of n bytes can be shared out in n^k / k! ways. Repeats in character
/// classes are counted as such, for they only make it stricter.
pub(super) fn longest_uncounted(pattern: &[u8]) -> usize {
    let mut repeats = 0;
    let mut escaped = false;
    for (at, byte) in pattern.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            // Possessive or lazy signs after a repeat are not repeats of their own.
            b'*' | b'+' if at > 0 && !matches!(pattern[at - 1], b'*' | b'+' | b'?' | b'(') => repeats += 1,
            b'{' if open_ended(&pattern[at..]) => repeats += 1,
            _ => {}
        }
    }
    let longest = |k: i32| (UNCOUNTED * (1..=k).map(f64::from).product::<f64>()).powf(1.0 / f64::from(k));
    if repeats < 2 { usize::MAX } else { longest(repeats.min(20)) as usize }
}

/// `{2,}` or `{2,9999}`: as good as without end.
fn open_ended(text: &[u8]) -> bool {
    let Some(end) = text.iter().position(|byte| *byte == b'}') else { return false };
    let inside = &text[1..end];
    let bounds = inside.iter().all(|byte| byte.is_ascii_digit() || *byte == b',');
    bounds
        && (inside.ends_with(b",") || inside.rsplit(|byte| *byte == b',').next().is_some_and(|n| n.len() > 1))
}

/// Places that are tried by one call: with a tenth of the limit 0.6 s at worst; one call more per window costs 60 ns.
const PLACES: usize = 64;
/// As [`PLACES`], where a step takes seven times as long.
const PLACES_WITHOUT_JIT: usize = 8;
/// Steps per place in the first attempt: 10 ms of machine code.
const FIRST_LIMIT: u32 = 1_000_000;
/// Steps that the machine code may take without counting them: 0.05 to 0.1 s.
const UNCOUNTED: f64 = 50e6;
/// After this time of its thread a match is given up between two places.
const TIME: Duration = Duration::from_millis(250);
