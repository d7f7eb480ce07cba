//! Shared dictionaries (`lua_shared_dict`): one for all workers, retained over reloads.
//!
//! **No thread waits for a writer**, not even for one that has lost its core in the middle of its work: the kernel may
//! take tens of milliseconds to give it one again. Entries are nodes in chains of atomic pointers ([`stripe`]); readers
//! and writers follow them under an epoch ([`crossbeam_epoch`]), and what is removed is freed when no thread can see it
//! any more. A short value is exchanged in its place, any other one with the object it is in, and past a writer that is
//! in the middle of either ([`value`]); so are the lists of `lpush`, which share what they have in common ([`list`]).
//!
//! That a key was read is a plain store of the reader's own stamp into the node, which grows with the time and with each
//! read of that worker: so the order of use is exact as one worker sees it, and approximate across workers; with several
//! of them a stamp is stored only when it is a tenth of a second later ([`crate::luajit::shared_page::renewed`]), so that they can read
//! without writing. A writer that needs room takes the least used node of all stripes, found by a heap of stamps that
//! is set right where it is looked at; the keeping of chains and heaps is left to the thread that holds their lock, if
//! one does.
//!
//! A node that is read again and again while its value stays gets a [`mark`], by which compiled Lua sees that what it has
//! read before still holds: such a read, and a write of what is there, never come here.

pub(crate) mod call;
mod chores;
mod list;
mod mark;
mod node;
mod script_value;
mod spare_marks;
mod stripe;
mod survival;
mod survivors;
#[cfg(test)]
mod tests;
mod value;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_epoch as epoch;
use weir_engine::file::hash::hash;
use weir_engine::zone::{ZoneStore, ZoneUsage};
use weir_rt::zone_memory::{ZonePlace, ZoneRegion};

use crate::luajit::shared_page::{now, stamp};
pub(crate) use list::{ItemList, ListEnd, ListError};
pub(crate) use mark::{EntryMark, MarkVersion};
use node::{DictNode, FoundNode, NodeChange};
pub(crate) use script_value::{DictItem, NewValue, SeenValue};
use stripe::{ChainHead, DictStripe};
use survivors::TakenOver;
use value::is_over;
pub(crate) use value::{SMALL, ValueScratch};

/// The directive that declares dictionaries, as the owner of their zones.
pub(crate) const DICTIONARY: &str = "lua_shared_dict";

/// What belongs to a value that was read.
#[derive(Clone, Copy)]
pub(crate) struct EntryDetails {
    pub(crate) flags: u32,
    /// Milliseconds of [`now`]; 0 for never.
    pub(crate) expires: u64,
    pub(crate) expired: bool,
    /// What says whether it is still so, where that was asked often.
    pub(crate) version: Option<MarkVersion>,
}

/// Whether living entries may go for a value that there is no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionRule {
    /// The least used ones go.
    Evict,
    /// The value is not stored (`safe_set`, lists).
    Refuse,
}

impl EvictionRule {
    /// By the number that the prelude has for it.
    pub(crate) fn of(number: u64) -> EvictionRule {
        if number == 0 { EvictionRule::Refuse } else { EvictionRule::Evict }
    }
}

/// When a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreCondition {
    Always,
    /// `add`
    Absent,
    /// `replace`
    Present,
}

impl StoreCondition {
    /// By the number that the prelude has for it.
    pub(crate) fn of(number: u64) -> StoreCondition {
        match number {
            0 => StoreCondition::Always,
            1 => StoreCondition::Absent,
            _ => StoreCondition::Present,
        }
    }
}

/// What came of storing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreOutcome {
    /// It is there; `true`: others that had not expired have gone for it.
    Yes(bool),
    Exists,
    NotFound,
    /// It does not fit; `true`: others have gone all the same.
    NoMemory(bool),
}

/// See the module.
pub(crate) struct SharedDict {
    stripes: Box<[DictStripe]>,
    capacity: u64,
    /// Some entry was given a time to live, or made expired.
    expires: AtomicBool,
    sums: DictSums,
    /// What it has of the process before; `None`: it began empty.
    taken: Option<TakenOver>,
    /// After the stripes, which give their blocks back to it. `None`: they are on the heap.
    region: Option<ZoneRegion>,
}

