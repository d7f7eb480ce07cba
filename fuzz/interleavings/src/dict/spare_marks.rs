//! In place of `weir_lua::dict::spare_marks`: marks of one order, the last one given back first.

use std::cell::RefCell;

use crate::dict::mark::EntryMark;

thread_local! {
    static SPARE: RefCell<Vec<&'static EntryMark>> = RefCell::default();
}

pub(super) fn take() -> Option<&'static EntryMark> {
    let spare = SPARE.with_borrow_mut(Vec::pop);
    Some(spare.unwrap_or_else(|| Box::leak(Box::default())))
}

pub(super) fn give(mark: &'static EntryMark) {
    SPARE.with_borrow_mut(|spare| spare.push(mark));
}

/// An order is over: the next one has marks of its own.
pub(super) fn finish() {
    SPARE.take();
}
