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
pub(crate) fn is_asked() -> bool {
    ASKED.load(Relaxed) > 0
}

/// What has a boundary of its own below modules.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeepKind {
    Variable,
    Pattern,
    File,
}

impl DeepKind {
    /// Its site by its name.
    pub(crate) fn site(self, name: &str) -> Site {
        let (kind, name) = match self {
            DeepKind::Variable => (SiteKind::Function, format!("${name}")),
            DeepKind::Pattern => (SiteKind::Function, format!("regex {name}")),
            DeepKind::File => (SiteKind::File, name.to_owned()),
        };
        // Sites are never given up, and a client chooses paths: after so many all others are one.
        if KNOWN.load(Relaxed) >= MOST {
            return SiteTable::global().intern(kind, "", "(others)");
        }
        let before = SiteTable::global().len();
        let site = SiteTable::global().intern(kind, "", &name);
        if site.index() >= before {
            KNOWN.fetch_add(1, Relaxed);
        }
        site
    }
}

/// How many ask.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// Sites that were made for this.
static KNOWN: AtomicUsize = AtomicUsize::new(0);
/// As many at most, of 65,535.
const MOST: usize = 4_096;

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
}
