//! What the requests of one loop turn share.
//!
//! All bytes that the loop works on in one turn had arrived before it began, so a file opened in the turn is opened
//! after each of its requests was sent: sharing it shows none of them an older file. `weir_rt::epoch` distinguishes
//! turns apart. The table is emptied when the turn's tasks have run, so that an idle worker holds no file open.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use weir_rt::file::SymlinkPolicy;

use super::hash::hash;
use super::{FoundPath, open};

/// Paths looked up in this turn, and what was found there.
#[derive(Default)]
pub(super) struct TurnLookups {
    table: RefCell<TurnTable>,
    /// By URI and location: of what `table` has, the files and directories that requests asked for by name.
    uris: RefCell<TurnTable>,
    /// Clears both.
    sweep: OnceCell<Rc<dyn Fn()>>,
}

impl TurnLookups {
    /// Opens `path`, unless a request of this turn did.
    pub(super) fn lookup(self: &Rc<Self>, path: &[u8]) -> Result<FoundPath, i32> {
        let key = hash(path);
        let mut table = self.table.borrow_mut();
        table.enter(weir_rt::epoch());
        if let Some(found) = table.find(key, ANYWHERE, path) {
            return found.clone();
        }
        let found = open(path, SymlinkPolicy::Follow);
        if table.is_empty() {
            self.sweep_later();
        }
        table.add(key, ANYWHERE, path, &found);
        found
    }

    /// What [`TurnLookups::remember`] received in this turn.
    #[inline]
    pub(super) fn found(&self, plan: usize, uri: &[u8]) -> Option<FoundPath> {
        let mut uris = self.uris.borrow_mut();
        uris.enter(weir_rt::epoch());
        uris.find(hash(uri), plan, uri)?.clone().ok()
    }

    /// Remembers what a path that [`TurnLookups::lookup`] has opened in this turn was composed of.
    pub(super) fn remember(&self, plan: usize, uri: &[u8], found: &FoundPath) {
        let mut uris = self.uris.borrow_mut();
        uris.enter(weir_rt::epoch());
        uris.add(hash(uri), plan, uri, &Ok(found.clone()));
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.table.borrow_mut().clear();
        self.uris.borrow_mut().clear();
    }

    /// Has both cleared when the tasks that can run now have run.
    fn sweep_later(self: &Rc<Self>) {
        let sweep = self.sweep.get_or_init(|| {
            let turn = Rc::downgrade(self);
            Rc::new(move || {
                if let Some(turn) = turn.upgrade() {
                    turn.clear();
                }
            })
        });
        weir_rt::at_round_end(sweep.clone());
    }
}

/// At most [`ENTRIES`] results, searched from first to last.
#[derive(Default)]
struct TurnTable {
    epoch: u64,
    entries: Vec<TurnEntry>,
    paths: Vec<u8>,
}

struct TurnEntry {
    key: u64,
    /// Of a URI, where its location's plan is: while anything of it is cached no other takes that place, since a new
    /// configuration forgets everything.
    of: usize,
    /// Where the path ends in `paths`; it begins where the one before ends.
    end: usize,
    found: Result<FoundPath, i32>,
}

impl TurnTable {
    /// Another epoch than the last one finds nothing.
    fn enter(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.clear();
        }
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    fn find(&self, key: u64, of: usize, path: &[u8]) -> Option<&Result<FoundPath, i32>> {
        let same =
            |(at, entry): &(usize, &TurnEntry)| (entry.key, entry.of) == (key, of) && self.path(*at) == path;
        self.entries.iter().enumerate().find(same).map(|(_, entry)| &entry.found)
    }

    fn path(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.entries[before].end);
        &self.paths[start..self.entries[at].end]
    }

    fn add(&mut self, key: u64, of: usize, path: &[u8], found: &Result<FoundPath, i32>) {
        if self.entries.len() < ENTRIES {
            self.paths.extend_from_slice(path);
            self.entries.push(TurnEntry { key, of, end: self.paths.len(), found: found.clone() });
        }
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.paths.clear();
    }
}

/// Of no location: a path.
const ANYWHERE: usize = 0;
/// So few that comparing all keys costs less than a system call; also how many files a turn holds open on its own.
const ENTRIES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn find(table: &TurnTable, path: &[u8]) -> Option<i32> {
        table.find(hash(path), ANYWHERE, path).map(|found| found.as_ref().err().copied().unwrap_or(0))
    }

    #[test]
    fn results_last_for_one_epoch() {
        let mut table = TurnTable::default();
        table.enter(1);
        for (at, path) in [&b"/a"[..], b"", b"/bc", b"/b"].into_iter().enumerate() {
            table.add(hash(path), ANYWHERE, path, &Err(at as i32));
        }
        assert_eq!(
            (find(&table, b"/b"), find(&table, b"/bc"), find(&table, b"")),
            (Some(3), Some(2), Some(1))
        );
        assert_eq!(find(&table, b"/c"), None);
        table.enter(1);
        assert_eq!(find(&table, b"/a"), Some(0));
        table.enter(2);
        assert_eq!(find(&table, b"/a"), None);
        assert!(table.is_empty());
    }

    #[test]
    fn holds_a_bounded_number() {
        let mut table = TurnTable::default();
        for n in 0..ENTRIES as i32 + 10 {
            let path = n.to_be_bytes();
            table.add(hash(&path), ANYWHERE, &path, &Err(n));
        }
        assert_eq!(table.entries.len(), ENTRIES);
        assert_eq!(find(&table, &(ENTRIES as i32).to_be_bytes()), None);
    }
}
