//! Tests of the index: which responses may be cached, which requests wait for which, and what is evicted first.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use weir_test::{TempDir, wait_for};

use super::place::{CacheZone, KeeperPace};
use super::{CacheIndex, CacheKey, CacheLookupResult, CacheTicket, CacheTurn};

struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(TempDir::new())
    }

    fn cache(&self, size: u64) -> Arc<CacheIndex> {
        Arc::new(CacheIndex::new(&place(self.0.path()), size))
    }
}

fn place(path: &Path) -> CacheZone {
    CacheZone {
        path: Arc::new(path.to_path_buf()),
        levels: [1, 2, 0],
        use_temp_path: false,
        inactive: 600,
        max_size: None,
        min_free: None,
        manager: KeeperPace::default(),
        loader: KeeperPace::default(),
    }
}

#[track_caller]
fn ticket(cache: &Arc<CacheIndex>, key: &str) -> CacheTicket {
    match cache.look_up(CacheKey::of(key.as_bytes()), 1) {
        CacheLookupResult::Entry { ticket, .. } => ticket,
        _ => panic!("no entry for {key}"),
    }
}

/// Makes a file for `key`, as one that was stored.
fn store(cache: &Arc<CacheIndex>, key: &str, size: usize) {
    let ticket = ticket(cache, key);
    fs::create_dir_all(ticket.file().parent().expect("below the folder")).expect("made");
    fs::write(ticket.file(), vec![0; size]).expect("written");
    ticket.stored(size as u64);
}

#[test]
fn an_answer_is_kept_from_the_use_that_was_asked_for() {
    let directory = Folder::new();
    let cache = directory.cache(1 << 20);
    cache.cold.store(false, std::sync::atomic::Ordering::Relaxed);
    let key = CacheKey::of(b"a");
    for _ in 0..2 {
        assert!(matches!(cache.look_up(key, 3), CacheLookupResult::Scarce));
    }
    assert!(matches!(cache.look_up(key, 3), CacheLookupResult::Entry { look: false, scarce: false, .. }));
    assert_eq!(cache.count(), 1, "it is counted on");
    drop(ticket(&cache, "b"));
    assert_eq!(cache.count(), 1, "an entry that tells nothing is forgotten");
}

#[test]
fn one_fetches_and_others_wait_until_he_gives_up_or_takes_too_long() {
    let directory = Folder::new();
    let cache = directory.cache(1 << 20);
    let (mut first, mut second) = (ticket(&cache, "a"), ticket(&cache, "a"));
    assert_eq!(first.lock(60_000), CacheTurn::Mine);
    assert!(matches!(second.lock(60_000), CacheTurn::Others(1..=60_000)));
    assert!(!second.update());
    drop(first);
    assert_eq!(second.lock(0), CacheTurn::Mine, "given back");
    let mut third = ticket(&cache, "a");
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(third.lock(60_000), CacheTurn::Mine, "too late");
    drop(second);
    let mut fourth = ticket(&cache, "a");
    assert!(matches!(fourth.lock(1), CacheTurn::Others(_)), "whose turn is over takes nothing from the next");
}

#[test]
fn a_status_is_remembered_for_its_time() {
    let directory = Folder::new();
    let cache = directory.cache(1 << 20);
    let now = weir_rt::clock::unix_time().0;
    ticket(&cache, "a").fail(502, now + 60);
    assert!(matches!(cache.look_up(CacheKey::of(b"a"), 1), CacheLookupResult::Error(502)));
    ticket(&cache, "b").fail(502, now - 1);
    assert!(matches!(cache.look_up(CacheKey::of(b"b"), 1), CacheLookupResult::Entry { .. }));
}

#[test]
fn what_was_not_used_longest_goes_first() {
    let directory = Folder::new();
    // Of one part: between parts the clock decides, which has only milliseconds.
    let cache = directory.cache(16 * 1024);
    assert_eq!(cache.parts(), 1);
    for key in ["a", "b", "c"] {
        store(&cache, key, 5000);
    }
    // Used again, by a worker that has it in memory.
    let now = weir_rt::clock::monotonic_ms();
    ticket(&cache, "a").entry().touch(now + 100_000);
    let files = |keys: [&str; 3]| keys.map(|key| cache.file(CacheKey::of(key.as_bytes())).exists());
    assert_eq!(cache.size(), 3 * 8192);
    assert_eq!(cache.expire(0, 10), 0);
    assert!(cache.shrink());
    assert_eq!(files(["a", "b", "c"]), [true, false, true]);
    assert_eq!(cache.expire(now + 50_000, 10), 1);
    assert_eq!(files(["a", "b", "c"]), [true, false, false]);
    let held = ticket(&cache, "a");
    assert!(!cache.shrink(), "a request has to do with it");
    drop(held);
    assert!(cache.shrink() && !cache.shrink());
    assert_eq!((cache.size(), cache.count()), (0, 0));
}

#[test]
fn a_full_zone_makes_room() {
    let directory = Folder::new();
    let cache = directory.cache(8192);
    for number in 0..1000 {
        store(&cache, &number.to_string(), 1);
    }
    let count = cache.count();
    assert!((1..200).contains(&count), "{count}");
    assert_eq!(cache.size(), count as u64 * 4096);
}

#[test]
fn others_are_looked_after_while_a_directory_is_read() {
    let (large, other) = (Folder::new(), Folder::new());
    // Its loader sleeps for longer than the test.
    let loader = KeeperPace { files: 1, sleep: 3_600_000, threshold: 3_600_000 };
    let place = CacheZone { levels: [0; 3], loader, ..place(large.0.path()) };
    let slow = Arc::new(CacheIndex::new(&place, 1 << 20));
    fs::write(slow.file(CacheKey::of(b"a")), b"x").expect("written");
    super::keeper::keep(&slow);
    wait_for("the file to be found", || (slow.count() == 1).then_some(()));
    let cache = other.cache(1 << 20);
    store(&cache, "b", 1);
    cache.adjust(&CacheZone { inactive: 0, ..cache.place() });
    super::keeper::keep(&cache);
    wait_for("what nobody asks for to go", || (cache.count() == 0).then_some(()));
    assert_eq!(slow.count(), 1, "asked for not long ago");
}

#[test]
fn a_purged_answer_is_gone() {
    let directory = Folder::new();
    let cache = directory.cache(1 << 20);
    store(&cache, "a", 1);
    assert!(cache.purge(CacheKey::of(b"a")));
    assert!(!cache.purge(CacheKey::of(b"a")));
    assert_eq!((cache.size(), cache.file(CacheKey::of(b"a")).exists()), (0, false));
}
