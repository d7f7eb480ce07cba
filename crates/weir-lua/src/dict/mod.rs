//! Shared dictionaries (`lua_shared_dict`): one for all workers, kept over reloads.
//!
//! **A read takes no lock.** Entries are nodes in chains of atomic pointers; a reader follows them under an epoch
//! ([`crossbeam_epoch`]), and what a writer takes out is freed when no reader can see it any more. Writers hold the
//! stripe of the key. A short value is exchanged in its node ([`node`]), any other with it. That a key was read is a plain store of the reader's own stamp into the node, which grows with
//! the time and with each read of that worker: so the order of use is exact as one worker sees it, and approximate
//! across workers. Who needs room takes the least used node of all stripes, found by a heap of stamps that is set right
//! where it is looked at.
//!
//! A node that is read again and again while its value stays gets a [`mark`], by which compiled Lua sees that what it has
//! read before still holds: such a read, and a write of what is there, never come here.

pub(crate) mod call;
mod mark;
mod node;
mod stripe;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_epoch as epoch;
use weir_core::file::hash::hash;
use weir_core::zone::{Store, Usage};
use weir_rt::clock;

use crate::glance::{now, stamp};
pub(crate) use mark::{Mark, Version};
use node::{Node, is_over};
pub(crate) use node::{SMALL, Scratch};
use stripe::{Contention, Stripe};

/// A value to be stored.
pub(crate) enum New<'v> {
    Text(&'v [u8]),
    Number(f64),
    Boolean(bool),
    /// Of texts and numbers, from left to right.
    List(VecDeque<Item>),
}

/// A value that is there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Seen<'v> {
    Text(&'v [u8]),
    Number(f64),
    Boolean(bool),
    /// See [`Dict::with_list`].
    List,
}

/// What belongs to a value that was read.
#[derive(Clone, Copy)]
pub(crate) struct About {
    pub(crate) flags: u32,
    /// Milliseconds of [`now`]; 0 for never.
    pub(crate) expires: u64,
    pub(crate) expired: bool,
    /// What says whether it is still so, where that was asked often.
    pub(crate) version: Option<Version>,
}

/// An element of a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Item {
    Text(Box<[u8]>),
    Number(f64),
}

/// When a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    /// `add`
    Absent,
    /// `replace`
    Present,
}

impl When {
    /// By the number that the prelude has for it.
    pub(crate) fn of(number: u64) -> When {
        match number {
            0 => When::Always,
            1 => When::Absent,
            _ => When::Present,
        }
    }
}

/// What came of storing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// It is there; `true`: others that had not expired have gone for it.
    Yes(bool),
    Exists,
    NotFound,
    /// It does not fit; `true`: others have gone all the same.
    NoMemory(bool),
}

/// See the module.
pub(crate) struct Dict {
    stripes: Box<[Stripe]>,
    capacity: u64,
    used: AtomicU64,
    /// How often there was no room.
    full: AtomicU64,
    /// Numbers of nodes.
    numbers: AtomicU64,
    /// Some entry was given a time to live, or made expired.
    expires: AtomicBool,
}

/// See [`Dict::told`].
pub(crate) struct Told {
    /// Bytes.
    pub(crate) capacity: u64,
    pub(crate) used: u64,
    /// How often there was no room.
    pub(crate) full: u64,
    pub(crate) entries: u64,
    /// How often a writer waited for another one, for how long in sum and at most, and which worker held it then.
    pub(crate) waits: u64,
    pub(crate) waited_ns: u64,
    pub(crate) longest_ns: u64,
    pub(crate) holder: Option<u64>,
}

/// How many stripes a dictionary has.
const STRIPES: usize = 16;
/// What an entry costs beside key and value: its node, its place in a chain and in the heap.
const OVERHEAD: u64 = 128;
/// Milliseconds of a time that is never.
const NEVER: u64 = 0;

impl Store for Dict {
    fn usage(&self) -> Usage {
        let [used, full] = [&self.used, &self.full].map(|count| count.load(Ordering::Relaxed));
        Usage { used, size: self.capacity, full }
    }
}

