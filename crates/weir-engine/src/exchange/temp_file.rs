//! Files with numbers for names, for what does not fit in memory: `0000000001` and on, inside as many levels of directories
//! as configured, each named by the number's last digits.

use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use weir_rt::file::{FileHandle, create_temp, errno_text};

/// A file that can't be used.
#[derive(Debug)]
pub struct TempFileFailure {
    /// The name of the system call that failed.
    pub call: &'static str,
    /// Whose path it was given.
    pub path: PathBuf,
    /// The error of that call.
    pub error: io::Error,
}

impl fmt::Display for TempFileFailure {
    /// nginx's words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errno = self.error.raw_os_error();
        let reason = errno.map_or("unexpected end", errno_text);
        write!(f, "{} \"{}\" failed ({}: {reason})", self.call, self.path.display(), errno.unwrap_or(0))
    }
}

/// What becomes of a new file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TempFileName {
    /// The file keeps its name after it was opened.
    Kept,
    /// It is removed at once: the file goes with its handle.
    Removed,
}

/// Makes the file of the next free number, and the directories it lies in; on a thread that may wait for the disk.
///
/// # Errors
/// Which call failed.
pub fn make(
    directory: &Path,
    levels: [u8; 3],
    name: TempFileName,
) -> Result<(FileHandle, PathBuf), TempFileFailure> {
    make_from(directory, levels, name, &NUMBER).map_err(|(path, error)| TempFileFailure {
        call: "open()",
        path,
        error,
    })
}

fn make_from(
    directory: &Path,
    levels: [u8; 3],
    name: TempFileName,
    number: &AtomicU32,
) -> Result<(FileHandle, PathBuf), (PathBuf, io::Error)> {
    let mut step = 1;
    loop {
        let path = path(directory, levels, number.fetch_add(step, Ordering::Relaxed).wrapping_add(step));
        match create_in(directory, &path) {
            Ok(handle) if name == TempFileName::Kept => return Ok((handle, path)),
            Ok(handle) => {
                return match fs::remove_file(&path) {
                    Ok(()) => Ok((handle, path)),
                    Err(error) => Err((path, error)),
                };
            }
            // Left by an earlier process or made by another one: far away there is room.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => step = LEAP,
            Err(error) => return Err((path, error)),
        }
    }
}

/// Creates the file, and first, if they are missing, the levels between it and `directory`.
fn create_in(directory: &Path, path: &Path) -> io::Result<FileHandle> {
    let parent = path.parent().unwrap_or(directory);
    match create_temp(path, 0o600) {
        Err(error)
            if error.kind() == io::ErrorKind::NotFound && parent != directory && is_directory(directory)? =>
        {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            create_temp(path, 0o600)
        }
        result => result,
    }
}

/// Whether there is a directory: a disk that fails is no word about that.
///
/// # Errors
/// That of stat(2), unless nothing is there.
pub fn is_directory(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(meta) => Ok(meta.is_dir()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// `directory/9/78/0123456789` for levels 1 and 2.
fn path(directory: &Path, levels: [u8; 3], number: u32) -> PathBuf {
    let name = format!("{number:010}");
    let mut path = directory.to_path_buf();
    let mut end = name.len();
    for level in levels.into_iter().map(usize::from).take_while(|&level| level > 0) {
        let start = end.saturating_sub(level);
        path.push(&name[start..end]);
        end = start;
    }
    path.push(name);
    path
}

/// The number of the last file made in this process.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// How far the number goes when its file exists already.
const LEAP: u32 = 123_456;

#[cfg(test)]
mod tests {
    use weir_test::TempDir;

    use super::*;

    #[test]
    fn levels_take_the_last_digits() {
        let at = |levels| path(Path::new("/t"), levels, 123_456_789).display().to_string();
        assert_eq!(at([0, 0, 0]), "/t/0123456789");
        assert_eq!(at([1, 2, 0]), "/t/9/78/0123456789");
        assert_eq!(at([2, 2, 2]), "/t/89/67/45/0123456789");
    }

    #[test]
    fn files_lose_their_name_or_keep_it() {
        let dir = TempDir::new();
        let directory = dir.path().join("temp");
        fs::create_dir(&directory).expect("a fresh directory");
        let number = AtomicU32::new(0);
        let (unnamed, first) =
            make_from(&directory, [1, 2, 0], TempFileName::Removed, &number).expect("made");
        assert!(first.ends_with("1/00/0000000001"), "{}", first.display());
        assert!(!first.exists());
        unnamed.pwrite_all(&[b"hello"], 0).expect("written");
        unnamed.pwrite_all(&[b"HE"], 0).expect("written");
        assert_eq!(unnamed.meta().expect("open").size, 5);
        let (_, second) = make_from(&directory, [1, 2, 0], TempFileName::Kept, &number).expect("made");
        assert!(second.exists());
        number.store(1, Ordering::Relaxed);
        let (_, third) = make_from(&directory, [1, 2, 0], TempFileName::Kept, &number).expect("made");
        assert!(third.ends_with("0000123458"), "{}", third.display());
        fs::remove_dir_all(&directory).expect("ours");
        let (path, error) =
            make_from(&directory, [1, 0, 0], TempFileName::Kept, &number).expect_err("the directory is gone");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(path.starts_with(&directory));
    }
}
