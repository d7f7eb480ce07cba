//! The open files of one worker.

use std::cell::RefCell;
use std::rc::Rc;

use weir_rt::HeldMemory;
use weir_rt::file::SymlinkPolicy;

use super::FoundPath;
use super::cache::{FileCache, OpenFileCache};
use super::turn::TurnLookups;

/// Open files and small bodies: those of this loop turn, and those that `open_file_cache` keeps.
#[derive(Default)]
pub struct FileStore {
    turn: Rc<TurnLookups>,
    caches: RefCell<Vec<(FileCache, OpenFileCache)>>,
}

impl FileStore {
    /// The entries of all `open_file_cache`.
    pub(crate) fn held(&self) -> HeldMemory {
        let mut held = HeldMemory::default();
        self.caches.borrow().iter().for_each(|(_, cache)| held += cache.held());
        held
    }

    /// Opens `path`, or finds it opened: in `cache`, or else in this turn.
    pub(crate) fn lookup(
        &self,
        path: &[u8],
        cache: Option<&FileCache>,
        links: SymlinkPolicy,
    ) -> Result<FoundPath, i32> {
        if let Some(conf) = cache {
            return self.cached(conf, path, links);
        }
        match links {
            SymlinkPolicy::Follow => self.turn.lookup(path),
            // What a link may lead to depends on the location, so these are not shared.
            links => super::open(path, links),
        }
    }

    /// What `uri` led to in this turn, in the location whose plan is at the address `plan`.
    #[inline]
    pub(crate) fn found(&self, plan: usize, uri: &[u8]) -> Option<FoundPath> {
        self.turn.found(plan, uri)
    }

    /// Remembers for this turn what `uri` leads to in the location whose plan is at the address `plan`, where nothing else decides it.
    pub(crate) fn remember(&self, plan: usize, uri: &[u8], found: &FoundPath) {
        self.turn.remember(plan, uri, found);
    }

    /// Locations whose settings are the same share their cache, also over a reload.
    fn cached(&self, conf: &FileCache, path: &[u8], links: SymlinkPolicy) -> Result<FoundPath, i32> {
        let mut caches = self.caches.borrow_mut();
        let at = caches.iter().position(|(of, _)| of == conf).unwrap_or_else(|| {
            caches.push((conf.clone(), OpenFileCache::new(conf.max)));
            caches.len() - 1
        });
        caches[at].1.lookup(conf, path, links, weir_rt::now_ms())
    }

    /// Closes everything that no request uses. For a new configuration: it begins with empty caches, as in nginx.
    pub fn clear(&self) {
        self.turn.clear();
        self.caches.borrow_mut().clear();
    }
}
