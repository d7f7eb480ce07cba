//! Writing a file aside, and putting it in its place when it is whole. All of it makes system calls that may wait for
//! the disk: for threads of the pool, and small files on quick disks ([`weir_rt::small_write::FileWrite`]).

use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use weir_rt::file::errno::{EEXIST, ENOENT, EXDEV};
use weir_rt::file::{FileHandle, FileMeta};

use super::head::{CacheTimes, TIMES};
use weir_engine::temp::{self, TempFileFailure, TempFileName};

/// Where a file is written before it is whole.
#[derive(Clone, Debug)]
pub(crate) enum FileAside {
    /// In a directory of temporary files, with the levels of its own.
    Folder(PathBuf, [u8; 3]),
    /// Beside its place.
    Beside(PathBuf),
}

/// A file that is being written. It is removed unless it was put in its place.
#[derive(Debug)]
pub(crate) struct CacheFileDraft {
    handle: FileHandle,
    path: PathBuf,
    placed: bool,
}

impl CacheFileDraft {
    /// Makes an empty file.
    ///
    /// # Errors
    /// Which call failed.
    pub(crate) fn make(aside: &FileAside) -> Result<CacheFileDraft, TempFileFailure> {
        let (handle, path) = match aside {
            FileAside::Folder(directory, levels) => temp::make(directory, *levels, TempFileName::Kept)?,
            FileAside::Beside(place) => beside(place)?,
        };
        Ok(CacheFileDraft { handle, path, placed: false })
    }

    /// A second handle, to read what was written.
    ///
    /// # Errors
    /// Which call failed.
    pub(crate) fn handle(&self) -> Result<FileHandle, TempFileFailure> {
        self.handle.try_clone().map_err(|error| self.failed("dup()", error))
    }

    /// What the file is.
    ///
    /// # Errors
    /// Which call failed.
    pub(crate) fn meta(&self) -> Result<FileMeta, TempFileFailure> {
        self.handle.meta().map_err(|error| self.failed("fstat()", error))
    }

    /// Writes `pieces`, one after the other, from `offset` on.
    ///
    /// # Errors
    /// Which call failed.
    pub(crate) fn write(&self, pieces: &[impl AsRef<[u8]>], offset: u64) -> Result<(), TempFileFailure> {
        self.handle.pwrite_all(pieces, offset).map_err(|error| self.failed("pwrite()", error))
    }

    /// The permissions that the file shall have.
    ///
    /// # Errors
    /// Which call failed.
    pub(crate) fn set_mode(&self, mode: u32) -> Result<(), TempFileFailure> {
        let set = fs::set_permissions(&self.path, fs::Permissions::from_mode(mode));
        set.map_err(|error| self.failed("chmod()", error))
    }

    /// When the file shall say that it was changed, in seconds since 1970.
    ///
    /// # Errors
    /// Which call failed.
    pub(crate) fn set_time(&self, seconds: i64) -> Result<(), TempFileFailure> {
        let offset = Duration::from_secs(seconds.unsigned_abs());
        let epoch = SystemTime::UNIX_EPOCH;
        let time = if seconds < 0 { epoch.checked_sub(offset) } else { epoch.checked_add(offset) };
        let Some(time) = time else { return Ok(()) };
        let set = File::open(&self.path).and_then(|file| file.set_modified(time));
        set.map_err(|error| self.failed("utimes()", error))
    }

    /// Puts the file at `place`, in the place of what is there; directories above it are made with `mode`, but not
    /// `root` and those above that.
    ///
    /// # Errors
    /// Which call failed.
    pub(crate) fn place(mut self, place: &Path, root: &Path, mode: u32) -> Result<(), TempFileFailure> {
        let renamed = match fs::rename(&self.path, place) {
            Err(error) if error.raw_os_error() == Some(ENOENT) => {
                make_directories(place, root, mode)?;
                fs::rename(&self.path, place)
            }
            result => result,
        };
        match renamed {
            Ok(()) => self.placed = true,
            Err(error) if error.raw_os_error() == Some(EXDEV) => self.copy(place, root, mode)?,
            Err(error) => {
                let path = PathBuf::from(format!("{}\" to \"{}", self.path.display(), place.display()));
                return Err(TempFileFailure { call: "rename()", path, error });
            }
        }
        Ok(())
    }

