//! The thread that maintains all caches of the process: removes what was not requested in time, and what exceeds the
//! limits. Directories are read by threads of their own when the server starts: a large one takes minutes.

use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::index::CacheIndex;
use super::key::CacheKey;
use super::place::KeeperPace;
use weir_engine::log::{self, LogLevel};

/// Maintains `cache` from now on, as long as it is in use.
pub(super) fn keep(cache: &Arc<CacheIndex>) {
    let mut state = KEEPER.lock();
    if state.caches.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(cache))) {
        return;
    }
    state.caches.push(Arc::downgrade(cache));
    state.called = true;
    if !state.running {
        match thread::Builder::new().name("weir cache".to_owned()).spawn(|| KEEPER.run()) {
            Ok(_) => state.running = true,
            Err(error) => {
                log::cycle(LogLevel::Alert, &format_args!("no thread for caches could be started: {error}"));
            }
        }
    }
    drop(state);
    KEEPER.wake.notify_one();
    let cold = cache.clone();
    let loader = thread::Builder::new().name("weir loader".to_owned()).spawn(move || {
        weir_rt::process::unbind();
        load(&cold);
        cold.cold.store(false, Relaxed);
    });
    if let Err(error) = loader {
        // Files are found when they are asked for.
        log::cycle(
            LogLevel::Alert,
            &format_args!("no thread to read a cache's folder could be started: {error}"),
        );
    }
}

/// A cache has become too large.
pub(super) fn hurry() {
    KEEPER.lock().called = true;
    KEEPER.wake.notify_one();
}

/// Logs that `call` failed for `path`.
pub(super) fn complain(call: &str, path: &Path, error: &io::Error) {
    if error.kind() == io::ErrorKind::NotFound {
        // It is removed already: that is what was wanted.
        return;
    }
    let errno = error.raw_os_error().unwrap_or(0);
    let text = weir_rt::file::errno_text(errno);
    log::cycle(LogLevel::Crit, &format_args!("{call} \"{}\" failed ({errno}: {text})", path.display()));
}

static KEEPER: CacheKeeper = CacheKeeper {
    state: Mutex::new(KeeperState { caches: Vec::new(), running: false, called: false }),
    wake: Condvar::new(),
};

struct CacheKeeper {
    state: Mutex<KeeperState>,
    wake: Condvar,
}

struct KeeperState {
    caches: Vec<Weak<CacheIndex>>,
    running: bool,
    /// Something is to be done now.
    called: bool,
}

impl CacheKeeper {
    fn lock(&self) -> MutexGuard<'_, KeeperState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread; it ends with the last cache.
    fn run(&self) {
        weir_rt::process::unbind();
        loop {
            let mut state = self.lock();
            state.caches.retain(|cache| cache.strong_count() > 0);
            if state.caches.is_empty() {
                state.running = false;
                return;
            }
            state.called = false;
            let caches: Vec<_> = state.caches.clone();
            drop(state);
            for cache in caches.iter().filter_map(Weak::upgrade) {
                manage(&cache);
            }
            let state = self.lock();
            if !state.called {
                let waited = self.wake.wait_timeout(state, LOOK);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}

/// Removes what was not asked for in time, and then what was not asked for longest while there is too much.
fn manage(cache: &CacheIndex) {
    let place = cache.place();
    let mut rest = KeeperRest::new(place.manager);
    let now = weir_rt::clock::monotonic_ms();
    if let Some(since) = now.checked_sub(place.inactive.saturating_mul(1000)) {
        while cache.expire(since, 1) > 0 {
            rest.after_file();
        }
    }
    let too_large = || place.max_size.is_some_and(|most| cache.size() > most);
    let too_full = || place.min_free.is_some_and(|least| free(&place.path) < least);
    while (too_large() || too_full()) && cache.shrink() {
        rest.after_file();
    }
}

/// Bytes that the file system of `path` has free; as many as can be where that is not known.
fn free(path: &Path) -> u64 {
    weir_rt::file::free_space(path).unwrap_or(u64::MAX)
}

/// Reads the directory: each file that could be a response gets an entry. What it is is determined when it is asked
/// for.
fn load(cache: &CacheIndex) {
    let depth = cache.levels.iter().take_while(|level| **level > 0).count();
    let mut rest = KeeperRest::new(cache.loader());
    let path = cache.path.clone();
    if let Err(error) = walk(cache, &path, depth, &mut rest) {
        complain("opendir()", &path, &error);
    }
}

fn walk(cache: &CacheIndex, directory: &Path, depth: usize, rest: &mut KeeperRest) -> io::Result<()> {
    for item in fs::read_dir(directory)? {
        let item = item?;
        let kind = item.file_type()?;
        if depth > 0 && kind.is_dir() {
            // The others are read all the same: what is not known is counted nowhere.
            if let Err(error) = walk(cache, &item.path(), depth - 1, rest) {
                complain("opendir()", &item.path(), &error);
            }
        } else if depth == 0 && kind.is_file() {
            found(cache, &item);
            rest.after_file();
        }
    }
    Ok(())
}

fn found(cache: &CacheIndex, item: &DirEntry) {
    let name = item.file_name();
    let Ok(meta) = item.metadata() else { return };
    match name.to_str().and_then(CacheKey::parse) {
        Some(key) if cache.file(key) == item.path() => cache.add(key, meta.len()),
        _ if is_left_over(&name) && is_old(meta.modified()) => {
            if let Err(error) = fs::remove_file(item.path()) {
                complain("unlink()", &item.path(), &error);
            }
        }
        _ => {}
    }
}

/// Whether this is the name of a file that was being written (`name.0000000001`).
fn is_left_over(name: &OsStr) -> bool {
    let Some((key, number)) = name.to_str().and_then(|name| name.split_once('.')) else { return false };
    CacheKey::parse(key).is_some() && number.len() == 10 && number.bytes().all(|digit| digit.is_ascii_digit())
}

/// Whether it can't be being written any more, unless very slowly.
fn is_old(modified: io::Result<SystemTime>) -> bool {
    modified.ok().and_then(|time| time.elapsed().ok()).is_some_and(|age| age > ABANDONED)
}

/// Pauses between files, so that the disk has time for requests.
struct KeeperRest {
    pace: KeeperPace,
    files: u64,
    began: Instant,
}

impl KeeperRest {
    fn new(pace: KeeperPace) -> KeeperRest {
        KeeperRest { pace, files: 0, began: Instant::now() }
    }

    fn after_file(&mut self) {
        self.files += 1;
        let long = self.began.elapsed() >= Duration::from_millis(self.pace.threshold);
        if self.files >= self.pace.files.max(1) || long {
            thread::sleep(Duration::from_millis(self.pace.sleep));
            self.files = 0;
            self.began = Instant::now();
        }
    }
}

/// How often the thread looks for what is not requested any more, if nothing wakes it.
const LOOK: Duration = Duration::from_secs(1);
/// A file that was written to longer ago is of a process that ended.
const ABANDONED: Duration = Duration::from_secs(600);
