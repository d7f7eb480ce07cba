//! A part of a dictionary: chains of nodes that are read and written without a lock.
//!
//! A new node goes before the first of its chain, by a compare-and-exchange that fails when another has gone there since
//! the chain was looked through: so no key is there twice. A node that is gone stays in its chain, without a value, until
//! the thread that holds [`StripeOrder`] takes it out; no thread waits for that: one that finds it held leaves a
//! [chore](DictChore) for its holder.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use crossbeam_epoch::{Atomic, Guard, Shared};
use weir_rt::zone_memory::{ZoneBox, ZonePlace, ZoneSlice};

use crate::dict::chores::{ChoreStack, DictChore};
use crate::dict::node::{DictNode, FoundNode, defer_destroy, owned};
use crate::dict::value::is_over;

/// In cache lines of its own (two, which x86 fetches together): writers of other stripes do not touch them.
#[repr(align(128))]
pub(super) struct DictStripe {
    buckets: ZoneSlice<Atomic<DictNode>>,
    /// Where its nodes and their values are.
    pub(super) place: ZonePlace,
    order: Mutex<StripeOrder>,
    chores: ChoreStack,
    entries: AtomicUsize,
    /// Where the next portion begins that is swept because room is needed.
    pub(super) swept_to: AtomicUsize,
}

/// What came of sweeping a portion.
#[derive(Default)]
pub(super) struct SweptEntries {
    /// How many nodes have gone, and the bytes that their values counted for, with their keys.
    pub(super) count: usize,
    pub(super) size: u64,
    /// Where the next portion begins; `None` after the last.
    pub(super) next: Option<usize>,
}

/// So much is done before others have their turn: 128 nodes, each of which may be a miss of the cache or two and an
/// entry in the list of what is to be freed (150 ns at worst, 20 us), or 2,048 empty chains.
pub(super) const PORTION: usize = 128 * NODE;
const NODE: usize = 16;

/// Nodes by the stamps they had when that was last looked at, the oldest first; some have gone since.
#[derive(Default)]
pub(super) struct StripeOrder {
    heap: BinaryHeap<Reverse<(u64, u64, u64)>>,
}

/// The first node of a chain when that was looked through.
pub(super) struct ChainHead<'g>(Shared<'g, DictNode>);

impl DictStripe {
    /// One with this many chains, a power of two.
    pub(super) fn new(buckets: usize, place: ZonePlace) -> DictStripe {
        DictStripe {
            buckets: ZoneSlice::from_fn(buckets, place, |_| Atomic::null()),
            place,
            order: Mutex::default(),
            chores: ChoreStack::default(),
            entries: AtomicUsize::new(0),
            swept_to: AtomicUsize::new(0),
        }
    }

    /// The order, if no other thread has it; all that was to be done about it is done.
    pub(super) fn try_order(&self, guard: &Guard) -> Option<MutexGuard<'_, StripeOrder>> {
        let mut order = match self.order.try_lock() {
            Ok(order) => order,
            Err(TryLockError::Poisoned(order)) => order.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.work(&mut order, guard);
        Some(order)
    }

    /// Does what is to be done, or leaves it to the holder of the order.
    fn leave(&self, chore: DictChore, guard: &Guard) {
        match self.try_order(guard) {
            Some(mut order) => self.perform(&mut order, chore, guard),
            None => self.chores.push(chore),
        }
        // Another may have left something after the last look at it and before the order was free. Once: others that go
        // on leaving something may do it themselves.
        if !self.chores.is_empty() {
            drop(self.try_order(guard));
        }
    }

    fn work(&self, order: &mut StripeOrder, guard: &Guard) {
        if !self.chores.is_empty() {
            self.chores.take().for_each(|chore| self.perform(order, chore, guard));
        }
    }

    fn perform(&self, order: &mut StripeOrder, chore: DictChore, guard: &Guard) {
        match chore {
            DictChore::Note(stamp, hash, number) => {
                order.heap.push(Reverse((stamp, hash, number)));
                self.tidy(order, guard);
            }
            DictChore::Unlink(hash, number) => self.unlink(hash, number, guard),
        }
    }

    /// The address of its chains, and how many there are.
    pub(super) fn chains(&self) -> [u64; 2] {
        [self.buckets.address(), self.buckets.len() as u64]
    }

