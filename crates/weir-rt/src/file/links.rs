//! Opening a path whose symbolic links are looked at one by one (`disable_symlinks`).

use std::ffi::{CString, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{FileHandle, FileMeta, meta_of, open_with};

/// What is made of symbolic links in a path. `from` bytes at its beginning are trusted: links in them are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymlinkPolicy {
    /// They are followed.
    Follow,
    /// No component may be one.
    Refuse {
        /// Bytes of the path that are not looked at.
        from: usize,
    },
    /// One must have the same owner as what it leads to.
    OwnersOnly {
        /// Bytes of the path that are not looked at.
        from: usize,
    },
}

impl SymlinkPolicy {
    /// The same policy, applied only to what follows the first `from` bytes of the path.
    pub fn starting_at(self, from: usize) -> SymlinkPolicy {
        match self {
            SymlinkPolicy::Follow => SymlinkPolicy::Follow,
            SymlinkPolicy::Refuse { .. } => SymlinkPolicy::Refuse { from },
            SymlinkPolicy::OwnersOnly { .. } => SymlinkPolicy::OwnersOnly { from },
        }
    }
}

/// As [`super::open`], component by component.
///
/// # Errors
/// `ELOOP` for a link that is not allowed, else the errno of openat(2), fstatat(2) or fstat(2).
pub fn open_links(path: &Path, links: SymlinkPolicy) -> io::Result<FileHandle> {
    let (from, owners) = match links {
        SymlinkPolicy::Follow => return super::open(path),
        SymlinkPolicy::Refuse { from } => (from, false),
        SymlinkPolicy::OwnersOnly { from } => (from, true),
    };
    let bytes = path.as_os_str().as_bytes();
    if bytes.contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    let (trusted, rest) = bytes.split_at(from.min(bytes.len()));
    let start = match (trusted, bytes.first()) {
        ([], Some(b'/')) => "/".as_ref(),
        ([], _) => ".".as_ref(),
        (trusted, _) => Path::new(std::ffi::OsStr::from_bytes(trusted)),
    };
    let mut at = open_with(start, DIRECTORY, 0)?;
    let mut names = rest.split(|&b| b == b'/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = names.next() {
        let name = CString::new(name).expect("no NUL, as checked above");
        if names.peek().is_none() {
            // A slash at the end asks for a directory.
            let flags = if bytes.ends_with(b"/") { LAST | libc::O_DIRECTORY } else { LAST };
            return step(&at, &name, flags, owners);
        }
        at = step(&at, &name, libc::O_PATH, owners)?;
    }
    open_at(&at, c".", LAST)
}

/// Opens `name` in `at`, which it must name itself, or, for `owners`, by a link of the owner of what is opened.
fn step(at: &FileHandle, name: &std::ffi::CStr, flags: c_int, owners: bool) -> io::Result<FileHandle> {
    if owners {
        let opened = open_at(at, name, flags)?;
        let named = lstat_at(at, name)?;
        if named.mode & libc::S_IFMT == libc::S_IFLNK && named.uid != opened.meta()?.uid {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        return Ok(opened);
    }
    let opened = open_at(at, name, flags | libc::O_NOFOLLOW)?;
    // With O_PATH a link itself is opened instead of being refused.
    if flags & libc::O_PATH != 0 && opened.meta()?.mode & libc::S_IFMT == libc::S_IFLNK {
        return Err(io::Error::from_raw_os_error(libc::ELOOP));
    }
    Ok(opened)
}

fn open_at(at: &FileHandle, name: &std::ffi::CStr, flags: c_int) -> io::Result<FileHandle> {
    // SAFETY: `name` is NUL-terminated and outlives the call; no flag here creates, so there is no mode.
    let fd = unsafe { libc::openat(at.fd(), name.as_ptr(), flags | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(FileHandle::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn lstat_at(at: &FileHandle, name: &std::ffi::CStr) -> io::Result<FileMeta> {
    let mut st = MaybeUninit::uninit();
    // SAFETY: both pointers are valid for the call.
    let result = unsafe {
        libc::fstatat(at.fd.as_raw_fd(), name.as_ptr(), st.as_mut_ptr(), libc::AT_SYMLINK_NOFOLLOW)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled, as the call succeeded.
    Ok(meta_of(unsafe { st.assume_init_ref() }))
}

/// How directories on the way are opened: without the right to read them.
const DIRECTORY: c_int = libc::O_PATH | libc::O_DIRECTORY;
/// How the file itself is opened.
const LAST: c_int = libc::O_RDONLY | libc::O_NONBLOCK;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::Dir;
    use std::os::unix::fs::symlink;

    fn errno(path: &Path, links: SymlinkPolicy) -> Option<i32> {
        open_links(path, links).err().and_then(|e| e.raw_os_error())
    }

    #[test]
    fn links_are_refused_where_they_are_not_trusted() {
        let directory = Dir::new("links");
        let dir = &directory.0;
        std::fs::create_dir_all(dir.join("real/sub")).expect("a fresh folder");
        std::fs::write(dir.join("real/sub/f"), "x").expect("writable");
        symlink("real", dir.join("dirlink")).expect("fresh");
        symlink("real/sub/f", dir.join("link")).expect("fresh");
        let refuse = SymlinkPolicy::Refuse { from: 0 };
        let trusting = refuse.starting_at(dir.join("dirlink").as_os_str().len());
        let owners = SymlinkPolicy::OwnersOnly { from: 0 };
        let at = |name: &str| dir.join(name);
        assert_eq!(errno(&at("real/sub/f"), refuse), None);
        assert_eq!(errno(&at("real//sub"), refuse), None);
        assert_eq!(errno(&at("real/sub/"), refuse), None);
        assert_eq!(errno(&at("real/sub/f/"), refuse), Some(libc::ENOTDIR));
        assert_eq!(errno(&at("real/sub/f/g"), refuse), Some(libc::ENOTDIR));
        assert_eq!(errno(&at("link"), refuse), Some(libc::ELOOP));
        assert_eq!(errno(&at("dirlink/sub/f"), refuse), Some(libc::ELOOP));
        assert_eq!(errno(&at("dirlink/sub/f"), trusting), None);
        assert_eq!(errno(&at("dirlink/sub/f"), owners), None, "our own link");
        assert_eq!(errno(&at("gone/f"), refuse), Some(libc::ENOENT));
        assert_eq!(errno(Path::new("/a\0b"), refuse), Some(libc::ENOENT));
        assert_eq!(errno(Path::new("/"), refuse), None);
    }
}
