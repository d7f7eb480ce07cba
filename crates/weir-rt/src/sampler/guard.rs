//! Loads that may fail: the walk reads memory by addresses that it found in registers and on stacks.
//!
//! The load is the first instruction of a function of its own. A fault at exactly that address makes the fault
//! handler continue at a second function, which returns "nothing" to the caller; no other fault is touched. So there
//! is no flag to set and no stack to jump across.
//!
//! Code that follows pointers of its own, in C, is called by [`attempt`]: a fault in there returns from the attempt, as
//! if the call had ended. The registers that it needs for that are on the stack, and where is noted for the thread.

use std::cell::Cell;
use std::io;
use std::sync::OnceLock;

use libc::{c_int, c_void};

use crate::crash_state;
use crate::thread_watch::thread_id;

/// What a load gave.
#[repr(C)]
struct LoadedWord {
    value: u64,
    ok: u64,
}

/// The eight bytes at `address`; `None` if reading them faults.
#[inline]
pub(super) fn load(address: u64) -> Option<u64> {
    // SAFETY: faults are caught as described above (`install` ran before any timer was armed); the bytes are only
    // copied, and what they mean is the caller's to judge.
    let loaded = unsafe { guarded_load(address) };
    (loaded.ok == 1).then_some(loaded.value)
}

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn guarded_load(address: u64) -> LoadedWord {
    std::arch::naked_asm!("mov rax, [rdi]", "mov edx, 1", "ret")
}

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn load_failed() -> LoadedWord {
    std::arch::naked_asm!("xor eax, eax", "xor edx, edx", "ret")
}

/// No walk on other processors yet: samples have their place, not their stack.
#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C" fn guarded_load(_address: u64) -> LoadedWord {
    LoadedWord { value: 0, ok: 0 }
}

thread_local! {
    /// Where the stack of the attempt is that the thread is in; 0 outside of any.
    static ATTEMPT: Cell<u64> = const { Cell::new(0) };
}

/// Calls `function`; `false` if a fault ended it early. Attempts don't nest.
///
/// # Safety
/// `argument` is what `function` expects. The function may fault by reads only, and leaves nothing that must be
/// undone: it is not unwound.
pub(super) unsafe fn attempt(function: extern "C" fn(*mut c_void), argument: *mut c_void) -> bool {
    ATTEMPT.with(|cell| {
        // SAFETY: the cell outlives the call; the rest is the caller's promise.
        unsafe { guarded_call(function, argument, cell.as_ptr()) == 1 }
    })
}

