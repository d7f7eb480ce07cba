//! Files for a loop that must not block: descriptors, metadata, and whether a range is in the page cache.
//!
//! Opening and stat-ing touch the directory cache and are done in the loop, as nginx does. Contents are another
//! matter: [`FileHandle::resident`] says whether a read or sendfile would wait for the disk, and
//! [`FileHandle::readahead_blocking`] is what a pool thread does about it.

use std::ffi::{CString, c_char, c_int};
use std::io::{self, IoSlice};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

pub(crate) mod disk;
mod links;
pub(crate) mod own_handle;
mod trusted;

use crate::calls::{check, retry};
use crate::process;

pub use disk::{DiskState, disk_states};
pub use links::{SymlinkPolicy, open_links};
pub use own_handle::on_pool;
pub use trusted::{bind_private, open_trusted, open_trusted_dir, replace_file};

/// An open file. Positions are given with each call, so one handle may be used by several transfers at once.
#[derive(Debug)]
pub struct FileHandle {
    /// Gone only within `drop`, and within the conversion to an `OwnedFd`.
    fd: ManuallyDrop<OwnedFd>,
    /// cachestat(2) does not work for this file: see [`FileHandle::resident`].
    unanswered: AtomicBool,
    /// See [`FileHandle::close_on_thread`].
    aside: AtomicBool,
}

/// Pieces that one pwritev(2) takes at most (IOV_MAX).
const PIECES: usize = 1024;

/// The kind of what a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// Anything else: a device, FIFO, socket, or (by [`lstat`] only) a symbolic link.
    Other,
}

/// What stat(2) says, as far as a server asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMeta {
    /// File, directory or neither.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Last modification, seconds since 1970.
    pub mtime_s: i64,
    /// Nanoseconds within that second, 0 to 999,999,999.
    pub mtime_ns: u32,
    /// Inode number.
    pub ino: u64,
    /// Device number.
    pub dev: u64,
    /// Type and permission bits (`st_mode`).
    pub mode: u32,
    /// The owner's user id.
    pub uid: u32,
}

/// Opens for reading, without waiting for the other end of a FIFO. Directories can be opened too.
///
/// # Errors
/// The errno of open(2); `ENOENT` also for a path with a NUL in it, which no file has.
pub fn open(path: &Path) -> io::Result<FileHandle> {
    open_with(path, libc::O_RDONLY | libc::O_NONBLOCK, 0)
}

/// Opens a log for appending, creating it as 0644 less the umask. A link of another user is not followed: see
/// [`open_trusted`].
///
/// # Errors
/// The errno of open(2).
pub fn open_append(path: &Path) -> io::Result<FileHandle> {
    let mut options = std::fs::OpenOptions::new();
    let file = open_trusted(options.append(true).create(true).mode(0o644), path)?;
    Ok(FileHandle::from(OwnedFd::from(file)))
}

/// Creates a file that must not exist, for reading and writing, with `mode` less the umask.
///
/// # Errors
/// `EEXIST`, and the other errnos of open(2).
pub fn create_temp(path: &Path, mode: u32) -> io::Result<FileHandle> {
    open_with(path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, mode)
}

/// A file without a name in `dir`, 0600, which is gone when the last handle is.
///
/// # Errors
/// The errno of open(2) or, where the file system cannot do that (O_TMPFILE), of unlink(2) after it.
pub fn create_unlinked(dir: &Path) -> io::Result<FileHandle> {
    match open_with(dir, libc::O_RDWR | libc::O_TMPFILE, 0o600) {
        // EISDIR: a kernel without the flag sees only the directory.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
            create_then_unlink(dir)
        }
        result => result,
    }
}

fn create_then_unlink(dir: &Path) -> io::Result<FileHandle> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let name = format!(".weir.{}.{}", process::pid(), NEXT.fetch_add(1, Relaxed));
        let path = dir.join(name);
        match create_temp(&path, 0o600) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {} // left by a process of the same number
            Err(e) => return Err(e),
            Ok(file) => return std::fs::remove_file(&path).map(|()| file),
        }
    }
}

