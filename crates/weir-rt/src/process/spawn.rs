//! Other programs, run beside this one: their pipes, and how they end.
//!
//! A child is known by its pidfd, so that a wait is for this one and no other, and none is lost to another part
//! of the program that reaps others.

use std::ffi::{OsStr, c_int};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::{ProcessEnd, affinity, check, process_affinity, set_affinity};
use crate::signal;

/// A program with its arguments.
#[derive(Debug)]
pub struct ProgramCall<'a> {
    /// Its name, looked for in `PATH`, and its arguments; what follows a NUL byte is not seen.
    pub args: &'a [Vec<u8>],
    /// Its whole environment, `NAME=value`; without, that of this process.
    pub environ: Option<&'a [Vec<u8>]>,
    /// True when standard error goes where standard output goes.
    pub merge_stderr: bool,
}

/// A program that was started: our ends of its pipes.
#[derive(Debug)]
pub struct SpawnedProgram {
    /// The process, to wait for or to end.
    pub child: ChildProcess,
    /// The pipe to its standard input.
    pub stdin: OwnedFd,
    /// The pipe from its standard output.
    pub stdout: OwnedFd,
    /// What it writes to its standard error, unless that is merged.
    pub stderr: Option<OwnedFd>,
}

/// A process that this one has started and has not collected yet. Forgotten, it stays a zombie when it ends: see
/// [`ChildProcess::forsake`].
#[derive(Debug)]
pub struct ChildProcess {
    pid: u32,
    pidfd: OwnedFd,
}

/// Starts a program. It has all CPUs, whatever the calling thread is bound to, no signal blocked, and none of the
/// descriptors of this process but its pipes, as long as all are close-on-exec.
///
/// # Errors
/// `NotFound`, `PermissionDenied` and the like of the program itself; `EMFILE`, `EAGAIN`, `ENOMEM`.
pub fn spawn(program: &ProgramCall<'_>) -> io::Result<SpawnedProgram> {
    let mut args = program.args.iter().map(|arg| text(arg));
    let name = args.next().ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    let mut command = Command::new(name);
    command.args(args);
    if let Some(environ) = program.environ {
        command.env_clear();
        for entry in environ {
            let entry = text(entry).as_bytes();
            let cut = entry.iter().position(|byte| *byte == b'=').unwrap_or(entry.len());
            let value = entry.get(cut + 1..).unwrap_or_default();
            command.env(OsStr::from_bytes(&entry[..cut]), OsStr::from_bytes(value));
        }
    }
    let (theirs_in, stdin) = io::pipe()?;
    let (stdout, theirs_out) = io::pipe()?;
    let mut stderr = None;
    if program.merge_stderr {
        command.stderr(theirs_out.try_clone()?);
    } else {
        let (ours, theirs) = io::pipe()?;
        command.stderr(Stdio::from(theirs));
        stderr = Some(OwnedFd::from(ours));
    }
    command.stdin(theirs_in).stdout(theirs_out);
    set_free(&mut command);
    let child = command.spawn()?;
    let child = ChildProcess { pid: child.id(), pidfd: open(child.id())? };
    Ok(SpawnedProgram { child, stdin: stdin.into(), stdout: stdout.into(), stderr })
}

/// An argument as C sees it.
fn text(bytes: &[u8]) -> &OsStr {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    OsStr::from_bytes(&bytes[..end])
}

/// Gives the child what the calling thread, a worker, has blocked for itself: signals, and CPUs.
fn set_free(command: &mut Command) {
    let all = process_affinity().unwrap_or_default();
    let bound = affinity().is_ok_and(|cpus| cpus != all);
    let free = move || {
        signal::unblock_all()?;
        signal::set_default(signal::SIGSYS)?;
        if bound {
            // Without them it runs where its parent does.
            let _ = set_affinity(&all);
        }
        Ok(())
    };
    // SAFETY: system calls alone, without a lock or an allocation, as befits the only thread of a copy of this process.
    unsafe { command.pre_exec(free) };
}

