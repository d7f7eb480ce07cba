//! A second level of boundaries, below modules: variables, patterns, files and the tables of scripts by their names. Requests record them while
//! they are asked for ([`DeepTraces`], `weir trace --deep`); else each of these places tests one number, and what follows from
//! a head alone is not looked for at all.

use std::cmp::Ordering;
use std::fmt::{Display, Formatter};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use weir_trace::{Site, SiteKind, SiteTable};

/// While one lives the requests of this process record what they do below modules.
#[derive(Debug)]
pub struct DeepTraces(());

impl DeepTraces {
    /// From here on.
    #[must_use]
    pub fn ask() -> DeepTraces {
        ASKED.fetch_add(1, Relaxed);
        DeepTraces(())
    }
}

impl Drop for DeepTraces {
    fn drop(&mut self) {
        ASKED.fetch_sub(1, Relaxed);
    }
}

/// Whether a caller asks.
#[inline(always)]
pub fn is_asked() -> bool {
    ASKED.load(Relaxed) > 0
}

/// What has a boundary of its own below modules.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeepKind {
    Variable,
    File,
}

/// Who asks a pattern, by which traces call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternRole {
    /// The name of a server.
    ServerName,
    /// A location.
    Location,
    /// A module: `rewrite`, `map`, `valid_referers` and others.
    Module,
    /// `ngx.re.*` of a script.
    Script,
}

impl PatternRole {
    /// The site of a pattern that is called `name` and has matched, or not.
    pub(crate) fn site(self, name: &str, is_match: bool) -> Site {
        let word = match self {
            PatternRole::ServerName => "server_name",
            PatternRole::Location => "location",
            PatternRole::Module => "regex",
            PatternRole::Script => "ngx.re",
        };
        let outcome = if is_match { "matches" } else { "no match" };
        let shown: String = name.chars().take(LONGEST_NAME).collect();
        let dots = if shown.len() < name.len() { "..." } else { "" };
        known_site(SiteKind::Function, &format!("{word} {shown}{dots}: {outcome}"))
    }
}

/// What became of a table of a script: its size before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableChange {
    /// Elements that its array has room for, that of number 0 included.
    pub array: [u32; 2],
    /// Other keys that it has room for.
    pub hash: [u32; 2],
}

impl TableChange {
    /// The site of such changes by that line of a script.
    #[must_use]
    pub fn site(self, line: &str) -> Site {
        known_site(SiteKind::Function, &format!("table at {line} {self}"))
    }
}

impl Display for TableChange {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let (array, hash) = (self.array.map(|size| size.saturating_sub(1)), self.hash);
        let total = |at: usize| u64::from(array[at]) + u64::from(hash[at]);
        let verb = match total(1).cmp(&total(0)) {
            Ordering::Greater => "grows",
            Ordering::Less => "shrinks",
            Ordering::Equal => "is arranged again",
        };
        match (array[0] == array[1], hash[0] == hash[1]) {
            (true, true) => write!(f, "{verb} with {} array and {} hash slots", array[1], hash[1]),
            (true, false) => write!(f, "{verb} from {} to {} hash slots", hash[0], hash[1]),
            (false, true) => write!(f, "{verb} from {} to {} array slots", array[0], array[1]),
            (false, false) => write!(
                f,
                "{verb} from {} array and {} hash slots to {} and {}",
                array[0], hash[0], array[1], hash[1]
            ),
        }
    }
}

impl DeepKind {
    /// Its site by its name.
    pub(crate) fn site(self, name: &str) -> Site {
        let (kind, name) = match self {
            DeepKind::Variable => (SiteKind::Function, format!("${name}")),
            DeepKind::File => (SiteKind::File, name.to_owned()),
        };
        known_site(kind, &name)
    }
}

/// Sites are never given up, and a client chooses paths: after so many all others are one.
fn known_site(kind: SiteKind, name: &str) -> Site {
    if KNOWN.load(Relaxed) >= MOST {
        return SiteTable::global().intern(kind, "", "(others)");
    }
    let before = SiteTable::global().len();
    let site = SiteTable::global().intern(kind, "", name);
    if site.index() >= before {
        KNOWN.fetch_add(1, Relaxed);
    }
    site
}

/// How many ask.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// Sites that were made for this.
static KNOWN: AtomicUsize = AtomicUsize::new(0);
/// As many at most, of 65,535.
const MOST: usize = 4_096;
/// Characters of a pattern that are shown.
const LONGEST_NAME: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_ends_when_nobody_asks() {
        let (one, other) = (DeepTraces::ask(), DeepTraces::ask());
        drop(one);
        assert!(is_asked());
        drop(other);
    }

    #[test]
    fn patterns_are_called_by_who_asks_and_by_what_came_of_it() {
        let label = |site| SiteTable::global().info(site).label();
        assert_eq!(label(PatternRole::ServerName.site("~ ^a", true)), "server_name ~ ^a: matches");
        assert_eq!(label(PatternRole::Script.site("b jo", false)), "ngx.re b jo: no match");
        let long = label(PatternRole::Module.site(&"é".repeat(300), false));
        assert_eq!(long.chars().filter(|letter| *letter == 'é').count(), LONGEST_NAME);
        assert!(long.ends_with("...: no match"), "{long}");
    }

    #[test]
    fn changes_of_tables_say_what_they_were_and_are() {
        let said = |array, hash| TableChange { array, hash }.to_string();
        assert_eq!(said([0, 0], [0, 4]), "grows from 0 to 4 hash slots");
        assert_eq!(said([0, 5], [0, 0]), "grows from 0 to 4 array slots");
        assert_eq!(said([4, 9], [4, 1]), "grows from 3 array and 4 hash slots to 8 and 1");
        assert_eq!(said([5, 5], [64, 8]), "shrinks from 64 to 8 hash slots");
        assert_eq!(said([0, 0], [8, 8]), "is arranged again with 0 array and 8 hash slots");
        assert_eq!(said([0, 9], [8, 0]), "is arranged again from 0 array and 8 hash slots to 8 and 0");
        let site = TableChange { array: [0, 0], hash: [32, 64] }.site("shop.lua:12");
        let label = SiteTable::global().info(site).label();
        assert_eq!(label, "table at shop.lua:12 grows from 32 to 64 hash slots");
    }
}
