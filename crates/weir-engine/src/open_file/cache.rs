//! `open_file_cache`: files that stay open between requests, the least recently used go first.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use weir_rt::HeldMemory;
use weir_rt::file::{FileMeta, SymlinkPolicy};

use super::hash::hash;
use super::{FoundPath, open, os_path};

/// `open_file_cache` and its companions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCache {
    /// How many files at most.
    pub max: usize,
    /// Milliseconds without use after which one goes.
    pub inactive: u64,
    /// `open_file_cache_valid`: milliseconds after which one is looked at again.
    pub valid: u64,
    /// `open_file_cache_min_uses`: how many uses keep a file open.
    pub min_uses: u32,
    /// True when errors of opening files are cached, too (`open_file_cache_errors`).
    pub errors: bool,
}

/// What an entry takes besides its place: a path, and its file with the counts of references.
const ENTRY_BYTES: usize = 64 + size_of::<super::OpenFile>() + size_of::<weir_rt::FileHandle>() + 32;

/// The files of one `open_file_cache`, on one worker.
///
/// As in nginx an entry counts its uses; its file stays open between requests from the `min_uses`th on. It is looked
/// at again `valid` after it was last, and goes when it was not asked for during `inactive`. Times are milliseconds.
pub(super) struct OpenFileCache {
    index: HashMap<u64, u32, BuildHasherDefault<HashedKey>>,
    entries: Vec<OpenFileEntry>,
    free: Vec<u32>,
    /// Ends of the list by use: the newest and the oldest entry.
    newest: u32,
    oldest: u32,
    max: usize,
}

struct OpenFileEntry {
    key: u64,
    path: Box<[u8]>,
    newer: u32,
    older: u32,
    uses: u32,
    used: u64,
    seen: u64,
    links: SymlinkPolicy,
    /// `None`: it is used too rarely to be kept open.
    found: Option<Result<FoundPath, i32>>,
}

impl OpenFileCache {
    /// A cache of at most `max` entries.
    pub(super) fn new(max: usize) -> OpenFileCache {
        OpenFileCache {
            index: HashMap::default(),
            entries: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            max: max.max(1),
        }
    }

    /// The entries, with the file that each may have open, and their paths as long as paths are.
    pub(super) fn held(&self) -> HeldMemory {
        let entries = self.entries.len() - self.free.len();
        let index = self.index.capacity() * (size_of::<(u64, u32)>() + 1);
        let table =
            self.entries.capacity() * size_of::<OpenFileEntry>() + self.free.capacity() * size_of::<u32>();
        HeldMemory::new(entries, index + table + entries * ENTRY_BYTES)
    }

