//! Locations beside and inside each other.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use weir_conf::{Error, LineCx};

use crate::conf::{LocationConf, LocationMatcher};
use crate::name_map::NameHasher;
use crate::regex::{LetterCase, RegexPattern};

/// `location [ = | ~ | ~* | ^~ ] uri`, the modifier apart or glued to what follows.
pub(super) fn matcher(cx: &mut LineCx<'_>) -> Result<LocationMatcher, Error> {
    if cx.args().len() == 2 {
        let path = cx.bytes(1).to_vec();
        return match cx.arg(0) {
            "=" => Ok(LocationMatcher::Exact(path)),
            "^~" => Ok(LocationMatcher::Prefix(path, true)),
            "~" => Ok(LocationMatcher::Regex(RegexPattern::compile(cx, 1, 0, LetterCase::Distinct)?)),
            "~*" => Ok(LocationMatcher::Regex(RegexPattern::compile(cx, 1, 0, LetterCase::Ignored)?)),
            other => Err(cx.fail_arg(0, format!("invalid location modifier \"{other}\""))),
        };
    }
    match cx.bytes(0) {
        [b'=', path @ ..] => Ok(LocationMatcher::Exact(path.to_vec())),
        [b'^', b'~', path @ ..] => Ok(LocationMatcher::Prefix(path.to_vec(), true)),
        [b'~', b'*', ..] => Ok(LocationMatcher::Regex(RegexPattern::compile(cx, 0, 2, LetterCase::Ignored)?)),
        [b'~', ..] => Ok(LocationMatcher::Regex(RegexPattern::compile(cx, 0, 1, LetterCase::Distinct)?)),
        [b'@', ..] => Ok(LocationMatcher::Named(cx.bytes(0).to_vec())),
        path => Ok(LocationMatcher::Prefix(path.to_vec(), false)),
    }
}

/// The locations of one block.
#[derive(Default)]
pub(super) struct SiblingLocations {
    pub(super) confs: Vec<LocationConf>,
    /// What is taken: exact paths, prefixes, names. There may be very many of them.
    exact: NameSet,
    prefixes: NameSet,
    named: NameSet,
}

type NameSet = HashSet<Vec<u8>, BuildHasherDefault<NameHasher>>;

impl SiblingLocations {
    /// Whether no other one has been for the same. Patterns are not compared.
    fn take(&mut self, matcher: &LocationMatcher) -> bool {
        match matcher {
            LocationMatcher::Exact(path) => self.exact.insert(path.clone()),
            LocationMatcher::Prefix(path, _) => self.prefixes.insert(path.clone()),
            LocationMatcher::Named(name) => self.named.insert(name.clone()),
            LocationMatcher::Regex(_) => true,
        }
    }
}

/// nginx's rules for a location beside and inside others.
pub(super) fn nested(
    cx: &LineCx<'_>,
    outer: Option<&LocationMatcher>,
    matcher: &LocationMatcher,
    siblings: &mut SiblingLocations,
) -> Result<(), Error> {
    let name = || bare_name(matcher);
    if let Some(outer) = outer {
        let outside = || bare_name(outer);
        let fault = match (outer, matcher) {
            (LocationMatcher::Exact(_), _) => {
                format!("location \"{}\" cannot be inside the exact location \"{}\"", name(), outside())
            }
            (LocationMatcher::Named(_), _) => {
                format!("location \"{}\" cannot be inside the named location \"{}\"", name(), outside())
            }
            (_, LocationMatcher::Named(_)) => {
                format!("named location \"{}\" can be on the server level only", name())
            }
            (LocationMatcher::Prefix(around, _), _)
                if matcher.path().is_some_and(|path| !path.starts_with(around)) =>
            {
                format!("location \"{}\" is outside location \"{}\"", name(), outside())
            }
            _ => String::new(),
        };
        if !fault.is_empty() {
            return Err(cx.fail(fault));
        }
    }
    if !siblings.take(matcher) {
        return Err(cx.fail(format!("duplicate location \"{}\"", name())));
    }
    Ok(())
}

/// A location's name in nginx's messages: without its modifier.
fn bare_name(matcher: &LocationMatcher) -> String {
    let name = matcher.name();
    match name.split_once(' ') {
        Some(("=" | "^~" | "~" | "~*", bare)) => bare.to_owned(),
        _ => name,
    }
}