    /// How many entries there are.
    pub(super) fn entries(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    fn bucket(&self, hash: u64) -> &Atomic<DictNode> {
        &self.buckets[chain_of(hash, self.buckets.len())]
    }

    /// The entry of `key`, expired or not, and where it would go if it is absent.
    pub(super) fn find<'g>(
        &self,
        hash: u64,
        key: &[u8],
        guard: &'g Guard,
    ) -> (Option<FoundNode<'g>>, ChainHead<'g>) {
        let head = self.bucket(hash).load(Ordering::Acquire, guard);
        let mut next = head;
        // SAFETY: nodes are freed only after all guards that may have seen them are gone.
        while let Some(node) = unsafe { next.as_ref() } {
            if node.hash == hash
                && *node.key == *key
                && let Some(found) = node.found(guard)
            {
                return (Some(found), ChainHead(head));
            }
            next = node.next.load(Ordering::Acquire, guard);
        }
        (None, ChainHead(head))
    }

    /// Puts a node in, if its chain is as it was when nothing was [found](DictStripe::find) in it.
    pub(super) fn insert(&self, head: &ChainHead<'_>, node: DictNode, guard: &Guard) -> bool {
        let (hash, number, stamp) = (node.hash, node.number, node.used());
        node.next.store(head.0, Ordering::Relaxed);
        let node = Shared::from(ZoneBox::new(node, self.place).into_raw().cast_const());
        // Released: a thread that finds the node sees all of it.
        let done =
            self.bucket(hash).compare_exchange(head.0, node, Ordering::AcqRel, Ordering::Relaxed, guard);
        if done.is_err() {
            // SAFETY: no other thread has seen it.
            drop(unsafe { owned(node) });
            return false;
        }
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.leave(DictChore::Note(stamp, hash, number), guard);
        true
    }

    /// Takes an entry away that is as it was in `state`; the bytes that its value counted for. `None`: it is not.
    pub(super) fn remove(&self, found: &FoundNode<'_>, state: u64, guard: &Guard) -> Option<usize> {
        let size = found.remove(state, guard)?;
        self.entries.fetch_sub(1, Ordering::Relaxed);
        self.leave(DictChore::Unlink(found.node.hash, found.node.number), guard);
        Some(size)
    }

    /// Takes a node that is gone out of its chain, called by the holder of the order: no other thread takes nodes out.
    fn unlink(&self, hash: u64, number: u64, guard: &Guard) {
        loop {
            let mut link = self.bucket(hash);
            let mut is_head = true;
            let (node, next) = loop {
                let next = link.load(Ordering::Acquire, guard);
                // SAFETY: `guard` keeps what was loaded under it: nodes are freed after all guards that may have seen
                // them.
                let Some(node) = (unsafe { next.as_ref() }) else { return };
                if node.number == number {
                    break (next, node.next.load(Ordering::Relaxed, guard));
                }
                (link, is_head) = (&node.next, false);
            };
            // Only the first link is changed by others, which put nodes in.
            if is_head {
                let done = link.compare_exchange(node, next, Ordering::AcqRel, Ordering::Relaxed, guard);
                if done.is_err() {
                    continue;
                }
            } else {
                link.store(next, Ordering::Release);
            }
            // SAFETY: no new reader finds it; those that have hold a guard.
            return unsafe { defer_destroy(node, guard) };
        }
    }

    /// Takes expired entries away, `most` at most, of a portion of the chains, from `from` on.
    pub(super) fn remove_expired(&self, now: u64, most: usize, from: usize, guard: &Guard) -> SweptEntries {
        let mut swept = SweptEntries::default();
        let end = self.portion(from, guard, |found| {
            let (state, expires, _) = found.value.peek();
            if swept.count < most
                && is_over(expires, now)
                && let Some(size) = self.remove(&found, state, guard)
            {
                swept.size += crate::dict::counted(&found.node.key, size);
                swept.count += 1;
            }
        });
        SweptEntries { next: end, ..swept }
    }

    /// Makes the nodes of a portion of the chains expired, from `from` on; where the next portion begins.
    pub(super) fn expire(&self, from: usize, guard: &Guard) -> Option<usize> {
        self.portion(from, guard, |found| {
            let mut found = Some(found);
            // A value that is written at this moment may be the one before `flush_all` or the one after it; not so one
            // whose write was only begun.
            while let Some(entry) = found.filter(|entry| !entry.expire(1, self.place, guard)) {
                found = entry.node.found(guard);
            }
        })
    }

    /// Shows the entries of chains to `show`, until that is as much as may be done at a time; where to go on, if there are
    /// more.
    pub(super) fn portion<'g>(
        &self,
        from: usize,
        guard: &'g Guard,
        mut show: impl FnMut(FoundNode<'g>),
    ) -> Option<usize> {
        let mut work = 0;
        for (at, bucket) in self.buckets.iter().enumerate().skip(from) {
            if work >= PORTION {
                return Some(at);
            }
            work += 1;
            let mut next = bucket.load(Ordering::Acquire, guard);
            // SAFETY: `guard` keeps what was loaded under it: nodes are freed after all guards that may have seen them.
            while let Some(node) = unsafe { next.as_ref() } {
                work += NODE;
                if let Some(found) = node.found(guard) {
                    show(found);
                }
                next = node.next.load(Ordering::Acquire, guard);
            }
        }
        None
    }