    /// What is at `path`, as known or as it is `now`.
    pub(super) fn lookup(
        &mut self,
        conf: &FileCache,
        path: &[u8],
        links: SymlinkPolicy,
        now: u64,
    ) -> Result<FoundPath, i32> {
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

    fn keep(&mut self, at: u32, conf: &FileCache, found: &Result<FoundPath, i32>) {
        let entry = &mut self.entries[at as usize];
        let holds_file = matches!(found, Ok(FoundPath::File(_)));
        entry.found = (!holds_file || entry.uses >= conf.min_uses).then(|| found.clone());
    }

    fn add(&mut self, key: u64, path: &[u8], links: SymlinkPolicy, now: u64) {
        if self.index.len() >= self.max {
            self.remove(self.oldest);
        }
        let entry = OpenFileEntry {
            key,
            path: path.into(),
            newer: NONE,
            older: NONE,
            uses: 1,
            used: now,
            seen: now,
            links,
            found: None,
        };
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
        let OpenFileEntry { newer, older, .. } = self.entries[at as usize];
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

/// Opens `path` again, unless stat(2) says that it still names the file that is open, unchanged.
fn again(entry: &OpenFileEntry, path: &[u8], links: SymlinkPolicy) -> Result<FoundPath, i32> {
    if let (Some(Ok(FoundPath::File(file))), SymlinkPolicy::Follow) = (&entry.found, links)
        && entry.links == links
        && let Ok(meta) = weir_rt::file::stat(os_path(path))
        && same(&meta, file.meta())
    {
        return Ok(FoundPath::File(Rc::clone(file)));
    }
    open(path, links)
}

fn same(a: &FileMeta, b: &FileMeta) -> bool {
    (a.ino, a.dev, a.size, a.mtime_s, a.mtime_ns) == (b.ino, b.dev, b.size, b.mtime_s, b.mtime_ns)
}

/// Keys are hashes already.
#[derive(Default)]
struct HashedKey(u64);

impl Hasher for HashedKey {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::Folder;
    use weir_rt::file::errno::ENOENT;

    const CONF: FileCache =
        FileCache { max: 100, inactive: 60_000, valid: 10_000, min_uses: 1, errors: false };

    fn look(
        cache: &mut OpenFileCache,
        conf: &FileCache,
        directory: &Folder,
        name: &str,
        now: u64,
    ) -> Result<Vec<u8>, i32> {
        match cache.lookup(conf, directory.path(name).as_bytes(), SymlinkPolicy::Follow, now)? {
            FoundPath::File(file) => Ok(file.body().expect("small and fresh").to_vec()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_is_looked_at_again_when_it_is_no_longer_valid() {
        let directory = Folder::new();
        directory.replace("f", "old");
        let mut cache = OpenFileCache::new(10);
        assert_eq!(look(&mut cache, &CONF, &directory, "f", 0).as_deref(), Ok(&b"old"[..]));
        directory.replace("f", "new!");
        assert_eq!(look(&mut cache, &CONF, &directory, "f", 9_999).as_deref(), Ok(&b"old"[..]));
        assert_eq!(look(&mut cache, &CONF, &directory, "f", 10_000).as_deref(), Ok(&b"new!"[..]));
        directory.remove("f");
        assert_eq!(look(&mut cache, &CONF, &directory, "f", 19_999).as_deref(), Ok(&b"new!"[..]));
        assert_eq!(look(&mut cache, &CONF, &directory, "f", 20_000), Err(ENOENT));
        assert_eq!(cache.index.len(), 0, "errors are not kept");
    }

    #[test]
    fn an_unchanged_file_stays_open() {
        let directory = Folder::new();
        directory.replace("f", "x");
        let mut cache = OpenFileCache::new(10);
        let path = directory.path("f");
        let mut at = |now| match cache.lookup(&CONF, path.as_bytes(), SymlinkPolicy::Follow, now) {
            Ok(FoundPath::File(file)) => file,
            other => panic!("{other:?}"),
        };
        let first = at(0);
        assert!(Rc::ptr_eq(&first, &at(50_000)));
        assert!(Rc::ptr_eq(&first, &at(100_000)));
    }

    #[test]
    fn errors_are_kept_if_wanted() {
        let directory = Folder::new();
        let conf = FileCache { errors: true, ..CONF };
        let mut cache = OpenFileCache::new(10);
        assert_eq!(look(&mut cache, &conf, &directory, "f", 0), Err(ENOENT));
        directory.replace("f", "x");
        assert_eq!(look(&mut cache, &conf, &directory, "f", 5_000), Err(ENOENT));
        // A location of the same cache without errors does not believe it.
        assert_eq!(look(&mut cache, &CONF, &directory, "f", 5_000).as_deref(), Ok(&b"x"[..]));
    }

    #[test]
    fn rare_files_are_closed() {
        let directory = Folder::new();
        directory.replace("f", "old");
        let conf = FileCache { min_uses: 2, ..CONF };
        let mut cache = OpenFileCache::new(10);
        assert_eq!(look(&mut cache, &conf, &directory, "f", 0).as_deref(), Ok(&b"old"[..]));
        directory.replace("f", "new");
        assert_eq!(look(&mut cache, &conf, &directory, "f", 1).as_deref(), Ok(&b"new"[..]));
        directory.replace("f", "newer");
        assert_eq!(
            look(&mut cache, &conf, &directory, "f", 2).as_deref(),
            Ok(&b"new"[..]),
            "kept from the second on"
        );
    }

    #[test]
    fn the_oldest_and_the_unused_go() {
        let directory = Folder::new();
        let mut cache = OpenFileCache::new(3);
        let conf = FileCache { max: 3, ..CONF };
        for name in ["a", "b", "c", "d"] {
            directory.replace(name, name);
        }
        let has = |cache: &mut OpenFileCache, name: &str| {
            let path = directory.path(name);
            cache.find(hash(path.as_bytes()), path.as_bytes()).is_some()
        };
        for (now, name) in [(0, "a"), (1, "b"), (2, "c"), (3, "a"), (4, "d")] {
            look(&mut cache, &conf, &directory, name, now).expect("there");
        }
        assert_eq!(["a", "b", "c", "d"].map(|name| has(&mut cache, name)), [true, false, true, true]);
        look(&mut cache, &conf, &directory, "d", 60_003).expect("there");
        assert_eq!(
            ["a", "c", "d"].map(|name| has(&mut cache, name)),
            [true, false, true],
            "c was used at 2, a at 3"
        );
        look(&mut cache, &conf, &directory, "b", 60_003).expect("there");
        look(&mut cache, &conf, &directory, "c", 60_003).expect("there");
        assert_eq!(cache.index.len(), 3);
        assert_eq!(cache.entries.len(), 3, "places are used again");
    }

    proptest::proptest! {
        /// The list of entries by use stays whole, and holds what a plain model holds.
        #[test]
        fn agrees_with_a_list(steps in proptest::collection::vec((0u8..12, 0u64..30), 1..200)) {
            let conf = FileCache { max: 4, inactive: 100, valid: u64::MAX, min_uses: 1, errors: true };
            let mut cache = OpenFileCache::new(4);
            let mut model: Vec<(u8, u64)> = Vec::new();
            let mut now = 0;
            for (name, later) in steps {
                now += later;
                let path = [b"/nowhere/of/weir/", &[b'a' + name][..]].concat();
                assert_eq!(cache.lookup(&conf, &path, SymlinkPolicy::Follow, now).err(), Some(ENOENT));
                let known = model.iter().position(|(other, _)| *other == name);
                if let Some(at) = known {
                    model.remove(at);
                    model.push((name, now));
                } else {
                    for _ in 0..2 {
                        if model.first().is_some_and(|(_, used)| now - used > 100) {
                            model.remove(0);
                        }
                    }
                    if model.len() == 4 {
                        model.remove(0);
                    }
                    model.push((name, now));
                }
                let mut listed = Vec::new();
                let mut at = cache.oldest;
                while let Some(entry) = cache.entries.get(at as usize) {
                    listed.push((entry.path[entry.path.len() - 1] - b'a', entry.used));
                    at = entry.newer;
                }
                assert_eq!(listed, model);
                assert_eq!(cache.index.len(), model.len());
            }
        }
    }
}
