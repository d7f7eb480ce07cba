//! What the machine knows of itself, which would differ from run to run: its times, and what of files is in memory.

use crate::kernel::{self, returned};
use crate::threads::is_simulated;

/// What the kernel knows of the real machine's time: the clock that it trusts (the processor's counter is not the
/// simulation's), how long threads had no core.
const OF_THE_MACHINE: [&[u8]; 2] = [b"/current_clocksource", b"/schedstat"];

/// open(2). Files that know of the machine's time are not there.
///
/// # Safety
/// `path` ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const libc::c_char, flags: i32, mode: libc::mode_t) -> i32 {
    // SAFETY: by the caller's word.
    let name = unsafe { std::ffi::CStr::from_ptr(path) };
    if is_simulated() && OF_THE_MACHINE.iter().any(|end| name.to_bytes().ends_with(end)) {
        kernel::set_errno(libc::ENOENT);
        return -1;
    }
    let a = [libc::AT_FDCWD as usize, path as usize, flags as usize, mode as usize, 0, 0];
    // SAFETY: by the caller's word.
    returned(unsafe { kernel::call(libc::SYS_openat, a) }) as i32
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

/// preadv2(2): what is asked for without waiting is there.
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
    let flags = if is_simulated() { flags & !libc::RWF_NOWAIT } else { flags };
    let a = [fd as usize, pieces as usize, count as usize, at as usize, 0, flags as usize];
    // SAFETY: by the caller's word.
    returned(unsafe { kernel::call(libc::SYS_preadv2, a) })
}
