//! A part of a dictionary: chains of nodes that are read without a lock, and changed by who holds [`Stripe::lock`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crossbeam_epoch::{Atomic, Guard, Owned, Shared};
use weir_rt::{clock, sampler};

use super::node::Node;

pub(super) struct Stripe {
    buckets: Box<[Atomic<Node>]>,
    order: Mutex<Order>,
    /// One more than the number of the worker that locked it last.
    holder: AtomicU64,
    contention: Contention,
}

/// How writers got into one another's way.
#[derive(Default)]
pub(super) struct Contention {
    pub(super) waits: AtomicU64,
    /// Ticks, of all of them and of the longest.
    pub(super) waited: AtomicU64,
    pub(super) longest: AtomicU64,
    /// As [`Stripe::holder`], at the longest.
    pub(super) holder: AtomicU64,
}

/// What came of sweeping a portion.
#[derive(Default)]
pub(super) struct Swept {
    /// How many nodes have gone, and their size together.
    pub(super) count: usize,
    pub(super) size: u64,
    /// Where the next portion begins; `None` behind the last.
    pub(super) next: Option<usize>,
}

/// So much is done under a lock before others have their turn: 128 nodes, each of which may be a miss of the cache or
/// two and an entry in the list of what is to be freed (150 ns at worst, 20 us), or 2,048 empty chains.
pub(super) const PORTION: usize = 128 * NODE;
const NODE: usize = 16;

/// Nodes by the stamps they had when that was last looked at, the oldest first; some have gone since.
#[derive(Default)]
pub(super) struct Order {
    heap: BinaryHeap<Reverse<(u64, u64, u64)>>,
    count: usize,
    /// Where the next portion begins that is swept because room is needed.
    pub(super) swept_to: usize,
}

impl Stripe {
    /// One with so many chains, a power of two.
    pub(super) fn new(buckets: usize) -> Stripe {
        let buckets = (0..buckets).map(|_| Atomic::null()).collect();
        Stripe {
            buckets,
            order: Mutex::default(),
            holder: AtomicU64::new(0),
            contention: Contention::default(),
        }
    }