/// open(2) with O_CLOEXEC added, for the flags the functions above do not have (O_NOFOLLOW, O_DIRECTORY).
///
/// # Errors
/// The errno of open(2); `ENOENT` also for a path with a NUL in it.
pub(crate) fn open_with(path: &Path, flags: c_int, mode: u32) -> io::Result<FileHandle> {
    let fd = with_c_path(path, |p| {
        // SAFETY: `p` is NUL-terminated and outlives the call; `mode` is passed as the variadic argument it is.
        // Not by libc's function, which is dearer in a process with threads (see `sys`).
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, p, flags | libc::O_CLOEXEC, mode) as c_int }
    })?;
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(FileHandle::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// What the path leads to, symbolic links followed.
///
/// # Errors
/// The errno of stat(2); `ENOENT` also for a path with a NUL in it.
pub fn stat(path: &Path) -> io::Result<FileMeta> {
    // SAFETY: both pointers are valid for the call.
    stat_by(|st| with_c_path(path, |p| unsafe { libc::stat(p, st) }))
}

/// What the path names, the link itself if it is one.
///
/// # Errors
/// As [`stat`].
pub fn lstat(path: &Path) -> io::Result<FileMeta> {
    // SAFETY: both pointers are valid for the call.
    stat_by(|st| with_c_path(path, |p| unsafe { libc::lstat(p, st) }))
}

/// Bytes that the file system of `path` has free for ordinary users.
///
/// # Errors
/// The errno of statvfs(3).
pub fn free_space(path: &Path) -> io::Result<u64> {
    let mut found = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: both pointers are valid for the call.
    with_c_path(path, |p| unsafe { libc::statvfs(p, found.as_mut_ptr()) })?;
    // SAFETY: the call above has filled it in, or we are not here.
    let found = unsafe { found.assume_init() };
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

impl FileHandle {
    /// Metadata of the open file, whatever its path is by now.
    ///
    /// # Errors
    /// The errno of fstat(2).
    pub fn meta(&self) -> io::Result<FileMeta> {
        // SAFETY: the pointer is valid for the call, the descriptor is ours.
        stat_by(|st| check(unsafe { libc::fstat(self.fd(), st) }).map(|()| 0))
    }

    /// The descriptor, still owned by the handle.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// A second handle of the same open file, for another thread. Closed where it is dropped.
    ///
    /// # Errors
    /// `EMFILE`, the process has no descriptor left.
    pub fn try_clone(&self) -> io::Result<FileHandle> {
        self.fd.try_clone().map(FileHandle::from)
    }

    /// Has a thread of the pool close it: for a file of `bytes` that goes with its last handle, which takes 0.07 ms for
    /// each megabyte (ext4). Nothing changes for a small one.
    pub fn close_on_thread(&self, bytes: u64) {
        self.aside.store(bytes >= CLOSED_BY_THREAD, Relaxed);
    }

    /// Reads at `offset`; 0 is the end of the file. Waits for the disk unless the range is [`resident`].
    ///
    /// # Errors
    /// The errno of pread(2), but for `EINTR`.
    ///
    /// [`resident`]: FileHandle::resident
    pub fn pread(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let offset = signed(offset)?;
        // SAFETY: `buf` is writable for its length.
        transfer(|| unsafe { libc::pread(self.fd(), buf.as_mut_ptr().cast(), buf.len(), offset) })
    }

    /// Reads at `offset` until `buf` is full or the file ends; how many bytes that were. Waits for the disk like
    /// [`FileHandle::pread`].
    ///
    /// # Errors
    /// The errno of pread(2), but for `EINTR`.
    pub fn pread_full(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.pread(&mut buf[done..], offset + done as u64)? {
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    }

    /// Reads at `offset` what the page cache has, without waiting for the disk: `None` if that is nothing. Where the
    /// file system does not say (overlays), it reads, and may wait.
    ///
    /// # Errors
    /// The errno of preadv2(2), but for `EINTR`.
    pub fn pread_cached(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        // SAFETY: `buf` is writable for its length.
        match unsafe { self.pread_nowait(buf.as_mut_ptr(), buf.len(), offset) } {
            Ok(n) => Ok(Some(n)),
            Err(e) => match e.raw_os_error() {
                Some(libc::EAGAIN) => Ok(None),
                Some(libc::EOPNOTSUPP | libc::ENOSYS) => self.pread(buf, offset).map(Some),
                _ => Err(e),
            },
        }
    }

    /// The `len` bytes from `offset` on, where the page cache has all of them or the file system does not say (as
    /// [`FileHandle::pread_cached`]); `None` else, and where the file ends earlier. The memory is not cleared before.
    ///
    /// # Errors
    /// The errno of preadv2(2), but for `EINTR`.
    pub fn bytes_cached(&self, offset: u64, len: usize) -> io::Result<Option<Rc<[u8]>>> {
        let mut bytes = Rc::<[u8]>::new_uninit_slice(len);
        let room = Rc::get_mut(&mut bytes).expect("made in the line above");
        // SAFETY: `room` is writable for its length.
        match unsafe { self.pread_nowait(room.as_mut_ptr().cast(), len, offset) } {
            // SAFETY: the kernel has written all `len` bytes.
            Ok(n) if n == len => Ok(Some(unsafe { bytes.assume_init() })),
            Ok(_) => Ok(None),
            Err(e) => match e.raw_os_error() {
                Some(libc::EAGAIN) => Ok(None),
                Some(libc::EOPNOTSUPP | libc::ENOSYS) => {
                    let mut bytes = vec![0; len];
                    Ok((self.pread(&mut bytes, offset)? == len).then(|| bytes.into()))
                }
                _ => Err(e),
            },
        }
    }

    /// preadv2(2) of one piece with `RWF_NOWAIT`, or without it where the file system knows no such reads and has its
    /// files in memory.
    ///
    /// # Safety
    /// `start` is writable for `len` bytes.
    pub(crate) unsafe fn pread_nowait(&self, start: *mut u8, len: usize, offset: u64) -> io::Result<usize> {
        let (iov, offset) = (libc::iovec { iov_base: start.cast(), iov_len: len }, signed(offset)?);
        // SAFETY: one iovec, whose memory the caller vouches for.
        let read = |flags| transfer(|| unsafe { libc::preadv2(self.fd(), &raw const iov, 1, offset, flags) });
        match read(libc::RWF_NOWAIT) {
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) && self.is_in_memory() => read(0),
            result => result,
        }
    }

    /// Whether the file is of a file system in memory, which has no disk to wait for.
    fn is_in_memory(&self) -> bool {
        let mut stat = MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: `stat` is writable, and whole after success.
        let kind =
            unsafe { (libc::fstatfs(self.fd(), stat.as_mut_ptr()) == 0).then(|| stat.assume_init().f_type) };
        kind.is_some_and(|kind| IN_MEMORY.contains(&(kind as u32)))
    }

    /// Writes at `offset`; may write less than all.
    ///
    /// # Errors
    /// The errno of pwrite(2), but for `EINTR`.
    pub fn pwrite(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let offset = signed(offset)?;
        // SAFETY: `buf` is readable for its length.
        transfer(|| unsafe { libc::pwrite(self.fd(), buf.as_ptr().cast(), buf.len(), offset) })
    }

    /// Writes all of `pieces`, one after the other, from `offset` on. Waits for the disk.
    ///
    /// # Errors
    /// The errno of pwritev(2), but for `EINTR`; `WriteZero` where the file takes nothing.
    pub fn pwrite_all(&self, pieces: &[impl AsRef<[u8]>], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for some in pieces.chunks(PIECES) {
            let mut slices: Vec<IoSlice<'_>> =
                some.iter().map(|piece| IoSlice::new(piece.as_ref())).collect();
            let mut left = slices.as_mut_slice();
            // Without the empty ones in front, which would look like a file that takes nothing.
            IoSlice::advance_slices(&mut left, 0);
            while !left.is_empty() {
                match self.pwritev(left, at)? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    n => {
                        at += n as u64;
                        IoSlice::advance_slices(&mut left, n);
                    }
                }
            }
        }
        Ok(())
    }

    fn pwritev(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let (pieces, count, offset) = (slices.as_ptr().cast(), slices.len() as c_int, signed(offset)?);
        // SAFETY: a slice of `IoSlice` is an array of iovec, each readable for its length; no more than PIECES of them.
        transfer(|| unsafe { libc::pwritev(self.fd(), pieces, count, offset) })
    }

    /// Writes at the end of a file opened with [`open_append`], whole with respect to other writers of it; may
    /// write less than all when the disk is full.
    ///
    /// # Errors
    /// The errno of write(2), but for `EINTR`.
    pub fn append(&self, buf: &[u8]) -> io::Result<usize> {
        // SAFETY: `buf` is readable for its length.
        transfer(|| unsafe { libc::write(self.fd(), buf.as_ptr().cast(), buf.len()) })
    }

    /// Sends up to `len` bytes from `offset` to the socket `out`; 0 means the file ends there, which for a range
    /// within the size once seen means it has been truncated.
    ///
    /// The kernel queues the file's own pages, not a copy: what is written over or cut off before it has left the
    /// machine goes out changed, or as zeroes. A file that is served must be replaced by rename, as everywhere.
    ///
    /// # Errors
    /// The errno of sendfile(2): `EAGAIN` if the socket takes nothing now, and its own errors.
    pub fn sendfile(&self, out: RawFd, offset: u64, len: usize) -> io::Result<usize> {
        let mut offset = signed(offset)?;
        // SAFETY: `offset` is valid for the call; a wrong `out` is EBADF.
        transfer(|| unsafe { libc::sendfile(out, self.fd(), &mut offset, len) })
    }

    /// Whether the range is in the page cache, so that reading it would not wait for the disk. A range beyond the
    /// end of the file is not. Pages may be dropped between the question and the read: then one read waits.
    pub fn resident(&self, offset: u64, len: u64) -> bool {
        if len == 0 {
            return true;
        }
        match self.cached_pages(offset, len) {
            Some(cached) => {
                let page = process::page_size() as u64;
                let pages = (offset.saturating_add(len - 1)) / page - offset / page + 1;
                cached >= pages
            }
            None => self.probe(offset, len),
        }
    }

    /// Reads the range through, so that it is in the page cache afterwards; ends early at the end of the file.
    /// For pool threads only.
    ///
    /// # Errors
    /// The errno of pread(2): `EIO` for a bad disk.
    pub(crate) fn readahead_blocking(&self, offset: u64, len: u64) -> io::Result<()> {
        // One request for the whole range lets the disk order it; file systems that refuse are still read below.
        // SAFETY: no pointers.
        unsafe { libc::readahead(self.fd(), signed(offset)?, usize::try_from(len).unwrap_or(usize::MAX)) };
        let mut scratch = vec![0u8; 64 << 10];
        let end = offset.saturating_add(len);
        let mut at = offset;
        while at < end {
            let want = scratch.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            match self.pread(&mut scratch[..want], at)? {
                0 => break,
                n => at += n as u64,
            }
        }
        Ok(())
    }

    /// cachestat(2), Linux 6.5. `None` where it is missing, forbidden by a container, or refused for this file:
    /// newer kernels (6.18 at least) allow it only to the file's owner or a process that may write it, which a worker
    /// running as `nobody` does not. Asked once per file then, and once per process where there is no such call.
    fn cached_pages(&self, offset: u64, len: u64) -> Option<u64> {
        static MISSING: AtomicBool = AtomicBool::new(false);
        if MISSING.load(Relaxed) || self.unanswered.load(Relaxed) {
            return None;
        }
        let range = CacheStatRange { offset, len };
        let mut stat = CacheStat::default();
        // SAFETY: both structs are the kernel's and valid for the call; flags must be 0.
        let result = unsafe { libc::syscall(SYS_CACHESTAT, self.fd(), &range, &mut stat, 0) };
        if result == 0 {
            return Some(stat.cached);
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOSYS) => MISSING.store(true, Relaxed),
            _ => self.unanswered.store(true, Relaxed),
        }
        None
    }

    /// Asks for one byte per [`PROBE_STEP`], and the last one, without waiting. Disks are read ahead in larger
    /// pieces than that, so a hole between two probes is rare.
    fn probe(&self, offset: u64, len: u64) -> bool {
        let last = offset.saturating_add(len - 1);
        let mut at = offset;
        while at < last {
            if !self.probe_byte(at) {
                return false;
            }
            at = at.saturating_add(PROBE_STEP);
        }
        self.probe_byte(last)
    }

    fn probe_byte(&self, offset: u64) -> bool {
        let mut byte = 0u8;
        // SAFETY: one writable byte. EAGAIN: not cached. EOPNOTSUPP: the file system does not say, and then the
        // response is no and a pool thread reads the file.
        unsafe { self.pread_nowait(&raw mut byte, 1, offset).is_ok_and(|n| n == 1) }
    }
}

