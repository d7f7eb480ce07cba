//! Marks of entries that are read again and again: how compiled Lua sees, without a call, that a value it has is still
//! the entry's.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

/// A version and a stamp; `struct weir_mark` of the prelude. Marks are never freed, only given to other entries, with
/// a version that none had before: so whoever keeps one with its version may look at it for ever. Both are the bits of
/// numbers of Lua's.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Mark {
    /// Whole; odd while its entry changes, or when that is gone.
    version: AtomicU64,
    /// The stamp of the last use by compiled code.
    used: AtomicU64,
}

/// The mark of a node, once it has one, and how often it was read since its value changed.
#[derive(Default)]
pub(super) struct Marked {
    mark: AtomicPtr<Mark>,
    reads: AtomicU64,
}

/// What a value was read with: it is the entry's as long as the mark has this version.
#[derive(Clone, Copy)]
pub(crate) struct Version {
    pub(crate) mark: &'static Mark,
    pub(crate) version: f64,
}

/// A change of a value, until it is dropped.
pub(super) struct Change(Option<&'static Mark>);

/// Marks of entries that have gone.
static SPARE: Mutex<Vec<&'static Mark>> = Mutex::new(Vec::new());

/// Reads of the same value before the next one is worth remembering.
const ENOUGH: u64 = 2;
/// Marks that are made at once.
const BATCH: usize = 64;

impl Mark {
    fn version(&self) -> f64 {
        f64::from_bits(self.version.load(Ordering::Acquire))
    }

    /// By who holds the stripe.
    fn step(&self) {
        let next = f64::from_bits(self.version.load(Ordering::Relaxed)) + 1.0;
        self.version.store(next.to_bits(), Ordering::Release);
    }
}

#[cfg(test)]
impl Version {
    /// Whether what was read with it is still the entry's, as compiled Lua asks.
    pub(super) fn holds(&self) -> bool {
        self.mark.version() == self.version
    }
}

impl Marked {
    fn mark(&self) -> Option<&'static Mark> {
        // SAFETY: null, or a mark, which is never freed.
        unsafe { self.mark.load(Ordering::Acquire).as_ref() }
    }

    /// Before a value is read.
    pub(super) fn version(&self) -> Option<Version> {
        let mark = self.mark()?;
        let version = mark.version();
        (version % 2.0 == 0.0).then_some(Version { mark, version })
    }

    /// Behind the reading: whether the value that was read is that of the version, and is read often enough.
    pub(super) fn confirm(&self, before: Option<Version>) -> Option<Version> {
        let reads = self.reads.load(Ordering::Relaxed);
        if reads < ENOUGH {
            self.reads.store(reads + 1, Ordering::Relaxed);
            return None;
        }
        fence(Ordering::Acquire);
        before.filter(|before| before.mark.version() == before.version)
    }

    /// Whether it is read often enough for a mark that it does not have.
    pub(super) fn wants_mark(&self) -> bool {
        self.reads.load(Ordering::Relaxed) == ENOUGH && self.mark().is_none()
    }

    /// Gives it a mark; by who holds the stripe.
    pub(super) fn give_mark(&self) {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.is_empty() {
            let batch: Box<[Mark]> = (0..BATCH).map(|_| Mark::default()).collect();
            spare.extend(Box::leak(batch).iter());
        }
        if let Some(mark) = spare.pop() {
            mark.used.store(0, Ordering::Relaxed);
            self.mark.store(std::ptr::from_ref(mark).cast_mut(), Ordering::Release);
        }
    }

    /// Begins a change of the value; by who holds the stripe.
    pub(super) fn change(&self) -> Change {
        self.reads.store(0, Ordering::Relaxed);
        let mark = self.mark();
        if let Some(mark) = mark {
            mark.step();
            // Who sees any of what follows sees the step.
            fence(Ordering::Release);
        }
        Change(mark)
    }

    /// The entry goes, or another one takes its place; before who holds the stripe takes it out.
    pub(super) fn retire(&self) {
        std::mem::forget(self.change());
    }

    /// The stamp of the last use by compiled code; 0 for none.
    pub(super) fn used(&self) -> u64 {
        self.mark().map_or(0, |mark| mark.used.load(Ordering::Relaxed))
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if let Some(mark) = self.0 {
            mark.step();
        }
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        let Some(mark) = self.mark() else { return };
        // Retired, or of a dictionary that is gone as a whole: with it everybody who could have looked at it.
        if mark.version() % 2.0 == 0.0 {
            mark.step();
        }
        mark.step();
        SPARE.lock().unwrap_or_else(PoisonError::into_inner).push(mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(marked: &Marked) -> Option<Version> {
        let version = marked.version();
        marked.confirm(version)
    }

    #[test]
    fn a_version_holds_until_the_next_change() {
        let marked = Marked::default();
        for _ in 0..ENOUGH {
            assert!(read(&marked).is_none());
        }
        assert!(marked.wants_mark());
        marked.give_mark();
        let seen = read(&marked).expect("it is read often");
        assert_eq!(seen.mark.version(), seen.version);
        let before = marked.version();
        let change = marked.change();
        assert!(marked.version().is_none(), "it changes");
        drop(change);
        assert!(marked.confirm(before).is_none(), "it was not read since, and is another one");
        assert_ne!(seen.mark.version(), seen.version);
        marked.retire();
        assert!(marked.version().is_none());
        let (mark, last) = (seen.mark, seen.mark.version());
        drop(marked);
        assert!(mark.version() > last, "the next entry's versions are others");
    }
}