/// What writers write, apart from what readers read.
#[repr(align(128))]
struct DictSums {
    used: AtomicU64,
    /// How often there was no room.
    full: AtomicU64,
    /// Numbers of nodes.
    numbers: AtomicU64,
}

/// See [`SharedDict::reported`].
pub(crate) struct DictFigures {
    /// Bytes.
    pub(crate) capacity: u64,
    pub(crate) used: u64,
    /// How often there was no room.
    pub(crate) full: u64,
    pub(crate) entries: u64,
    /// Parts that were lost with the process before.
    pub(crate) damaged: u64,
    /// Blocks that had no room in the memory that outlives the process.
    pub(crate) mortal: u64,
}

/// How many stripes a dictionary has.
const STRIPES: usize = 16;
/// What an entry costs beside key and value: its node, its place in a chain and in the heap.
const OVERHEAD: u64 = 128;
/// Milliseconds of a time that is never.
const NEVER: u64 = 0;

impl ZoneStore for SharedDict {
    fn usage(&self) -> ZoneUsage {
        let [used, full] = [&self.sums.used, &self.sums.full].map(|count| count.load(Ordering::Relaxed));
        ZoneUsage { used, size: self.capacity, full }
    }
}

impl SharedDict {
    /// An empty dictionary of `capacity` bytes, which ends with the process.
    pub(crate) fn new(capacity: u64) -> SharedDict {
        SharedDict::within(None, capacity)
    }

