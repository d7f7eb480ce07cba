//! What is cached in one zone: an entry for each key, of all workers.
//!
//! The table's lock is held to find an entry; what is known of it is under a lock of its own, taken only where
//! a response is not served from a worker's memory. When an entry was used last is an atomic that serving writes at
//! most once a millisecond: the order in the table follows when the oldest is looked for.

use std::any::Any;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::CacheTicket;
use super::key::CacheKey;
use super::place::{CacheZone, KeeperPace};
use weir_engine::zone::{LockedEntries, ZoneStore, ZoneTable, ZoneUsage};

/// The responses of one zone.
pub struct CacheIndex {
    /// The directory.
    pub(super) path: Arc<PathBuf>,
    /// See [`CacheZone::levels`](super::CacheZone::levels).
    pub(super) levels: [u8; 3],
    table: ZoneTable<Arc<CacheEntry>>,
    /// Bytes of all files, each rounded up to blocks.
    size: AtomicU64,
    /// The directory was not read yet: there may be files that no entry knows of.
    pub(super) cold: AtomicBool,
    settings: Mutex<CacheZone>,
}

/// What is known of one response.
pub(super) struct CacheEntry {
    /// The key of the response.
    pub(super) key: CacheKey,
    /// When it was asked for last: milliseconds of the monotonic clock.
    used: AtomicU64,
    /// When that was when it got its place in the table's order.
    linked: AtomicU64,
    /// Which file's body was found whole last; 0: none's.
    pub(super) checked: AtomicU64,
    /// A request revalidates it.
    pub(super) checking: AtomicBool,
    state: Mutex<CacheIndexState>,
}

#[derive(Default)]
pub(super) struct CacheIndexState {
    /// How often it was asked for while it is not there.
    pub(super) uses: u64,
    /// There is a file.
    pub(super) exists: bool,
    /// It was found absent.
    pub(super) absent: bool,
    /// How large that is, in whole blocks.
    pub(super) size: u64,
    /// A request fetches it; with [`CacheTurn`](super::CacheTurn) until when it may take.
    pub(super) updating: bool,
    pub(super) lock_until: u64,
    /// A status that is the whole response, without a file, up to and with this second.
    pub(super) error: Option<(u16, u64)>,
    /// Requests that have to do with it.
    pub(super) holders: usize,
    /// The requests that wait until it was fetched.
    pub(super) waiting: Vec<Waker>,
}

/// What the index knows of a key.
pub enum CacheLookupResult {
    /// A status to respond with.
    Error(u16),
    /// Nothing may be cached yet: it was not asked for often enough.
    Scarce,
    /// A response may be there, and may be cached.
    Entry {
        /// The request's part in it.
        ticket: CacheTicket,
        /// There is, or may be, a file.
        look: bool,
        /// Without a file nothing may be cached yet.
        scarce: bool,
    },
    /// The zone has no room, and none can be made.
    Full,
}

impl CacheIndex {
    pub(super) fn new(place: &CacheZone, size: u64) -> CacheIndex {
        CacheIndex {
            path: place.path.clone(),
            levels: place.levels,
            table: ZoneTable::new(size, OVERHEAD),
            size: AtomicU64::new(0),
            cold: AtomicBool::new(true),
            settings: Mutex::new(place.clone()),
        }
    }

    /// Takes over what a reload has changed: limits and paces. A directory is the same, or the reload was refused.
    pub(super) fn adjust(&self, place: &CacheZone) {
        *self.settings() = place.clone();
    }

    /// A copy of the settings of its directive (`proxy_cache_path`), as of the last reload.
    pub fn place(&self) -> CacheZone {
        self.settings().clone()
    }

    fn settings(&self) -> MutexGuard<'_, CacheZone> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pace at which its directory is read.
    pub(super) fn loader(&self) -> KeeperPace {
        self.settings().loader
    }

    /// The path of the file for `key`, whether or not it is there: `DIRECTORY/c/29/…`, by the levels of the zone.
    pub fn file(&self, key: CacheKey) -> PathBuf {
        key.path(&self.path, self.levels)
    }