impl From<OwnedFd> for FileHandle {
    fn from(fd: OwnedFd) -> FileHandle {
        FileHandle {
            fd: ManuallyDrop::new(fd),
            unanswered: AtomicBool::new(false),
            aside: AtomicBool::new(false),
        }
    }
}

impl From<FileHandle> for OwnedFd {
    fn from(file: FileHandle) -> OwnedFd {
        let mut file = ManuallyDrop::new(file);
        // SAFETY: the handle is not used after this, nor dropped.
        unsafe { ManuallyDrop::take(&mut file.fd) }
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        // SAFETY: nothing uses the handle after this.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if self.aside.load(Relaxed) {
            crate::blocking::submit(Box::new(move || drop(fd)));
        }
    }
}

/// The errnos that distinguish a missing file from a forbidden one from a broken server.
pub mod errno {
    pub use libc::{
        EACCES, EEXIST, EIO, EISDIR, ELOOP, EMFILE, EMLINK, ENAMETOOLONG, ENFILE, ENOENT, ENOSPC, ENOTDIR,
        EPERM, EXDEV,
    };
}

/// Flag of open(2): does not wait for the other end of a FIFO.
pub const O_NONBLOCK: c_int = libc::O_NONBLOCK;

/// The C library's words for an errno: "No such file or directory", as nginx prints after the number.
/// "Unknown error" for an unknown number.
pub fn errno_text(errno: i32) -> &'static str {
    static TEXTS: OnceLock<Vec<String>> = OnceLock::new();
    // One more than the highest errno of Linux, EHWPOISON.
    let texts = TEXTS.get_or_init(|| (0..=133).map(strerror).collect());
    match usize::try_from(errno).ok().and_then(|i| texts.get(i)) {
        Some(text) => text,
        None => "Unknown error",
    }
}

