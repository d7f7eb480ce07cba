//! Values by keys that clients choose, bounded in memory: the oldest can be found and dropped.
//!
//! The keys are spread over shards, each under its own lock, which is held for some hundred nanoseconds: workers
//! rarely meet. Within a shard all entries are in one vector, linked by index in the chains of a hash table and in
//! the order of their last use. The hash is the standard library's, which withstands attacks.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, Ordering::Release, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_rt::zone_memory::{ZonePlace, ZoneRegion, ZoneSlice, ZoneVec};

use super::{ZoneStore, ZoneUsage, survivors};
use crate::file::hash;

/// A table that all workers share.
pub struct ZoneTable<V> {
    pub(super) shards: Box<[Mutex<ZoneShard<V>>]>,
    hasher: RandomState,
    /// After the shards, whose entries are in it. `None`: they are on the heap.
    region: Option<ZoneRegion>,
}

/// Names an entry while it is in the table; it stays the same when others come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHandle {
    shard: u32,
    node: u32,
}

/// The entries that may hold a key, locked.
pub struct LockedEntries<'t, V> {
    shard: MutexGuard<'t, ZoneShard<V>>,
    number: u32,
    hash: u64,
    region: Option<&'t ZoneRegion>,
}

pub(super) struct ZoneShard<V> {
    pub(super) nodes: ZoneVec<ZoneNode<V>>,
    /// Where keys are.
    place: ZonePlace,
    /// First entry of each chain; a power of two of them.
    buckets: Vec<u32>,
    /// First of the nodes that are not in use, linked by `chain`.
    free: u32,
    oldest: u32,
    newest: u32,
    count: usize,
    used: u64,
    size: u64,
    /// How often there was no room.
    full: u64,
    /// What nginx spends on an entry besides its key.
    overhead: u64,
}

/// Laid out as [`super::survivors`] reads it.
#[repr(C)]
pub(super) struct ZoneNode<V> {
    hash: u64,
    pub(super) key: ZoneSlice<u8>,
    pub(super) value: V,
    /// [`mark_of`] its key while all of it is there, else 0. The last that is written of a new one.
    pub(super) mark: AtomicU32,
    chain: u32,
    older: u32,
    newer: u32,
}

impl<V> ZoneTable<V> {
    /// A table for about as many entries as nginx keeps in `size` bytes of shared memory, where each takes
    /// `overhead` bytes and its key, rounded up to a power of two.
    pub fn new(size: u64, overhead: u64) -> ZoneTable<V> {
        ZoneTable::within(None, TableExtent::new(size), overhead)
    }

    /// A table in a region, or on the heap.
    pub(super) fn within(region: Option<ZoneRegion>, extent: TableExtent, overhead: u64) -> ZoneTable<V> {
        let TableExtent { shards, bytes } = extent;
        if let Some(region) = &region {
            survivors::begin(region);
        }
        let shard = |number| match &region {
            Some(region) => ZoneShard::new(bytes, overhead, extent.most(overhead), region.place(number)),
            None => ZoneShard::new(bytes, overhead, 0, ZonePlace::HEAP),
        };
        let shards = (0..shards as usize).map(|number| Mutex::new(shard(number))).collect();
        ZoneTable { shards, hasher: RandomState::new(), region }
    }

    /// Locks the part where `key` belongs. The caller must not wait while it holds it, and must not lock another.
    pub fn lock(&self, key: &[u8]) -> LockedEntries<'_, V> {
        let hash = self.hasher.hash_one(key);
        // The chains take the low bits.
        let number = (hash >> 48) as u32 & (self.shards.len() as u32 - 1);
        self.locked(number, hash)
    }

    /// Locks the part where the entry `handle` is.
    pub fn lock_at(&self, handle: EntryHandle) -> LockedEntries<'_, V> {
        self.locked(handle.shard, 0)
    }

    /// In how many parts the entries lie.
    pub fn parts(&self) -> u32 {
        self.shards.len() as u32
    }

    /// Locks the part of this number, which must be below [`ZoneTable::parts`].
    pub fn lock_part(&self, number: u32) -> LockedEntries<'_, V> {
        self.locked(number, 0)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        (0..self.shards.len() as u32).map(|number| self.shard(number).count).sum()
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn locked(&self, number: u32, hash: u64) -> LockedEntries<'_, V> {
        LockedEntries { shard: self.shard(number), number, hash, region: self.region.as_ref() }
    }

    /// A panic while the lock was held leaves numbers that are at most a little wrong.
    fn shard(&self, number: u32) -> MutexGuard<'_, ZoneShard<V>> {
        self.shards[number as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: 'static> ZoneStore for ZoneTable<V> {
    fn usage(&self) -> ZoneUsage {
        let shards = (0..self.shards.len() as u32).map(|number| self.shard(number));
        shards.fold(ZoneUsage::default(), |sum, shard| ZoneUsage {
            used: sum.used + shard.used,
            size: sum.size + shard.size,
            full: sum.full + shard.full,
        })
    }
}

