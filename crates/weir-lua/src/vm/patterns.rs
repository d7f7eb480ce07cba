//! Compiled patterns of `ngx.re.*`, by text and options.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use weir_engine::log::LogLevel;
use weir_sys::regex::{MatchError, Matcher, Regex, RegexFlags};

use crate::vm::traps;

/// A pattern and its names.
pub(crate) struct CompiledPattern {
    pub(crate) regex: Regex,
    pub(crate) names: Vec<(String, usize)>,
    key: Rc<PatternKey>,
    /// The longest match is wanted (`d`), which has no capture groups.
    pub(crate) longest: bool,
}

/// A pattern's text, and its options.
type PatternKey = (Vec<u8>, Vec<u8>);

impl CompiledPattern {
    /// The pattern and its options, as traces call it.
    pub(crate) fn name(&self) -> String {
        let (text, options) = (String::from_utf8_lossy(&self.key.0), String::from_utf8_lossy(&self.key.1));
        if options.is_empty() { text.into_owned() } else { format!("{text} {options}") }
    }
}

/// The patterns of a VM, and what its matches write to.
pub(crate) struct PatternCache {
    known: RefCell<HashMap<Rc<PatternKey>, Rc<CompiledPattern>>>,
    /// Those that scripts know by number, from 1, and the places that are free.
    numbered: RefCell<Vec<Option<Rc<CompiledPattern>>>>,
    vacant: RefCell<Vec<usize>>,
    matcher: RefCell<Option<Matcher>>,
    /// `lua_regex_cache_max_entries`
    most: usize,
    /// `lua_regex_match_limit`; 0 for the matcher's own.
    limit: u32,
    reported: Cell<bool>,
    log: fn(LogLevel, &dyn std::fmt::Display),
}

/// Why there is no pattern.
pub(crate) enum PatternError {
    /// An option that does not exist.
    Flag(String),
    /// PCRE2's words.
    Pattern(String),
}

impl PatternCache {
    /// No patterns yet. What a running script is warned of goes to `log`.
    pub(crate) fn new(most: usize, limit: u32, log: fn(LogLevel, &dyn std::fmt::Display)) -> PatternCache {
        PatternCache {
            known: RefCell::default(),
            numbered: RefCell::default(),
            vacant: RefCell::default(),
            matcher: RefCell::default(),
            most,
            limit,
            reported: Cell::new(false),
            log,
        }
    }

    /// The pattern with these options, compiled once if they have `o`.
    pub(crate) fn get(&self, pattern: &[u8], options: &[u8]) -> Result<Rc<CompiledPattern>, PatternError> {
        let key = (pattern.to_vec(), options.to_vec());
        if let Some(known) = self.known.borrow().get(&key) {
            return Ok(known.clone());
        }
        let PatternOptions { flags, once, machine, longest } = read(options)?;
        let regex = Regex::new(pattern, flags).map_err(|error| PatternError::Pattern(error.message))?;
        if machine {
            let outcome = if regex.is_jit() { "compiled successfully" } else { "compiler failed" };
            (self.log)(LogLevel::Debug, &format_args!("pcre2 JIT {outcome}"));
        }
        let key = Rc::new(key);
        let compiled = Rc::new(CompiledPattern { names: regex.names(), regex, key: key.clone(), longest });
        if once && self.has_room() {
            self.known.borrow_mut().insert(key, compiled.clone());
        }
        Ok(compiled)
    }

    /// Whether one more pattern is cached; the first that is not is logged.
    fn has_room(&self) -> bool {
        let room = self.known.borrow().len() < self.most;
        if !room && !self.reported.replace(true) {
            let most = self.most;
            (self.log)(LogLevel::Warn, &format_args!("lua exceeding regex cache max entries ({most})"));
        }
        room
    }

