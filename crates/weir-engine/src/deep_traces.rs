//! A second level of boundaries, below modules: variables, patterns and files by their names. Requests record them while
//! they are asked for ([`DeepTraces`], `weir trace --deep`); else each of these places tests one number, and what follows from
//! a head alone is not looked for at all.

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
}