fn strerror(errno: i32) -> String {
    let mut text = [0u8; 128];
    // SAFETY: writable for the length given; the XSI form, which fills the buffer and ends it with NUL.
    unsafe { libc::strerror_r(errno, text.as_mut_ptr().cast(), text.len()) };
    let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
    String::from_utf8_lossy(&text[..end]).into_owned()
}

/// Bytes from which on [`FileHandle::close_on_thread`] has an effect: a trip to the pool costs less than to free so many.
const CLOSED_BY_THREAD: u64 = 1 << 20;
/// tmpfs and ramfs, by the numbers of statfs(2).
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];
/// Bytes between two probes of [`FileHandle::resident`]'s fallback; Linux reads ahead 128 KiB by default.
const PROBE_STEP: u64 = 32 << 10;

/// The same number on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct CacheStatRange {
    offset: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

fn stat_by(call: impl FnOnce(*mut libc::stat) -> io::Result<c_int>) -> io::Result<FileMeta> {
    let mut st = MaybeUninit::uninit();
    call(st.as_mut_ptr())?;
    // SAFETY: the three callers pass a call of the stat family, which has filled the struct as it succeeded.
    Ok(meta_of(unsafe { st.assume_init_ref() }))
}

fn meta_of(st: &libc::stat) -> FileMeta {
    FileMeta {
        kind: match st.st_mode & libc::S_IFMT {
            libc::S_IFREG => FileKind::File,
            libc::S_IFDIR => FileKind::Dir,
            _ => FileKind::Other,
        },
        size: u64::try_from(st.st_size).unwrap_or(0),
        mtime_s: st.st_mtime,
        mtime_ns: st.st_mtime_nsec as u32,
        ino: st.st_ino,
        dev: st.st_dev,
        mode: st.st_mode,
        uid: st.st_uid,
    }
}

/// Room for paths that need no allocation to get their NUL.
const SHORT_PATH: usize = 384;

/// Calls `f` with the path as C wants it.
fn with_c_path(path: &Path, f: impl FnOnce(*const c_char) -> c_int) -> io::Result<c_int> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    let result = if bytes.len() < SHORT_PATH {
        let mut short = [0u8; SHORT_PATH];
        short[..bytes.len()].copy_from_slice(bytes);
        f(short.as_ptr().cast())
    } else {
        f(CString::new(bytes).expect("no NUL, as checked above").as_ptr())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// How many bytes the call has moved; it is called again where a signal has interrupted it, so that no reader or writer
/// of a file has to.
fn transfer(call: impl FnMut() -> isize) -> io::Result<usize> {
    usize::try_from(retry(call)).map_err(|_| io::Error::last_os_error())
}

/// File offsets are signed in the kernel's interface.
fn signed(offset: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))
}

#[cfg(test)]
mod tests;
