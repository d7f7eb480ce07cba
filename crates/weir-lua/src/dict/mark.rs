//! Marks of entries that are read again and again: how compiled Lua sees, without a call, that a value it has is still
//! the entry's.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::dict::spare_marks;

/// A version and a stamp; `struct weir_mark` of the prelude. Marks are never freed, only given to other entries, with
/// a version that none had before: so a caller that keeps one with its version may look at it for ever. Both are the
/// bits of numbers of Lua's. In a cache line of its own (two, which x86 fetches together): workers that read one entry
/// are not disturbed by writers of another.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct EntryMark {
    /// Grows with every change of its entry, after the writer has begun and before any thread can see the new value: a
    /// reader it, and then a value [in no writer's hands](crate::dict::value::ValueGlimpse::is_quiet), has the value of
    /// that version.
    version: AtomicU64,
    /// The stamp of the last use by compiled code.
    used: AtomicU64,
}

/// The mark of a node, once it has one, and how often it was read since its value changed.
#[derive(Default)]
pub(super) struct MarkState {
    mark: AtomicPtr<EntryMark>,
    reads: AtomicU64,
}

/// What a value was read with: it is the entry's as long as the mark has this version.
#[derive(Clone, Copy)]
pub(crate) struct MarkVersion {
    pub(crate) mark: &'static EntryMark,
    pub(crate) version: f64,
}

/// Reads of the same value before the next one is worth remembering.
const ENOUGH: u64 = 2;

impl EntryMark {
    fn version(&self) -> f64 {
        f64::from_bits(self.version.load(Ordering::Acquire))
    }

    fn step(&self) {
        let next = |version| Some((f64::from_bits(version) + 1.0).to_bits());
        // It never refuses.
        let _ = self.version.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
    }
}

#[cfg(test)]
impl MarkVersion {
    /// Whether what was read with it is still the entry's, as compiled Lua asks.
    pub(super) fn holds(&self) -> bool {
        self.mark.version() == self.version
    }
}

impl MarkState {
    fn mark(&self) -> Option<&'static EntryMark> {
        // SAFETY: null, or a mark, which is never freed.
        unsafe { self.mark.load(Ordering::Acquire).as_ref() }
    }

    /// Before a value is read.
    pub(super) fn version(&self) -> Option<MarkVersion> {
        let mark = self.mark()?;
        Some(MarkVersion { mark, version: mark.version() })
    }

    /// The value that was read in no writer's hands is that of `version`, if it is read often enough to be remembered.
    pub(super) fn confirm(&self, version: Option<MarkVersion>) -> Option<MarkVersion> {
        let reads = self.reads.load(Ordering::Relaxed);
        if reads < ENOUGH {
            self.reads.store(reads + 1, Ordering::Relaxed);
            return None;
        }
        version
    }

    /// Whether it is read often enough for a mark that it does not have.
    pub(super) fn wants_mark(&self) -> bool {
        self.reads.load(Ordering::Relaxed) == ENOUGH && self.mark().is_none()
    }

    /// Gives it a mark, unless another thread does or uses the spare ones: the next reader tries again.
    #[cold]
    pub(super) fn give_mark(&self) {
        let Some(mark) = spare_marks::take() else { return };
        mark.used.store(0, Ordering::Relaxed);
        let given = std::ptr::from_ref(mark).cast_mut();
        let null = std::ptr::null_mut();
        if self.mark.compare_exchange(null, given, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            spare_marks::give(mark);
        }
    }

    /// The value changes, or goes: called by the writer that has begun the change, before any thread sees the result.
    pub(super) fn change(&self) {
        if self.reads.load(Ordering::Relaxed) != 0 {
            self.reads.store(0, Ordering::Relaxed);
        }
        if let Some(mark) = self.mark() {
            mark.step();
        }
    }

    /// The stamp of the last use by compiled code; 0 for none.
    pub(super) fn used(&self) -> u64 {
        self.mark().map_or(0, |mark| mark.used.load(Ordering::Relaxed))
    }
}

impl Drop for MarkState {
    fn drop(&mut self) {
        let Some(mark) = self.mark() else { return };
        mark.step();
        spare_marks::give(mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(marked: &MarkState) -> Option<MarkVersion> {
        let version = marked.version();
        marked.confirm(version)
    }

    #[test]
    fn a_version_holds_until_the_next_change() {
        let marked = MarkState::default();
        for _ in 0..ENOUGH {
            assert!(read(&marked).is_none());
        }
        assert!(marked.wants_mark());
        marked.give_mark();
        let seen = read(&marked).expect("it is read often");
        assert_eq!(seen.mark.version(), seen.version);
        marked.change();
        assert!(read(&marked).is_none(), "it was not read since");
        assert_ne!(seen.mark.version(), seen.version);
        let (mark, last) = (seen.mark, seen.mark.version());
        drop(marked);
        assert!(mark.version() > last, "the next entry's versions are others");
    }
}
