//! `open_log_file_cache`: logs whose paths have variables stay open between lines.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::{Rc, Weak as RcWeak};
use std::sync::Arc;

use weir_engine::log::{LogFile, LogTarget};

/// The parameters of a cache; times in milliseconds.
#[derive(Debug)]
pub(super) struct LogCacheSize {
    /// How many paths are remembered.
    pub(super) max: usize,
    /// Without use for so long, a path is forgotten.
    pub(super) inactive: u64,
    /// Uses within that time from which on the file stays open.
    pub(super) min_uses: u64,
    /// After so long the path is looked at again: it may lead elsewhere.
    pub(super) valid: u64,
}

/// The open logs of one worker.
pub(super) struct OpenLogs {
    size: Arc<LogCacheSize>,
    entries: RefCell<HashMap<Vec<u8>, OpenLog>>,
}

#[derive(Default)]
struct OpenLog {
    file: Option<LogFile>,
    uses: u64,
    used: u64,
    checked: u64,
}

/// This worker's cache for a directive; the locations that inherit the directive share it.
pub(super) fn of_worker(size: &Arc<LogCacheSize>) -> Rc<OpenLogs> {
    thread_local! {
        static CACHES: RefCell<Vec<RcWeak<OpenLogs>>> = const { RefCell::new(Vec::new()) };
    }
    CACHES.with_borrow_mut(|caches| {
        caches.retain(|cache| cache.strong_count() > 0);
        let same = |cache: &Rc<OpenLogs>| Arc::ptr_eq(&cache.size, size);
        caches.iter().filter_map(RcWeak::upgrade).find(same).unwrap_or_else(|| {
            let cache = Rc::new(OpenLogs::new(size));
            caches.push(Rc::downgrade(&cache));
            cache
        })
    })
}

impl OpenLogs {
    fn new(size: &Arc<LogCacheSize>) -> OpenLogs {
        OpenLogs { size: size.clone(), entries: RefCell::default() }
    }

    /// The log at `path`, at time `now` in milliseconds.
    ///
    /// # Errors
    /// Those of [`LogFile::open`].
    pub(super) fn open(&self, path: &[u8], now: u64, target: &LogTarget) -> io::Result<LogFile> {
        let mut entries = self.entries.borrow_mut();
        if let Some(entry) = entries.get_mut(path) {
            entry.begin(now, self.size.inactive);
            if let Some(file) = entry.file.as_ref().filter(|_| now < entry.checked + self.size.valid) {
                return Ok(file.clone());
            }
        }
        let file = LogFile::open(target, None)?;
        if !entries.contains_key(path) {
            self.make_room(&mut entries, now);
            entries.insert(path.to_vec(), OpenLog { uses: 1, used: now, ..OpenLog::default() });
        }
        if let Some(entry) = entries.get_mut(path) {
            entry.checked = now;
            entry.file = (entry.uses >= self.size.min_uses).then(|| file.clone());
        }
        Ok(file)
    }

    /// Forgets what was not used for long, and the oldest when the cache is full.
    fn make_room(&self, entries: &mut HashMap<Vec<u8>, OpenLog>, now: u64) {
        entries.retain(|_, entry| now < entry.used + self.size.inactive);
        if entries.len() >= self.size.max {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.used).map(|(path, _)| path.clone());
            oldest.and_then(|path| entries.remove(&path));
        }
    }
}

impl OpenLog {
    /// Counts a use; those before a long pause do not count.
    fn begin(&mut self, now: u64, inactive: u64) {
        if now >= self.used + inactive {
            self.uses = 0;
        }
        self.uses += 1;
        self.used = now;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weir_test::TempDir;

    use super::*;

    fn cache(max: usize, min_uses: u64) -> OpenLogs {
        OpenLogs::new(&Arc::new(LogCacheSize { max, inactive: 1000, min_uses, valid: 5000 }))
    }

    fn open(cache: &OpenLogs, path: &Path, now: u64) -> LogFile {
        let name = path.as_os_str().as_encoded_bytes();
        cache.open(name, now, &LogTarget::File(path.to_path_buf())).expect("a file in a temporary folder")
    }

    fn kept(cache: &OpenLogs) -> usize {
        cache.entries.borrow().values().filter(|entry| entry.file.is_some()).count()
    }

    #[test]
    fn files_stay_open_after_enough_uses() {
        let directory = TempDir::new();
        let path = directory.path().join("uses.log");
        let cache = cache(10, 2);
        open(&cache, &path, 0);
        assert_eq!(kept(&cache), 0);
        let second = open(&cache, &path, 10);
        assert_eq!(kept(&cache), 1);
        std::fs::remove_file(&path).expect("it was made");
        assert!(open(&cache, &path, 4000) == second, "not looked at before it is due");
        assert!(open(&cache, &path, 5010) != second, "looked at, and gone");
        assert!(path.exists(), "made again");
    }

    #[test]
    fn the_oldest_goes_and_what_is_not_used() {
        let directory = TempDir::new();
        let paths = ["a", "b", "c"].map(|name| directory.path().join(name));
        let cache = cache(2, 1);
        for (path, now) in paths.iter().zip([0, 10, 20]) {
            open(&cache, path, now);
        }
        assert_eq!(kept(&cache), 2);
        assert!(!cache.entries.borrow().contains_key(paths[0].as_os_str().as_encoded_bytes()));
        open(&cache, &paths[0], 2000);
        assert_eq!(kept(&cache), 1);
        assert!(paths.iter().all(|path| path.exists()));
    }
}