    fn within(region: Option<ZoneRegion>, capacity: u64) -> SharedDict {
        let place = |lane| region.as_ref().map_or(ZonePlace::HEAP, |region| region.place(lane));
        let stripes: Box<[DictStripe]> =
            (0..STRIPES).map(|number| DictStripe::new(chains_of(capacity), place(number))).collect();
        if let Some(region) = &region {
            survivors::note(region, &stripes);
        }
        SharedDict {
            stripes,
            capacity,
            expires: AtomicBool::new(false),
            sums: DictSums { used: AtomicU64::new(0), full: AtomicU64::new(0), numbers: AtomicU64::new(1) },
            taken: None,
            region,
        }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes that are free, in whole pages.
    pub(crate) fn free_space(&self) -> u64 {
        self.capacity.saturating_sub(self.sums.used.load(Ordering::Relaxed)) / 4096 * 4096
    }

    /// What an observer outside sees.
    pub(crate) fn reported(&self) -> DictFigures {
        let ZoneUsage { used, size, full } = self.usage();
        DictFigures {
            capacity: size,
            used,
            full,
            entries: self.stripes.iter().map(|stripe| stripe.entries() as u64).sum(),
            damaged: self.taken.map_or(0, |taken| taken.damaged),
            mortal: self.region.as_ref().map_or(0, ZoneRegion::missed),
        }
    }

    fn stripe(&self, hash: u64) -> &DictStripe {
        &self.stripes[hash as usize % STRIPES]
    }

    /// Looks at the value of `key`, and what belongs to it; without a lock. A text of up to [`SMALL`] bytes is in
    /// `scratch`, where it stays.
    pub(crate) fn get<T>(
        &self,
        key: &[u8],
        scratch: &mut ValueScratch,
        look: impl FnOnce(SeenValue<'_>, EntryDetails) -> T,
    ) -> Option<T> {
        let hash = hash(key);
        let guard = epoch::pin();
        let FoundNode { node, value, .. } = self.stripe(hash).find(hash, key, &guard).0?;
        let before = node.marked.version();
        let glimpse = value.read(scratch);
        let version = if glimpse.is_quiet() { node.marked.confirm(before) } else { None };
        let now = now();
        let expired = is_over(glimpse.expires, now);
        if !expired {
            node.touch(now);
            if glimpse.is_quiet() && node.marked.wants_mark() {
                node.marked.give_mark();
            }
        }
        let (flags, expires) = (glimpse.flags, glimpse.expires);
        Some(look(glimpse.seen, EntryDetails { flags, expires, expired, version }))
    }

    /// Stores a value for `ttl` milliseconds (0: for ever).
    pub(crate) fn set(
        &self,
        key: &[u8],
        value: NewValue<'_>,
        ttl: u64,
        flags: u32,
        when: StoreCondition,
        eviction: EvictionRule,
    ) -> StoreOutcome {
        let (hash, guard) = (hash(key), epoch::pin());
        let stripe = self.stripe(hash);
        let mut forced = false;
        loop {
            let now = now();
            let (found, head) = stripe.find(hash, key, &guard);
            let (state, expires, _) = found.map_or((0, NEVER, 0), |found| found.value.peek());
            let living = found.is_some() && !is_over(expires, now);
            match when {
                StoreCondition::Absent if living => return StoreOutcome::Exists,
                StoreCondition::Present if !living => return StoreOutcome::NotFound,
                _ => {}
            }
            let change = NodeChange { value: value.clone(), flags, expires: self.expiry(ttl, now) };
            let place = EntryPlace { stripe, hash, key, found, state, head };
            match self.commit(&place, &change, eviction, &guard) {
                CommitOutcome::Done => return StoreOutcome::Yes(forced),
                CommitOutcome::Again(others) => forced |= others,
                CommitOutcome::Full(others) => return StoreOutcome::NoMemory(forced | others),
            }
        }
    }

    /// Changes the value of `key`. `change` is given the living value, if there is one, and says what to store instead and for
    /// how long, if that changes; it is asked again when another writer was faster, or room had to be made meanwhile.
    pub(crate) fn update<T>(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<SeenValue<'_>>) -> Result<(NewValue<'static>, Option<u64>), T>,
    ) -> Result<StoreOutcome, T> {
        let (hash, guard) = (hash(key), epoch::pin());
        let stripe = self.stripe(hash);
        let (mut forced, mut scratch) = (false, [0; SMALL]);
        loop {
            let now = now();
            let (found, head) = stripe.find(hash, key, &guard);
            let glimpse = found.map(|found| found.value.read(&mut scratch));
            let state = glimpse.map_or(0, |glimpse| glimpse.state);
            let living = glimpse.filter(|glimpse| !is_over(glimpse.expires, now));
            let (flags, expires) = living.map_or((0, NEVER), |living| (living.flags, living.expires));
            let (value, ttl) = change(living.map(|living| living.seen))?;
            let expires = ttl.map_or(expires, |ttl| self.expiry(ttl, now));
            let place = EntryPlace { stripe, hash, key, found, state, head };
            match self.commit(&place, &NodeChange { value, flags, expires }, EvictionRule::Evict, &guard) {
                CommitOutcome::Done => return Ok(StoreOutcome::Yes(forced)),
                CommitOutcome::Again(others) => forced |= others,
                CommitOutcome::Full(others) => return Ok(StoreOutcome::NoMemory(forced | others)),
            }
        }
    }

    /// Makes a change, unless something else has changed or there was no room: then it is to be looked again.
    fn commit(
        &self,
        place: &EntryPlace<'_>,
        change: &NodeChange<'_>,
        eviction: EvictionRule,
        guard: &epoch::Guard,
    ) -> CommitOutcome {
        let EntryPlace { key, found, .. } = *place;
        let size = counted(key, change.value.size());
        let before = found.map_or(0, |found| counted(key, found.value.peek().2));
        if !self.fits(size, before) {
            let (made, others) = self.make_room(size.saturating_sub(before), eviction, guard);
            if made {
                return CommitOutcome::Again(others);
            }
            // What was there is no more, as in OpenResty.
            self.delete(key);
            return CommitOutcome::Full(others);
        }
        if self.put(place, change, guard) { CommitOutcome::Done } else { CommitOutcome::Again(false) }
    }

    /// Makes a change for which there is room; `false`: something else has changed.
    fn put(&self, place: &EntryPlace<'_>, change: &NodeChange<'_>, guard: &epoch::Guard) -> bool {
        let EntryPlace { stripe, hash, key, found, state, .. } = *place;
        let size = counted(key, change.value.size());
        match found {
            None => {
                let node = DictNode::new(hash, key, change, self.number(), stripe.place);
                node.use_at(stamp(now()));
                if !stripe.insert(&place.head, node, guard) {
                    return false;
                }
                self.sums.used.fetch_add(size, Ordering::Relaxed);
            }
            Some(found) => {
                let Some(before) = found.change(state, change, stripe.place, guard) else { return false };
                found.node.touch(now());
                let before = counted(key, before);
                if size != before {
                    // Also what is less: the sum wraps.
                    self.sums.used.fetch_add(size.wrapping_sub(before), Ordering::Relaxed);
                }
            }
        }
        true
    }

    /// Whether there is room for `size` bytes in the place of `before`.
    fn fits(&self, size: u64, before: u64) -> bool {
        self.sums.used.load(Ordering::Relaxed) + size <= self.capacity + before
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
        self.sums.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn gone(&self, size: u64) {
        self.sums.used.fetch_sub(size, Ordering::Relaxed);
    }

    /// Whether `size` bytes fit, after expired entries have gone, and, with [`EvictionRule::Evict`], the least used ones; and whether any
    /// of the latter has.
    fn make_room(&self, size: u64, eviction: EvictionRule, guard: &epoch::Guard) -> (bool, bool) {
        let (made, forced) = self.try_room(size, eviction, guard);
        if forced || !made {
            self.sums.full.fetch_add(1, Ordering::Relaxed);
        }
        (made, forced)
    }

    fn try_room(&self, size: u64, eviction: EvictionRule, guard: &epoch::Guard) -> (bool, bool) {
        let fits = || self.fits(size, 0);
        let mut forced = false;
        if fits() {
            return (true, false);
        }
        if self.expires.load(Ordering::Relaxed) {
            // A caller that may evict need not look at every entry.
            match eviction {
                EvictionRule::Evict => self.remove_some_expired(SweepExtent::Portion, guard),
                EvictionRule::Refuse => self.remove_some_expired(SweepExtent::Whole, guard),
            }
        }
        while !fits() {
            if eviction == EvictionRule::Refuse || size > self.capacity || !self.evict(guard) {
                return (false, forced);
            }
            forced = true;
        }
        (true, forced)
    }

    /// Takes out expired entries: all, or those of the next portion of each stripe, which in a dictionary of up to 2,000
    /// entries are all as well. In a larger one others may go before some that have expired, as in OpenResty: a `set`
    /// must not look at every entry.
    fn remove_some_expired(&self, extent: SweepExtent, guard: &epoch::Guard) {
        let whole = extent == SweepExtent::Whole;
        self.sweep(|stripe, from| {
            let from = if whole { from } else { stripe.swept_to.load(Ordering::Relaxed) };
            let swept = stripe.remove_expired(now(), usize::MAX, from, guard);
            stripe.swept_to.store(swept.next.unwrap_or(0), Ordering::Relaxed);
            self.gone(swept.size);
            swept.next.filter(|_| whole)
        });
    }

    /// Takes out the least used entry of all, as far as other workers do not look for it at the same moment; `false` when
    /// it is absent.
    fn evict(&self, guard: &epoch::Guard) -> bool {
        let mut oldest: Option<(u64, &DictStripe, FoundNode<'_>)> = None;
        for stripe in &self.stripes {
            let least = match stripe.try_order(guard) {
                Some(mut order) => stripe.oldest(&mut order, guard),
                None => stripe.sample(guard),
            };
            if let Some((used, found)) = least
                && oldest.is_none_or(|(stamp, ..)| used < stamp)
            {
                oldest = Some((used, stripe, found));
            }
        }
        let Some((_, stripe, found)) = oldest else { return false };
        let (state, ..) = found.value.peek();
        if let Some(size) = stripe.remove(&found, state, guard) {
            self.gone(counted(&found.node.key, size));
        }
        // When another worker was faster, there is room too, or something else to be found.
        true
    }

    /// Removes `key`.
    pub(crate) fn delete(&self, key: &[u8]) {
        let (hash, guard) = (hash(key), epoch::pin());
        let stripe = self.stripe(hash);
        while let (Some(found), _) = stripe.find(hash, key, &guard) {
            let (state, ..) = found.value.peek();
            if let Some(size) = stripe.remove(&found, state, &guard) {
                return self.gone(counted(key, size));
            }
        }
    }

    /// Milliseconds that `key` has left; 0 for ever. As in OpenResty one that has expired and is still there has less than none, by which
    /// lua-resty-mlcache knows how stale it is.
    pub(crate) fn ttl(&self, key: &[u8]) -> Option<i64> {
        let (hash, guard) = (hash(key), epoch::pin());
        let found = self.stripe(hash).find(hash, key, &guard).0?;
        let (_, expires, _) = found.value.peek();
        let left = i64::try_from(expires).unwrap_or(i64::MAX).saturating_sub_unsigned(now());
        Some(if expires == NEVER { 0 } else { left })
    }

    /// Gives `key` a new time to live, also one that has expired and is still there, as in OpenResty; `false`: the key is absent.
    pub(crate) fn expire(&self, key: &[u8], ttl: u64) -> bool {
        let (hash, guard) = (hash(key), epoch::pin());
        let stripe = self.stripe(hash);
        while let (Some(found), _) = stripe.find(hash, key, &guard) {
            if found.expire(self.expiry(ttl, now()), stripe.place, &guard) {
                return true;
            }
        }
        false
    }

    /// Makes all entries expired; they stay until room is needed.
    pub(crate) fn flush_all(&self) {
        let guard = epoch::pin();
        self.expires.store(true, Ordering::Relaxed);
        self.sweep(|stripe, from| stripe.expire(from, &guard));
    }

    /// Has all stripes worked through a portion at a time, by turns. `work` gets where to begin, and returns where to
    /// go on.
    fn sweep(&self, mut work: impl FnMut(&DictStripe, usize) -> Option<usize>) {
        let mut left: Vec<(&DictStripe, usize)> = self.stripes.iter().map(|stripe| (stripe, 0)).collect();
        while !left.is_empty() {
            left.retain_mut(|(stripe, from)| work(stripe, *from).map(|next| *from = next).is_some());
        }
    }

    /// Removes expired entries, `most` at most, and says how many.
    pub(crate) fn flush_expired(&self, most: usize) -> usize {
        let guard = epoch::pin();
        let mut count = 0;
        self.sweep(|stripe, from| {
            let swept = stripe.remove_expired(now(), most - count, from, &guard);
            self.gone(swept.size);
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
            stripe.for_each(&guard, |FoundNode { node, value, .. }| {
                if keys.len() < most && !is_over(value.peek().1, now) {
                    keys.push((*node.key).into());
                }
                keys.len() < most
            });
        }
        keys
    }
}

/// How many chains each stripe of such a dictionary has.
fn chains_of(capacity: u64) -> usize {
    (capacity as usize / 256 / STRIPES).next_power_of_two().clamp(16, 1 << 18)
}

/// What an entry of that key counts for, whose value counts for this many bytes.
fn counted(key: &[u8], value: usize) -> u64 {
    OVERHEAD + (key.len() + value) as u64
}

/// Where a value goes, as it was looked at.
struct EntryPlace<'a> {
    stripe: &'a DictStripe,
    hash: u64,
    key: &'a [u8],
    /// What is there, and the state of its value.
    found: Option<FoundNode<'a>>,
    state: u64,
    head: ChainHead<'a>,
}

/// How many of the expired entries one sweep takes out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SweepExtent {
    /// All.
    Whole,
    /// Those of the next portion of each stripe.
    Portion,
}

/// What came of a change; whether others that had not expired have gone for it.
enum CommitOutcome {
    Done,
    Again(bool),
    Full(bool),
}
