//! Files that a process of the system's administrator opens or makes in directories that other users may write.
//!
//! The user of the server may own the directory of its pid file or of its logs; a link that he puts there must not make
//! the master, which is root, write or give away a file elsewhere. So a link in the last place of a path is followed only
//! if it belongs to root or to this process' own user; what is made beside a file and takes its place is made new; and
//! what is given away is the very file that was opened.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::calls::check;

/// Opens `path` as `options` say; a link of another user than root and this process' own is not followed.
///
/// # Errors
/// Those of open(2): ELOOP for such a link.
pub fn open_trusted(options: &OpenOptions, path: &Path) -> io::Result<File> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        // What the kernel itself links to (`/dev/stdout` leads here) has no text that could be read.
        if path.starts_with("/proc") {
            return options.open(&path);
        }
        match options.clone().custom_flags(libc::O_NOFOLLOW).open(&path) {
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => path = followed(&path)?,
            // Of a directory that must be one, a link says this.
            Err(error) if error.raw_os_error() == Some(libc::ENOTDIR) => {
                path = followed(&path).map_err(|_| error)?;
            }
            result => return result,
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Opens a directory, by the rule of [`open_trusted`].
///
/// # Errors
/// As [`open_trusted`].
pub fn open_trusted_dir(path: &Path) -> io::Result<File> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
        match options.open(&path) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTDIR | libc::ELOOP)) => {
                path = followed(&path)?;
            }
            result => return result,
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Where the link at `path` leads, if it is one to follow. It is opened before it is looked at: a process that puts
/// another one in its place meanwhile changes nothing.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut options = OpenOptions::new();
    let link = options.read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)?;
    let meta = link.metadata()?;
    if !meta.file_type().is_symlink() || (meta.uid() != 0 && meta.uid() != effective_user()) {
        return Err(io::Error::from_raw_os_error(libc::ELOOP));
    }
    let mut text = vec![0_u8; libc::PATH_MAX as usize];
    // SAFETY: the descriptor is open, the empty name is NUL-terminated, and the kernel writes at most `text.len()` bytes.
    let length =
        unsafe { libc::readlinkat(link.as_raw_fd(), c"".as_ptr(), text.as_mut_ptr().cast(), text.len()) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    text.truncate(length);
    let target = PathBuf::from(std::ffi::OsString::from_vec(text));
    Ok(path.parent().unwrap_or(Path::new("/")).join(target))
}

/// Writes `bytes` to a new file `draft`, which then takes the place of `path`: whole or not at all, and never through a
/// link. What was left at `draft` is removed.
///
/// # Errors
/// Those of the file system; EEXIST when another user makes `draft` again and again.
pub fn replace_file(path: &Path, draft: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    match std::fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // O_EXCL: no link is followed, and nothing that is there is opened.
    let mut file = File::options().write(true).create_new(true).mode(mode).open(draft)?;
    file.write_all(bytes)?;
    std::fs::rename(draft, path)
}

/// Listens on a unix socket at `path` that its owner alone may connect to: this process' user, or `owner`.
///
/// # Errors
/// Those of socket(2), bind(2), chown(2).
pub fn bind_private(path: &Path, owner: Option<u32>) -> io::Result<UnixListener> {
    let address = unix_address(path)?;
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nothing else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // The name is made with the mode of the socket itself (unix_bind in Linux): there is no moment in which others could
    // connect, and no path to change the mode by.
    // SAFETY: takes no pointer; the descriptor is open.
    check(unsafe { libc::fchmod(socket.as_raw_fd(), 0o600) })?;
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: `address` is a whole sockaddr_un of that length, and lives through the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    if let Some(owner) = owner {
        give_socket(path, owner)?;
    }
    // SAFETY: takes no pointer; the descriptor is open.
    check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
    Ok(UnixListener::from(socket))
}

/// Gives the socket at `path` to `owner`, provided that it is one and this process' own: whatever else was put there in
/// the meantime stays whose it was.
fn give_socket(path: &Path, owner: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)?;
    let meta = file.metadata()?;
    if !meta.file_type().is_socket() || meta.uid() != effective_user() {
        return Err(io::Error::from_raw_os_error(libc::ELOOP));
    }
    // SAFETY: the descriptor is open, and the empty name is NUL-terminated.
    check(unsafe {
        libc::fchownat(file.as_raw_fd(), c"".as_ptr(), owner, libc::gid_t::MAX, libc::AT_EMPTY_PATH)
    })
}

fn unix_address(path: &Path) -> io::Result<libc::sockaddr_un> {
    let text = CString::new(path.as_os_str().as_bytes())?;
    let bytes = text.as_bytes_with_nul();
    // SAFETY: all fields are integers, of which zeros are valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    if bytes.len() > address.sun_path.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "path must be shorter than SUN_LEN"));
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(address)
}

fn effective_user() -> u32 {
    // SAFETY: takes no pointer and always succeeds.
    unsafe { libc::geteuid() }
}

/// Links that are followed one after the other, as the kernel has it.
const LINKS: usize = 40;
/// What `std` has.
const BACKLOG: libc::c_int = 128;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("weir-trusted-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a fresh folder");
        path
    }

    #[test]
    fn a_link_of_another_user_is_not_followed() {
        let dir = directory("links");
        let (victim, link) = (dir.join("victim"), dir.join("link"));
        std::fs::write(&victim, "as it was").expect("ours");
        symlink("victim", &link).expect("ours");
        let mut options = File::options();
        options.append(true).create(true);
        open_trusted(&options, &link).expect("our own link").write_all(b"!").expect("open");
        // Only root can make links that belong to others.
        if lchown(&link, Some(12345), None).is_ok() {
            let error = open_trusted(&options, &link).expect_err("another user's link");
            assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
            symlink(&dir, dir.join("folder")).expect("ours");
            open_trusted_dir(&dir.join("folder")).expect("our own link");
            lchown(dir.join("folder"), Some(12345), None).expect("as before");
            open_trusted_dir(&dir.join("folder")).expect_err("another user's link");
        }
        assert_eq!(std::fs::read_to_string(&victim).expect("there"), "as it was!");
        open_trusted(&options, Path::new("/dev/stderr")).expect("a link of the system");
        std::fs::remove_dir_all(dir).expect("ours");
    }

    #[test]
    fn a_draft_is_made_new_whatever_was_there() {
        let dir = directory("draft");
        let (victim, draft, path) = (dir.join("victim"), dir.join("draft"), dir.join("file"));
        std::fs::write(&victim, "as it was").expect("ours");
        symlink(&victim, &draft).expect("ours");
        symlink(&victim, &path).expect("ours");
        replace_file(&path, &draft, 0o600, b"new").expect("ours");
        assert_eq!(std::fs::read_to_string(&victim).expect("there"), "as it was");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "new");
        assert!(!path.is_symlink() && !draft.exists());
        std::fs::remove_dir_all(dir).expect("ours");
    }

    #[test]
    fn a_private_socket_has_its_mode_from_the_beginning() {
        let dir = directory("socket");
        let path = dir.join("socket");
        let listener = bind_private(&path, Some(effective_user())).expect("ours");
        let meta = std::fs::symlink_metadata(&path).expect("bound");
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        std::os::unix::net::UnixStream::connect(&path).expect("listens");
        listener.accept().expect("connected");
        // A link in the socket's place is neither bound through nor given away.
        let other = dir.join("other");
        symlink(dir.join("elsewhere"), &other).expect("ours");
        bind_private(&other, None).expect_err("in use");
        give_socket(&other, effective_user()).expect_err("no socket");
        std::fs::remove_dir_all(dir).expect("ours");
    }
}
