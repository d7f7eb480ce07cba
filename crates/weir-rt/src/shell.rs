//! system(3) for programs that read their signals from a descriptor.
//!
//! The C library's has the process ignore SIGINT and SIGQUIT meanwhile, and a signal that waits to be read is thrown away when it
//! becomes ignored: a server that is asked to quit while a script calls `os.execute` may never hear of it. The one here, which takes
//! its place for LuaJIT and for modules in C, changes no signal's disposition.

use std::ffi::{CStr, c_char, c_int, c_short};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::calls::{check, retry};

unsafe extern "C" {
    /// The environment of this process (environ(7)).
    static environ: *const *mut c_char;
}

/// Attributes of a new process; destroyed when dropped.
struct SpawnAttributes(libc::posix_spawnattr_t);

impl SpawnAttributes {
    /// No signal is blocked in it, and those that a server ignores or reads have their usual effects.
    fn of_shell() -> io::Result<SpawnAttributes> {
        let (mut raw, mut set) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: both calls initialise what they are given; a set of signals is a number to the next ones.
        let (mut attributes, set) = unsafe {
            of_number(libc::posix_spawnattr_init(raw.as_mut_ptr()))?;
            check(libc::sigemptyset(set.as_mut_ptr()))?;
            (SpawnAttributes(raw.assume_init()), set.assume_init())
        };
        let (none, mut usual) = (set, set);
        let flags = libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
        // SAFETY: the attributes and the sets are initialised and outlive the calls.
        unsafe {
            check(libc::sigaddset(&mut usual, libc::SIGINT))?;
            check(libc::sigaddset(&mut usual, libc::SIGQUIT))?;
            check(libc::sigaddset(&mut usual, libc::SIGPIPE))?;
            check(libc::sigaddset(&mut usual, libc::SIGSYS))?;
            of_number(libc::posix_spawnattr_setsigmask(&mut attributes.0, &none))?;
            of_number(libc::posix_spawnattr_setsigdefault(&mut attributes.0, &usual))?;
            of_number(libc::posix_spawnattr_setflags(&mut attributes.0, flags as c_short))?;
        }
        Ok(attributes)
    }
}

impl Drop for SpawnAttributes {
    fn drop(&mut self) {
        // SAFETY: it was initialised, and is not used any more. It can't fail.
        let _zero = unsafe { libc::posix_spawnattr_destroy(&mut self.0) };
    }
}

/// These functions return their errno.
fn of_number(errno: c_int) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// Runs `/bin/sh -c command` with this process' environment and open files, and waits for its end, whose status (wait(2)) is
/// returned. The shell has no signal blocked.
///
/// # Errors
/// The errno of posix_spawn(3): `EAGAIN`, `ENOMEM`, `ENOENT`; `ECHILD` where another part of the program has collected it.
fn shell(command: &CStr) -> io::Result<c_int> {
    let attributes = SpawnAttributes::of_shell()?;
    let words = [c"sh".as_ptr(), c"-c".as_ptr(), command.as_ptr(), ptr::null()];
    let (mut pid, mut status) = (0, 0);
    // SAFETY: the words end with a null pointer and outlive the call, which only reads them; the environment is the C library's own,
    // changed by none meanwhile (see `process/environment.rs`).
    of_number(unsafe {
        libc::posix_spawn(
            &mut pid,
            c"/bin/sh".as_ptr(),
            ptr::null(),
            &raw const attributes.0,
            words.as_ptr().cast(),
            environ,
        )
    })?;
    // SAFETY: no pointers but `status`, valid for the call.
    check(retry(|| unsafe { libc::waitpid(pid, &mut status, 0) }))?;
    Ok(status)
}

/// system(3).
///
/// # Safety
/// As of the C library's: `command` is null or a string that ends with a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn system(command: *const c_char) -> c_int {
    if OWN.load(Ordering::Relaxed).is_null() {
        // SAFETY: the name is a string; what it stands for is a function of this type, if there is one.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"system".as_ptr()) };
        if !found.is_null() {
            // SAFETY: that is the C library's, and the caller keeps its contract.
            return unsafe { std::mem::transmute::<*mut libc::c_void, SystemCall>(found)(command) };
        }
    }
    if command.is_null() {
        return 1; // There is a shell.
    }
    // SAFETY: the caller passes a string that ends.
    match shell(unsafe { CStr::from_ptr(command) }) {
        Ok(status) => status,
        Err(error) => {
            // SAFETY: the C library's errno of this thread.
            unsafe { *libc::__errno_location() = error.raw_os_error().unwrap_or(libc::EAGAIN) };
            -1
        }
    }
}

type SystemCall = unsafe extern "C" fn(*const c_char) -> c_int;

/// From here on system(3) of this process is the one above. For a program that reads SIGINT or SIGQUIT from a descriptor; in others,
/// which Weir may be embedded in, a terminal's keys are for the shell alone while they wait for it.
pub(crate) fn keep_signals() {
    OWN.store(system as SystemCall as *mut (), Ordering::Relaxed);
}

/// The function above once it is used: that it is named here has the linker take it instead of the C library's.
static OWN: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Signals;

    #[test]
    fn ends_are_told() {
        let end = |command| shell(command).expect("a shell");
        assert_eq!(libc::WEXITSTATUS(end(c"exit 7")), 7);
        assert_eq!(libc::WTERMSIG(end(c"kill -TERM $$")), libc::SIGTERM);
        assert_eq!(libc::WEXITSTATUS(end(c"/does/not/exist 2>/dev/null")), 127);
        // SAFETY: null asks whether there is a shell.
        assert_eq!(unsafe { system(ptr::null()) }, 1);
    }

    /// With the C library's system(3) the signal is lost.
    #[test]
    fn a_signal_that_waits_to_be_read_is_still_there() {
        let waits = || {
            let signals = Signals::new(&[libc::SIGQUIT]).expect("a descriptor");
            // SAFETY: no pointers; the signal is blocked in this thread, which alone it is sent to.
            check(unsafe { libc::raise(libc::SIGQUIT) }).expect("a signal");
            // SAFETY: a string that ends.
            let status = unsafe { system(c"kill -QUIT $$".as_ptr()) };
            assert_eq!(libc::WTERMSIG(status), libc::SIGQUIT, "the shell has it neither blocked nor ignored");
            assert_eq!(signals.read(), Some(libc::SIGQUIT), "it was thrown away");
        };
        std::thread::spawn(waits).join().expect("no panic");
    }
}
