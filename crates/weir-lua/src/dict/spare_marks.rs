//! Marks of entries that have gone, for those that get one.

use std::sync::{Mutex, PoisonError, TryLockError};

use crate::dict::mark::EntryMark;

static SPARE: Mutex<Vec<&'static EntryMark>> = Mutex::new(Vec::new());

/// Marks that are made at once.
const BATCH: usize = 64;

/// A mark that no entry has; `None`: another thread uses the spare ones.
pub(super) fn take() -> Option<&'static EntryMark> {
    let mut spare = match SPARE.try_lock() {
        Ok(spare) => spare,
        Err(TryLockError::Poisoned(spare)) => spare.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    if spare.is_empty() {
        let batch: Box<[EntryMark]> = (0..BATCH).map(|_| EntryMark::default()).collect();
        spare.extend(Box::leak(batch).iter());
    }
    spare.pop()
}

/// The mark of an entry that is gone. Entries are dropped by whom the garbage comes to: a lock that is held for a push, not on
/// a request's way.
pub(super) fn give(mark: &'static EntryMark) {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner).push(mark);
}
