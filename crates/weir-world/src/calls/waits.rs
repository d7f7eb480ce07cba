//! Waiting for descriptors and for processes.

use crate::kernel::{self, KernelResult, returned};
use crate::thread_state::{ThreadWait, Woken};
use crate::threads::{self, is_simulated};

use super::files;

/// When a wait of so many milliseconds is over; `None`: never.
fn deadline(ms: i32) -> Option<u64> {
    let ms = u64::try_from(ms).ok()?;
    Some(threads::with(|simulation| simulation.now + ms * 1_000_000))
}

fn pollfd(fd: i32, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

/// Makes the call `read`, after waiting for `events` of a descriptor if it would wait for them.
pub(super) fn waiting(
    fd: i32,
    events: i16,
    may_wait: bool,
    mut call: impl FnMut() -> KernelResult,
) -> KernelResult {
    if may_wait && is_simulated() && !kernel::is_ready(fd, events) && !kernel::is_nonblocking(fd) {
        threads::wait(ThreadWait::Descriptors(vec![pollfd(fd, events)]), None);
    }
    call()
}

/// epoll_wait(2).
///
/// # Safety
/// `events` has room for `most`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(epoll: i32, events: *mut libc::epoll_event, most: i32, ms: i32) -> i32 {
    let wait = if is_simulated() { 0 } else { ms };
    let call = || {
        let a = [epoll as usize, events as usize, most as usize, wait as usize, 0, 8];
        // SAFETY: by the caller's word; no signal mask.
        unsafe { kernel::call(libc::SYS_epoll_pwait, a) }
    };
    if !is_simulated() {
        return returned(call()) as i32;
    }
    let until = deadline(ms);
    if ms == 0 {
        threads::maybe_pause();
        return returned(call()) as i32;
    }
    loop {
        // Others may run even where there is something to do.
        let reason = threads::wait(ThreadWait::Descriptors(vec![pollfd(epoll, libc::POLLIN)]), until);
        let found = call();
        if found != 0 || reason == Woken::ByTime {
            return returned(found) as i32;
        }
    }
}

/// poll(2).
///
/// # Safety
/// `polled` has `count` places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(polled: *mut libc::pollfd, count: libc::nfds_t, ms: i32) -> i32 {
    if !is_simulated() {
        let time = libc::timespec { tv_sec: i64::from(ms / 1000), tv_nsec: i64::from(ms % 1000) * 1_000_000 };
        let time = if ms < 0 { std::ptr::null() } else { &raw const time };
        // SAFETY: by the caller's word; no signal mask.
        let result = unsafe {
            kernel::call(libc::SYS_ppoll, [polled as usize, count as usize, time as usize, 0, 8, 0])
        };
        return returned(result) as i32;
    }
    // SAFETY: by the caller's word.
    let polled = unsafe { std::slice::from_raw_parts_mut(polled, count as usize) };
    let until = deadline(ms);
    if ms != 0 {
        threads::wait(ThreadWait::Descriptors(polled.to_vec()), until);
    }
    kernel::ready(polled) as i32
}

/// read(2).
///
/// # Safety
/// `bytes` is valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: i32, bytes: *mut libc::c_void, length: usize) -> isize {
    if let Some(kind) = files::kind_of(fd) {
        // SAFETY: by the caller's word.
        return unsafe { files::read(kind, fd, bytes, length) };
    }
    // SAFETY: by the caller's word.
    let call = || unsafe { kernel::call(libc::SYS_read, [fd as usize, bytes as usize, length, 0, 0, 0]) };
    returned(waiting(fd, libc::POLLIN, true, call))
}

/// waitpid(2).
///
/// # Safety
/// `status` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32 {
    let call = |options: i32| {
        let a = [pid as usize, status as usize, options as usize, 0, 0, 0];
        // SAFETY: by the caller's word.
        unsafe { kernel::call(libc::SYS_wait4, a) }
    };
    if !is_simulated() || options & libc::WNOHANG != 0 {
        return returned(call(options)) as i32;
    }
    loop {
        let result = call(options | libc::WNOHANG);
        if result != 0 {
            return returned(result) as i32;
        }
        threads::wait(ThreadWait::Time, deadline(1));
    }
}
