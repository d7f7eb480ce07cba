//! Files: the kernel's, but calls of the server's own ones may fail, take less than was asked for, or let others run.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use weir_sim::files::SimFileKind;

use crate::kernel::{self, KernelResult, returned};
use crate::threads::{self, is_simulated};
use crate::world::{FileCall, FileFate, SimDisk};

use super::machine;

/// What the file at a path is for.
///
/// # Safety
/// `path` ends with a NUL.
unsafe fn kind_at(path: *const c_char) -> Option<SimFileKind> {
    if !is_simulated() || path.is_null() {
        return None;
    }
    // SAFETY: by the caller's word.
    let path = unsafe { CStr::from_ptr(path) };
    threads::with(|simulation| simulation.world.files().kind_at(path.to_bytes()))
}

/// What an open file is for.
pub(super) fn kind_of(fd: i32) -> Option<SimFileKind> {
    is_simulated().then(|| threads::with(|simulation| simulation.world.files().kind(fd)))?
}

/// `to` is another descriptor of `fd`'s file, or of one that is not known where `fd` is not.
pub(super) fn copy(fd: i32, to: i32) {
    if is_simulated() && to >= 0 {
        threads::with(|simulation| {
            let kind = simulation.world.files().kind(fd);
            simulation.world.files_mut().set(to, kind);
        });
    }
}

/// A descriptor is about to be closed.
pub(super) fn forget(fd: i32) {
    threads::with(|simulation| simulation.world.files_mut().set(fd, None));
}

/// Makes a call for up to `length` bytes, or lets it fail.
fn transfer(
    kind: Option<SimFileKind>,
    call: FileCall,
    length: usize,
    go: impl FnOnce(usize) -> KernelResult,
) -> isize {
    let Some(kind) = kind else { return returned(go(length)) };
    if threads::with(|simulation| simulation.world.has_slow_files()) {
        threads::maybe_pause();
    }
    let fate = threads::with(|s| s.world.file_fate(s.now, kind, call, length));
    returned(match fate {
        FileFate::Goes => go(length),
        FileFate::Takes(part) => go(part),
        FileFate::Fails(errno) => -(errno as KernelResult),
        FileFate::Ends(part) => {
            if part > 0 {
                go(part);
            }
            threads::with(|s| s.world.crash(s.now))
        }
    })
}

/// As [`transfer`], of the memory that an array of pieces says; a short one ends within the first that is not empty.
///
/// # Safety
/// `pieces` has `count` places.
unsafe fn gather(
    kind: Option<SimFileKind>,
    call: FileCall,
    pieces: *const libc::iovec,
    count: i32,
    go: impl FnOnce(*const libc::iovec, i32) -> KernelResult,
) -> isize {
    if kind.is_none() || count <= 0 {
        return returned(go(pieces, count));
    }
    // SAFETY: by the caller's word.
    let all = unsafe { std::slice::from_raw_parts(pieces, count as usize) };
    let first = all.iter().find(|piece| piece.iov_len > 0).copied();
    let Some(first) = first else { return returned(go(pieces, count)) };
    transfer(kind, call, first.iov_len, |length| {
        let part = libc::iovec { iov_len: length, ..first };
        if length == first.iov_len { go(pieces, count) } else { go(&raw const part, 1) }
    })
}

/// Calls `f` with what the disk has, where it may lose some.
fn on_disk<R>(f: impl FnOnce(&mut SimDisk) -> R) -> Option<R> {
    is_simulated().then(|| threads::with(|simulation| simulation.world.disk().map(f)))?
}

/// # Safety
/// `path` ends with a NUL, and lives as long as the result is used.
unsafe fn path_of<'p>(path: *const c_char) -> &'p Path {
    // SAFETY: by the caller's word.
    Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()))
}

/// Whether something has this path.
///
/// # Safety
/// `path` ends with a NUL.
unsafe fn is_there(path: *const c_char) -> bool {
    let a = [libc::AT_FDCWD as usize, path as usize, libc::F_OK as usize, 0, 0, 0];
    // SAFETY: by the caller's word.
    unsafe { kernel::call(libc::SYS_faccessat, a) == 0 }
}

