//! Signals to other processes, their limits, and what the kernel lets us use.

use std::io;

/// The signals an nginx process understands, by nginx's meaning, and `Kill` for the harness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerSignal {
    /// SIGQUIT: finish the requests under way, then exit.
    Quit,
    /// SIGTERM: exit at once.
    Term,
    /// SIGINT: exit at once.
    Int,
    /// SIGHUP: read the configuration again.
    Hup,
    /// SIGUSR1: reopen the logs.
    Usr1,
    /// SIGUSR2: upgrade the binary.
    Usr2,
    /// SIGWINCH: let the workers finish.
    Winch,
    /// SIGKILL, which the process cannot see.
    Kill,
}

impl ServerSignal {
    /// The number of the signal on this system.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Self::Quit => libc::SIGQUIT,
            Self::Term => libc::SIGTERM,
            Self::Int => libc::SIGINT,
            Self::Hup => libc::SIGHUP,
            Self::Usr1 => libc::SIGUSR1,
            Self::Usr2 => libc::SIGUSR2,
            Self::Winch => libc::SIGWINCH,
            Self::Kill => libc::SIGKILL,
        }
    }
}

/// Sends `signal` to the process `pid`.
///
/// # Errors
/// `ESRCH` when there is no such process, `EPERM` when it is not ours, and `EINVAL` for a `pid` of 0 or above
/// `i32::MAX`, which kill(2) would read as a process group.
pub fn send_signal(pid: u32, signal: ServerSignal) -> io::Result<()> {
    let pid = positive_pid(pid)?;
    // SAFETY: kill(2) takes two integers and touches no memory of ours.
    let failed = unsafe { libc::kill(pid, signal.number()) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Which permissions files and directories that this process makes do not get (umask); those before.
pub fn set_umask(mask: u32) -> u32 {
    // SAFETY: umask(2) takes and gives an integer, touches no memory of ours, and can't fail.
    unsafe { libc::umask(mask) }
}

/// Sets the soft limit of a running process (RLIMIT_NOFILE) to `soft` open descriptors; the hard limit stays.
///
/// # Errors
/// `EINVAL` when `soft` is above the hard limit, `ESRCH` and `EPERM` as in [`send_signal`].
pub fn limit_open_files(pid: u32, soft: u64) -> io::Result<()> {
    let pid = positive_pid(pid)?;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the old limit is written to `limit`, which outlives the call; a null new limit means "only read".
    let failed = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut limit) };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = soft;
    // SAFETY: `limit` is initialised and only read; a null old limit means "do not report".
    let failed = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// True when this process may create an io_uring; container runtimes and the `kernel.io_uring_disabled` sysctl
/// often forbid it, and kernels before 5.1 have none.
#[must_use]
pub fn io_uring_available() -> bool {
    let mut params = [0_u8; IO_URING_PARAMS_LEN];
    // SAFETY: io_uring_setup(2) reads and writes one `struct io_uring_params` (120 bytes, all zero is the default
    // set-up), which `params` holds; the number of entries is an integer.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 2_u32, params.as_mut_ptr()) };
    let Ok(fd) = i32::try_from(fd) else { return false };
    if fd < 0 {
        return false;
    }
    // SAFETY: the kernel just gave us `fd`; nothing else refers to it, so closing it once here is right.
    unsafe { libc::close(fd) };
    true
}

fn positive_pid(pid: u32) -> io::Result<i32> {
    match i32::try_from(pid) {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

/// Size of `struct io_uring_params` in bytes (include/uapi/linux/io_uring.h).
const IO_URING_PARAMS_LEN: usize = 120;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_signal_reaches_a_child() {
        use std::os::unix::process::ExitStatusExt;
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep(1) is everywhere");
        // Not QUIT, which whatever runs the tests in the background ignores, and its children too.
        send_signal(child.id(), ServerSignal::Term).expect("our child");
        let status = child.wait().expect("our child");
        assert_eq!(status.signal(), Some(ServerSignal::Term.number()));
    }

    #[test]
    fn pid_zero_would_be_a_group_and_is_refused() {
        assert_eq!(send_signal(0, ServerSignal::Hup).expect_err("group").raw_os_error(), Some(libc::EINVAL));
        assert_eq!(
            send_signal(u32::MAX, ServerSignal::Hup).expect_err("group").raw_os_error(),
            Some(libc::EINVAL)
        );
    }

    #[test]
    fn the_limit_of_open_files_of_a_child_changes() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep(1) is everywhere");
        limit_open_files(child.id(), 17).expect("our child");
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).expect("it lives");
        let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("always listed");
        assert_eq!(line.split_whitespace().nth(3), Some("17"));
        send_signal(child.id(), ServerSignal::Kill).expect("our child");
        child.wait().expect("our child");
    }

    #[test]
    fn probing_io_uring_leaks_no_descriptor() {
        let count = || std::fs::read_dir("/proc/self/fd").expect("procfs").count();
        let first = io_uring_available();
        for _ in 0..200 {
            assert_eq!(io_uring_available(), first);
        }
        assert!(count() < 150, "200 probes would have left 200 descriptors");
    }
}
