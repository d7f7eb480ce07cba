//! Other programs, run beside this one: their pipes, and how they end.
//!
//! A child is known by its pidfd, so that a wait is for this one and no other, and none is lost to another part
//! of the program that reaps others. Linux before 5.4 has no pidfds to wait for: a thread for each child waits there.

use std::ffi::{OsStr, c_int};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::{ProcessEnd, affinity, process_affinity, set_affinity};
use crate::calls::check;
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
    notice: EndNotice,
    /// Its process id may be another process's by now.
    collected: AtomicBool,
}

/// What becomes readable when a child has ended.
#[derive(Debug)]
enum EndNotice {
    /// The process itself.
    Pidfd(OwnedFd),
    /// A pipe whose other end a waiting thread closes then.
    Thread(OwnedFd),
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
    let child = known(command.spawn()?, EndNotice::new)?;
    Ok(SpawnedProgram { child, stdin: stdin.into(), stdout: stdout.into(), stderr })
}

/// An argument as C sees it.
fn text(bytes: &[u8]) -> &OsStr {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    OsStr::from_bytes(&bytes[..end])
}

/// Gives the child what the calling thread, a worker, has blocked for itself: signals, and CPUs. For a caller that starts
/// a program with pipes of its own.
pub fn set_free(command: &mut Command) {
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

/// Waits for `child` on a thread of its own, so that no zombie is left of it: it may take its time. Without a thread the zombie
/// stays until this process ends.
pub fn wait_elsewhere(mut child: Child) {
    let waits = std::thread::Builder::new().name("weir child".into());
    let _zombie = waits.spawn(move || child.wait());
}

/// The child with its notice. Without one it could not be waited for: it is ended then.
fn known(mut child: Child, notice: fn(u32) -> io::Result<EndNotice>) -> io::Result<ChildProcess> {
    let pid = child.id();
    match notice(pid) {
        Ok(notice) => Ok(ChildProcess { pid, notice, collected: AtomicBool::new(false) }),
        Err(error) => {
            child.kill()?;
            child.wait()?;
            Err(error)
        }
    }
}

impl EndNotice {
    /// By pidfd where the kernel has them and waits for them (Linux 5.4), else by a thread.
    fn new(pid: u32) -> io::Result<EndNotice> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = c_int::try_from(fd).unwrap_or(-1);
        if let Err(error) = check(fd) {
            // A sandbox may forbid the call instead of not knowing it.
            let without = matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM));
            return if without { EndNotice::by_thread(pid) } else { Err(error) };
        }
        // SAFETY: a fresh descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let id = fd.as_raw_fd() as libc::id_t;
        match wait(libc::P_PIDFD, id, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => EndNotice::by_thread(pid),
            _ => Ok(EndNotice::Pidfd(fd)),
        }
    }

    fn by_thread(pid: u32) -> io::Result<EndNotice> {
        let (ours, theirs) = io::pipe()?;
        let waiting = move || {
            // The child stays a zombie, so its process id stays its own until it is collected.
            let interrupted = |error: io::Error| error.kind() == io::ErrorKind::Interrupted;
            while wait(libc::P_PID, pid, libc::WEXITED | libc::WNOWAIT).is_err_and(interrupted) {}
            drop(theirs);
        };
        // Signals are for other threads, from its first moment.
        let before = signal::block_all()?;
        let started =
            std::thread::Builder::new().name("weir child".into()).stack_size(128 << 10).spawn(waiting);
        before.restore();
        started.map(|_| EndNotice::Thread(ours.into()))
    }

    fn fd(&self) -> &OwnedFd {
        match self {
            EndNotice::Pidfd(fd) | EndNotice::Thread(fd) => fd,
        }
    }
}

/// waitid(2); an all-zero process id where there is nothing to say.
fn wait(kind: libc::idtype_t, id: libc::id_t, options: c_int) -> io::Result<libc::siginfo_t> {
    // SAFETY: an all-zero siginfo is valid; the kernel fills it.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is valid for the call.
    check(unsafe { libc::waitid(kind, id, &mut info, options) })?;
    Ok(info)
}

impl ChildProcess {
    /// The process id, which is not reused until the process was reaped.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.notice.fd().as_raw_fd()
    }

    /// Another descriptor of it, to be waited for: readable when it has ended.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`
    pub fn handle(&self) -> io::Result<OwnedFd> {
        self.notice.fd().try_clone()
    }

    /// How it has ended, which collects it; `None` while it runs, and when it was collected before.
    pub fn ended(&self) -> Option<ProcessEnd> {
        if self.collected.load(Relaxed) {
            return None;
        }
        let (kind, id) = match &self.notice {
            EndNotice::Pidfd(fd) => (libc::P_PIDFD, fd.as_raw_fd() as libc::id_t),
            EndNotice::Thread(_) => (libc::P_PID, self.pid),
        };
        let info = wait(kind, id, libc::WEXITED | libc::WNOHANG).ok()?;
        // SAFETY: the fields of SIGCHLD; both are 0 where the kernel has filled nothing.
        let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
        if pid == 0 {
            return None;
        }
        self.collected.store(true, Relaxed);
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
        if self.collected.load(Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let none = std::ptr::null::<libc::siginfo_t>();
        let sent = match &self.notice {
            EndNotice::Pidfd(fd) => {
                // SAFETY: a null pointer means the same information as kill(2) sends.
                unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, none, 0) }
            }
            // SAFETY: no pointers; the process is ours and not collected.
            EndNotice::Thread(_) => unsafe { libc::kill(self.pid as libc::pid_t, signal).into() },
        };
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

    /// As on a kernel without pidfds.
    #[test]
    fn a_thread_notices_ends_as_a_pidfd_does() {
        let start = |command: &str| {
            let child = Command::new("sh").args(["-c", command]).spawn().expect("a program of every system");
            known(child, EndNotice::by_thread).expect("a thread")
        };
        let exited = start("exit 3");
        assert_eq!(end(&exited), ProcessEnd::Exited(3));
        assert_eq!(exited.ended(), None, "it was collected");
        assert_eq!(exited.signal(9).map_err(|error| error.raw_os_error()), Err(Some(libc::ESRCH)));
        let sleeper = start("exec sleep 90");
        assert_eq!(sleeper.ended(), None, "it runs");
        sleeper.signal(libc::SIGTERM).expect("it runs");
        assert_eq!(end(&sleeper), ProcessEnd::Killed(libc::SIGTERM, false));
    }

    /// A child that could not be waited for does not go on without its owner.
    #[test]
    fn without_a_notice_the_child_is_ended() {
        let child = Command::new("sleep").arg("90").spawn().expect("a program of every system");
        let pid = child.id();
        let refused = known(child, |_| Err(io::Error::from_raw_os_error(libc::EMFILE)));
        assert_eq!(refused.expect_err("no notice").raw_os_error(), Some(libc::EMFILE));
        assert_eq!(
            wait(libc::P_PID, pid, libc::WEXITED | libc::WNOHANG).map(|_| ()).map_err(|e| e.raw_os_error()),
            Err(Some(libc::ECHILD))
        );
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