/// openat(2) of a path that is absolute, or relative to the working directory.
///
/// # Safety
/// `path` ends with a NUL.
pub(super) unsafe fn opened(directory: i32, path: *const c_char, flags: i32, mode: libc::mode_t) -> i32 {
    let a = [directory as usize, path as usize, flags as usize, mode as usize, 0, 0];
    // SAFETY: by the caller's word.
    let go = |_| unsafe { kernel::call(libc::SYS_openat, a) };
    // SAFETY: by the caller's word.
    let kind = unsafe { kind_at(path) };
    let makes = flags & (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) != 0;
    // SAFETY: by the caller's word.
    let is_new = kind.is_some() && makes && !unsafe { is_there(path) };
    let fd = transfer(kind, if makes { FileCall::Make } else { FileCall::Open }, 0, go) as i32;
    if fd >= 0 && is_simulated() {
        threads::with(|simulation| simulation.world.files_mut().set(fd, kind));
    }
    if fd >= 0 && kind.is_some() && flags & libc::O_ACCMODE != libc::O_RDONLY {
        // SAFETY: by the caller's word.
        let path = unsafe { path_of(path) };
        on_disk(|disk| disk.opened(path, is_new));
    }
    fd
}

/// open(2). Files that know of the machine's time are not there.
///
/// # Safety
/// `path` ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: i32, mode: libc::mode_t) -> i32 {
    // SAFETY: by the caller's word.
    if is_simulated() && machine::knows_time(unsafe { CStr::from_ptr(path) }.to_bytes()) {
        kernel::set_errno(libc::ENOENT);
        return -1;
    }
    // SAFETY: by the caller's word.
    unsafe { opened(libc::AT_FDCWD, path, flags, mode) }
}

/// open(2).
///
/// # Safety
/// `path` ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: i32, mode: libc::mode_t) -> i32 {
    // SAFETY: by the caller's word.
    unsafe { open64(path, flags, mode) }
}

/// pread(2).
///
/// # Safety
/// `bytes` is valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread64(fd: i32, bytes: *mut c_void, length: usize, at: libc::off_t) -> isize {
    let go = |length| {
        let a = [fd as usize, bytes as usize, length, at as usize, 0, 0];
        // SAFETY: by the caller's word, no more bytes than that.
        unsafe { kernel::call(libc::SYS_pread64, a) }
    };
    transfer(kind_of(fd), FileCall::Read, length, go)
}

/// pread(2).
///
/// # Safety
/// As [`pread64`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread(fd: i32, bytes: *mut c_void, length: usize, at: libc::off_t) -> isize {
    // SAFETY: by the caller's word.
    unsafe { pread64(fd, bytes, length, at) }
}

/// read(2) of a file.
///
/// # Safety
/// `bytes` is valid for writes of `length` bytes.
pub(super) unsafe fn read(kind: SimFileKind, fd: i32, bytes: *mut c_void, length: usize) -> isize {
    transfer(Some(kind), FileCall::Read, length, |length| {
        // SAFETY: by the caller's word, no more bytes than that.
        unsafe { kernel::call(libc::SYS_read, [fd as usize, bytes as usize, length, 0, 0, 0]) }
    })
}

/// preadv2(2): what is asked for without waiting is there, unless the seed says that it is not.
///
/// # Safety
/// `pieces` has `count` places, each valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv2(
    fd: i32,
    pieces: *const libc::iovec,
    count: i32,
    at: libc::off_t,
    flags: i32,
) -> isize {
    let kind = kind_of(fd);
    if flags & libc::RWF_NOWAIT != 0 && kind.is_some() && threads::with(|s| s.world.is_cold()) {
        kernel::set_errno(libc::EAGAIN);
        return -1;
    }
    let flags = if is_simulated() { flags & !libc::RWF_NOWAIT } else { flags };
    let go = |pieces: *const libc::iovec, count: i32| {
        let a = [fd as usize, pieces as usize, count as usize, at as usize, 0, flags as usize];
        // SAFETY: by the caller's word, no more than its places.
        unsafe { kernel::call(libc::SYS_preadv2, a) }
    };
    // SAFETY: by the caller's word.
    unsafe { gather(kind, FileCall::Read, pieces, count, go) }
}

/// write(2).
///
/// # Safety
/// `bytes` is valid for reads of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: i32, bytes: *const c_void, length: usize) -> isize {
    transfer(kind_of(fd), FileCall::Write, length, |length| {
        // SAFETY: by the caller's word, no more bytes than that.
        unsafe { kernel::call(libc::SYS_write, [fd as usize, bytes as usize, length, 0, 0, 0]) }
    })
}

