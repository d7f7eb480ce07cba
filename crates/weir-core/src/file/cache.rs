//! `open_file_cache`: files that stay open between requests, the least recently used go first.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use weir_rt::file::{Links, Meta};

use super::hash::hash;
use super::{Found, open, os_path};
use crate::conf::core::FileCache;

/// The files of one `open_file_cache`, on one worker.
///
/// As in nginx an entry counts its uses; its file stays open between requests from the `min_uses`th on. It is looked
/// at again `valid` after it was last, and goes when it was not asked for during `inactive`. Times are milliseconds.
pub(super) struct Cache {
    index: HashMap<u64, u32, BuildHasherDefault<Hashed>>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Ends of the list by use: the newest and the oldest entry.
    newest: u32,
    oldest: u32,
    max: usize,
}

struct Entry {
    key: u64,
    path: Box<[u8]>,
    newer: u32,
    older: u32,
    uses: u32,
    used: u64,
    seen: u64,
    links: Links,
    /// `None`: it is used too rarely to be kept open.
    found: Option<Result<Found, i32>>,
}

impl Cache {
    /// A cache of at most `max` entries.
    pub(super) fn new(max: usize) -> Cache {
        Cache { index: HashMap::default(), entries: Vec::new(), free: Vec::new(), newest: NONE, oldest: NONE, max: max.max(1) }
    }

    /// What is at `path`, as known or as it is `now`.
    pub(super) fn lookup(&mut self, conf: &FileCache, path: &[u8], links: Links, now: u64) -> Result<Found, i32> {
        let key = hash(path);
        let Some(at) = self.find(key, path) else {
            self.expire(now, conf.inactive, 2);
            let found = open(path, links);
            if found.is_ok() || conf.errors {
                self.add(key, path, links, now);
                self.keep(self.newest, conf, &found);
            }
            return found;
        };
        self.unlink(at);
        self.link(at);
        let entry = &mut self.entries[at as usize];
        entry.uses = entry.uses.saturating_add(1);
        entry.used = now;
        if let Some(found) = &entry.found
            && entry.links == links
            && now.saturating_sub(entry.seen) < conf.valid
            && (conf.errors || found.is_ok())
        {
            return found.clone();
        }
        let found = again(entry, path, links);
        (entry.seen, entry.links) = (now, links);
        if found.is_err() && !conf.errors {
            self.remove(at);
        } else {
            self.keep(at, conf, &found);
        }
        self.expire(now, conf.inactive, 2);
        found
    }

    /// Two different paths of the same 64-bit hash take turns.
    fn find(&mut self, key: u64, path: &[u8]) -> Option<u32> {
        let at = *self.index.get(&key)?;
        if *self.entries[at as usize].path != *path {
            self.remove(at);
            return None;
        }
        Some(at)
    }

    fn keep(&mut self, at: u32, conf: &FileCache, found: &Result<Found, i32>) {
        let entry = &mut self.entries[at as usize];
        let holds_file = matches!(found, Ok(Found::File(_)));
        entry.found = (!holds_file || entry.uses >= conf.min_uses).then(|| found.clone());
    }

    fn add(&mut self, key: u64, path: &[u8], links: Links, now: u64) {
        if self.index.len() >= self.max {
            self.remove(self.oldest);
        }
        let entry = Entry { key, path: path.into(), newer: NONE, older: NONE, uses: 1, used: now, seen: now, links, found: None };
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.index.insert(key, at);
        self.link(at);
    }

    /// Lets go of up to `n` entries that were not used during `inactive`.
    fn expire(&mut self, now: u64, inactive: u64, n: usize) {
        for _ in 0..n {
            match self.entries.get(self.oldest as usize) {
                Some(entry) if now.saturating_sub(entry.used) > inactive => self.remove(self.oldest),
                _ => return,
            }
        }
    }

    fn remove(&mut self, at: u32) {
        self.unlink(at);
        let entry = &mut self.entries[at as usize];
        (entry.found, entry.path) = (None, Box::default());
        self.index.remove(&entry.key);
        self.free.push(at);
    }

    fn link(&mut self, at: u32) {
        let before = std::mem::replace(&mut self.newest, at);
        let entry = &mut self.entries[at as usize];
        (entry.newer, entry.older) = (NONE, before);
        match self.entries.get_mut(before as usize) {
            Some(entry) => entry.newer = at,
            None => self.oldest = at,
        }
    }

    fn unlink(&mut self, at: u32) {
        let Entry { newer, older, .. } = self.entries[at as usize];
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }
}

/// Opens `path` anew, unless stat(2) says that it still names the file that is open, unchanged.
fn again(entry: &Entry, path: &[u8], links: Links) -> Result<Found, i32> {
    if let (Some(Ok(Found::File(file))), Links::Follow) = (&entry.found, links)
        && entry.links == links
        && let Ok(meta) = weir_rt::file::stat(os_path(path))
        && same(&meta, file.meta())
    {
        return Ok(Found::File(Rc::clone(file)));
    }
    open(path, links)
}

fn same(a: &Meta, b: &Meta) -> bool {
    (a.ino, a.dev, a.size, a.mtime_s, a.mtime_ns) == (b.ino, b.dev, b.size, b.mtime_s, b.mtime_ns)
}

/// Keys are hashes already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

/// No entry.
const NONE: u32 = u32::MAX;
