//! What the machine knows of itself, which would differ from run to run: its times, the numbers of processes and threads.

use std::ffi::{CStr, c_char};

use crate::kernel::{self, returned};
use crate::start::PROCESS;
use crate::threads::{self, is_simulated};

/// The link whose target is `PROCESS/task/THREAD`.
const OWN_THREAD: &CStr = c"/proc/thread-self";

/// What the kernel knows of the real machine's time: the clock that it trusts (the processor's counter is not the
/// simulation's), how long threads had no core.
const OF_THE_MACHINE: [&[u8]; 2] = [b"/current_clocksource", b"/schedstat"];

/// Whether the file of this name knows of the machine's time.
pub(super) fn knows_time(name: &[u8]) -> bool {
    OF_THE_MACHINE.iter().any(|end| name.ends_with(end))
}

/// getrusage(2): nothing is used.
///
/// # Safety
/// `usage` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrusage(who: i32, usage: *mut libc::rusage) -> i32 {
    if !is_simulated() {
        // SAFETY: by the caller's word.
        return returned(unsafe {
            kernel::call(libc::SYS_getrusage, [who as usize, usage as usize, 0, 0, 0, 0])
        }) as i32;
    }
    // SAFETY: by the caller's word; a struct of numbers, for which zeroes are valid.
    unsafe { usage.write_bytes(0, 1) };
    0
}

/// getpid(2).
#[unsafe(no_mangle)]
pub extern "C" fn getpid() -> i32 {
    if is_simulated() { PROCESS } else { kernel::process() }
}

/// The kernel's number of a process that the program names.
pub(super) fn process_of(pid: i32) -> i32 {
    if pid == PROCESS && is_simulated() { kernel::process() } else { pid }
}

/// The number of the calling thread.
pub(super) fn thread() -> i32 {
    PROCESS + threads::own() as i32
}

/// The kernel's number of a thread that the program names: its own.
pub(super) fn thread_of(tid: i32) -> i32 {
    // SAFETY: no pointers.
    let own = || unsafe { kernel::call(libc::SYS_gettid, [0; 6]) as i32 };
    if is_simulated() && tid == thread() { own() } else { tid }
}

/// sched_getaffinity(2): any machine has two cores, for the number of threads depends on it.
///
/// # Safety
/// `set` is valid for writes of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_getaffinity(pid: i32, size: usize, set: *mut u8) -> i32 {
    // SAFETY: by the caller's word.
    unsafe { set.write_bytes(0, size) };
    if is_simulated() && size > 0 {
        // SAFETY: by the caller's word.
        unsafe { set.write(0b11) };
        return 0;
    }
    let a = [pid as usize, size, set as usize, 0, 0, 0];
    // SAFETY: by the caller's word.
    let written = returned(unsafe { kernel::call(libc::SYS_sched_getaffinity, a) });
    if written < 0 { -1 } else { 0 }
}

/// kill(2).
#[unsafe(no_mangle)]
pub extern "C" fn kill(pid: i32, signal: i32) -> i32 {
    let a = [process_of(pid) as usize, signal as usize, 0, 0, 0, 0];
    // SAFETY: no pointers.
    returned(unsafe { kernel::call(libc::SYS_kill, a) }) as i32
}

/// readlink(2).
///
/// # Safety
/// `path` ends with a NUL, `bytes` is valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlink(path: *const c_char, bytes: *mut c_char, length: usize) -> isize {
    // SAFETY: by the caller's word.
    if is_simulated() && unsafe { CStr::from_ptr(path) } == OWN_THREAD {
        let target = format!("{PROCESS}/task/{}", thread());
        let count = target.len().min(length);
        // SAFETY: by the caller's word; no more than is there.
        unsafe { bytes.cast::<u8>().copy_from_nonoverlapping(target.as_ptr(), count) };
        return count as isize;
    }
    let a = [libc::AT_FDCWD as usize, path as usize, bytes as usize, length, 0, 0];
    // SAFETY: by the caller's word.
    returned(unsafe { kernel::call(libc::SYS_readlinkat, a) })
}