    /// Bytes of all files, each rounded up to blocks.
    pub fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }

    /// How many responses are cached or known of.
    pub fn count(&self) -> usize {
        self.table.len()
    }

    #[cfg(test)]
    pub(super) fn parts(&self) -> u32 {
        self.table.parts()
    }

    /// A request asks for `key`; what was asked for less than `min_uses` times is not cached.
    pub fn look_up(self: &Arc<Self>, key: CacheKey, min_uses: u64) -> CacheLookupResult {
        let now = weir_rt::clock::monotonic_ms();
        let Some((entry, _)) = self.entry(key, now) else { return CacheLookupResult::Full };
        let cold = self.cold.load(Relaxed);
        let mut state = entry.state();
        match state.error {
            Some((status, until)) if until >= weir_rt::clock::unix_time().0 => {
                return CacheLookupResult::Error(status);
            }
            Some(_) => state.forget(),
            None => {}
        }
        state.uses += 1;
        let scarce = min_uses > 1 && state.uses < min_uses && !state.exists;
        let look = state.exists || (cold && !state.absent);
        if scarce && !look {
            return CacheLookupResult::Scarce;
        }
        state.holders += 1;
        drop(state);
        CacheLookupResult::Entry { ticket: CacheTicket::new(self.clone(), entry, min_uses > 1), look, scarce }
    }

    /// A part in the entry of `key` for a response that is to be cached, whatever is there or was; `None`: there is no
    /// room.
    pub fn replace(self: &Arc<Self>, key: CacheKey) -> Option<CacheTicket> {
        let (entry, _) = self.entry(key, weir_rt::clock::monotonic_ms())?;
        entry.state().holders += 1;
        Some(CacheTicket::new(self.clone(), entry, false))
    }

    /// The entry of `key`, made if absent; `true` if it was made.
    fn entry(&self, key: CacheKey, now: u64) -> Option<(Arc<CacheEntry>, bool)> {
        let mut part = self.table.lock(&key.0);
        if let Some(handle) = part.find(&key.0) {
            let entry = part.value(handle).clone();
            entry.used.store(now, Relaxed);
            entry.linked.store(now, Relaxed);
            return Some((entry, false));
        }
        let entry = Arc::new(CacheEntry::new(key, now));
        let mut gone = Vec::new();
        while part.insert(&key.0, entry.clone()).is_none() {
            gone.push(self.oldest(&mut part, |_| true)?);
        }
        drop(part);
        // Rare: the zone is full. Removing a name takes no longer than the file that is to be opened next.
        gone.iter().for_each(|entry| self.unlink(entry));
        Some((entry, true))
    }

    /// Notes a file that was found in the directory.
    pub(super) fn add(&self, key: CacheKey, size: u64) {
        let Some((entry, _)) = self.entry(key, weir_rt::clock::monotonic_ms()) else { return };
        let mut state = entry.state();
        if !state.exists {
            state.exists = true;
            state.size = blocks(size);
            self.size.fetch_add(state.size, Relaxed);
        }
    }

    /// A file of `size` bytes was put in the place of `entry`'s.
    pub(super) fn stored(&self, entry: &CacheEntry, size: u64) {
        let mut state = entry.state();
        let before = if state.exists { state.size } else { 0 };
        state.exists = true;
        state.error = None;
        state.size = blocks(size);
        state.absent = false;
        self.size.fetch_add(state.size, Relaxed);
        self.size.fetch_sub(before, Relaxed);
        let most = self.settings().max_size;
        if most.is_some_and(|most| self.size() > most) {
            super::keeper::hurry();
        }
    }

    /// The file of `entry` is not there any more, or is not a response.
    pub(super) fn lost(&self, entry: &CacheEntry) {
        let mut state = entry.state();
        state.absent = true;
        if std::mem::take(&mut state.exists) {
            self.size.fetch_sub(std::mem::take(&mut state.size), Relaxed);
        }
    }

    /// Removes the response of `key`, if there is one: `true`.
    ///
    /// Makes a system call: not for a loop.
    pub fn purge(&self, key: CacheKey) -> bool {
        let mut part = self.table.lock(&key.0);
        let entry = part.find(&key.0).map(|handle| part.value(handle).clone());
        drop(part);
        let known = entry.as_ref().is_some_and(|entry| {
            let error = entry.state().error.take().is_some();
            let existed = entry.state().exists;
            self.lost(entry);
            error || existed
        });
        let removed = std::fs::remove_file(self.file(key)).is_ok();
        known || removed
    }

    /// Takes the entry out of the table that was not used for longest, of those that no request uses and that
    /// are old enough for `old`, given when they were used last.
    fn oldest(
        &self,
        part: &mut LockedEntries<'_, Arc<CacheEntry>>,
        old: impl Fn(u64) -> bool,
    ) -> Option<Arc<CacheEntry>> {
        for _ in 0..LOOKS {
            let handle = part.oldest()?;
            let entry = part.value(handle).clone();
            let used = entry.used.load(Relaxed);
            if used > entry.linked.load(Relaxed) {
                entry.linked.store(used, Relaxed);
                part.renew(handle);
            } else if !old(used) {
                return None;
            } else if entry.state().holders > 0 {
                part.renew(handle);
            } else {
                part.remove(handle);
                return Some(entry);
            }
        }
        None
    }

    /// Removes what was not used since `since`, at most `files` of each part of the table; how many.
    ///
    /// Makes system calls: not for a loop.
    pub(super) fn expire(&self, since: u64, files: usize) -> usize {
        let mut removed = 0;
        for number in 0..self.table.parts() {
            for _ in 0..files.max(1) {
                let entry = self.oldest(&mut self.table.lock_part(number), |used| used < since);
                let Some(entry) = entry else { break };
                self.unlink(&entry);
                removed += 1;
            }
        }
        removed
    }

    /// Removes what was not used for longest; `false`: there is nothing that could be.
    ///
    /// Makes system calls: not for a loop.
    pub(super) fn shrink(&self) -> bool {
        let used = |number: u32| {
            let mut part = self.table.lock_part(number);
            loop {
                let handle = part.oldest()?;
                let entry = part.value(handle);
                let used = entry.used.load(Relaxed);
                if entry.linked.swap(used, Relaxed) == used {
                    return Some((used, number));
                }
                part.renew(handle);
            }
        };
        let mut parts: Vec<(u64, u32)> = (0..self.table.parts()).filter_map(used).collect();
        parts.sort_unstable();
        let gone = parts
            .into_iter()
            .find_map(|(_, number)| self.oldest(&mut self.table.lock_part(number), |_| true));
        gone.inspect(|entry| self.unlink(entry)).is_some()
    }

    /// Removes the file of an entry that is in no table any more.
    fn unlink(&self, entry: &CacheEntry) {
        let existed = entry.state().exists;
        self.lost(entry);
        if existed && let Err(error) = std::fs::remove_file(self.file(entry.key)) {
            super::keeper::complain("unlink()", &self.file(entry.key), &error);
        }
    }

    /// Forgets an entry that says nothing, unless another request uses it.
    pub(super) fn drop_empty(&self, entry: &Arc<CacheEntry>) {
        let mut part = self.table.lock(&entry.key.0);
        let Some(handle) = part.peek(&self.table, &entry.key.0) else { return };
        let empty = |state: &CacheIndexState| state.holders == 0 && !state.exists && state.error.is_none();
        if Arc::ptr_eq(part.value(handle), entry) && empty(&entry.state()) {
            part.remove(handle);
        }
    }
}

