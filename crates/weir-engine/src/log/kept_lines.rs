//! Lines that outlive their process: as soon as a worker has composed one it is in memory that the master has too
//! ([`SharedRings`]), until the log thread has written it. When a server process is killed, its master writes what is left
//! ([`recover`](super::recover)): what clients were sent is in the log, as with nginx, whose workers write before they go on.
//!
//! Kept are lines of files without `buffer=`, of the first [`FILES`] of them. What a log lags behind by more than a ring
//! holds (64 KB for each worker) is not.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use weir_rt::{MappedRings, NOTES, RingPosition, SharedRingWriter, SharedRings};

/// So many files are known by numbers, from 1.
const FILES: usize = NOTES;
/// Bytes of a path, with its length.
const PATH: usize = 512;
/// The number of a file whose lines are not kept.
const NOT_KEPT: u32 = u32::MAX;

/// What a log is in the rings.
#[derive(Debug)]
pub(super) struct KeptFile {
    /// `None`: its lines are not kept.
    path: Option<PathBuf>,
    /// 0: not known yet.
    number: AtomicU32,
}

impl KeptFile {
    pub(super) fn new(path: Option<&Path>) -> KeptFile {
        KeptFile { path: path.map(Path::to_owned), number: AtomicU32::new(0) }
    }

    /// By what number its lines are known.
    #[inline]
    pub(super) fn number(&self) -> u32 {
        match self.number.load(Relaxed) {
            0 => self.new_number(),
            number => number,
        }
    }

    #[cold]
    fn new_number(&self) -> u32 {
        let number = |path: &PathBuf| KEPT.get()?.number(path);
        let number = self.path.as_ref().and_then(number).unwrap_or(NOT_KEPT);
        self.number.store(number, Relaxed);
        number
    }
}

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
pub(super) fn keep(ring: &mut SharedRingWriter, file: &KeptFile, line: &[u8]) -> Option<RingPosition> {
    let number = file.number();
    if number == NOT_KEPT { None } else { ring.append(number, line) }
}

impl KeptLines {
    fn number(&self, path: &Path) -> Option<u32> {
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
        paths.push(path.to_owned());
        Some(paths.len() as u32)
    }
}

/// What the log thread has in hand: noted before it writes, settled when it has.
#[derive(Debug, Default)]
pub(super) struct LinesInHand(Vec<RingPosition>);

impl LinesInHand {
    /// Notes how far the lines reach, and how long their files are: a master can tell then what was written of them. Of
    /// each batch of lines: where the ring was after them, their file's number, and its length.
    pub(super) fn note<L: Fn() -> Option<u64>>(
        lines: impl Iterator<Item = (RingPosition, u32, L)>,
    ) -> LinesInHand {
        let Some(kept) = KEPT.get() else { return LinesInHand::default() };
        let (mut positions, mut noted) = (Vec::new(), Vec::new());
        for (position, number, length) in lines {
            positions.push(position);
            if !noted.contains(&number) {
                noted.push(number);
                kept.mapped.set_note(number as usize - 1, length().unwrap_or(UNKNOWN));
            }
        }
        if !positions.is_empty() {
            kept.mapped.taking(&positions);
        }
        LinesInHand(positions)
    }

    /// They are in their files, or lost and counted.
    pub(super) fn settle(self) {
        if let (Some(kept), false) = (KEPT.get(), self.0.is_empty()) {
            kept.mapped.settled(&self.0);
        }
    }
}

/// The path of a file by its number, as the process that had it has said.
pub(super) fn path(rings: &SharedRings, number: u32) -> Option<PathBuf> {
    let at = (number as usize).checked_sub(1).filter(|at| *at < FILES)?;
    let mut entry = [0; PATH];
    rings.read_beside(&mut entry, (at * PATH) as u64).ok()?;
    let length = usize::from(u16::from_ne_bytes([entry[0], entry[1]]));
    Some(Path::new(OsStr::from_bytes(entry.get(2..2 + length)?)).to_owned())
}

/// How long a file was before what was taken was written; `None`: that is not known.
pub(super) fn length_before(rings: &SharedRings, number: u32) -> io::Result<Option<u64>> {
    rings.note(number as usize - 1).map(|length| Some(length).filter(|length| *length != UNKNOWN))
}

/// A length that is not known.
const UNKNOWN: u64 = u64::MAX;