/// writev(2).
///
/// # Safety
/// `pieces` has `count` places, each valid for reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: i32, pieces: *const libc::iovec, count: i32) -> isize {
    let go = |pieces: *const libc::iovec, count: i32| {
        // SAFETY: by the caller's word, no more than its places.
        unsafe { kernel::call(libc::SYS_writev, [fd as usize, pieces as usize, count as usize, 0, 0, 0]) }
    };
    // SAFETY: by the caller's word.
    unsafe { gather(kind_of(fd), FileCall::Write, pieces, count, go) }
}

/// pwrite(2).
///
/// # Safety
/// `bytes` is valid for reads of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(fd: i32, bytes: *const c_void, length: usize, at: libc::off_t) -> isize {
    transfer(kind_of(fd), FileCall::Write, length, |length| {
        let a = [fd as usize, bytes as usize, length, at as usize, 0, 0];
        // SAFETY: by the caller's word, no more bytes than that.
        unsafe { kernel::call(libc::SYS_pwrite64, a) }
    })
}

/// pwrite(2).
///
/// # Safety
/// As [`pwrite64`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: i32, bytes: *const c_void, length: usize, at: libc::off_t) -> isize {
    // SAFETY: by the caller's word.
    unsafe { pwrite64(fd, bytes, length, at) }
}

/// pwritev(2).
///
/// # Safety
/// `pieces` has `count` places, each valid for reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev(fd: i32, pieces: *const libc::iovec, count: i32, at: libc::off_t) -> isize {
    let go = |pieces: *const libc::iovec, count: i32| {
        let a = [fd as usize, pieces as usize, count as usize, at as usize, 0, 0];
        // SAFETY: by the caller's word, no more than its places.
        unsafe { kernel::call(libc::SYS_pwritev, a) }
    };
    // SAFETY: by the caller's word.
    unsafe { gather(kind_of(fd), FileCall::Write, pieces, count, go) }
}

/// sendfile(2).
///
/// # Safety
/// `at` is null or valid for reads and writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(out: i32, fd: i32, at: *mut libc::off_t, length: usize) -> isize {
    transfer(kind_of(fd), FileCall::Read, length, |length| {
        let a = [out as usize, fd as usize, at as usize, length, 0, 0];
        // SAFETY: by the caller's word.
        unsafe { kernel::call(libc::SYS_sendfile, a) }
    })
}

/// sendfile(2).
///
/// # Safety
/// As [`sendfile64`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(out: i32, fd: i32, at: *mut libc::off_t, length: usize) -> isize {
    // SAFETY: by the caller's word.
    unsafe { sendfile64(out, fd, at, length) }
}

/// ftruncate(2).
#[unsafe(no_mangle)]
pub extern "C" fn ftruncate64(fd: i32, length: libc::off_t) -> i32 {
    // SAFETY: no pointers.
    let go = |_| unsafe { kernel::call(libc::SYS_ftruncate, [fd as usize, length as usize, 0, 0, 0, 0]) };
    transfer(kind_of(fd), FileCall::Write, 0, go) as i32
}

/// fsync(2).
#[unsafe(no_mangle)]
pub extern "C" fn fsync(fd: i32) -> i32 {
    // SAFETY: no pointers.
    let go = |_| unsafe { kernel::call(libc::SYS_fsync, [fd as usize, 0, 0, 0, 0, 0]) };
    synced(fd, transfer(kind_of(fd), FileCall::Sync, 0, go) as i32)
}

/// fdatasync(2).
#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(fd: i32) -> i32 {
    // SAFETY: no pointers.
    let go = |_| unsafe { kernel::call(libc::SYS_fdatasync, [fd as usize, 0, 0, 0, 0, 0]) };
    synced(fd, transfer(kind_of(fd), FileCall::Sync, 0, go) as i32)
}

/// Notes that a file was synced, if it was.
fn synced(fd: i32, result: i32) -> i32 {
    if result == 0 {
        on_disk(|disk| disk.synced(fd));
    }
    result
}

/// rename(2).
///
/// # Safety
/// Both paths end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> i32 {
    let here = libc::AT_FDCWD as usize;
    let a = [here, from as usize, here, to as usize, 0, 0];
    // SAFETY: by the caller's word.
    let go = |_| unsafe { kernel::call(libc::SYS_renameat2, a) };
    // SAFETY: by the caller's word.
    let (kind, from, to) = unsafe { (kind_at(to), path_of(from), path_of(to)) };
    let saved = kind.and_then(|_| on_disk(|disk| disk.save(to))).flatten();
    let result = transfer(kind, FileCall::Rename, 0, go) as i32;
    if result == 0 && kind.is_some() {
        on_disk(|disk| disk.moved(from, to, saved));
    }
    result
}

