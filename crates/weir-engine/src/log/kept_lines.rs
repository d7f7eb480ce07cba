//! Lines that outlive their process: as soon as a worker has composed one it is in memory that the master has too
//! ([`SharedRings`]), until the log thread has written it. When a server process is killed, its master writes what is left
//! ([`recover`]): what clients were sent is in the log, as with nginx, whose workers write before they go on.
//!
//! Kept are lines of files without `buffer=`, of the first [`FILES`] of them. What a log lags behind by more than a ring
//! holds (64 KB for each worker) is not.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use weir_rt::{MappedRings, NOTES, RingPosition, SharedRingWriter, SharedRings};

use super::LogTarget;
use super::file::{self, SharedLogFile};
use super::writer::LineBatch;

/// So many files are known by numbers, from 1.
const FILES: usize = NOTES;
/// Bytes of a path, with its length.
const PATH: usize = 512;
/// The number of a file that is not kept.
pub(super) const NOT_KEPT: u32 = u32::MAX;

/// What a process keeps its lines in.
struct KeptLines {
    rings: SharedRings,
    mapped: Arc<MappedRings>,
    /// The paths of files by their numbers.
    paths: Mutex<Vec<PathBuf>>,
}

static KEPT: OnceLock<KeptLines> = OnceLock::new();

/// From here on keeps the lines that workers log in `rings`.
///
/// # Errors
/// The errno of mmap(2).
pub fn keep_lines(rings: SharedRings) -> io::Result<()> {
    let mapped = rings.map()?;
    // A process has one server; a second one keeps on with the first one's.
    let _ = KEPT.set(KeptLines { rings, mapped, paths: Mutex::new(Vec::new()) });
    Ok(())
}

/// The ring of a worker; `None`: this process keeps no lines, or has more workers than rings.
pub(super) fn writer() -> Option<SharedRingWriter> {
    KEPT.get()?.mapped.writer()
}

/// Keeps a line of `file`; where the ring is then. `None`: it is not kept.
#[inline]
pub(super) fn keep(ring: &mut SharedRingWriter, file: &SharedLogFile, line: &[u8]) -> Option<RingPosition> {
    let number = match file.number.load(Relaxed) {
        0 => number(file),
        number => number,
    };
    if number == NOT_KEPT { None } else { ring.append(number, line) }
}

/// The number of a file, which gets one if it can have one.
#[cold]
fn number(file: &SharedLogFile) -> u32 {
    let number = KEPT.get().and_then(|kept| kept.number(file)).unwrap_or(NOT_KEPT);
    file.number.store(number, Relaxed);
    number
}

impl KeptLines {
    fn number(&self, file: &SharedLogFile) -> Option<u32> {
        let (LogTarget::File(path), None) = (&file.target, file.buffering) else { return None };
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = paths.iter().position(|known| known == path) {
            return Some(at as u32 + 1);
        }
        let bytes = path.as_os_str().as_bytes();
        if paths.len() == FILES || bytes.len() + 2 > PATH {
            return None;
        }
        let mut entry = (bytes.len() as u16).to_ne_bytes().to_vec();
        entry.extend_from_slice(bytes);
        entry.resize(PATH, 0);
        self.rings.write_beside(&entry, (paths.len() * PATH) as u64).ok()?;
        paths.push(path.clone());
        Some(paths.len() as u32)
    }
}

/// What the log thread has in hand: noted before it writes, settled when it has.
#[derive(Debug, Default)]
pub(super) struct LinesInHand(Vec<RingPosition>);

impl LinesInHand {
    /// Notes how far `batches` reach, and how long their files are: a master can tell then what was written of them.
    pub(super) fn note(batches: &[LineBatch]) -> LinesInHand {
        let Some(kept) = KEPT.get() else { return LinesInHand::default() };
        let positions: Vec<RingPosition> = batches.iter().filter_map(|batch| batch.kept).collect();
        if positions.is_empty() {
            return LinesInHand::default();
        }
        let mut noted = Vec::new();
        for batch in batches.iter().filter(|batch| batch.kept.is_some()) {
            let number = batch.file.number.load(Relaxed);
            if !noted.contains(&number) {
                noted.push(number);
                let length =
                    batch.file.handle().and_then(|(_, handle)| handle.meta().ok()).map(|meta| meta.size);
                kept.mapped.set_note(number as usize - 1, length.unwrap_or(u64::MAX));
            }
        }
        kept.mapped.taking(&positions);
        LinesInHand(positions)
    }

    /// They are in their files, or lost and counted.
    pub(super) fn settle(self) {
        if let (Some(kept), false) = (KEPT.get(), self.0.is_empty()) {
            kept.mapped.settled(&self.0);
        }
    }
}

/// Writes the lines that a process which has ended has left in `rings` to the logs that this process has open; how many
/// they were. What is in the rings is that process' word: only to logs of the same path as one of these it is written.
///
/// # Errors
/// The rings can't be read.
pub fn recover(rings: &SharedRings) -> io::Result<u64> {
    let mut lines = 0;
    let mut left: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let open = file::all();
    let mut written: BTreeMap<u32, bool> = BTreeMap::new();
    for record in rings.unsettled()? {
        let Some(file) = path(rings, record.kind).and_then(|path| open_at(&open, &path)) else { continue };
        let was_written = || -> io::Result<bool> {
            let before = rings.note(record.kind as usize - 1)?;
            let now = file.handle().and_then(|(_, handle)| handle.meta().ok()).map_or(0, |meta| meta.size);
            Ok(before != u64::MAX && now > before)
        };
        if record.taken {
            let is_written = match written.get(&record.kind) {
                Some(is_written) => *is_written,
                None => was_written()?,
            };
            written.insert(record.kind, is_written);
            if is_written {
                continue;
            }
        }
        lines += file.lines(&record.bytes);
        left.entry(record.kind).or_default().extend(record.bytes);
    }
    for (kind, bytes) in left {
        if let Some(file) = path(rings, kind).and_then(|path| open_at(&open, &path)) {
            file.write(&bytes).map_err(|failure| failure.error)?;
        }
    }
    Ok(lines)
}

/// The path of a file by its number.
fn path(rings: &SharedRings, number: u32) -> Option<PathBuf> {
    let at = (number as usize).checked_sub(1).filter(|at| *at < FILES)?;
    let mut entry = [0; PATH];
    rings.read_beside(&mut entry, (at * PATH) as u64).ok()?;
    let length = usize::from(u16::from_ne_bytes([entry[0], entry[1]]));
    Some(Path::new(std::ffi::OsStr::from_bytes(entry.get(2..2 + length)?)).to_owned())
}

fn open_at(open: &[Arc<SharedLogFile>], path: &Path) -> Option<Arc<SharedLogFile>> {
    let is_it = |file: &&Arc<SharedLogFile>| {
        file.buffering.is_none() && matches!(&file.target, LogTarget::File(target) if target == path)
    };
    open.iter().rev().find(is_it).cloned()
}
