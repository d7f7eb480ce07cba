//! Where configuration files come from: the file system, or memory for tests and for the library.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::glob;

/// Reads configuration files. Paths are full ones.
pub trait ConfFiles {
    /// The whole of a file. A missing one is an error with the system's number (`ENOENT`), which the message
    /// shows.
    fn read(&self, path: &Path) -> Result<Vec<u8>>;

    /// The files that match a pattern of glob(7), sorted by their bytes. A directory that is not there has none; one that
    /// can't be read is an error: what it holds may be rules that refuse clients.
    fn glob(&self, pattern: &Path) -> Result<Vec<PathBuf>>;
}

/// The file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFiles;

impl ConfFiles for RealFiles {
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        File::open(path)?.take(LONGEST + 1).read_to_end(&mut text)?;
        if text.len() as u64 > LONGEST { Err(Error::from_raw_os_error(EFBIG)) } else { Ok(text) }
    }

    fn glob(&self, pattern: &Path) -> Result<Vec<PathBuf>> {
        let failed = Cell::new(None);
        let list = |directory: &[u8]| {
            let directory = if directory.is_empty() { Path::new(".") } else { path(directory) };
            names(directory).unwrap_or_else(|error| {
                failed.set(Some(error));
                Vec::new()
            })
        };
        let exists = |name: &[u8]| path(name).symlink_metadata().is_ok();
        let found = paths(glob::expand(pattern.as_os_str().as_bytes(), &list, &exists));
        failed.into_inner().map_or(Ok(found), Err)
    }
}

/// The names in a directory; none where there is no such directory.
fn names(directory: &Path) -> Result<Vec<Vec<u8>>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    entries.map(|entry| entry.map(|entry| entry.file_name().into_vec())).collect()
}

/// Files in memory, by full path.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles {
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl MemoryFiles {
    /// A set without files; [`MemoryFiles::with`] adds them.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file, or replaces it.
    pub fn with(mut self, path: impl Into<PathBuf>, text: impl Into<Vec<u8>>) -> Self {
        self.files.insert(path.into(), text.into());
        self
    }
}

/// Other files, some of which have another text: what an editor shows and has not written, what is about to be written.
#[derive(Clone, Debug, Default)]
pub struct OverlaidFiles<F> {
    /// All other files.
    pub below: F,
    /// Texts by full path.
    pub texts: BTreeMap<PathBuf, Vec<u8>>,
}

impl<F: ConfFiles> ConfFiles for OverlaidFiles<F> {
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.texts.get(path).map_or_else(|| self.below.read(path), |text| Ok(text.clone()))
    }

    fn glob(&self, pattern: &Path) -> Result<Vec<PathBuf>> {
        self.below.glob(pattern)
    }
}

impl ConfFiles for MemoryFiles {
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.files.get(path).cloned().ok_or_else(|| Error::from_raw_os_error(ENOENT))
    }

    fn glob(&self, pattern: &Path) -> Result<Vec<PathBuf>> {
        let list = |directory: &[u8]| {
            let below =
                self.files.keys().filter_map(|file| file.as_os_str().as_bytes().strip_prefix(directory));
            let names = below.filter_map(|rest| rest.split(|&b| b == b'/').next());
            names.map(<[u8]>::to_vec).collect::<BTreeSet<_>>().into_iter().collect()
        };
        let exists = |name: &[u8]| self.files.contains_key(path(name));
        Ok(paths(glob::expand(pattern.as_os_str().as_bytes(), &list, &exists)))
    }
}

/// `2: No such file or directory`, as nginx shows an error of the system.
pub(crate) fn system_error(error: &Error) -> String {
    let words = error.to_string();
    match error.raw_os_error() {
        Some(number) => {
            let suffix = format!(" (os error {number})");
            format!("{number}: {}", words.strip_suffix(&suffix).unwrap_or(&words))
        }
        None => words,
    }
}

/// The system call that failed, by its error: a directory opens, and fails to be read.
pub(crate) fn failed_call(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::IsADirectory | ErrorKind::FileTooLarge => "pread()",
        _ => "open()",
    }
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

fn paths(found: Vec<Vec<u8>>) -> Vec<PathBuf> {
    found.into_iter().map(|name| OsString::from_vec(name).into()).collect()
}

/// Linux's numbers of the two errors made here.
const ENOENT: i32 = 2;
const EFBIG: i32 = 27;

/// 64 MiB: more than any configuration, and offsets fit into a [`crate::Span`]. It also ends the reading of
/// `/dev/zero`.
const LONGEST: u64 = 64 << 20;
