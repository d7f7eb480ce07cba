//! Entries: keys that stay as they were made, and values that are exchanged.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_epoch::{Atomic, Guard, Shared};
use weir_rt::zone_memory::{ZoneBox, ZonePlace, ZoneSlice};

use crate::dict::NewValue;
use crate::dict::mark::MarkState;
use crate::dict::value::{EntryValue, ListValue, LongTextValue};
use crate::luajit::shared_page::renewed;

/// An entry. Key and number stay as they were made. Laid out as [`crate::dict::survivors`] reads it.
#[repr(C)]
pub(super) struct DictNode {
    pub(super) hash: u64,
    pub(super) key: ZoneSlice<u8>,
    /// Null once the entry is gone; it never comes back.
    pub(super) value: Atomic<EntryValue>,
    /// How compiled code sees whether the value is still the same.
    pub(super) marked: MarkState,
    /// The stamp of its last use, but for those by compiled code.
    pub(super) used: AtomicU64,
    /// Distinguishes it from others that had its key.
    pub(super) number: u64,
    /// The next of the chain; changed by the thread that holds the stripe's order.
    pub(super) next: Atomic<DictNode>,
}

/// An entry that is there, with the value that it had when it was found.
#[derive(Clone, Copy)]
pub(super) struct FoundNode<'g> {
    pub(super) node: &'g DictNode,
    pub(super) value: &'g EntryValue,
    pointer: Shared<'g, EntryValue>,
}

/// What an entry gets.
pub(super) struct NodeChange<'v> {
    pub(super) value: NewValue<'v>,
    pub(super) flags: u32,
    /// Milliseconds, or [`crate::dict::NEVER`].
    pub(super) expires: u64,
}

impl DictNode {
    /// A node with no stamp and no place in a chain yet.
    pub(super) fn new(
        hash: u64,
        key: &[u8],
        change: &NodeChange<'_>,
        number: u64,
        place: ZonePlace,
    ) -> DictNode {
        let value = EntryValue::new(&change.value, change.flags, change.expires, place);
        let value = Atomic::from(ZoneBox::new(value, place).into_raw().cast_const());
        let (used, marked, next) = (AtomicU64::new(0), MarkState::default(), Atomic::null());
        DictNode { hash, key: ZoneSlice::copy(key, place), value, marked, used, number, next }
    }

    /// What it holds; `None`: it is gone.
    pub(super) fn found<'g>(&'g self, guard: &'g Guard) -> Option<FoundNode<'g>> {
        let pointer = self.value.load(Ordering::Acquire, guard);
        // SAFETY: values are freed only after all guards that may have seen them are gone.
        let value = unsafe { pointer.as_ref() }?;
        Some(FoundNode { node: self, value, pointer })
    }

    /// Notes its last use.
    pub(super) fn use_at(&self, stamp: u64) {
        self.used.store(stamp, Ordering::Relaxed);
    }

    /// Notes that it is used now, where that makes a difference to the order of use.
    pub(super) fn touch(&self, now: u64) {
        if let Some(stamp) = renewed(now, self.used()) {
            self.use_at(stamp);
        }
    }

    /// The stamp of its last use.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed).max(self.marked.used())
    }
}

impl Drop for DictNode {
    fn drop(&mut self) {
        // SAFETY: no other thread has the node any more.
        let value = unsafe { self.value.load(Ordering::Relaxed, crossbeam_epoch::unprotected()) };
        if !value.is_null() {
            // SAFETY: no other thread has the node any more, and it owns what it points to.
            drop(unsafe { owned(value) });
        }
    }
}

/// The owner of what a shared pointer is to.
///
/// # Safety
/// It was made as a [`ZoneBox`], and no other thread has it.
pub(super) unsafe fn owned<T>(shared: Shared<'_, T>) -> ZoneBox<T> {
    // SAFETY: by the caller's word.
    unsafe { ZoneBox::from_raw(shared.as_raw().cast_mut()) }
}

/// Destroys what a shared pointer is to when no guard is left that may have seen it.
///
/// # Safety
/// It was made as a [`ZoneBox`], no new reader finds it, and this is called once.
pub(super) unsafe fn defer_destroy<T>(shared: Shared<'_, T>, guard: &Guard) {
    let value = shared.as_raw().cast_mut();
    // SAFETY: by the caller's word; then no other thread has it. What is deferred is one pointer, and what it is to may be
    // dropped by any thread.
    unsafe { guard.defer_unchecked(move || drop(ZoneBox::from_raw(value))) };
}

impl FoundNode<'_> {
    /// Changes the value that it had in `state`; the bytes that the one before counted for. `None`: it is another one, or in
    /// another state, by now.
    pub(super) fn change(
        &self,
        state: u64,
        change: &NodeChange<'_>,
        place: ZonePlace,
        guard: &Guard,
    ) -> Option<usize> {
        let NodeChange { value, flags, expires } = change;
        if let EntryValue::Small(small) = self.value {
            if small.holds(state, value, *flags, *expires) {
                return Some(value.size());
            }
            if small.takes(value) && small.claim(state) {
                let (_, _, before) = small.peek();
                self.node.marked.change();
                return small.finish(state, value, *flags, *expires).then_some(before);
            }
        }
        // It does not fit, or another writer is in the middle of a change, and it is unknown when it will go on.
        if !self.value.seal(state) {
            return None;
        }
        self.node.marked.change();
        let next = ZoneBox::new(EntryValue::new(value, *flags, *expires, place), place);
        self.exchange(Shared::from(next.into_raw().cast_const()), guard)
    }

    /// Makes it expire at another time; `false`: as [`FoundNode::change`].
    pub(super) fn expire(&self, expires: u64, place: ZonePlace, guard: &Guard) -> bool {
        match self.value {
            EntryValue::Small(_) => {
                let mut scratch = [0; crate::dict::SMALL];
                let glimpse = self.value.read(&mut scratch);
                let Some(value) = NewValue::of(glimpse.seen) else { return false };
                let change = NodeChange { value, flags: glimpse.flags, expires };
                self.change(glimpse.state, &change, place, guard).is_some()
            }
            EntryValue::Text(LongTextValue { expires: at, .. }) => {
                at.store(expires, Ordering::Relaxed);
                true
            }
            // Exchanged, too: another may be putting a longer list in its place.
            EntryValue::List(ListValue { items, flags, .. }) => {
                let change = NodeChange { value: NewValue::List(items.clone()), flags: *flags, expires };
                self.change(self.value.peek().0, &change, place, guard).is_some()
            }
        }
    }

    /// Takes the entry away, whose value is in `state`; as [`FoundNode::change`].
    pub(super) fn remove(&self, state: u64, guard: &Guard) -> Option<usize> {
        if !self.value.seal(state) {
            return None;
        }
        self.node.marked.change();
        self.exchange(Shared::null(), guard)
    }

    fn exchange(&self, next: Shared<'_, EntryValue>, guard: &Guard) -> Option<usize> {
        let node = &self.node.value;
        let done = node.compare_exchange(self.pointer, next, Ordering::AcqRel, Ordering::Relaxed, guard);
        if done.is_err() {
            if !next.is_null() {
                // SAFETY: no other thread has seen it.
                drop(unsafe { owned(next) });
            }
            return None;
        }
        let (_, _, before) = self.value.peek();
        // SAFETY: no new reader finds it; those that have hold a guard.
        unsafe { defer_destroy(self.pointer, guard) };
        Some(before)
    }
}