impl Dict {
    /// An empty dictionary of `capacity` bytes.
    pub(crate) fn new(capacity: u64) -> Dict {
        let buckets = (capacity as usize / 256 / STRIPES).next_power_of_two().clamp(16, 1 << 18);
        Dict {
            stripes: (0..STRIPES).map(|_| Stripe::new(buckets)).collect(),
            capacity,
            used: AtomicU64::new(0),
            full: AtomicU64::new(0),
            numbers: AtomicU64::new(1),
            expires: AtomicBool::new(false),
        }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes that are free, in whole pages.
    pub(crate) fn free_space(&self) -> u64 {
        self.capacity.saturating_sub(self.used.load(Ordering::Relaxed)) / 4096 * 4096
    }

    /// What who looks from outside is told.
    pub(crate) fn told(&self) -> Told {
        let Usage { used, size, full } = self.usage();
        let of = |of: fn(&Contention) -> &AtomicU64| {
            self.stripes.iter().map(move |stripe| of(stripe.contention()).load(Ordering::Relaxed))
        };
        let longest = self.stripes.iter().map(Stripe::contention);
        let longest = longest.max_by_key(|contention| contention.longest.load(Ordering::Relaxed));
        let holder = longest.and_then(|contention| contention.holder.load(Ordering::Relaxed).checked_sub(1));
        let ns = |ticks| clock::scale().ticks_to_ns(ticks);
        Told {
            capacity: size,
            used,
            full,
            entries: self.stripes.iter().map(|stripe| stripe.entries() as u64).sum(),
            waits: of(|contention| &contention.waits).sum(),
            waited_ns: ns(of(|contention| &contention.waited).sum()),
            longest_ns: ns(of(|contention| &contention.longest).max().unwrap_or(0)),
            holder,
        }
    }

    fn stripe(&self, hash: u64) -> &Stripe {
        &self.stripes[hash as usize % STRIPES]
    }

    /// Looks at the value of `key`, and what belongs to it; without a lock. A text of up to [`SMALL`] bytes stands in
    /// `scratch`, where it stays.
    pub(crate) fn get<T>(
        &self,
        key: &[u8],
        scratch: &mut Scratch,
        look: impl FnOnce(Seen<'_>, About) -> T,
    ) -> Option<T> {
        let hash = hash(key);
        let guard = epoch::pin();
        let stripe = self.stripe(hash);
        let node = stripe.find(hash, key, &guard)?;
        let before = node.marked.version();
        let (value, flags, expires) = node.read(scratch);
        let version = node.marked.confirm(before);
        let now = now();
        let expired = is_over(expires, now);
        if !expired {
            node.use_at(stamp(now));
            if node.wants_mark() {
                stripe.mark(hash, key);
            }
        }
        Some(look(value, About { flags, expires, expired, version }))
    }

    /// Stores a value for `ttl` milliseconds (0: for ever). `evict`: others may go for it.
    pub(crate) fn set(
        &self,
        key: &[u8],
        value: New<'_>,
        ttl: u64,
        flags: u32,
        when: When,
        evict: bool,
    ) -> Stored {
        let hash = hash(key);
        let stripe = self.stripe(hash);
        let size = OVERHEAD + (key.len() + value.size()) as u64;
        let mut forced = false;
        loop {
            let mut locked = stripe.lock();
            let node = stripe.find_held(&locked, hash, key);
            let now = now();
            let living = node.is_some_and(|node| !node.is_expired(now));
            match when {
                When::Absent if living => return Stored::Exists,
                When::Present if !living => return Stored::NotFound,
                _ => {}
            }
            let before = node.map_or(0, |node| node.size.load(Ordering::Relaxed));
            if self.fits(size, before) {
                let expires = self.expiry(ttl, now);
                if !node.is_some_and(|node| self.exchange(node, &value, flags, (expires, now), size)) {
                    let node = Node::new(hash, key, value, flags, expires, size, self.number());
                    self.put(stripe, &mut locked, node, &epoch::pin());
                }
                return Stored::Yes(forced);
            }
            drop(locked);
            let guard = epoch::pin();
            let (made, others) = self.make_room(size.saturating_sub(before), evict, &guard);
            forced |= others;
            if !made {
                // What was there is no more, as in OpenResty.
                self.gone(stripe.remove(&mut stripe.lock(), hash, key, &guard));
                return Stored::NoMemory(forced);
            }
        }
    }

    /// Gives a node another value in place of its own, for which there is room, if that fits there.
    fn exchange(
        &self,
        node: &Node,
        value: &New<'_>,
        flags: u32,
        (expires, now): (u64, u64),
        size: u64,
    ) -> bool {
        if !node.exchange(value, flags, expires) {
            return false;
        }
        node.use_at(stamp(now));
        let before = node.size.load(Ordering::Relaxed);
        if size != before {
            node.size.store(size, Ordering::Relaxed);
            // Also what is less: the sum wraps.
            self.used.fetch_add(size.wrapping_sub(before), Ordering::Relaxed);
        }
        true
    }

    /// Puts a node in, for which there is room.
    fn put(&self, stripe: &Stripe, locked: &mut stripe::Order, node: Node, guard: &epoch::Guard) {
        node.use_at(stamp(now()));
        self.used.fetch_add(node.size.load(Ordering::Relaxed), Ordering::Relaxed);
        self.gone(stripe.put(locked, node, guard));
    }

    /// Whether there is room for `size` bytes in the place of `before`.
    fn fits(&self, size: u64, before: u64) -> bool {
        self.used.load(Ordering::Relaxed) + size <= self.capacity + before
    }

    /// When what lives for `ttl` milliseconds from now on expires.
    fn expiry(&self, ttl: u64, now: u64) -> u64 {
        if ttl == 0 {
            return NEVER;
        }
        if !self.expires.load(Ordering::Relaxed) {
            self.expires.store(true, Ordering::Relaxed);
        }
        now.saturating_add(ttl)
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn gone(&self, size: Option<u64>) {
        if let Some(size) = size {
            self.used.fetch_sub(size, Ordering::Relaxed);
        }
    }

    /// Whether `size` bytes fit, after expired entries have gone, and, with `evict`, the least used ones; and whether any
    /// of the latter has.
    fn make_room(&self, size: u64, evict: bool, guard: &epoch::Guard) -> (bool, bool) {
        let (made, forced) = self.try_room(size, evict, guard);
        if forced || !made {
            self.full.fetch_add(1, Ordering::Relaxed);
        }
        (made, forced)
    }

    fn try_room(&self, size: u64, evict: bool, guard: &epoch::Guard) -> (bool, bool) {
        let fits = || self.fits(size, 0);
        let mut forced = false;
        if fits() {
            return (true, false);
        }
        if self.expires.load(Ordering::Relaxed) {
            self.remove_some_expired(!evict, guard);
        }
        while !fits() {
            if !evict || size > self.capacity || !self.evict(guard) {
                return (false, forced);
            }
            forced = true;
        }
        (true, forced)
    }

    /// Takes out expired entries: all, or those of the next portion of each stripe, which in a dictionary of up to 2,000
    /// entries are all as well. In a larger one others may go before some that have expired, as in OpenResty: a `set`
    /// must not look at every entry.
    fn remove_some_expired(&self, all: bool, guard: &epoch::Guard) {
        self.sweep(|stripe, from| {
            let mut locked = stripe.lock();
            let from = if all { from } else { locked.swept_to };
            let swept = stripe.remove_expired(&mut locked, now(), usize::MAX, from, guard);
            locked.swept_to = swept.next.unwrap_or(0);
            self.gone(Some(swept.size));
            swept.next.filter(|_| all)
        });
    }

    /// Takes out the least used entry of all; `false` when there is none.
    fn evict(&self, guard: &epoch::Guard) -> bool {
        let oldest = self.stripes.iter().filter_map(|stripe| {
            let mut locked = stripe.lock();
            Some((stripe.oldest(&mut locked, guard)?, stripe))
        });
        let Some((_, stripe)) = oldest.min_by_key(|(stamp, _)| *stamp) else { return false };
        let mut locked = stripe.lock();
        let size = stripe.remove_oldest(&mut locked, guard);
        self.gone(size);
        // When another worker was faster, there is room too.
        true
    }

    /// Removes `key`.
    pub(crate) fn delete(&self, key: &[u8]) {
        let (hash, guard) = (hash(key), epoch::pin());
        let stripe = self.stripe(hash);
        let mut locked = stripe.lock();
        self.gone(stripe.remove(&mut locked, hash, key, &guard));
    }

    /// Changes the value of `key` under its stripe's lock. `change` is given the living value, if there is one, and says
    /// what to store instead and for how long, if that changes; it is asked again when room had to be made meanwhile.
    pub(crate) fn update<T>(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<Seen<'_>>) -> Result<(New<'static>, Option<u64>), T>,
    ) -> Result<Stored, T> {
        let hash = hash(key);
        let stripe = self.stripe(hash);
        let mut forced = false;
        loop {
            let mut locked = stripe.lock();
            let (there, now, mut scratch) = (stripe.find_held(&locked, hash, key), now(), [0; SMALL]);
            let living = there.filter(|node| !node.is_expired(now)).map(|node| node.read(&mut scratch));
            let (flags, expires) = living.map_or((0, NEVER), |(_, flags, expires)| (flags, expires));
            let (value, ttl) = change(living.map(|(value, ..)| value))?;
            let size = OVERHEAD + (key.len() + value.size()) as u64;
            let before = there.map_or(0, |node| node.size.load(Ordering::Relaxed));
            if self.fits(size, before) {
                let expires = match ttl {
                    Some(ttl) => self.expiry(ttl, now),
                    None => expires,
                };
                if !there.is_some_and(|node| self.exchange(node, &value, flags, (expires, now), size)) {
                    let node = Node::new(hash, key, value, flags, expires, size, self.number());
                    self.put(stripe, &mut locked, node, &epoch::pin());
                }
                return Ok(Stored::Yes(forced));
            }
            drop(locked);
            let guard = epoch::pin();
            let (made, others) = self.make_room(size.saturating_sub(before), true, &guard);
            forced |= others;
            if !made {
                self.gone(stripe.remove(&mut stripe.lock(), hash, key, &guard));
                return Ok(Stored::NoMemory(forced));
            }
        }
    }

    /// Looks at the living list of `key` and changes it; an empty one goes. The outer `None`: there is nothing;
    /// the inner: it is no list.
    pub(crate) fn with_list<T>(
        &self,
        key: &[u8],
        change: impl FnOnce(&mut VecDeque<Item>) -> T,
    ) -> Option<Option<T>> {
        let (hash, guard) = (hash(key), epoch::pin());
        let stripe = self.stripe(hash);
        let mut locked = stripe.lock();
        let node = stripe.find(hash, key, &guard).filter(|node| !node.is_expired(now()))?;
        let Some(mut list) = node.list() else { return Some(None) };
        let size = |list: &VecDeque<Item>| list.iter().map(Item::size).sum::<usize>() as u64;
        let before = size(&list);
        let result = change(&mut list);
        let (after, empty) = (size(&list), list.is_empty());
        drop(list);
        node.size.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        self.used.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        node.use_at(stamp(now()));
        if empty {
            self.gone(stripe.remove(&mut locked, hash, key, &guard));
        }
        Some(Some(result))
    }

    /// Milliseconds that a living `key` has left; 0 for ever.
    pub(crate) fn ttl(&self, key: &[u8]) -> Option<u64> {
        let (hash, guard) = (hash(key), epoch::pin());
        let node = self.stripe(hash).find(hash, key, &guard)?;
        let (expires, now) = (node.expires(), now());
        match expires {
            NEVER => Some(0),
            expires if expires <= now => None,
            expires => Some(expires - now),
        }
    }

    /// Gives a living `key` a new time to live; `false`: there is none.
    pub(crate) fn expire(&self, key: &[u8], ttl: u64) -> bool {
        let (hash, guard) = (hash(key), epoch::pin());
        let stripe = self.stripe(hash);
        let _locked = stripe.lock();
        let Some(node) = stripe.find(hash, key, &guard).filter(|node| !node.is_expired(now())) else {
            return false;
        };
        node.expire(self.expiry(ttl, now()));
        true
    }

    /// Makes all entries expired; they stay until room is needed.
    pub(crate) fn flush_all(&self) {
        let guard = epoch::pin();
        self.expires.store(true, Ordering::Relaxed);
        self.sweep(|stripe, from| stripe.expire(&mut stripe.lock(), from, &guard));
    }

    /// Has all stripes worked through a portion at a time, by turns: nobody waits for more than one portion. `work` is told
    /// where to begin, and tells where to go on.
    fn sweep(&self, mut work: impl FnMut(&Stripe, usize) -> Option<usize>) {
        let mut left: Vec<(&Stripe, usize)> = self.stripes.iter().map(|stripe| (stripe, 0)).collect();
        while !left.is_empty() {
            left.retain_mut(|(stripe, from)| work(stripe, *from).map(|next| *from = next).is_some());
        }
    }

    /// Removes expired entries, `most` at most, and says how many.
    pub(crate) fn flush_expired(&self, most: usize) -> usize {
        let guard = epoch::pin();
        let mut count = 0;
        self.sweep(|stripe, from| {
            let swept = stripe.remove_expired(&mut stripe.lock(), now(), most - count, from, &guard);
            self.gone(Some(swept.size));
            count += swept.count;
            swept.next.filter(|_| count < most)
        });
        count
    }

    /// The keys that have not expired, `most` at most.
    pub(crate) fn keys(&self, most: usize) -> Vec<Box<[u8]>> {
        let (guard, now) = (epoch::pin(), now());
        let mut keys = Vec::new();
        for stripe in &self.stripes {
            stripe.for_each(&guard, |node| {
                if keys.len() < most && !node.is_expired(now) {
                    keys.push(node.key.clone());
                }
                keys.len() < most
            });
        }
        keys
    }
}

impl New<'_> {
    fn size(&self) -> usize {
        match self {
            New::Text(text) => text.len(),
            New::Number(_) => 8,
            New::Boolean(_) => 1,
            New::List(list) => list.iter().map(Item::size).sum(),
        }
    }
}

impl Item {
    fn size(&self) -> usize {
        32 + if let Item::Text(text) = self { text.len() } else { 8 }
    }
}

#[cfg(test)]
mod tests;