/// unlink(2).
///
/// # Safety
/// `path` ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> i32 {
    let a = [libc::AT_FDCWD as usize, path as usize, 0, 0, 0, 0];
    // SAFETY: by the caller's word.
    let go = |_| unsafe { kernel::call(libc::SYS_unlinkat, a) };
    // SAFETY: by the caller's word.
    let (kind, path) = unsafe { (kind_at(path), path_of(path)) };
    let saved = kind.and_then(|_| on_disk(|disk| disk.save(path))).flatten();
    let result = transfer(kind, FileCall::Remove, 0, go) as i32;
    if let Some(saved) = saved.filter(|_| result == 0) {
        on_disk(|disk| disk.removed(path, saved));
    }
    result
}

/// mkdir(2).
///
/// # Safety
/// `path` ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: libc::mode_t) -> i32 {
    let a = [libc::AT_FDCWD as usize, path as usize, mode as usize, 0, 0, 0];
    // SAFETY: by the caller's word.
    let go = |_| unsafe { kernel::call(libc::SYS_mkdirat, a) };
    // SAFETY: by the caller's word.
    transfer(unsafe { kind_at(path) }, FileCall::Make, 0, go) as i32
}

/// A call of the stat family, by path.
///
/// # Safety
/// `path` ends with a NUL, `found` is valid for a write.
unsafe fn looked_at(path: *const c_char, found: *mut libc::stat, flags: i32) -> i32 {
    let a = [libc::AT_FDCWD as usize, path as usize, found as usize, flags as usize, 0, 0];
    // SAFETY: by the caller's word.
    let go = |_| unsafe { kernel::call(libc::SYS_newfstatat, a) };
    // SAFETY: by the caller's word.
    transfer(unsafe { kind_at(path) }, FileCall::Look, 0, go) as i32
}

/// stat(2).
///
/// # Safety
/// `path` ends with a NUL, `found` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stat64(path: *const c_char, found: *mut libc::stat) -> i32 {
    // SAFETY: by the caller's word.
    unsafe { looked_at(path, found, 0) }
}

/// stat(2).
///
/// # Safety
/// As [`stat64`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stat(path: *const c_char, found: *mut libc::stat) -> i32 {
    // SAFETY: by the caller's word.
    unsafe { looked_at(path, found, 0) }
}

/// lstat(2).
///
/// # Safety
/// As [`stat64`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lstat64(path: *const c_char, found: *mut libc::stat) -> i32 {
    // SAFETY: by the caller's word.
    unsafe { looked_at(path, found, libc::AT_SYMLINK_NOFOLLOW) }
}

/// lstat(2).
///
/// # Safety
/// As [`stat64`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lstat(path: *const c_char, found: *mut libc::stat) -> i32 {
    // SAFETY: by the caller's word.
    unsafe { looked_at(path, found, libc::AT_SYMLINK_NOFOLLOW) }
}

/// fstat(2).
///
/// # Safety
/// `found` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat64(fd: i32, found: *mut libc::stat) -> i32 {
    // SAFETY: by the caller's word.
    let go = |_| unsafe { kernel::call(libc::SYS_fstat, [fd as usize, found as usize, 0, 0, 0, 0]) };
    transfer(kind_of(fd), FileCall::Look, 0, go) as i32
}

/// fstat(2).
///
/// # Safety
/// As [`fstat64`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat(fd: i32, found: *mut libc::stat) -> i32 {
    // SAFETY: by the caller's word.
    unsafe { fstat64(fd, found) }
}

/// statx(2).
///
/// # Safety
/// `path` is null or ends with a NUL, `found` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn statx(
    directory: i32,
    path: *const c_char,
    flags: i32,
    mask: u32,
    found: *mut c_void,
) -> i32 {
    let a = [directory as usize, path as usize, flags as usize, mask as usize, found as usize, 0];
    // SAFETY: by the caller's word.
    let go = |_| unsafe { kernel::call(libc::SYS_statx, a) };
    // SAFETY: by the caller's word.
    let kind = if flags & libc::AT_EMPTY_PATH != 0 { kind_of(directory) } else { unsafe { kind_at(path) } };
    transfer(kind, FileCall::Look, 0, go) as i32
}

/// dup2(2).
#[unsafe(no_mangle)]
pub extern "C" fn dup2(fd: i32, to: i32) -> i32 {
    // SAFETY: no pointers.
    let result =
        returned(unsafe { kernel::call(libc::SYS_dup3, [fd as usize, to as usize, 0, 0, 0, 0]) }) as i32;
    copy(fd, result);
    result
}