impl<V> LockedEntries<'_, V> {
    /// The entry of `key`, for which this was locked; it becomes the newest. `None` if the key has no entry.
    pub fn find(&mut self, key: &[u8]) -> Option<EntryHandle> {
        let node = self.shard.find(self.hash, key)?;
        if self.shard.newest != node {
            self.shard.unlink(node);
            self.shard.link(node);
        }
        Some(self.handle(node))
    }

    /// Adds an entry for `key`, for which this was locked and which has none. `None`: there is no room.
    pub fn insert(&mut self, key: &[u8], value: V) -> Option<EntryHandle> {
        let known = self.shard.nodes.len();
        let node = self.shard.insert(self.hash, key, value)?;
        if self.shard.nodes.len() > known
            && let Some(region) = self.region
        {
            survivors::note(region, self.number as usize, &self.shard.nodes);
        }
        Some(self.handle(node))
    }

    /// The value of an entry of this part.
    pub fn value(&mut self, handle: EntryHandle) -> &mut V {
        &mut self.shard.nodes[handle.node as usize].value
    }

    /// The entry of this part that was not used for longest; `None` if the part is empty.
    pub fn oldest(&self) -> Option<EntryHandle> {
        (self.shard.oldest != NONE).then(|| self.handle(self.shard.oldest))
    }

    /// Makes an entry of this part the newest.
    pub fn renew(&mut self, handle: EntryHandle) {
        self.shard.unlink(handle.node);
        self.shard.link(handle.node);
    }

    /// The entry of `key` in this part, whatever key it was locked for; it stays as old as it is. `None` if the key has
    /// no entry in this part.
    pub fn peek(&self, hash_of: &ZoneTable<V>, key: &[u8]) -> Option<EntryHandle> {
        Some(self.handle(self.shard.find(hash_of.hasher.hash_one(key), key)?))
    }

    /// Drops an entry of this part.
    pub fn remove(&mut self, handle: EntryHandle) {
        self.shard.remove(handle.node);
    }

    fn handle(&self, node: u32) -> EntryHandle {
        EntryHandle { shard: self.number, node }
    }
}

impl<V> ZoneShard<V> {
    fn new(size: u64, overhead: u64, room: usize, place: ZonePlace) -> ZoneShard<V> {
        ZoneShard {
            nodes: ZoneVec::with_room(room, place),
            place,
            buckets: vec![NONE; 16],
            free: NONE,
            oldest: NONE,
            newest: NONE,
            count: 0,
            used: 0,
            size,
            full: 0,
            overhead,
        }
    }

    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let mut at = self.buckets[self.bucket(hash)];
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.hash == hash && *node.key == *key {
                return Some(at);
            }
            at = node.chain;
        }
        None
    }

    fn cost(&self, key: usize) -> u64 {
        (self.overhead + key as u64).next_power_of_two()
    }

    fn insert(&mut self, hash: u64, key: &[u8], value: V) -> Option<u32> {
        let cost = self.cost(key.len());
        if self.used + cost > self.size {
            self.full += 1;
            return None;
        }
        if self.count >= self.buckets.len() {
            self.grow();
        }
        let bucket = self.bucket(hash);
        let chain = self.buckets[bucket];
        let at = match self.free {
            NONE => {
                let (key, mark) = (ZoneSlice::copy(key, self.place), AtomicU32::new(0));
                self.nodes.push(ZoneNode { hash, key, value, mark, chain, older: NONE, newer: NONE });
                self.nodes.len() as u32 - 1
            }
            at => {
                let node = &mut self.nodes[at as usize];
                self.free = node.chain;
                match node.key.len() == key.len() {
                    true => node.key.copy_from_slice(key),
                    false => node.key = ZoneSlice::copy(key, self.place),
                }
                (node.hash, node.value, node.chain) = (hash, value, chain);
                at
            }
        };
        self.nodes[at as usize].mark.store(if self.place.survives() { mark_of(key) } else { 1 }, Release);
        self.buckets[bucket] = at;
        self.link(at);
        self.count += 1;
        self.used += cost;
        Some(at)
    }

    fn remove(&mut self, at: u32) {
        self.unlink(at);
        let node = &mut self.nodes[at as usize];
        *node.mark.get_mut() = 0;
        // Nothing of it changes before.
        fence(Release);
        // Its memory stays for the next entry with a key of that length: most zones have no others.
        let len = node.key.len();
        let (hash, next) = (node.hash, std::mem::replace(&mut node.chain, self.free));
        self.free = at;
        let bucket = self.bucket(hash);
        let mut link = self.buckets[bucket];
        if link == at {
            self.buckets[bucket] = next;
        } else {
            while self.nodes[link as usize].chain != at {
                link = self.nodes[link as usize].chain;
            }
            self.nodes[link as usize].chain = next;
        }
        self.count -= 1;
        self.used -= self.cost(len);
    }

    /// Twice as many chains.
    fn grow(&mut self) {
        let old = std::mem::take(&mut self.buckets);
        self.buckets = vec![NONE; old.len() * 2];
        for first in old {
            let mut at = first;
            while at != NONE {
                let bucket = self.bucket(self.nodes[at as usize].hash);
                let node = &mut self.nodes[at as usize];
                let next = std::mem::replace(&mut node.chain, self.buckets[bucket]);
                self.buckets[bucket] = at;
                at = next;
            }
        }
    }

    /// Makes `at`, which is in no order, the newest.
    fn link(&mut self, at: u32) {
        let before = std::mem::replace(&mut self.newest, at);
        let node = &mut self.nodes[at as usize];
        (node.older, node.newer) = (before, NONE);
        match before {
            NONE => self.oldest = at,
            before => self.nodes[before as usize].newer = at,
        }
    }

    fn unlink(&mut self, at: u32) {
        let ZoneNode { older, newer, .. } = self.nodes[at as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
    }
}