    /// What writers hold.
    pub(super) fn lock(&self) -> MutexGuard<'_, Order> {
        let order = match self.order.try_lock() {
            Ok(order) => order,
            Err(TryLockError::Poisoned(order)) => order.into_inner(),
            Err(TryLockError::WouldBlock) => self.wait(),
        };
        self.holder.store(u64::from(sampler::worker()) + 1, Ordering::Relaxed);
        order
    }

    /// Gives the node of `key` a mark, if nobody holds the lock.
    #[cold]
    pub(super) fn mark(&self, hash: u64, key: &[u8]) {
        if let Ok(order) = self.order.try_lock()
            && let Some(node) = self.find_held(&order, hash, key)
            && node.wants_mark()
        {
            node.marked.give_mark();
        }
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, Order> {
        let (holder, began) = (self.holder.load(Ordering::Relaxed), clock::ticks());
        let order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let ticks = clock::ticks().saturating_sub(began);
        let Contention { waits, waited, longest, holder: at_longest } = &self.contention;
        waits.fetch_add(1, Ordering::Relaxed);
        waited.fetch_add(ticks, Ordering::Relaxed);
        if longest.fetch_max(ticks, Ordering::Relaxed) < ticks {
            at_longest.store(holder, Ordering::Relaxed);
        }
        order
    }

    /// How many entries there are.
    pub(super) fn entries(&self) -> usize {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    pub(super) fn contention(&self) -> &Contention {
        &self.contention
    }

    fn bucket(&self, hash: u64) -> &Atomic<Node> {
        &self.buckets[(hash >> 8) as usize & (self.buckets.len() - 1)]
    }

    /// The node of `key`, expired or not.
    pub(super) fn find<'g>(&self, hash: u64, key: &[u8], guard: &'g Guard) -> Option<&'g Node> {
        self.seek(hash, guard, |node| *node.key == *key).map(|(_, node)| node)
    }

    /// As [`Stripe::find`], for who holds the lock: nobody else takes nodes out.
    pub(super) fn find_held<'o>(&'o self, _held: &'o Order, hash: u64, key: &[u8]) -> Option<&'o Node> {
        // SAFETY: nodes are freed behind being taken out, which the caller alone may do, with the order that is lent here.
        self.find(hash, key, unsafe { crossbeam_epoch::unprotected() })
    }

    /// The node of that hash that `is` it, and the pointer to it.
    fn seek<'g>(
        &self,
        hash: u64,
        guard: &'g Guard,
        is: impl Fn(&Node) -> bool,
    ) -> Option<(*const Atomic<Node>, &'g Node)> {
        let mut link = self.bucket(hash);
        loop {
            let next = link.load(Ordering::Acquire, guard);
            // SAFETY: nodes are freed only after all guards that may have seen them are gone.
            let node = unsafe { next.as_ref() }?;
            if node.hash == hash && is(node) {
                return Some((link, node));
            }
            link = &node.next;
        }
    }

    /// Puts a node in, at the place of the one of its key: a reader finds one or the other. The size of that one.
    pub(super) fn put(&self, order: &mut Order, mut node: Node, guard: &Guard) -> Option<u64> {
        let (hash, found) = (node.hash, self.seek(node.hash, guard, |other| other.key == node.key));
        let Some((link, before)) = found else {
            order.heap.push(Reverse((node.used(), hash, node.number)));
            order.count += 1;
            let bucket = self.bucket(hash);
            node.next.store(bucket.load(Ordering::Relaxed, guard), Ordering::Relaxed);
            // Released: who finds the node sees all of it.
            bucket.store(Owned::new(node), Ordering::Release);
            self.tidy(order, guard);
            return None;
        };
        // With the number the place in the heap passes on; that it was used since is seen there.
        node.number = before.number;
        node.next.store(before.next.load(Ordering::Relaxed, guard), Ordering::Relaxed);
        let size = before.size.load(Ordering::Relaxed);
        before.marked.retire();
        // SAFETY: as in `unlink`.
        let link = unsafe { &*link };
        let gone = link.swap(Owned::new(node), Ordering::Release, guard);
        // SAFETY: as in `unlink`.
        unsafe { guard.defer_destroy(gone) };
        Some(size)
    }

    /// Takes the node of `key` out; its size.
    pub(super) fn remove(&self, order: &mut Order, hash: u64, key: &[u8], guard: &Guard) -> Option<u64> {
        let (link, node) = self.seek(hash, guard, |node| *node.key == *key)?;
        Some(self.unlink(order, link, node, guard))
    }

    fn unlink(&self, order: &mut Order, link: *const Atomic<Node>, node: &Node, guard: &Guard) -> u64 {
        // SAFETY: the link is a bucket, or in a node that is in its chain: only who holds the lock takes nodes out.
        let link = unsafe { &*link };
        let shared = link.load(Ordering::Relaxed, guard);
        node.marked.retire();
        link.store(node.next.load(Ordering::Relaxed, guard), Ordering::Release);
        order.count -= 1;
        let size = node.size.load(Ordering::Relaxed);
        // SAFETY: no new reader finds it; those that have hold a guard.
        unsafe { guard.defer_destroy(shared) };
        size
    }

    /// Takes out expired nodes, `most` at most, of a portion of the chains, from `from` on.
    pub(super) fn remove_expired(
        &self,
        order: &mut Order,
        now: u64,
        most: usize,
        from: usize,
        guard: &Guard,
    ) -> Swept {
        let mut swept = Swept::default();
        let end = self.portion(from, |bucket| {
            let mut link: *const Atomic<Node> = bucket;
            let mut seen = 0;
            loop {
                // SAFETY: as in `unlink`.
                let next = unsafe { &*link }.load(Ordering::Relaxed, guard);
                // SAFETY: as in `seek`.
                let Some(node) = (unsafe { next.as_ref() }) else { return seen };
                seen += 1;
                if swept.count < most && node.is_expired(now) {
                    swept.size += self.unlink(order, link, node, guard);
                    swept.count += 1;
                } else {
                    link = &node.next;
                }
            }
        });
        Swept { next: end, ..swept }
    }

    /// Makes the nodes of a portion of the chains expired, from `from` on; where the next portion begins.
    pub(super) fn expire(&self, _held: &mut Order, from: usize, guard: &Guard) -> Option<usize> {
        self.portion(from, |bucket| {
            let mut seen = 0;
            let mut next = bucket.load(Ordering::Acquire, guard);
            // SAFETY: as in `seek`.
            while let Some(node) = unsafe { next.as_ref() } {
                node.expire(1);
                seen += 1;
                next = node.next.load(Ordering::Acquire, guard);
            }
            seen
        })
    }

    /// Shows chains to `sweep`, which says how many nodes they have, until that is as much as may be done while others wait for
    /// the lock; where to go on, if there are more.
    pub(super) fn portion(
        &self,
        from: usize,
        mut sweep: impl FnMut(&Atomic<Node>) -> usize,
    ) -> Option<usize> {
        let mut work = 0;
        for (at, bucket) in self.buckets.iter().enumerate().skip(from) {
            if work >= PORTION {
                return Some(at);
            }
            work += 1 + sweep(bucket) * NODE;
        }
        None
    }

    /// The stamp of the least used node.
    pub(super) fn oldest(&self, order: &mut Order, guard: &Guard) -> Option<u64> {
        loop {
            let Reverse((noted, hash, number)) = *order.heap.peek()?;
            let Some((_, node)) = self.seek(hash, guard, |node| node.number == number) else {
                order.heap.pop();
                continue;
            };
            let used = node.used();
            if used == noted {
                return Some(used);
            }
            // It was used since.
            order.heap.pop();
            order.heap.push(Reverse((used, hash, number)));
        }
    }

    /// Takes the least used node out; its size.
    pub(super) fn remove_oldest(&self, order: &mut Order, guard: &Guard) -> Option<u64> {
        self.oldest(order, guard)?;
        let Reverse((_, hash, number)) = order.heap.pop()?;
        let (link, node) = self.seek(hash, guard, |node| node.number == number)?;
        Some(self.unlink(order, link, node, guard))
    }

    /// Shows every node, expired or not, until `show` says enough.
    pub(super) fn for_each(&self, guard: &Guard, mut show: impl FnMut(&Node) -> bool) {
        for bucket in &self.buckets {
            let mut next: Shared<'_, Node> = bucket.load(Ordering::Acquire, guard);
            // SAFETY: as in `seek`.
            while let Some(node) = unsafe { next.as_ref() } {
                if !show(node) {
                    return;
                }
                next = node.next.load(Ordering::Acquire, guard);
            }
        }
    }

    /// How many nodes a chain has.
    #[cfg(test)]
    pub(super) fn nodes(&self, bucket: &Atomic<Node>, guard: &Guard) -> usize {
        let mut next = bucket.load(Ordering::Acquire, guard);
        let mut count = 0;
        // SAFETY: as in `seek`.
        while let Some(node) = unsafe { next.as_ref() } {
            count += 1;
            next = node.next.load(Ordering::Acquire, guard);
        }
        count
    }

    /// Makes the heap anew when most of it has gone.
    fn tidy(&self, order: &mut Order, guard: &Guard) {
        if order.heap.len() > order.count * 2 + 64 {
            order.heap.clear();
            let heap = &mut order.heap;
            self.for_each(guard, |node| {
                heap.push(Reverse((node.used(), node.hash, node.number)));
                true
            });
        }
    }
}

impl Drop for Stripe {
    fn drop(&mut self) {
        // SAFETY: nobody else has the stripe.
        let guard = unsafe { crossbeam_epoch::unprotected() };
        for bucket in &self.buckets {
            let mut next = bucket.load(Ordering::Relaxed, guard);
            // SAFETY: as above; each node is in one chain.
            while let Some(node) = unsafe { next.as_ref() } {
                let following = node.next.load(Ordering::Relaxed, guard);
                // SAFETY: as above.
                drop(unsafe { next.into_owned() });
                next = following;
            }
        }
    }
}
