//! What the machine knows of itself, which would differ from run to run: its times.

use crate::kernel::{self, returned};
use crate::threads::is_simulated;

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
