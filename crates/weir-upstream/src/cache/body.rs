//! Whether the body of a file is the one that was written: a disk that gives other bits than it was given says nothing.
//!
//! A small body is checked when it is read into memory. A larger one is served from its file: unless this
//! process has written it, it is read and checked on a thread of the pool when a worker finds it for the first time,
//! before anything of it is sent, and the process remembers which file that was. One above [`FIRST`] is checked while it is served already, so that its first client
//! does not wait for seconds; it is removed when it turns out to be damaged.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use weir_rt::file::{FileHandle, FileMeta};

use super::head::BadCacheHead;
use super::index::{CacheEntry, CacheIndex};
use super::read::{ParsedCacheFile, RawCacheFile};
use super::ticket::CacheTicket;
use weir_engine::log::{self, LogLevel};

/// Gives `raw` back, whose body was found whole or is being checked; `None`: it is damaged.
///
/// # Errors
/// That of pread(2) or dup(2).
pub(super) async fn checked(
    ticket: &CacheTicket,
    raw: RawCacheFile,
    parsed: &ParsedCacheFile,
) -> io::Result<Option<RawCacheFile>> {
    if parsed.body.is_some() {
        return Ok(Some(raw));
    }
    let (entry, identity) = (ticket.entry(), CacheFileIdentity::of(&raw.meta));
    let span = BodySpan { start: parsed.start, length: parsed.length, sum: parsed.sum };
    while entry.checked.load(Acquire) != identity.0 {
        let turn = CheckTurn::take(entry);
        if span.length > FIRST {
            if let Some(turn) = turn {
                check_aside(ticket.cache(), raw.handle.try_clone()?, raw.meta, turn, span);
            }
            return Ok(Some(raw));
        }
        if let Some(turn) = turn {
            let whole = move || Ok(turn.is_whole(&raw.handle, &span, identity)?.then_some(raw));
            return weir_rt::blocking(whole).await;
        }
        weir_rt::sleep(LOOK).await;
    }
    Ok(Some(raw))
}

/// Checks a long body while it is served.
fn check_aside(cache: &Arc<CacheIndex>, handle: FileHandle, meta: FileMeta, turn: CheckTurn, span: BodySpan) {
    let cache = cache.clone();
    weir_rt::spawn(weir_rt::blocking(move || {
        let path = cache.file(turn.0.key);
        match turn.is_whole(&handle, &span, CacheFileIdentity::of(&meta)) {
            Ok(true) => {}
            Ok(false) => {
                let text = format_args!("cache file \"{}\" {}", path.display(), BadCacheHead::Body.message());
                log::cycle(LogLevel::Crit, &text);
                remove_same(&path, &meta);
                cache.lost(&turn.0);
            }
            Err(error) => super::keeper::complain("pread()", &path, &error),
        }
    }));
}

/// Removes the file at `path` that was found to be `bad`, if it is there still. A file of another version may be another
/// program's.
pub(super) async fn remove(path: &Path, meta: &FileMeta, bad: BadCacheHead) {
    if matches!(bad, BadCacheHead::Damaged | BadCacheHead::Body) {
        let (path, meta) = (path.to_path_buf(), *meta);
        weir_rt::blocking(move || remove_same(&path, &meta)).await;
    }
}

fn remove_same(path: &Path, meta: &FileMeta) {
    let same =
        weir_rt::file::stat(path).is_ok_and(|now| CacheFileIdentity::of(&now) == CacheFileIdentity::of(meta));
    if same && let Err(error) = std::fs::remove_file(path) {
        super::keeper::complain("unlink()", path, &error);
    }
}

/// The file of `entry` was just written by this process.
pub(super) fn written(entry: &CacheEntry, meta: &FileMeta) {
    entry.checked.store(CacheFileIdentity::of(meta).0, Release);
}

/// The file of `entry` was changed in its head only.
pub(super) fn renewed(entry: &CacheEntry, before: &Metadata, now: &Metadata) {
    let (before, now) = (CacheFileIdentity::of_metadata(before), CacheFileIdentity::of_metadata(now));
    // Fails where another file was checked, or none: then this one is checked when it is read.
    let _ = entry.checked.compare_exchange(before.0, now.0, Release, Relaxed);
}

/// Which file it is, and in which state.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CacheFileIdentity(u64);

impl CacheFileIdentity {
    fn of(meta: &FileMeta) -> CacheFileIdentity {
        CacheFileIdentity::new([meta.ino, meta.dev, meta.size, meta.mtime_s as u64, u64::from(meta.mtime_ns)])
    }

    fn of_metadata(meta: &Metadata) -> CacheFileIdentity {
        let (seconds, nanoseconds) = (meta.mtime() as u64, meta.mtime_nsec() as u64);
        CacheFileIdentity::new([meta.ino(), meta.dev(), meta.size(), seconds, nanoseconds])
    }

    /// Never 0, which no file is.
    fn new(parts: [u64; 5]) -> CacheFileIdentity {
        CacheFileIdentity(weir_engine::file::hash(parts.map(u64::to_le_bytes).as_flattened()).max(1))
    }
}

/// Where a body is, and what its checksum must be.
#[derive(Clone, Copy)]
struct BodySpan {
    start: u64,
    length: u64,
    sum: u32,
}

/// One checks, the others wait. Dropping it gives the turn back, wherever that happens.
struct CheckTurn(Arc<CacheEntry>);

impl CheckTurn {
    fn take(entry: &Arc<CacheEntry>) -> Option<CheckTurn> {
        (!entry.checking.swap(true, Acquire)).then(|| CheckTurn(entry.clone()))
    }

    /// Reads the whole body; whether its checksum fits, which is remembered.
    fn is_whole(
        &self,
        handle: &FileHandle,
        span: &BodySpan,
        identity: CacheFileIdentity,
    ) -> io::Result<bool> {
        let (mut sum, mut done) = (crc32fast::Hasher::new(), 0);
        let mut block = vec![0; BLOCK];
        while done < span.length {
            let most = usize::try_from(span.length - done).map_or(BLOCK, |left| left.min(BLOCK));
            let read = handle.pread(&mut block[..most], span.start + done)?;
            if read == 0 {
                return Ok(false);
            }
            sum.update(&block[..read]);
            done += read as u64;
        }
        let whole = sum.finalize() == span.sum;
        if whole {
            self.0.checked.store(identity.0, Release);
        }
        Ok(whole)
    }
}

impl Drop for CheckTurn {
    fn drop(&mut self) {
        self.0.checking.store(false, Release);
    }
}

/// A longer body is served before it was checked: reading so much takes a tenth of a second where it is in the page
/// cache, and several times that where it comes from a disk.
const FIRST: u64 = 256 << 20;
/// How much is read at a time.
const BLOCK: usize = 256 * 1024;
/// How often those that wait for another's check look.
const LOOK: Duration = Duration::from_millis(5);