    /// As [`CacheFileDraft::place`] where the place is in another file system: what is there is never half a file.
    fn copy(&self, place: &Path, root: &Path, mode: u32) -> Result<(), TempFileFailure> {
        make_directories(place, root, mode)?;
        let mut copy = CacheFileDraft::make(&FileAside::Beside(place.to_path_buf()))?;
        let copied = fs::copy(&self.path, &copy.path);
        copied.map_err(|error| self.failed("copy", error))?;
        let times = fs::metadata(&self.path).and_then(|meta| meta.modified());
        // It then shows when it was copied: no reason not to keep it.
        let _ = times.and_then(|time| File::open(&copy.path)?.set_modified(time));
        fs::rename(&copy.path, place).map_err(|error| copy.failed("rename()", error))?;
        copy.placed = true;
        Ok(())
    }

    fn failed(&self, call: &'static str, error: io::Error) -> TempFileFailure {
        TempFileFailure { call, path: self.path.clone(), error }
    }
}

impl Drop for CacheFileDraft {
    fn drop(&mut self) {
        if !self.placed
            && let Err(error) = fs::remove_file(&self.path)
        {
            super::keeper::complain("unlink()", &self.path, &error);
        }
    }
}

/// `place.0000000001`
fn beside(place: &Path) -> Result<(FileHandle, PathBuf), TempFileFailure> {
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut path = place.as_os_str().to_owned();
        path.push(format!(".{number:010}"));
        let path = PathBuf::from(path);
        match weir_rt::file::create_temp(&path, 0o600) {
            Ok(handle) => return Ok((handle, path)),
            // Left by a process before this one.
            Err(error) if error.raw_os_error() == Some(EEXIST) => {}
            Err(error) if error.raw_os_error() == Some(ENOENT) && !has_directory(place) => {
                let root = place.ancestors().nth(4).unwrap_or(place);
                make_directories(place, root, PRIVATE)?;
            }
            Err(error) => return Err(TempFileFailure { call: "open()", path, error }),
        }
    }
}

fn has_directory(place: &Path) -> bool {
    place.parent().is_none_or(Path::is_dir)
}

/// Makes the directories between `root` and `place`.
fn make_directories(place: &Path, root: &Path, mode: u32) -> Result<(), TempFileFailure> {
    let Some(directory) = place.parent() else { return Ok(()) };
    let missing = |error| TempFileFailure { call: "mkdir()", path: directory.to_path_buf(), error };
    if !root.as_os_str().is_empty() && !temp::is_directory(root).map_err(missing)? {
        return Err(missing(io::Error::from_raw_os_error(ENOENT)));
    }
    DirBuilder::new().recursive(true).mode(mode).create(directory).map_err(missing)
}

/// Writes other times into the file at `path`; how it was before and is now.
///
/// # Errors
/// Which call failed.
pub(super) fn set_times(path: &Path, times: &CacheTimes) -> Result<(Metadata, Metadata), TempFileFailure> {
    let failed = |call| move |error| TempFileFailure { call, path: path.to_path_buf(), error };
    let file = File::options().write(true).open(path).map_err(failed("open()"))?;
    let before = file.metadata().map_err(failed("fstat()"))?;
    file.write_all_at(&times.compose(), TIMES as u64).map_err(failed("pwrite()"))?;
    Ok((before, file.metadata().map_err(failed("fstat()"))?))
}

/// The permissions of a cache's directories.
pub(crate) const PRIVATE: u32 = 0o700;
/// Numbers of files that are written beside their places.
static NUMBER: AtomicU32 = AtomicU32::new(1);

#[cfg(test)]
mod tests {
    use weir_test::TempDir;

    use super::*;

    #[test]
    fn a_directory_that_cannot_be_looked_at_is_not_missing() {
        // As any other error that says nothing of whether it is there.
        let directory = TempDir::new();
        let root = directory.path().join("root");
        std::os::unix::fs::symlink(&root, &root).expect("a fresh directory");
        let failure = make_directories(&root.join("a/b/file"), &root, PRIVATE).expect_err("a link to itself");
        assert_eq!(failure.error.raw_os_error(), Some(40), "{failure}");
        let missing = directory.path().join("missing");
        let failure =
            make_directories(&missing.join("a/file"), &missing, PRIVATE).expect_err("it is missing");
        assert_eq!(failure.error.raw_os_error(), Some(ENOENT));
    }
}
