//! Safe wrappers of the system calls the drivers make; errors are errno values.
//!
//! Those that every request makes go by `syscall(2)`: glibc's own functions for them are points where a thread may be
//! cancelled, which costs a process with threads two locked instructions and some sixty others per call.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::clock;
use crate::file::FileHandle;
use crate::net::RawAddr;
use crate::packets;

/// The errno of the last failed call.
pub(crate) fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// The count that a call returned, or the errno.
pub(crate) fn check(n: isize) -> Result<usize, i32> {
    usize::try_from(n).map_err(|_| errno())
}

/// recvfrom(2) and sendto(2) of a connected socket.
pub(crate) const NO_ADDRESS: *const libc::sockaddr = std::ptr::null();

/// A message with everything empty.
pub(crate) fn empty_message() -> libc::msghdr {
    // SAFETY: a C struct of pointers and numbers, for which zeroes are valid and mean "none".
    unsafe { std::mem::zeroed() }
}

/// recv(2) without waiting into `len` bytes at `start`.
///
/// # Safety
/// `start` is valid for writes of `len` bytes that nothing else reads or writes meanwhile.
pub(crate) unsafe fn recv(fd: RawFd, start: *mut u8, len: usize) -> Result<usize, i32> {
    // SAFETY: by the caller's word.
    check(
        unsafe { libc::syscall(libc::SYS_recvfrom, fd, start, len, libc::MSG_DONTWAIT, NO_ADDRESS, 0usize) }
            as isize,
    )
}

/// recv(2) without waiting of up to `most` bytes, after those of `to`.
pub(crate) fn append_received(fd: RawFd, to: &mut Vec<u8>, most: usize) -> Result<usize, i32> {
    to.reserve(most);
    let old = to.len();
    let room = &mut to.spare_capacity_mut()[..most];
    // SAFETY: `most` writable bytes after the vector's end, borrowed by us alone.
    let n = unsafe { recv(fd, room.as_mut_ptr().cast(), most) }?;
    // SAFETY: the first `n` bytes of `room` have just been written.
    unsafe { to.set_len(old + n) };
    Ok(n)
}

/// [`recv`] that reports to [`packets`] how long the bytes had waited, where the kernel stamped them.
///
/// # Safety
/// As [`recv`].
pub(crate) unsafe fn recv_stamped(fd: RawFd, start: *mut u8, len: usize) -> Result<usize, i32> {
    let mut piece = libc::iovec { iov_base: start.cast(), iov_len: len };
    // Words, so that it is aligned as headers are.
    let mut control = [0u64; 16];
    let mut message = empty_message();
    (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control) as _);
    // SAFETY: the bytes by the caller's word; the control buffer is ours, of the length that is given.
    let received = check(unsafe { libc::recvmsg(fd, &raw mut message, libc::MSG_DONTWAIT) })?;
    // SAFETY: filled by the successful call above; the buffer is alive.
    if let Some(came) = unsafe { stamp(&message) } {
        let (seconds, nanoseconds) = clock::wall();
        let now = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        // A wall clock that was set back meanwhile makes it nothing.
        packets::waited(u64::try_from(now - came).unwrap_or(0));
    }
    Ok(received)
}

/// When a message came, in nanoseconds of the wall clock; `None`: it has no stamp.
///
/// # Safety
/// `message` was filled by recvmsg(2), and its control buffer is as it was then.
unsafe fn stamp(message: &libc::msghdr) -> Option<i128> {
    // SAFETY: by the caller's word.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: not null, so it points at a whole header in the control buffer.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPNS {
            // SAFETY: the kernel writes a timespec after this header, at a place that may not be aligned for it.
            let came = unsafe { libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned() };
            return Some(i128::from(came.tv_sec) * 1_000_000_000 + i128::from(came.tv_nsec));
        }
        // SAFETY: by the caller's word.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

/// Sends `bytes` without waiting or signal.
pub(crate) fn send_bytes(fd: RawFd, bytes: &[u8]) -> Result<usize, i32> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: a slice is readable for its length.
    check(unsafe {
        libc::syscall(libc::SYS_sendto, fd, bytes.as_ptr(), bytes.len(), flags, NO_ADDRESS, 0usize)
    } as isize)
}

