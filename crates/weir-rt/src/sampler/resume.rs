//! A call that sleeps for a time ends with EINTR when a signal comes, whatever SA_RESTART says (signal(7)): a script that
//! sleeps by `usleep` would wake too early because its thread was asked for its stack. The kernel knows what is left of
//! such a call until the handler is left, for restart_syscall(2): so the handler itself lets the call go on, and gives the
//! interrupted code its result. Meanwhile the thread can't be asked again.
//!
//! Of a call that was not seen before the signal came nothing says which it was. It is gone on with as well: calls of another kind
//! have nothing left, and end with EINTR as they would. (The kernel remembers a call until the next signal's handler has
//! returned: one that a debugger's stop has interrupted before, and no signal since, could be taken for it.)

#[cfg(target_arch = "x86_64")]
use libc::c_long;

#[cfg(target_arch = "x86_64")]
use super::{guard, probe::UNKNOWN_CALL};

/// Goes on with the call that the signal has ended early; `call`: the one in which the thread was found.
#[cfg(target_arch = "x86_64")]
pub(super) fn resume(call: u32, context: &mut libc::ucontext_t) {
    let registers = &mut context.uc_mcontext.gregs;
    let at = registers[libc::REG_RIP as usize] as u64;
    let ended = registers[libc::REG_RAX as usize] == -i64::from(libc::EINTR);
    // What was interrupted is the instruction after `syscall`, else the number means something else.
    let is_call = || guard::load(at.wrapping_sub(8)).is_some_and(|word| word >> 48 == SYSCALL);
    let may = call == UNKNOWN_CALL || CALLS.contains(&c_long::from(call));
    if !ended || !may || !is_call() {
        return;
    }
    // SAFETY: it takes no arguments, and writes where the interrupted call was to write.
    let result = unsafe { libc::syscall(libc::SYS_restart_syscall) };
    // SAFETY: the address of the thread's errno is valid as long as the thread lives.
    let errno = unsafe { *libc::__errno_location() };
    match (result, errno) {
        (0.., _) => registers[libc::REG_RAX as usize] = result,
        // Not allowed here: it ends early, as it has.
        (_, libc::ENOSYS | libc::EPERM) => {}
        (_, errno) => registers[libc::REG_RAX as usize] = -i64::from(errno),
    }
}

/// What a signal has ended stays ended.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn resume(_call: u32, _context: &mut libc::ucontext_t) {}

/// Calls of which the kernel remembers what is left. All of them say so each time they are interrupted: nothing older is
/// gone on with.
#[cfg(target_arch = "x86_64")]
const CALLS: [c_long; 4] = [libc::SYS_nanosleep, libc::SYS_clock_nanosleep, libc::SYS_poll, libc::SYS_futex];
/// The instruction's two bytes, of a word that ends with it.
#[cfg(target_arch = "x86_64")]
const SYSCALL: u64 = 0x050f;
