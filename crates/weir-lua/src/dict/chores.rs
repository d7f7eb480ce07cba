//! Work that writers leave for another thread: a lock-free stack on which any thread pushes, and which is taken as a
//! whole.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Something to be done about a node.
pub(super) enum DictChore {
    /// It is new: it gets a place in the order. Its stamp, hash and number.
    Note(u64, u64, u64),
    /// It is gone: it leaves its chain. Its hash and number.
    Unlink(u64, u64),
}

/// See the module.
#[derive(Default)]
pub(super) struct ChoreStack(AtomicPtr<ChoreItem>);

struct ChoreItem {
    chore: DictChore,
    next: *mut ChoreItem,
}

impl ChoreStack {
    pub(super) fn push(&self, chore: DictChore) {
        let item = Box::into_raw(Box::new(ChoreItem { chore, next: ptr::null_mut() }));
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: it is this thread's until it is on the stack.
            unsafe { (*item).next = head };
            match self.0.compare_exchange_weak(head, item, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Ordering::SeqCst).is_null()
    }

    /// Takes all there are, the last one first.
    pub(super) fn take(&self) -> impl Iterator<Item = DictChore> + use<> {
        TakenChores(self.0.swap(ptr::null_mut(), Ordering::AcqRel))
    }
}

impl Drop for ChoreStack {
    fn drop(&mut self) {
        self.take().for_each(drop);
    }
}

/// Chores that belong to this thread alone.
struct TakenChores(*mut ChoreItem);

impl Iterator for TakenChores {
    type Item = DictChore;

    fn next(&mut self) -> Option<DictChore> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: made by `push`, and taken from the stack by no other thread: the stack is swapped as a whole.
        let item = unsafe { Box::from_raw(self.0) };
        self.0 = item.next;
        Some(item.chore)
    }
}

impl Drop for TakenChores {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_between_threads() {
        let chores = ChoreStack::default();
        let count = |chores: &ChoreStack| chores.take().count();
        let taken: usize = std::thread::scope(|scope| {
            let pushers: Vec<_> = (0..4)
                .map(|thread| {
                    scope.spawn({
                        let chores = &chores;
                        move || (0..5_000).for_each(|number| chores.push(DictChore::Unlink(thread, number)))
                    })
                })
                .collect();
            let mut taken = 0;
            while pushers.iter().any(|pusher| !pusher.is_finished()) {
                taken += count(&chores);
            }
            taken + count(&chores)
        });
        assert_eq!((taken, chores.is_empty()), (20_000, true));
        chores.push(DictChore::Note(1, 2, 3));
    }
}
