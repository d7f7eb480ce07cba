//! Compiled patterns of `ngx.re.*`, by text and options.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use weir_core::log::Level;
use weir_sys::regex::{Flags, MatchError, Matcher, Regex};

use crate::lend;

/// A pattern and its names.
pub(crate) struct Compiled {
    pub(crate) regex: Regex,
    pub(crate) names: Vec<(String, usize)>,
    /// An empty match moves on by a character.
    pub(crate) utf: bool,
    /// The longest match is wanted (`d`), which has no groups.
    pub(crate) longest: bool,
}

/// A match's groups, by number.
pub(crate) type Groups = Vec<Option<Range<usize>>>;

/// A pattern's text, and its options.
type Key = (Vec<u8>, Vec<u8>);

/// The patterns of a VM, and what its matches write to.
pub(crate) struct Patterns {
    known: RefCell<HashMap<Key, Rc<Compiled>>>,
    pub(crate) matcher: RefCell<Option<Matcher>>,
    /// `lua_regex_cache_max_entries`
    most: usize,
    /// `lua_regex_match_limit`; 0 for the matcher's own.
    limit: u32,
    told: Cell<bool>,
}

/// Why there is no pattern.
pub(crate) enum Wrong {
    /// An option that does not exist.
    Flag(String),
    /// PCRE2's words.
    Pattern(String),
}

impl Patterns {
    /// No patterns yet.
    pub(crate) fn new(most: usize, limit: u32) -> Patterns {
        Patterns {
            known: RefCell::default(),
            matcher: RefCell::default(),
            most,
            limit,
            told: Cell::new(false),
        }
    }

    /// The pattern with these options, compiled once if they have `o`.
    pub(crate) fn get(&self, pattern: &[u8], options: &[u8]) -> Result<Rc<Compiled>, Wrong> {
        let key = (pattern.to_vec(), options.to_vec());
        if let Some(known) = self.known.borrow().get(&key) {
            return Ok(known.clone());
        }
        let Options { flags, once, machine, longest } = read(options)?;
        let regex = Regex::new(pattern, flags).map_err(|error| Wrong::Pattern(error.message))?;
        if machine {
            let outcome = if regex.is_jit() { "compiled successfully" } else { "compiler failed" };
            lend::log(Level::Debug, &format_args!("pcre2 JIT {outcome}"));
        }
        let compiled = Rc::new(Compiled { names: regex.names(), regex, utf: flags.utf, longest });
        if once && self.has_room() {
            self.known.borrow_mut().insert(key, compiled.clone());
        }
        Ok(compiled)
    }

    /// Whether one more pattern is kept; when the first is not, that is told.
    fn has_room(&self) -> bool {
        let room = self.known.borrow().len() < self.most;
        if !room && !self.told.replace(true) {
            let most = self.most;
            lend::log(Level::Warn, &format_args!("lua exceeding regex cache max entries ({most})"));
        }
        room
    }

    /// The first match, or the longest there, from `start` on.
    ///
    /// # Errors
    /// PCRE2's number.
    pub(crate) fn find(
        &self,
        compiled: &Compiled,
        subject: &[u8],
        start: usize,
    ) -> Result<Option<Groups>, MatchError> {
        let mut kept = self.matcher.borrow_mut();
        let matcher = match &mut *kept {
            Some(matcher) => matcher,
            none => none.insert(match self.limit {
                0 => Matcher::new()?,
                limit => Matcher::with_match_limit(limit)?,
            }),
        };
        let found = match compiled.longest {
            true => compiled.regex.longest_from(matcher, subject, start)?,
            false => compiled.regex.captures_from(matcher, subject, start)?,
        };
        Ok(found.map(|found| (0..found.len()).map(|number| found.span(number)).collect()))
    }
}

/// What the letters of the options ask for.
#[derive(Default)]
struct Options {
    flags: Flags,
    /// `o`
    once: bool,
    /// `j`: machine code is made of every pattern; who asks is told.
    machine: bool,
    /// `d`
    longest: bool,
}

fn read(letters: &[u8]) -> Result<Options, Wrong> {
    let mut options = Options::default();
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
                return Err(Wrong::Flag(format!("unknown flag \"{letter}\" (flags \"{all}\")")));
            }
        }
    }
    // The algorithm for the longest match has no lenient mode.
    flags.lenient &= !options.longest;
    Ok(options)
}
