//! Compiled patterns of `ngx.re.*`, by text and options.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use weir_sys::regex::{Flags, Matcher, Regex};

/// A pattern and its names.
pub(crate) struct Compiled {
    pub(crate) regex: Regex,
    pub(crate) names: Vec<(String, usize)>,
    /// A match is only looked for at the place where it may begin.
    pub(crate) utf: bool,
}

/// A pattern's text, and its options.
type Key = (Vec<u8>, Vec<u8>);

/// The patterns of a VM, and what its matches write to.
#[derive(Default)]
pub(crate) struct Patterns {
    known: RefCell<HashMap<Key, Rc<Compiled>>>,
    pub(crate) matcher: RefCell<Option<Matcher>>,
}

/// `lua_regex_cache_max_entries`
const MOST: usize = 1024;

/// Why there is no pattern.
pub(crate) enum Wrong {
    /// An option that does not exist.
    Flag(String),
    /// PCRE2's words.
    Pattern(String),
}

impl Patterns {
    /// The pattern with these options, compiled once if they have `o`.
    pub(crate) fn get(&self, pattern: &[u8], options: &[u8]) -> Result<Rc<Compiled>, Wrong> {
        let key = (pattern.to_vec(), options.to_vec());
        if let Some(known) = self.known.borrow().get(&key) {
            return Ok(known.clone());
        }
        let (flags, once) = flags(options)?;
        let regex = Regex::new(pattern, flags).map_err(|error| Wrong::Pattern(error.message))?;
        let compiled = Rc::new(Compiled { names: regex.names(), regex, utf: flags.utf });
        let mut known = self.known.borrow_mut();
        if once && known.len() < MOST {
            known.insert(key, compiled.clone());
        }
        Ok(compiled)
    }
}

/// What the letters of `options` mean, and whether the pattern is to be kept.
fn flags(options: &[u8]) -> Result<(Flags, bool), Wrong> {
    let (mut flags, mut once) = (Flags::default(), false);
    for &letter in options {
        match letter {
            b'a' => flags.anchored = true,
            b'i' => flags.caseless = true,
            b'm' => flags.multiline = true,
            b's' => flags.dotall = true,
            b'x' => flags.extended = true,
            b'u' | b'U' => flags.utf = true,
            b'D' => flags.dupnames = true,
            b'o' => once = true,
            // Machine code is made of every pattern.
            b'j' => {}
            _ => {
                let (letter, all) = (char::from(letter), String::from_utf8_lossy(options));
                return Err(Wrong::Flag(format!("unknown flag \"{letter}\" (flags \"{all}\")")));
            }
        }
    }
    Ok((flags, once))
}