    /// A number by which the pattern is known from now on, how many groups it has, and whether it is cached; one that
    /// is not is to be [forgotten](PatternCache::forget).
    pub(crate) fn number(&self, pattern: &[u8], options: &[u8]) -> Result<(i32, usize, bool), PatternError> {
        let compiled = self.get(pattern, options)?;
        let keep = Rc::strong_count(&compiled) > 1;
        let groups = if compiled.longest { 1 } else { compiled.regex.captures_len() + 1 };
        let mut numbered = self.numbered.borrow_mut();
        let at = match self.vacant.borrow_mut().pop() {
            Some(at) => {
                numbered[at] = Some(compiled);
                at
            }
            None => {
                numbered.push(Some(compiled));
                numbered.len() - 1
            }
        };
        Ok((i32::try_from(at + 1).expect("patterns that are not kept are forgotten"), groups, keep))
    }

    /// The pattern of that number.
    pub(crate) fn numbered(&self, number: i32) -> Option<Rc<CompiledPattern>> {
        self.numbered.borrow().get((number as usize).wrapping_sub(1))?.clone()
    }

    /// The number is free for another.
    pub(crate) fn forget(&self, number: i32) {
        let at = (number as usize).wrapping_sub(1);
        if self.numbered.borrow_mut().get_mut(at).and_then(Option::take).is_some() {
            self.vacant.borrow_mut().push(at);
        }
    }

    /// The first match, or the longest there, from `start` on: how many groups it has, 0 for none. Their places are
    /// added to `spans`, -1 for one that took no part.
    ///
    /// # Errors
    /// PCRE2's number.
    pub(crate) fn spans(
        &self,
        compiled: &CompiledPattern,
        subject: &[u8],
        start: usize,
        spans: &mut Vec<i32>,
    ) -> Result<usize, MatchError> {
        let mut kept = self.matcher.borrow_mut();
        let matcher = match &mut *kept {
            Some(matcher) => matcher,
            none => none.insert(match self.limit {
                0 => Matcher::with_match_limit(MATCH_LIMIT)?,
                limit => Matcher::with_match_limit(limit)?,
            }),
        };
        let found = match compiled.longest {
            true => compiled.regex.longest_from(matcher, subject, start),
            false => compiled.regex.captures_from(matcher, subject, start),
        };
        if matches!(found, Err(MatchError::Limit)) {
            traps::count("lua_regex_match_limit", "");
        }
        let found = found?;
        let Some(found) = found else { return Ok(0) };
        found.add_spans(spans);
        Ok(found.len())
    }
}

/// What the letters of the options ask for.
#[derive(Default)]
struct PatternOptions {
    flags: RegexFlags,
    /// `o`
    once: bool,
    /// `j`: machine code is made of every pattern anyway; the debug log says whether that worked.
    machine: bool,
    /// `d`
    longest: bool,
}

fn read(letters: &[u8]) -> Result<PatternOptions, PatternError> {
    let mut options = PatternOptions::default();
    let flags = &mut options.flags;
    for &letter in letters {
        match letter {
            b'a' => flags.anchored = true,
            b'i' => flags.caseless = true,
            b'm' => flags.multiline = true,
            b's' => flags.dotall = true,
            b'x' => flags.extended = true,
            b'u' => flags.utf = true,
            b'U' => (flags.utf, flags.lenient) = (true, true),
            b'D' => flags.dupnames = true,
            b'J' => flags.javascript = true,
            b'o' => options.once = true,
            b'j' => options.machine = true,
            b'd' => options.longest = true,
            _ => {
                let (letter, all) = (char::from(letter), String::from_utf8_lossy(letters));
                return Err(PatternError::Flag(format!("unknown flag \"{letter}\" (flags \"{all}\")")));
            }
        }
    }
    // The algorithm for the longest match has no lenient mode.
    flags.lenient &= !options.longest;
    Ok(options)
}
/// Steps of a match unless `lua_regex_match_limit` says otherwise: PCRE2's default, as in OpenResty.
const MATCH_LIMIT: u32 = 10_000_000;