/// accept4(2): a non-blocking, close-on-exec socket.
pub(crate) fn accept(fd: RawFd) -> Result<OwnedFd, i32> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no address wanted, so no pointers.
    let accepted = unsafe { libc::accept4(fd, std::ptr::null_mut(), std::ptr::null_mut(), flags) };
    if accepted < 0 {
        return Err(errno());
    }
    Ok(adopt(accepted))
}

/// [`accept`], and the address of the client, without another call for it.
pub(crate) fn accept_from(fd: RawFd) -> Result<(OwnedFd, RawAddr), i32> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let mut raw = RawAddr::empty();
    let (addr, len) = raw.as_mut_ptrs();
    // SAFETY: the kernel writes at most `*len` bytes, all of them ours.
    let accepted = unsafe { libc::accept4(fd, addr, len, flags) };
    if accepted < 0 {
        return Err(errno());
    }
    Ok((adopt(accepted), raw))
}

/// Takes over a descriptor that has no other owner.
pub(crate) fn adopt(fd: RawFd) -> OwnedFd {
    // SAFETY: callers pass a fresh result of accept, or what a slot has just given up: nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// connect(2) on a non-blocking socket: `EINPROGRESS` means wait for writability.
pub(crate) fn connect(fd: RawFd, addr: &RawAddr) -> Result<(), i32> {
    // SAFETY: pointer and length describe `addr`, which the kernel copies.
    check(unsafe { libc::connect(fd, addr.as_ptr(), addr.len()) } as isize).map(|_| ())
}

/// shutdown(2) of the sending direction.
pub(crate) fn shutdown_write(fd: RawFd) -> Result<(), i32> {
    // SAFETY: no pointers.
    check(unsafe { libc::shutdown(fd, libc::SHUT_WR) } as isize).map(|_| ())
}

/// Closes a descriptor that a slot owned.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: the slot that owned it forgets it at the same moment. Of close's errors none leaves it open.
    unsafe { libc::close(fd) };
}

/// Makes a socket non-blocking (sockets from elsewhere may not be).
pub(crate) fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    let mut on: libc::c_int = 1;
    // SAFETY: FIONBIO reads one int.
    let result = unsafe { libc::ioctl(fd, libc::FIONBIO, &raw mut on) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Appends `len` bytes of `file` from `offset` to `to`, if the page cache has them all; otherwise leaves it alone.
pub(crate) fn append_resident(file: &FileHandle, to: &mut Vec<u8>, offset: u64, len: usize) -> bool {
    let old = to.len();
    to.reserve(len);
    let room = &mut to.spare_capacity_mut()[..len];
    // SAFETY: the `len` writable bytes after the vector's end.
    if !unsafe { file.pread_nowait(room.as_mut_ptr().cast(), len, offset) }.is_ok_and(|n| n == len) {
        return false;
    }
    // SAFETY: all of `room` has just been written.
    unsafe { to.set_len(old + len) };
    true
}

/// A second descriptor of the same open file, for a thread that reads it in.
pub(crate) fn duplicate(file: &FileHandle) -> io::Result<FileHandle> {
    // SAFETY: the handle keeps the descriptor open during the call.
    let fd = unsafe { BorrowedFd::borrow_raw(file.fd()) };
    Ok(FileHandle::from(fd.try_clone_to_owned()?))
}

/// Writes to a closed connection are errors here, not signals: sendfile(2) has no MSG_NOSIGNAL. Rust programs start
/// with SIGPIPE ignored; this is for those that host the runtime as a library. In a thread that blocks the signal it does
/// no harm, and the process keeps what it does with it.
pub(crate) fn ignore_sigpipe() {
    if crate::signal::is_blocked(libc::SIGPIPE) {
        return;
    }
    // SAFETY: only asks for the disposition, and replaces nothing but the default.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        let known = libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut old) == 0;
        if known && old.sa_sigaction == libc::SIG_DFL {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        }
    }
}
