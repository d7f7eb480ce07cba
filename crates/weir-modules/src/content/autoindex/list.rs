//! Reading a directory: names, kinds, sizes and times.

use std::ffi::OsStr;
use std::fs::ReadDir;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use weir_rt::file::errno::{EACCES, EIO, ELOOP, ENOENT};
use weir_rt::file::{FileKind, FileMeta, lstat, stat};

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryEntry {
    /// The name, any bytes but `/` and NUL.
    pub(crate) name: Vec<u8>,
    /// What it leads to; a link to nowhere is [`FileKind::Other`].
    pub(crate) kind: FileKind,
    /// Last modification, seconds since 1970.
    pub(crate) mtime: i64,
    /// Bytes.
    pub(crate) size: u64,
}

/// A system call that failed.
#[derive(Debug)]
pub(crate) struct FailedCall {
    /// Its name, as nginx's messages have it.
    pub call: &'static str,
    /// Its error.
    pub(crate) errno: i32,
}

/// The entries of `folder` but those that begin with a dot: directories first, each kind by name. Blocks.
///
/// # Errors
/// `opendir()`, and what keeps an entry from being looked at other than that it is gone or forbidden.
pub(crate) fn read(directory: &[u8]) -> Result<Vec<DirectoryEntry>, FailedCall> {
    let mut entries = Vec::new();
    for name in open(directory)? {
        let name = name.map_err(|error| failed("readdir()", &error))?;
        if name.file_name().as_bytes().starts_with(b".") {
            continue;
        }
        if let Some(meta) = look_at(&name.path())? {
            let name = name.file_name().into_vec();
            entries.push(DirectoryEntry { name, kind: meta.kind, mtime: meta.mtime_s, size: meta.size });
        }
    }
    let is_file = |entry: &DirectoryEntry| entry.kind != FileKind::Dir;
    entries.sort_unstable_by(|a, b| (is_file(a), &a.name).cmp(&(is_file(b), &b.name)));
    Ok(entries)
}

/// Opens a directory: a HEAD request asks no more. Blocks.
///
/// # Errors
/// `opendir()`.
pub(crate) fn open(directory: &[u8]) -> Result<ReadDir, FailedCall> {
    let directory = Path::new(OsStr::from_bytes(directory));
    std::fs::read_dir(directory).map_err(|error| failed("opendir()", &error))
}

/// What a name leads to; a link that leads nowhere is itself. `None`: it may not be looked at, or is gone by now.
fn look_at(path: &Path) -> Result<Option<FileMeta>, FailedCall> {
    let error = match stat(path) {
        Ok(meta) => return Ok(Some(meta)),
        Err(error) => failed("stat()", &error),
    };
    match error.errno {
        EACCES => Ok(None),
        ENOENT | ELOOP => match lstat(path).map_err(|error| failed("lstat()", &error)) {
            Ok(meta) => Ok(Some(meta)),
            Err(FailedCall { errno: ENOENT, .. }) => Ok(None),
            Err(error) => Err(error),
        },
        _ => Err(error),
    }
}

fn failed(call: &'static str, error: &io::Error) -> FailedCall {
    FailedCall { call, errno: error.raw_os_error().unwrap_or(EIO) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_first_and_dots_stay_hidden() {
        let dir = weir_test::TempDir::new();
        let directory = dir.path().join("list");
        std::fs::create_dir_all(directory.join("z")).expect("a fresh folder");
        for name in ["b", "a", ".hidden"] {
            std::fs::write(directory.join(name), name).expect("writable");
        }
        std::os::unix::fs::symlink("nowhere", directory.join("lost")).expect("fresh");
        std::os::unix::fs::symlink("z", directory.join("link")).expect("fresh");
        std::os::unix::fs::symlink("loop", directory.join("loop")).expect("fresh");
        let bytes = directory.as_os_str().as_bytes();
        let seen = |entry: &DirectoryEntry| {
            (String::from_utf8_lossy(&entry.name).into_owned(), entry.kind, entry.size)
        };
        let list: Vec<_> = read(bytes).expect("there").iter().map(seen).collect();
        let names: Vec<&str> = list.iter().map(|(name, ..)| &**name).collect();
        assert_eq!(names, ["link", "z", "a", "b", "loop", "lost"]);
        assert_eq!((list[0].1, list[2].1, list[5].1), (FileKind::Dir, FileKind::File, FileKind::Other));
        assert_eq!((list[2].2, list[5].2), (1, 7), "a link to nowhere has the length of its goal's name");
        assert!(open(bytes).is_ok());
        std::fs::remove_dir_all(&directory).expect("ours");
        assert!(open(bytes).is_err());
        let error = read(bytes).expect_err("gone");
        assert_eq!((error.call, error.errno), ("opendir()", ENOENT));
    }
}
