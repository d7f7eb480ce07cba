//! Logs that another process opened: a master, which may open what its server may not.
//!
//! While descriptors are [given](give), a caller that opens or reopens one of their paths gets them instead.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_rt::FileHandle;

use super::{LogTarget, file, line};

/// Every file that logs go to, with a duplicate of its descriptor; for a process that gets them by [`give`].
///
/// # Errors
/// Out of descriptors.
pub fn opened() -> io::Result<Vec<(PathBuf, OwnedFd)>> {
    let mut paths: Vec<(PathBuf, OwnedFd)> = Vec::new();
    let mut places = HashMap::new();
    for file in file::all() {
        let Some((path, handle)) = file.handle() else { continue };
        let fd = OwnedFd::from(handle.try_clone()?);
        match places.insert(path.to_path_buf(), paths.len()) {
            // Opened again since it was renamed: the later one is where the path leads.
            Some(place) => {
                paths[place].1 = fd;
                places.insert(path.to_path_buf(), place);
            }
            None => paths.push((path.to_path_buf(), fd)),
        }
    }
    Ok(paths)
}

/// Opens all logs again by their paths, as [`super::reopen`], for a server that runs as the user `owner`: as nginx
/// does, what is not the user's becomes it, readable and writable. What failed is returned, in nginx's words.
pub fn reopen_for(owner: Option<u32>) -> Vec<String> {
    file::all().iter().filter_map(|file| file.reopen(owner).err()).collect()
}

/// Until the result is dropped, opening or reopening these paths gives these descriptors.
pub fn give(files: Vec<(PathBuf, OwnedFd)>) -> GivenFiles {
    let files = files.into_iter().map(|(path, fd)| (path, FileHandle::from(fd)));
    *table() = Some(files.collect());
    GivenFiles(())
}

/// Descriptors are given while it lives; see [`give`].
#[must_use = "the descriptors are given while it lives"]
pub struct GivenFiles(());

impl Drop for GivenFiles {
    fn drop(&mut self) {
        *table() = None;
    }
}

/// What was given for `target`.
pub(super) fn find(target: &LogTarget) -> Option<FileHandle> {
    let path = match target {
        LogTarget::File(path) => path.as_path(),
        LogTarget::Program(text) => Path::new(text),
        _ => return None,
    };
    let table = table();
    // Without a descriptor left the path is tried, which says so.
    table.as_ref()?.get(path)?.try_clone().ok()
}

/// Makes an open log the user's.
pub(super) fn hand_to(handle: &FileHandle, path: &Path, owner: u32) -> Result<(), String> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let failed =
        |call: &str, error: io::Error| format!("{call} \"{}\" failed ({})", path.display(), line::io(&error));
    let duplicate = handle.try_clone().map_err(|error| failed("dup()", error))?;
    let file = std::fs::File::from(OwnedFd::from(duplicate));
    let meta = file.metadata().map_err(|error| failed("stat()", error))?;
    if !meta.is_file() || meta.uid() == owner {
        return Ok(()); // a device or pipe is not ours to give away
    }
    fchown(&file, Some(owner), None).map_err(|error| failed("chown()", error))?;
    let mode = meta.permissions().mode();
    if mode & 0o600 != 0o600 {
        let mode = std::fs::Permissions::from_mode(mode | 0o600);
        file.set_permissions(mode).map_err(|error| failed("chmod()", error))?;
    }
    Ok(())
}

fn table() -> MutexGuard<'static, Option<HashMap<PathBuf, FileHandle>>> {
    static GIVEN: Mutex<Option<HashMap<PathBuf, FileHandle>>> = Mutex::new(None);
    GIVEN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use weir_test::TempDir;

    use super::*;
    use crate::log::LogFile;

    #[test]
    fn a_given_descriptor_takes_the_place_of_the_path() {
        let dir = TempDir::new();
        let directory = dir.path();
        let (named, real) = (directory.join("no/such/folder"), directory.join("real"));
        let target = LogTarget::File(named.clone());
        assert!(LogFile::open(&target, None).is_err());
        let fd = OwnedFd::from(fs::File::create(&real).expect("ours"));
        let given = give(vec![(named.clone(), fd)]);
        let log = LogFile::open(&target, None).expect("given");
        assert!(LogFile::open(&target, None).expect("given") == log, "the same file is the same log");
        log.0.write(b"one\n").expect("room");
        assert!(opened().expect("descriptors").iter().any(|(path, _)| *path == named));
        drop(given);
        assert!(log.0.reopen(None).is_err(), "the path leads nowhere");
        let second = directory.join("second");
        let given = give(vec![(named, OwnedFd::from(fs::File::create(&second).expect("ours")))]);
        log.0.reopen(None).expect("given");
        log.0.write(b"two\n").expect("room");
        drop(given);
        assert_eq!(fs::read_to_string(&real).expect("there"), "one\n");
        assert_eq!(fs::read_to_string(&second).expect("there"), "two\n");
    }

    #[test]
    fn an_owner_gets_what_is_not_his() {
        let directory = TempDir::new();
        let path = directory.path().join("file");
        let file = fs::File::create(&path).expect("ours");
        let handle = FileHandle::from(OwnedFd::from(file));
        use std::os::unix::fs::MetadataExt;
        let uid = || fs::metadata(&path).expect("there").uid();
        let mine = uid();
        hand_to(&handle, &path, mine).expect("nothing to do");
        if weir_rt::process::is_root() {
            hand_to(&handle, &path, 65534).expect("root may");
            assert_eq!(uid(), 65534);
        } else {
            let said = hand_to(&handle, &path, 0).expect_err("not root");
            assert!(said.starts_with("chown() "), "{said}");
        }
    }
}