/// Into how many shards a zone is divided, a power of two, and the bytes of each.
#[derive(Clone, Copy)]
pub(super) struct TableExtent {
    pub(super) shards: u64,
    bytes: u64,
}

impl TableExtent {
    /// For a zone of that size.
    pub(super) fn new(size: u64) -> TableExtent {
        let pages = size.saturating_sub(POOL) / (PAGE + PAGE_HEAD);
        let bytes = pages.max(1) * PAGE;
        // Small zones are not divided: their shares would be too uneven.
        let shards = (bytes / SHARD).clamp(1, SHARDS).next_power_of_two();
        TableExtent { shards, bytes: bytes / shards }
    }

    /// How many entries a shard can have.
    pub(super) fn most(self, overhead: u64) -> usize {
        (self.bytes / overhead.next_power_of_two()) as usize + 1
    }
}

/// What says that a node with that key is whole; never 0.
pub(super) fn mark_of(key: &[u8]) -> u32 {
    hash(key) as u32 | 1
}

/// No entry.
const NONE: u32 = u32::MAX;
/// nginx's pages, what it notes about each, and what is at the zone's start, in bytes.
const PAGE: u64 = 4096;
const PAGE_HEAD: u64 = 24;
const POOL: u64 = 512;
/// A shard has at least this many bytes, and there are no more than this many: locks of sixteen workers that meet
/// once in a thousand requests.
const SHARD: u64 = 256 * 1024;
const SHARDS: u64 = 64;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// As nginx's documentation says: "one megabyte zone can keep about 16 thousand 64-byte states".
    #[test]
    fn a_megabyte_is_sixteen_thousand_small_entries() {
        let table = ZoneTable::new(1 << 20, 36);
        let mut kept = 0;
        for n in 0..30_000_u32 {
            let key = n.to_be_bytes();
            kept += usize::from(table.lock(&key).insert(&key, ()).is_some());
        }
        assert!((15_500..=16_384).contains(&kept), "{kept}");
        assert_eq!(table.len(), kept);
    }

    #[test]
    fn a_find_makes_an_entry_the_newest() {
        let table = ZoneTable::new(32 << 10, 80);
        for key in [b"a", b"b", b"c"] {
            table.lock(key).insert(key, key[0]).unwrap();
        }
        let mut entries = table.lock(b"a");
        entries.find(b"a").unwrap();
        let mut order = Vec::new();
        while let Some(oldest) = entries.oldest() {
            order.push(*entries.value(oldest));
            entries.remove(oldest);
        }
        assert_eq!(order, *b"bca");
    }

    proptest! {
        /// Whatever comes and goes, the table holds what a map would.
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((any::<u8>(), any::<bool>()), 0..400)) {
            let (table, mut model) = (ZoneTable::new(1 << 20, 40), HashMap::new());
            for (at, (key, add)) in steps.into_iter().enumerate() {
                let key = [key % 64];
                let mut entries = table.lock(&key);
                match (entries.find(&key), add) {
                    (Some(handle), true) => *entries.value(handle) = at,
                    (Some(handle), false) => entries.remove(handle),
                    (None, true) => { entries.insert(&key, at); }
                    (None, false) => {}
                }
                if add { model.insert(key, at); } else { model.remove(&key); }
            }
            prop_assert_eq!(table.len(), model.len());
            for (key, value) in model {
                let mut entries = table.lock(&key);
                let handle = entries.find(&key).expect("the model has it");
                prop_assert_eq!(*entries.value(handle), value);
            }
        }
    }
}