impl ZoneStore for CacheIndex {
    /// How full the zone of keys is; nothing is said of the files.
    fn usage(&self) -> ZoneUsage {
        self.table.usage()
    }

    /// Files are where the levels of before have put them.
    fn refuses(&self, name: &str, next: &dyn Any) -> Option<String> {
        let place: &CacheZone = next.downcast_ref()?;
        (place.levels != self.levels).then(|| format!("cache \"{name}\" had previously different levels"))
    }
}

impl CacheEntry {
    fn new(key: CacheKey, now: u64) -> CacheEntry {
        let state = Mutex::default();
        let (used, linked) = (AtomicU64::new(now), AtomicU64::new(now));
        CacheEntry { key, used, linked, checked: AtomicU64::new(0), checking: AtomicBool::new(false), state }
    }

    /// It was served at `now`: milliseconds of the monotonic clock.
    #[inline]
    pub(super) fn touch(&self, now: u64) {
        // Read first: a line that many workers only read is not taken from one another.
        if self.used.load(Relaxed) != now {
            self.used.store(now, Relaxed);
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, CacheIndexState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheIndexState {
    /// As one that was never asked for.
    fn forget(&mut self) {
        self.error = None;
        self.uses = 0;
    }
}

/// The bytes that a file of `size` bytes takes of the disk.
fn blocks(size: u64) -> u64 {
    size.next_multiple_of(4096)
}

/// What nginx spends on an entry besides the key: together 128 bytes, 8,192 entries a megabyte.
const OVERHEAD: u64 = 112;
/// This many entries are looked at for one that may go.
const LOOKS: usize = 64;
