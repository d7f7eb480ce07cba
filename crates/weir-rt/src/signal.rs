//! Signals as data: blocked in every thread, read from a signalfd by the one that wants them.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::c_int;
pub use libc::{
    SIGABRT, SIGALRM, SIGBUS, SIGCHLD, SIGHUP, SIGINT, SIGIO, SIGKILL, SIGPIPE, SIGQUIT, SIGSEGV, SIGSYS,
    SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGXFSZ,
};

/// A set of signals, blocked since [`Signals::new`] and delivered here. Dropping it leaves them blocked.
pub struct Signals {
    fd: OwnedFd,
}

/// One signal as it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedSignal {
    /// The signal's number.
    pub signal: c_int,
    /// Process id of the sender (for SIGCHLD: the child); 0 if it was the kernel.
    pub pid: u32,
    /// The real user id of the sender.
    pub uid: u32,
}

impl Signals {
    /// Blocks `signals` in the calling thread, and so in all it starts later: call it before there are others, or
    /// the kernel may hand a signal to one of those instead.
    ///
    /// # Errors
    /// `EINVAL` for a number that is no signal; the errno of signalfd(2).
    pub fn new(signals: &[c_int]) -> io::Result<Signals> {
        let set = set_of(signals)?;
        mask(libc::SIG_BLOCK, &set)?;
        if signals.contains(&SIGQUIT) || signals.contains(&SIGINT) {
            crate::shell::keep_signals();
        }
        // SAFETY: `set` is an initialised set; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nothing else owns.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Readable while a signal is pending.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The next pending signal, without waiting.
    pub fn read(&self) -> Option<c_int> {
        self.receive().map(|r| r.signal)
    }

    /// The next pending signal with its sender, without waiting.
    pub fn receive(&self) -> Option<ReceivedSignal> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        // SAFETY: the buffer is as large as the length given, and the descriptor is ours.
        let n = unsafe { libc::read(self.fd(), info.as_mut_ptr().cast(), size_of_val(&info)) };
        if n != size_of_val(&info) as isize {
            return None; // EAGAIN: a signalfd gives whole records or nothing
        }
        // SAFETY: the kernel has filled the whole record.
        let info = unsafe { info.assume_init() };
        Some(ReceivedSignal { signal: info.ssi_signo as c_int, pid: info.ssi_pid, uid: info.ssi_uid })
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    /// The errno of poll(2), but for EINTR.
    pub fn wait(&self) -> io::Result<c_int> {
        loop {
            if let Some(signal) = self.read() {
                return Ok(signal);
            }
            let mut poll = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid pollfd.
            if unsafe { libc::poll(&mut poll, 1, -1) } < 0 {
                let e = io::Error::last_os_error();
                if e.kind() != io::ErrorKind::Interrupted {
                    return Err(e);
                }
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sends `signal` to the process `pid`; 0 only asks whether it exists.
///
/// # Errors
/// `ESRCH` no such process, `EPERM` not ours, `EINVAL` no such signal.
pub fn kill(pid: i32, signal: c_int) -> io::Result<()> {
    // SAFETY: no pointers.
    if unsafe { libc::kill(pid, signal) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has the process ignore `signal` (SIGPIPE and SIGSYS, as nginx does, and SIGXFSZ). Inherited across exec.
///
/// # Errors
/// `EINVAL` if it is no signal or cannot be ignored.
pub fn ignore(signal: c_int) -> io::Result<()> {
    // SAFETY: SIG_IGN installs no code.
    if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Gives `signal` back to the kernel, whose default it becomes again. For SIGSEGV and SIGBUS: the handler that Rust's
/// start-up installs returns once to where the signal came from, and so swallows one that was sent by kill(2).
///
/// # Errors
/// `EINVAL` if it is no signal.
pub fn set_default(signal: c_int) -> io::Result<()> {
    // SAFETY: SIG_DFL installs no code.
    if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Blocks these signals in the calling thread: sent ones go to others.
///
/// # Errors
/// `EINVAL` for a number that is no signal.
pub(crate) fn block(signals: &[c_int]) -> io::Result<()> {
    mask(libc::SIG_BLOCK, &set_of(signals)?).map(drop)
}

/// Blocks nothing in the calling thread.
pub(crate) fn unblock_all() -> io::Result<()> {
    mask(libc::SIG_SETMASK, &set_of(&[])?).map(drop)
}

/// The mask a thread had before [`block_all`].
pub(crate) struct OldMask(libc::sigset_t);

impl OldMask {
    /// Puts it back, in the thread that took it.
    pub(crate) fn restore(self) {
        // Fails only for a wrong first argument.
        mask(libc::SIG_SETMASK, &self.0).expect("SIG_SETMASK is valid");
    }
}

/// Blocks in the calling thread everything that can be sent to it. What a fault raises in the thread itself stays
/// open: blocked, it would kill the process before the handler of the profiler's or of Rust's guard page ran.
pub(crate) fn block_all() -> io::Result<OldMask> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the set it is given.
    let mut set = unsafe {
        libc::sigfillset(set.as_mut_ptr());
        set.assume_init()
    };
    for fault in [SIGSEGV, SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, SIGABRT] {
        // SAFETY: an initialised set and a valid number.
        unsafe { libc::sigdelset(&mut set, fault) };
    }
    mask(libc::SIG_BLOCK, &set).map(OldMask)
}

/// Calls `f` while the calling thread takes no signals that others send. Threads that `f` starts take none as long as they
/// live: a program with a runtime inside gets its signals where it would without one, and SIGPIPE may keep its default.
pub fn without_signals<R>(f: impl FnOnce() -> R) -> R {
    struct Restored(Option<OldMask>);
    impl Drop for Restored {
        fn drop(&mut self) {
            self.0.take().into_iter().for_each(OldMask::restore);
        }
    }
    let _restored = Restored(Some(block_all().expect("SIG_BLOCK is valid")));
    f()
}

/// Whether the calling thread blocks `signal`.
pub(crate) fn is_blocked(signal: c_int) -> bool {
    let none = set_of(&[]).and_then(|none| mask(libc::SIG_BLOCK, &none));
    // SAFETY: an initialised set, which the kernel has filled.
    none.is_ok_and(|blocked| unsafe { libc::sigismember(&blocked, signal) } == 1)
}

fn set_of(signals: &[c_int]) -> io::Result<libc::sigset_t> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set it is given.
    let mut set = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    };
    for &signal in signals {
        // SAFETY: an initialised set; a number that is no signal is refused with EINVAL.
        if unsafe { libc::sigaddset(&mut set, signal) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(set)
}

/// Changes the calling thread's mask and returns the one before.
fn mask(how: c_int, set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut old = MaybeUninit::uninit();
    // SAFETY: both sets are valid for the call; `old` is written when it returns 0.
    match unsafe { libc::pthread_sigmask(how, set, old.as_mut_ptr()) } {
        // SAFETY: written, as the call succeeded.
        0 => Ok(unsafe { old.assume_init() }),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends it to this very thread, where it is blocked: other tests never see it.
    fn raise(signal: c_int) {
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
    }

    #[test]
    fn blocked_signals_are_read_with_their_sender() {
        let signals = Signals::new(&[SIGUSR1, SIGWINCH]).expect("valid signals");
        assert_eq!(signals.read(), None);
        raise(SIGUSR1);
        let received = signals.receive().expect("pending");
        assert_eq!((received.signal, received.pid), (SIGUSR1, std::process::id()));
        raise(SIGWINCH);
        assert_eq!(signals.wait().expect("poll works"), SIGWINCH);
        assert_eq!(signals.read(), None);
    }

    #[test]
    fn what_is_no_signal_is_refused() {
        let errno = Signals::new(&[SIGHUP, 1000]).err().and_then(|e| e.raw_os_error());
        assert_eq!(errno, Some(libc::EINVAL));
        assert_eq!(ignore(SIGKILL).err().and_then(|e| e.raw_os_error()), Some(libc::EINVAL));
    }

    #[test]
    fn kill_asks_for_existence() {
        assert!(kill(std::process::id() as i32, 0).is_ok());
        let errno = kill(i32::MAX, 0).err().and_then(|e| e.raw_os_error());
        assert_eq!(errno, Some(libc::ESRCH));
    }

    #[test]
    fn the_mask_comes_back() {
        let now = || mask(libc::SIG_BLOCK, &set_of(&[]).expect("empty")).expect("valid");
        // SAFETY: an initialised set.
        let has_term = |set: &libc::sigset_t| unsafe { libc::sigismember(set, SIGTERM) } == 1;
        let before = has_term(&now());
        let old = block_all().expect("valid");
        assert!(has_term(&now()));
        old.restore();
        assert_eq!(has_term(&now()), before);
    }
}