    /// The node of that number, if it is not gone.
    fn numbered<'g>(&self, hash: u64, number: u64, guard: &'g Guard) -> Option<FoundNode<'g>> {
        let mut next = self.bucket(hash).load(Ordering::Acquire, guard);
        // SAFETY: `guard` keeps what was loaded under it: nodes are freed after all guards that may have seen them.
        while let Some(node) = unsafe { next.as_ref() } {
            if node.number == number {
                return node.found(guard);
            }
            next = node.next.load(Ordering::Acquire, guard);
        }
        None
    }

    /// The least used entry, and its stamp.
    pub(super) fn oldest<'g>(
        &self,
        order: &mut StripeOrder,
        guard: &'g Guard,
    ) -> Option<(u64, FoundNode<'g>)> {
        loop {
            let Reverse((noted, hash, number)) = *order.heap.peek()?;
            let Some(found) = self.numbered(hash, number, guard) else {
                order.heap.pop();
                continue;
            };
            let used = found.node.used();
            if used == noted {
                return Some((used, found));
            }
            // It was used since.
            order.heap.pop();
            order.heap.push(Reverse((used, hash, number)));
        }
    }

    /// An entry that was used longer ago than most, while another has the order: the oldest of the next few.
    pub(super) fn sample<'g>(&self, guard: &'g Guard) -> Option<(u64, FoundNode<'g>)> {
        let from = self.swept_to.load(Ordering::Relaxed);
        let mut oldest: Option<(u64, FoundNode<'g>)> = None;
        let mut consider = |found: FoundNode<'g>| {
            let used = found.node.used();
            if oldest.is_none_or(|(stamp, _)| used < stamp) {
                oldest = Some((used, found));
            }
        };
        let mut next = self.portion(from, guard, &mut consider);
        self.swept_to.store(next.unwrap_or(0), Ordering::Relaxed);
        if oldest.is_some() {
            return oldest;
        }
        // Few entries, all of them elsewhere.
        while let Some(from) = next {
            let mut consider = |found: FoundNode<'g>| oldest = oldest.or(Some((found.node.used(), found)));
            next = self.portion(from, guard, &mut consider).filter(|_| oldest.is_none());
        }
        oldest
    }

    /// Shows every entry, expired or not, until `show` says enough.
    pub(super) fn for_each<'g>(&self, guard: &'g Guard, mut show: impl FnMut(FoundNode<'g>) -> bool) {
        for bucket in self.buckets.iter() {
            let mut next: Shared<'_, DictNode> = bucket.load(Ordering::Acquire, guard);
            // SAFETY: `guard` keeps what was loaded under it: nodes are freed after all guards that may have seen them.
            while let Some(node) = unsafe { next.as_ref() } {
                if let Some(found) = node.found(guard)
                    && !show(found)
                {
                    return;
                }
                next = node.next.load(Ordering::Acquire, guard);
            }
        }
    }

    /// Makes the heap again when most of it has gone.
    fn tidy(&self, order: &mut StripeOrder, guard: &Guard) {
        if order.heap.len() > self.entries() * 2 + 64 {
            order.heap.clear();
            let heap = &mut order.heap;
            self.for_each(guard, |FoundNode { node, .. }| {
                heap.push(Reverse((node.used(), node.hash, node.number)));
                true
            });
        }
    }

    /// Holds the order, as a writer does that has lost its core.
    #[cfg(test)]
    pub(super) fn lock(&self) -> MutexGuard<'_, StripeOrder> {
        self.order.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// In which of so many chains, a power of two, nodes of that hash are.
pub(super) fn chain_of(hash: u64, chains: usize) -> usize {
    (hash >> 8) as usize & (chains - 1)
}

impl Drop for DictStripe {
    fn drop(&mut self) {
        // SAFETY: no other thread has the stripe.
        let guard = unsafe { crossbeam_epoch::unprotected() };
        for bucket in self.buckets.iter() {
            let mut next = bucket.load(Ordering::Relaxed, guard);
            // SAFETY: no other thread has the stripe, so no node of its chains is freed but below, after it was read.
            while let Some(node) = unsafe { next.as_ref() } {
                let following = node.next.load(Ordering::Relaxed, guard);
                // SAFETY: no other thread has the stripe, and each node is in one chain, so it is dropped once.
                drop(unsafe { owned(next) });
                next = following;
            }
        }
    }
}
