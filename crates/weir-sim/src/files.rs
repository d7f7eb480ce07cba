//! What a seed draws of files: which calls fail, how often and when, and when the disk is full.
//!
//! All times are microseconds after the server's start.

use crate::draw::Draw;

/// What a file of the server is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimFileKind {
    /// `access_log`.
    AccessLog,
    /// `error_log`.
    ErrorLog,
    /// Bodies of requests: `client_body_temp_path`.
    RequestBody,
    /// Responses of upstream servers on their way: `proxy_temp_path`.
    Temporary,
    /// `proxy_cache_path`.
    Cached,
    /// What `root` leads to.
    Served,
    /// The configuration.
    Settings,
}

/// All kinds, with the word of the journal, and how the paths of such files begin in the server's directory.
pub const KINDS: [(SimFileKind, &str, &str); 7] = [
    (SimFileKind::AccessLog, "access", "access.log"),
    (SimFileKind::ErrorLog, "error", "error.log"),
    (SimFileKind::RequestBody, "body", "body_temp/"),
    (SimFileKind::Temporary, "temporary", "proxy_temp/"),
    (SimFileKind::Cached, "cached", "cache/"),
    (SimFileKind::Served, "served", "www/"),
    (SimFileKind::Settings, "settings", "weir.conf"),
];

impl SimFileKind {
    /// The kind of the file at `path`, which is relative to the server's directory; `None`: no fault applies to it.
    pub fn of(path: &str) -> Option<SimFileKind> {
        let is_it = |begin: &str| path.starts_with(begin) || path == begin.trim_end_matches('/');
        KINDS.iter().find(|(.., begin)| is_it(begin)).map(|(kind, ..)| *kind)
    }

    /// Its word in the journal.
    pub fn word(self) -> &'static str {
        KINDS.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, word, _)| word)
    }

    /// The kind of a word in the journal.
    pub fn of_word(word: &str) -> Option<SimFileKind> {
        KINDS.iter().find(|(_, one, _)| *one == word).map(|(kind, ..)| *kind)
    }
}

/// What happens to files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePlan {
    /// Which calls fail.
    pub faults: Vec<FileFaults>,
    /// When the disk is full.
    pub full: Option<FaultTime>,
    /// Of 1,000 reads and writes, so many take less than was asked for.
    pub short: u64,
    /// Of 1,000 reads that must not wait for the disk, so many would have to.
    pub cold: u64,
}

/// Calls that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFaults {
    /// Of these files.
    pub kind: SimFileKind,
    /// Of 1,000 calls, so many.
    pub of_thousand: u64,
    /// When.
    pub time: FaultTime,
}

/// A time in which something fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultTime {
    /// From when.
    pub from: u64,
    /// Until when.
    pub to: u64,
}

impl FaultTime {
    /// Whether it is now.
    pub fn has(&self, now: u64) -> bool {
        (self.from..self.to).contains(&now)
    }

    fn drawn(draw: &mut Draw, span: u64) -> FaultTime {
        let from = draw.below(span);
        FaultTime { from, to: from + *draw.one_of(&[span / 10, span / 2, span * 2]) }
    }
}

impl FilePlan {
    /// What `draw` draws, for clients that come within `span`.
    pub fn drawn(draw: &mut Draw, span: u64) -> FilePlan {
        if draw.chance(1, 3) {
            return FilePlan::default();
        }
        let short = *draw.one_of(&[0, 50, 400]);
        let cold = *draw.one_of(&[0, 100, 600]);
        let count = *draw.one_of(&[0, 1, 1, 2, 7]);
        let faults = (0..count).map(|_| FileFaults::drawn(draw, span)).collect();
        let full = draw.chance(1, 3).then(|| FaultTime::drawn(draw, span));
        FilePlan { faults, full, short, cold }
    }

    /// Whether anything may fail.
    pub fn has_faults(&self) -> bool {
        !self.faults.is_empty() || self.full.is_some()
    }

    /// Whether it is as if there were no plan.
    pub fn is_idle(&self) -> bool {
        *self == FilePlan::default()
    }
}

impl FileFaults {
    fn drawn(draw: &mut Draw, span: u64) -> FileFaults {
        let (kind, ..) = *draw.one_of(&KINDS);
        let of_thousand = *draw.one_of(&[20, 150, 1000]);
        FileFaults { kind, of_thousand, time: FaultTime::drawn(draw, span) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_what_a_file_is_for() {
        for (path, kind) in [
            ("access.log", Some(SimFileKind::AccessLog)),
            ("cache/3/ab/0123", Some(SimFileKind::Cached)),
            ("cache", Some(SimFileKind::Cached)),
            ("www/file/300", Some(SimFileKind::Served)),
            ("weir.pid", None),
            ("cached", None),
        ] {
            assert_eq!(SimFileKind::of(path), kind, "{path}");
        }
        for (kind, word, _) in KINDS {
            assert_eq!((kind.word(), SimFileKind::of_word(word)), (word, Some(kind)));
        }
    }

    #[test]
    fn seeds_draw_all_kinds_and_quiet_disks() {
        let plans: Vec<FilePlan> =
            (0..300).map(|seed| FilePlan::drawn(&mut Draw::new(seed), 1_000_000)).collect();
        let kinds = |plan: &FilePlan| plan.faults.iter().map(|one| one.kind).collect::<Vec<_>>();
        for (kind, ..) in KINDS {
            assert!(plans.iter().any(|plan| kinds(plan).contains(&kind)), "{kind:?}");
        }
        assert!(plans.iter().any(FilePlan::is_idle) && plans.iter().any(|plan| plan.full.is_some()));
    }
}
