//! System calls, made directly: the C library's functions of these names are ours.

use std::arch::asm;

/// Its errors are negative numbers, as the kernel gives them.
pub(crate) type KernelResult = isize;

/// A system call.
///
/// # Safety
/// That of the call: pointers among the arguments must be good for what the kernel does with them.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn call(number: libc::c_long, a: [usize; 6]) -> KernelResult {
    let result: isize;
    // SAFETY: by the caller's word; the kernel changes no more than these registers and what pointers lead to.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// A system call.
///
/// # Safety
/// That of the call: pointers among the arguments must be good for what the kernel does with them.
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe fn call(number: libc::c_long, a: [usize; 6]) -> KernelResult {
    let result: isize;
    // SAFETY: by the caller's word; the kernel changes no more than these registers and what pointers lead to.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a[0] as isize => result, in("x1") a[1], in("x2") a[2],
            in("x3") a[3], in("x4") a[4], in("x5") a[5], options(nostack));
    }
    result
}

/// Hands a result on as the C library does: -1 and errno.
pub(crate) fn returned(result: KernelResult) -> isize {
    if (-4095..0).contains(&result) {
        set_errno(-result as i32);
        return -1;
    }
    result
}

/// Sets the thread's errno.
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: the place is the calling thread's, always valid.
    unsafe { *libc::__errno_location() = errno };
}

/// The number of this process.
pub(crate) fn process() -> i32 {
    // SAFETY: no pointers.
    unsafe { call(libc::SYS_getpid, [0; 6]) as i32 }
}

/// Sends this process a signal, whose record says that it came from the process `from`.
pub(crate) fn signal(signal: i32, from: i32) {
    let info =
        SignalRecord { signal, errno: 0, code: libc::SI_QUEUE, _pad: 0, from, user: 0, _rest: [0; 26] };
    let a = [process() as usize, signal as usize, &raw const info as usize, 0, 0, 0];
    // SAFETY: a record of the size and form that the kernel wants.
    unsafe { call(libc::SYS_rt_sigqueueinfo, a) };
}

/// `siginfo_t` of sigqueue(3), of which any thread may say who it is from: 128 bytes.
#[repr(C)]
struct SignalRecord {
    signal: i32,
    errno: i32,
    code: i32,
    _pad: i32,
    from: i32,
    user: u32,
    _rest: [i32; 26],
}

/// Sleeps until `word` is woken, if it is `expected`.
pub(crate) fn futex_wait(word: &std::sync::atomic::AtomicU32, expected: u32) {
    let a = [word.as_ptr() as usize, libc::FUTEX_WAIT as usize | PRIVATE, expected as usize, 0, 0, 0];
    // SAFETY: the word is alive for the call; no timeout.
    unsafe { call(libc::SYS_futex, a) };
}

/// Wakes the thread that sleeps on `word`.
pub(crate) fn futex_wake(word: &std::sync::atomic::AtomicU32) {
    // SAFETY: only the address is used.
    unsafe {
        call(libc::SYS_futex, [word.as_ptr() as usize, libc::FUTEX_WAKE as usize | PRIVATE, 1, 0, 0, 0])
    };
}

const PRIVATE: usize = libc::FUTEX_PRIVATE_FLAG as usize;

/// What of `events` descriptors have now; the number of them.
pub(crate) fn ready(polled: &mut [libc::pollfd]) -> usize {
    let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let a = [polled.as_mut_ptr() as usize, polled.len(), &raw const none as usize, 0, 8, 0];
    // SAFETY: a slice of pollfd and a timespec, both alive; no signal mask.
    usize::try_from(unsafe { call(libc::SYS_ppoll, a) }).unwrap_or(0)
}

/// Whether a descriptor has one of `events` now, or an error.
pub(crate) fn is_ready(fd: i32, events: i16) -> bool {
    ready(&mut [libc::pollfd { fd, events, revents: 0 }]) > 0
}

/// What the memory takes of what was sent by a socket and not read.
pub(crate) fn waiting_bytes(fd: i32) -> i32 {
    let mut bytes = 0i32;
    let a = [fd as usize, libc::TIOCOUTQ as usize, &raw mut bytes as usize, 0, 0, 0];
    // SAFETY: room for an int.
    unsafe { call(libc::SYS_ioctl, a) };
    bytes
}

/// Whether the other end of a socket is closed.
pub(crate) fn is_hung_up(fd: i32) -> bool {
    let mut polled = [libc::pollfd { fd, events: libc::POLLHUP, revents: 0 }];
    ready(&mut polled) > 0 && polled[0].revents & (libc::POLLHUP | libc::POLLERR) != 0
}

/// Whether reads of the descriptor return at once.
pub(crate) fn is_nonblocking(fd: i32) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { call(libc::SYS_fcntl, [fd as usize, libc::F_GETFL as usize, 0, 0, 0, 0]) };
    flags >= 0 && flags as i32 & libc::O_NONBLOCK != 0
}

/// Descriptors below this number are counted.
const COUNTED: usize = 1024;

/// Number of open descriptors.
pub(crate) fn open_files() -> usize {
    // SAFETY: no pointers.
    let is_open = |fd: usize| unsafe { call(libc::SYS_fcntl, [fd, libc::F_GETFD as usize, 0, 0, 0, 0]) } >= 0;
    (0..COUNTED).filter(|fd| is_open(*fd)).count()
}