fn open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = c_int::try_from(fd).unwrap_or(-1);
    check(fd)?;
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl ChildProcess {
    /// The process id, which is not reused until the process was reaped.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.pidfd.as_raw_fd()
    }

    /// Another descriptor of it, to be waited for: readable when it has ended.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`
    pub fn handle(&self) -> io::Result<OwnedFd> {
        self.pidfd.try_clone()
    }

    /// How it has ended, which collects it; `None` while it runs, and when it was collected before.
    pub fn ended(&self) -> Option<ProcessEnd> {
        // SAFETY: an all-zero siginfo is valid; the kernel fills it.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = libc::WEXITED | libc::WNOHANG;
        // SAFETY: `info` is valid for the call.
        let done = unsafe { libc::waitid(libc::P_PIDFD, self.raw() as libc::id_t, &mut info, options) };
        // SAFETY: the fields of SIGCHLD; both are 0 where the kernel has filled nothing.
        let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
        if done < 0 || pid == 0 {
            return None;
        }
        Some(match info.si_code {
            libc::CLD_EXITED => ProcessEnd::Exited(status),
            code => ProcessEnd::Killed(status, code == libc::CLD_DUMPED),
        })
    }

    /// Sends the signal number `signal` to the process.
    ///
    /// # Errors
    /// `ESRCH` it has ended, `EINVAL` no such signal.
    pub fn signal(&self, signal: c_int) -> io::Result<()> {
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: a null pointer means the same information as kill(2) sends.
        let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.raw(), signal, none, 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Kills it; it is collected when it has ended.
    ///
    /// # Errors
    /// It can't be waited for: it stays a zombie.
    pub fn forsake(self) -> io::Result<()> {
        if self.signal(libc::SIGKILL).is_err() && self.ended().is_some() {
            return Ok(());
        }
        super::watch::reap_later(self)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};

    use super::*;

    fn run(args: &[&str], environ: Option<&[Vec<u8>]>, merge_stderr: bool) -> SpawnedProgram {
        let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
        spawn(&ProgramCall { args: &args, environ, merge_stderr }).expect("a program of every system")
    }

    fn end(child: &ChildProcess) -> ProcessEnd {
        let mut polled = libc::pollfd { fd: child.raw(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        assert_eq!(unsafe { libc::poll(&mut polled, 1, 90_000) }, 1, "it ends");
        child.ended().expect("it has ended")
    }

    #[test]
    fn what_goes_in_comes_out() {
        let SpawnedProgram { child, stdin, stdout, .. } = run(&["cat"], None, false);
        File::from(stdin).write_all(b"hello").expect("it reads");
        let mut text = String::new();
        File::from(stdout).read_to_string(&mut text).expect("it writes");
        assert_eq!((text.as_str(), end(&child)), ("hello", ProcessEnd::Exited(0)));
        assert_eq!(child.ended(), None, "it was collected");
        assert_eq!(child.signal(9).map_err(|error| error.raw_os_error()), Err(Some(libc::ESRCH)));
    }

    #[test]
    fn ends_are_told_apart() {
        assert_eq!(end(&run(&["sh", "-c", "exit 3"], None, false).child), ProcessEnd::Exited(3));
        // A worker's thread, from which children have nothing.
        let before = signal::block_all().expect("a valid set");
        let sleeper = run(&["sleep", "90"], None, false);
        before.restore();
        sleeper.child.signal(libc::SIGTERM).expect("it runs");
        assert_eq!(end(&sleeper.child), ProcessEnd::Killed(libc::SIGTERM, false));
    }

    #[test]
    fn environment_and_errors_are_as_asked_for() {
        let environ = [b"A=x".to_vec(), b"B=y=z".to_vec()];
        let script = "echo $A $B $HOME >&2";
        let spawned = run(&["/bin/sh", "-c", script], Some(&environ), true);
        assert!(spawned.stderr.is_none());
        let mut text = String::new();
        File::from(spawned.stdout).read_to_string(&mut text).expect("it writes");
        assert_eq!(text, "x y=z\n");
        end(&spawned.child);
        let none = spawn(&ProgramCall { args: &[b"/no/such".to_vec()], environ: None, merge_stderr: false });
        assert_eq!(none.expect_err("it is not there").kind(), io::ErrorKind::NotFound);
    }
}