/// Notes the stack pointer in `note`, calls, and forgets it: 1.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn guarded_call(
    function: extern "C" fn(*mut c_void),
    argument: *mut c_void,
    note: *mut u64,
) -> u64 {
    std::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rdx",
        "mov [rdx], rsp",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "mov eax, 1",
        "pop rdx",
        "mov qword ptr [rdx], 0",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Where a fault goes on, with the noted stack pointer: 0.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn call_failed() -> u64 {
    std::arch::naked_asm!(
        "xor eax, eax",
        "pop rdx",
        "mov qword ptr [rdx], 0",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Nothing is walked on other processors.
#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C" fn guarded_call(_: extern "C" fn(*mut c_void), _: *mut c_void, _: *mut u64) -> u64 {
    0
}

/// What a load or an attempt may end with.
pub(crate) const FAULTS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The handlers that were there before ours, of [`FAULTS`].
static BEFORE: [OnceLock<libc::sigaction>; 2] = [const { OnceLock::new() }; 2];

/// Installs the fault handler in front of those that exist (the standard library's reports stack overflow).
pub(crate) fn install() -> io::Result<()> {
    for (n, signal) in FAULTS.into_iter().enumerate() {
        if BEFORE[n].get().is_some() {
            continue;
        }
        let old = action(signal, None)?;
        BEFORE[n].get_or_init(|| old);
        // SAFETY: integers and pointers, for which zero is a value.
        let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
        new.sa_sigaction = faulted as *const () as usize;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        action(signal, Some(&new))?;
    }
    Ok(())
}

/// Sets (or only reads) what a signal does; gives what it did before.
pub(crate) fn action(signal: c_int, new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    // SAFETY: integers and pointers, for which zero is a value.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `new` is null or readable, `old` writable; handlers given here are async-signal-safe.
    match unsafe { libc::sigaction(signal, new, &mut old) } {
        0 => Ok(old),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Async-signal-safe: looks at registers, may call sigaction(2) and tgkill(2).
extern "C" fn faulted(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both, valid during the handler.
    let (code, context_ref) = unsafe { ((*info).si_code, &mut *context.cast::<libc::ucontext_t>()) };
    if code > 0 && recovered(context_ref) {
        return;
    }
    crash_state::last_words(signal);
    let before = BEFORE[usize::from(signal == libc::SIGBUS)].get();
    match before.map_or(libc::SIG_DFL, |before| before.sa_sigaction) {
        // A signal that a process sent happens once: the default must act now. A fault comes again by itself.
        libc::SIG_DFL | libc::SIG_IGN if code > 0 => reset_action(signal),
        _ if code <= 0 => die_of(signal),
        handler => {
            let flags = before.map_or(0, |before| before.sa_flags);
            // SAFETY: an address that sigaction(2) gave for a handler of this form.
            unsafe { forward(handler, flags, signal, info, context) };
        }
    }
}

/// If the fault is our load's, the thread goes on after it with nothing loaded; if it is an attempt's, after that.
#[cfg(target_arch = "x86_64")]
fn recovered(context: &mut libc::ucontext_t) -> bool {
    let registers = &mut context.uc_mcontext.gregs;
    if registers[libc::REG_RIP as usize] as usize == guarded_load as *const () as usize {
        registers[libc::REG_RIP as usize] = load_failed as *const () as usize as i64;
        return true;
    }
    let stack = ATTEMPT.get();
    if stack != 0 {
        registers[libc::REG_RIP as usize] = call_failed as *const () as usize as i64;
        registers[libc::REG_RSP as usize] = stack as i64;
    }
    stack != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn recovered(_context: &mut libc::ucontext_t) -> bool {
    false
}

/// The default action, now: the signal is raised once more, to be delivered when the handler returns.
pub(crate) fn die_of(signal: c_int) {
    reset_action(signal);
    // SAFETY: no pointers.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread_id(), signal) };
}

/// The default action from here on.
fn reset_action(signal: c_int) {
    // SAFETY: integers and pointers, for which zero is a value: SIG_DFL.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    // Neither can fail with these arguments, and there is no one to report to.
    let _ = action(signal, Some(&default));
}

/// # Safety
/// `handler` must be what sigaction(2) gave together with `flags`, and neither SIG_DFL nor SIG_IGN.
unsafe fn forward(
    handler: usize,
    flags: c_int,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    type InfoHandler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    type PlainHandler = extern "C" fn(c_int);
    if flags & libc::SA_SIGINFO != 0 {
        // SAFETY: sigaction(2) gave this address together with SA_SIGINFO (the caller's promise): such handlers have
        // three
        // parameters.
        let handler = unsafe { std::mem::transmute::<usize, InfoHandler>(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: sigaction(2) gave this address without SA_SIGINFO (the caller's promise): such handlers have one
        // parameter.
        let handler = unsafe { std::mem::transmute::<usize, PlainHandler>(handler) };
        handler(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash;
    use crate::process::tests::in_child;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_load_that_faults_gives_nothing() {
        install().expect("two handlers");
        let here = 0x1234_5678_9abc_def0u64;
        assert_eq!(load(&raw const here as u64), Some(here));
        for wild in [0, 8, u64::MAX - 7, 1 << 63, 0x7fff_ffff_f000] {
            assert_eq!(load(wild), None, "{wild:x}");
        }
    }

    /// It was installed after, and made every fault of a walk end the process.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn who_waits_for_crashes_hears_of_no_load() {
        let name = "sampler::guard::tests::who_waits_for_crashes_hears_of_no_load";
        if let Some(out) = in_child(name, &[]) {
            assert!(out.status.success(), "{out:?}");
            return;
        }
        install().expect("two handlers");
        let mut watch = crash::watch().expect("a pipe");
        assert_eq!(load(8), None);
        assert_eq!(watch.wait(std::time::Duration::ZERO).expect("poll works"), None);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn an_attempt_that_faults_ends() {
        extern "C" fn read(argument: *mut c_void) {
            // SAFETY: a cell of the test's; the address in it is wild on purpose.
            unsafe {
                let cell = &mut *argument.cast::<(u64, u64)>();
                cell.1 = std::ptr::with_exposed_provenance::<u64>(cell.0 as usize).read_volatile();
            }
        }
        install().expect("two handlers");
        let here = 77u64;
        for (address, value) in
            [(8, None), (&raw const here as u64, Some(77)), (1 << 63, None), (0x7fff_ffff_f000, None)]
        {
            let mut cell = (address, 0);
            // SAFETY: `read` expects that cell.
            let ended = unsafe { attempt(read, (&raw mut cell).cast()) };
            assert_eq!(ended.then_some(cell.1), value, "{address:x}");
            assert_eq!(ATTEMPT.get(), 0);
        }
    }

    #[test]
    fn other_faults_and_sent_signals_still_kill() {
        let name = "sampler::guard::tests::other_faults_and_sent_signals_still_kill";
        for how in ["fault", "sent"] {
            if let Some(out) = in_child(name, &[("WEIR_RT_TEST_HOW", how)]) {
                assert_eq!(out.status.signal(), Some(libc::SIGSEGV), "{how}: {out:?}");
                continue;
            }
            install().expect("two handlers");
            if std::env::var("WEIR_RT_TEST_HOW").is_ok_and(|how| how == "fault") {
                // SAFETY: it is not, on purpose.
                std::hint::black_box(unsafe {
                    std::hint::black_box(std::ptr::dangling::<u64>()).read_volatile()
                });
            }
            // SAFETY: no pointers.
            unsafe { libc::raise(libc::SIGSEGV) };
            std::process::exit(0);
        }
    }
}