/// Closes a descriptor.
pub(crate) fn close(fd: i32) -> KernelResult {
    // SAFETY: no pointers. Whose descriptor it is the caller knows.
    unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) }
}

/// Writes all bytes to a descriptor that takes them at once: a file, standard error.
pub(crate) fn write_all(fd: i32, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let a = [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0];
        // SAFETY: a slice is readable for its length.
        let Ok(n @ 1..) = usize::try_from(unsafe { call(libc::SYS_write, a) }) else { return };
        bytes = bytes.get(n..).unwrap_or_default();
    }
}

/// The kernel's number of the calling thread.
pub(crate) fn thread_id() -> i32 {
    // SAFETY: no pointers.
    unsafe { call(libc::SYS_gettid, [0; 6]) as i32 }
}

/// Returns when the kernel has no thread of this number in this process.
pub(crate) fn await_end(thread: i32) {
    let asked = [process() as usize, thread as usize, 0, 0, 0, 0];
    // SAFETY: no pointers; the signal 0 is none.
    while unsafe { call(libc::SYS_tgkill, asked) } == 0 {
        // SAFETY: no pointers.
        unsafe { call(libc::SYS_sched_yield, [0; 6]) };
    }
}

/// Ends the process.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: no pointers; it does not come back.
    unsafe { call(libc::SYS_exit_group, [code as usize, 0, 0, 0, 0, 0]) };
    unreachable!("the process has ended")
}

/// A socket of the simulation: UNIX-domain, of bytes.
pub(crate) mod unix {
    use super::{KernelResult, call};

    /// A name that the kernel gave: at most 6 bytes.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct UnixName {
        pub(crate) address: libc::sockaddr_un,
        pub(crate) length: u32,
    }

    const NONE: libc::sockaddr_un =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };

    /// A socket with `flags` of socket(2).
    pub(crate) fn socket(flags: i32) -> KernelResult {
        let kind = libc::SOCK_STREAM | flags;
        // SAFETY: no pointers.
        unsafe { call(libc::SYS_socket, [libc::AF_UNIX as usize, kind as usize, 0, 0, 0, 0]) }
    }

    /// Gives the socket a name that no other has.
    pub(crate) fn bind(fd: i32) -> Result<UnixName, i32> {
        let mut name = UnixName { address: NONE, length: size_of::<libc::sockaddr_un>() as u32 };
        let own = [fd as usize, &raw const name.address as usize, size_of::<u16>(), 0, 0, 0];
        // SAFETY: an address of two bytes, which asks the kernel for a name.
        let bound = unsafe { call(libc::SYS_bind, own) };
        let asked = [fd as usize, &raw mut name.address as usize, &raw mut name.length as usize, 0, 0, 0];
        // SAFETY: room for any address of this family, and its length.
        let named = unsafe { call(libc::SYS_getsockname, asked) };
        if bound < 0 || named < 0 { Err(-(bound.min(named) as i32)) } else { Ok(name) }
    }

    /// connect(2).
    pub(crate) fn connect(fd: i32, name: &UnixName) -> KernelResult {
        let a = [fd as usize, &raw const name.address as usize, name.length as usize, 0, 0, 0];
        // SAFETY: an address that the kernel gave, with its length.
        unsafe { call(libc::SYS_connect, a) }
    }

    /// listen(2).
    pub(crate) fn listen(fd: i32, backlog: i32) -> KernelResult {
        // SAFETY: no pointers.
        unsafe { call(libc::SYS_listen, [fd as usize, backlog as usize, 0, 0, 0, 0]) }
    }

    /// accept4(2) without the peer's address.
    pub(crate) fn accept(fd: i32, flags: i32) -> KernelResult {
        // SAFETY: null pointers where none are wanted.
        unsafe { call(libc::SYS_accept4, [fd as usize, 0, 0, flags as usize, 0, 0]) }
    }

    /// recv(2) that does not wait.
    pub(crate) fn receive(fd: i32, bytes: &mut [u8]) -> KernelResult {
        let flags = libc::MSG_DONTWAIT as usize;
        // SAFETY: a slice that is ours to write.
        unsafe {
            call(libc::SYS_recvfrom, [fd as usize, bytes.as_mut_ptr() as usize, bytes.len(), flags, 0, 0])
        }
    }

    /// send(2) that does not wait, and raises no signal.
    pub(crate) fn send(fd: i32, bytes: &[u8]) -> KernelResult {
        let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
        // SAFETY: a slice is readable for its length.
        unsafe { call(libc::SYS_sendto, [fd as usize, bytes.as_ptr() as usize, bytes.len(), flags, 0, 0]) }
    }

    /// shutdown(2) of the sending side.
    pub(crate) fn end(fd: i32) -> KernelResult {
        // SAFETY: no pointers.
        unsafe { call(libc::SYS_shutdown, [fd as usize, libc::SHUT_WR as usize, 0, 0, 0, 0]) }
    }

    /// Makes the room for what the socket sends small.
    pub(crate) fn narrow(fd: i32, bytes: i32) {
        let (level, name) = (libc::SOL_SOCKET as usize, libc::SO_SNDBUF as usize);
        let a = [fd as usize, level, name, &raw const bytes as usize, size_of::<i32>(), 0];
        // SAFETY: an int and its size. Where it fails the room stays as it is.
        unsafe { call(libc::SYS_setsockopt, a) };
    }
}
