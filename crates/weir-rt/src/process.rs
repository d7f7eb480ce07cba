//! The process as a whole: limits, user, CPU placement, title, and its way into the background.

use std::ffi::{CString, c_int};
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use crate::calls::{check, retry};

mod channel;
mod child;
mod environment;
pub mod inherit;
mod poll;
mod spawn;
mod title;
pub mod watch;

pub use channel::{ChannelMessage, ProcessChannel};
pub use child::{EndedChild, ForkSide, ProcessEnd, fork, parent, reap};
pub use environment::{removed_for_shell, removed_variable, removed_variables, set_environment};
pub use poll::readable;
pub use spawn::{ChildProcess, ProgramCall, SpawnedProgram, set_free, spawn, wait_elsewhere};
pub use title::ProcessTitle;

/// Whether a filter of system calls (seccomp) is in force in this thread, as container runtimes have one; `false` where
/// /proc can't be read.
pub fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() != "0"))
}

/// The process id, as getpid(2) gives it (nginx's `$pid`).
pub fn pid() -> u32 {
    std::process::id()
}

/// Bytes in a memory page.
pub fn page_size() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    *PAGE.get_or_init(|| {
        // SAFETY: no pointers.
        let n = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(n).unwrap_or(4096)
    })
}

/// The number of CPUs this process may use, at least 1: what its affinity and its cgroup's quota leave
/// (`worker_processes auto`).
pub fn cpu_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The host name, in lower case as nginx has it in `$hostname`.
///
/// # Errors
/// The errno of gethostname(2).
pub fn hostname() -> io::Result<String> {
    let mut name = [0u8; 256]; // Linux allows 64
    // SAFETY: writable for the length given.
    check(unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) })?;
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).to_ascii_lowercase())
}

/// Which limit [`limit`] and [`set_limit`] mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceLimit {
    /// Open descriptors (`worker_rlimit_nofile`).
    OpenFiles,
    /// Bytes of a core file (`worker_rlimit_core`).
    Core,
}

/// The soft and the hard limit; `u64::MAX` is no limit.
///
/// # Errors
/// The errno of getrlimit(2).
pub fn limit(which: ResourceLimit) -> io::Result<(u64, u64)> {
    let mut r = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `r` is writable for the call.
    check(unsafe { libc::getrlimit(which.resource(), &mut r) })?;
    Ok((r.rlim_cur, r.rlim_max))
}

/// Sets both limits: a number of descriptors, or bytes of a core file; `u64::MAX` is no limit. Applies to the whole
/// process; descriptors already open stay.
///
/// # Errors
/// `EPERM` for raising the hard limit without privilege, `EINVAL` for a soft one above it.
pub fn set_limit(which: ResourceLimit, soft: u64, hard: u64) -> io::Result<()> {
    let r = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: `r` is readable for the call.
    check(unsafe { libc::setrlimit(which.resource(), &r) })
}

impl ResourceLimit {
    // The C library's own type for this differs between glibc and musl.
    #[cfg(target_env = "gnu")]
    fn resource(self) -> libc::__rlimit_resource_t {
        match self {
            ResourceLimit::OpenFiles => libc::RLIMIT_NOFILE,
            ResourceLimit::Core => libc::RLIMIT_CORE,
        }
    }

    #[cfg(not(target_env = "gnu"))]
    fn resource(self) -> c_int {
        match self {
            ResourceLimit::OpenFiles => libc::RLIMIT_NOFILE,
            ResourceLimit::Core => libc::RLIMIT_CORE,
        }
    }
}

/// Binds the calling thread to these CPUs (`worker_cpu_affinity`).
///
/// # Errors
/// `EINVAL` if none of them exists or one is above 1023.
pub fn set_affinity(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: integers only, for which zero is a value: the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        if cpu >= libc::CPU_SETSIZE as usize {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: the number is within the set, as checked.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: `set` is readable for its size; 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) })
}

/// The CPUs the calling thread may run on.
///
/// # Errors
/// The errno of sched_getaffinity(2).
pub fn affinity() -> io::Result<Vec<usize>> {
    affinity_of(0)
}

/// The CPUs that the process' first thread may run on, which is never bound: what taskset(1) and cpusets leave.
///
/// # Errors
/// The errno of sched_getaffinity(2).
pub fn process_affinity() -> io::Result<Vec<usize>> {
    // SAFETY: no pointers. A process' number is that of its first thread.
    affinity_of(unsafe { libc::getpid() })
}

/// The CPUs of a thread; 0 is the calling one.
fn affinity_of(thread: libc::pid_t) -> io::Result<Vec<usize>> {
    // SAFETY: integers only, for which zero is a value: the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is writable for its size.
    check(unsafe { libc::sched_getaffinity(thread, size_of_val(&set), &mut set) })?;
    // SAFETY: the numbers are within the set.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// Sets the nice value of the calling thread (`worker_priority`), -20 to 20.
///
/// # Errors
/// `EACCES` for a higher priority without privilege.
pub fn set_priority(nice: i32) -> io::Result<()> {
    // SAFETY: no pointers; on Linux 0 is the calling thread.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) })
}

/// A file without a name, in memory: for as long as a process has it open. Copies of this process have, programs that
/// it starts have not.
///
/// # Errors
/// The errno of memfd_create(2).
pub fn memory_file(name: &str) -> io::Result<File> {
    memory_file_with(name, libc::MFD_CLOEXEC)
}

/// [`memory_file`] with other flags of memfd_create(2).
fn memory_file_with(name: &str, flags: libc::c_uint) -> io::Result<File> {
    let name = CString::new(name)?;
    // SAFETY: a text with its zero, which outlives the call.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    check(fd)?;
    // SAFETY: the kernel just made it, and nothing else refers to it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Gives memory that was freed back to the system: after work that is done seldom and takes much.
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers; the allocator locks its arenas meanwhile.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes of this process in memory; 0 where that can't be known. Opens and reads a file.
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok().and_then(|text| {
        let resident = text.split(' ').nth(1)?;
        resident.parse::<u64>().ok()
    });
    // SAFETY: no pointers; every system knows the size of its pages.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages.unwrap_or_default() * u64::try_from(size).unwrap_or_default()
}

/// Lets the calling thread's sleeps end up to `ns` nanoseconds late, so that they end together with something else
/// (50 µs is what threads begin with).
pub fn set_timer_slack(ns: u32) {
    // SAFETY: no pointers; a long, as the function is variadic and reads one; it cannot fail.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, libc::c_ulong::from(ns)) };
}

/// Lets the allocator keep `bytes` of free memory at the end of each of its heaps, and take larger pieces from the system
/// one by one. By default it keeps 128 KB: a body of a few buffers then gives pages back and gets them again, empty, in
/// each of its responses. Does nothing where the C library is another one than glibc.
pub fn keep_free_memory(bytes: i32) {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) takes two integers and changes settings of the allocator under its own lock.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, bytes);
        libc::mallopt(libc::M_MMAP_THRESHOLD, bytes);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}

/// A user of the system's database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemUser {
    /// The login name, which decides the supplementary groups.
    pub name: CString,
    /// User id.
    pub uid: u32,
    /// Id of the primary group.
    pub gid: u32,
}

/// Looks a user up by name; `None` if it does not exist. May ask the network (NSS): for start only.
///
/// # Errors
/// The errno of getpwnam_r(3).
pub fn user(name: &str) -> io::Result<Option<SystemUser>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    // SAFETY: pointers and integers, for which zero is a value.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let found = lookup(|buf, result| {
        // SAFETY: all four are valid for the call, `buf` for its length.
        unsafe { libc::getpwnam_r(name.as_ptr(), &mut entry, buf.as_mut_ptr().cast(), buf.len(), result) }
    })?;
    Ok(found.then(|| SystemUser { name: name.clone(), uid: entry.pw_uid, gid: entry.pw_gid }))
}

/// Looks a group's id up by name; `None` if it does not exist.
///
/// # Errors
/// The errno of getgrnam_r(3).
pub fn group(name: &str) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    // SAFETY: pointers and integers, for which zero is a value.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let found = lookup(|buf, result| {
        // SAFETY: all four are valid for the call, `buf` for its length.
        unsafe { libc::getgrnam_r(name.as_ptr(), &mut entry, buf.as_mut_ptr().cast(), buf.len(), result) }
    })?;
    Ok(found.then_some(entry.gr_gid))
}

/// The shape of the `_r` calls: repeat with more room while that is what is missing. `T` is the entry's type, of
/// which only the ids are used: its pointers lead into the buffer, which is gone afterwards.
fn lookup<T>(mut call: impl FnMut(&mut [u8], *mut *mut T) -> c_int) -> io::Result<bool> {
    let mut buf = vec![0u8; 1024];
    loop {
        let mut result = std::ptr::null_mut();
        match call(&mut buf, &mut result) {
            // Several "not found" are allowed by POSIX beside a null result.
            0 | libc::ENOENT | libc::ESRCH => return Ok(!result.is_null()),
            libc::ERANGE if buf.len() < 1 << 20 => buf.resize(buf.len() * 4, 0),
            libc::EINTR => {}
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// Whether the process runs as root, and so has privileges to drop.
pub fn is_root() -> bool {
    // SAFETY: no pointers, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Becomes `user` with group `gid` and the user's supplementary groups, in every thread and for good. What it can
/// read of itself in /proc stays readable (the kernel would take that away with the change), and cores are
/// written.
///
/// # Errors
/// `EPERM` without privilege. After an error the process may be half changed and must end.
pub fn drop_privileges(user: &SystemUser, gid: u32) -> io::Result<()> {
    // SAFETY: no pointers but a NUL-terminated name; the C library carries each change to all threads.
    unsafe {
        check(libc::setgid(gid))?;
        check(libc::initgroups(user.name.as_ptr(), gid))?;
        check(libc::setuid(user.uid))?;
        // A long, as the function is variadic and reads one.
        check(libc::prctl(libc::PR_SET_DUMPABLE, 1 as libc::c_ulong))
    }
}

/// Makes `fd` the standard error too, so that what libraries and panics print reaches the error log.
///
/// # Errors
/// The errno of dup2(2).
pub fn redirect_stderr(fd: BorrowedFd<'_>) -> io::Result<()> {
    dup_onto(fd.as_raw_fd(), libc::STDERR_FILENO)
}

/// The daemon's side of [`daemonize`]: the parent still waits.
#[must_use = "the parent waits for `notify`"]
#[derive(Debug)]
pub struct DaemonReadiness {
    pipe: OwnedFd,
}

impl DaemonReadiness {
    /// The server is ready: the parent ends with status 0, and the process that started it goes on.
    ///
    /// # Errors
    /// `EPIPE` if the parent is gone, which is no reason to stop.
    pub fn notify(self) -> io::Result<()> {
        // SAFETY: one readable byte, a descriptor of ours.
        let n = unsafe { libc::write(self.pipe.as_raw_fd(), b"1".as_ptr().cast(), 1) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Goes on in a child that has a session of its own, umask 0, and /dev/null as standard input and output
/// (`daemon on`). Standard error stays, for what may still go wrong: see [`redirect_stderr`].
///
/// The parent does not return: it waits for [`DaemonReadiness::notify`] and ends with status 0, or, if the child ends
/// without it, with the child's status (1 for 0 or a signal).
///
/// # Errors
/// `EBUSY` if there are other threads, which a fork would lose; the errno of the call that failed.
pub fn daemonize() -> io::Result<DaemonReadiness> {
    if thread_count() > 1 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    let (reader, writer) = pipe()?;
    io::stdout().flush()?; // else both would print what is still buffered
    // SAFETY: there is one thread, so the child has whatever locks the parent holds.
    let child = unsafe { libc::fork() };
    check(child)?;
    if child > 0 {
        drop(writer);
        await_child(&reader, child)
    }
    drop(reader);
    detach()?;
    Ok(DaemonReadiness { pipe: writer })
}

fn detach() -> io::Result<()> {
    // SAFETY: no pointers.
    unsafe {
        check(libc::setsid())?;
        libc::umask(0);
    }
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup_onto(null.as_raw_fd(), libc::STDIN_FILENO)?;
    dup_onto(null.as_raw_fd(), libc::STDOUT_FILENO)
}

/// The rest of the parent's life.
fn await_child(reader: &OwnedFd, child: libc::pid_t) -> ! {
    let mut byte = 0u8;
    let said = retry(|| {
        // SAFETY: one writable byte, a descriptor of ours.
        unsafe { libc::read(reader.as_raw_fd(), std::ptr::from_mut(&mut byte).cast(), 1) as c_int }
    });
    let code = if said == 1 { 0 } else { exit_code(child) };
    // SAFETY: ends the process without running the child's exit handlers a second time.
    unsafe { libc::_exit(code) }
}

/// How a start that failed ended, never 0.
fn exit_code(child: libc::pid_t) -> c_int {
    let mut status: c_int = 0;
    // SAFETY: no pointers but `status`, valid for the call.
    let done = retry(|| unsafe { libc::waitpid(child, &mut status, 0) });
    if done == child && libc::WIFEXITED(status) { libc::WEXITSTATUS(status).max(1) } else { 1 }
}

/// Threads of this process; 1 if /proc cannot be read.
fn thread_count() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds: [RawFd; 2] = [0; 2];
    // SAFETY: room for two descriptors.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: fresh descriptors that nothing else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

fn dup_onto(from: RawFd, onto: RawFd) -> io::Result<()> {
    // SAFETY: the standard descriptors have no owner in Rust's sense, so none is closed under its owner.
    check(retry(|| unsafe { libc::dup2(from, onto) }))
}

/// The calling thread gives way to others: batch scheduling (sched(7)) at this niceness, 19 for one that runs when no other
/// wants its core. It is not raised above its creator's.
pub(crate) fn give_way(nice: i32) {
    // SAFETY: no pointers; 0 is the calling thread.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attr = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_BATCH as u32,
        sched_flags: 0,
        sched_nice: nice.max(own),
        sched_priority: 0,
        sched_runtime: SLICE_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: a plain struct of the size that it says, which lives during the call. Lowering one's own priority needs no
    // right; where a sandbox forbids it all the same, the thread works as any other.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}

/// The slice that a thread asks for which gives way: longer than what others have by themselves (0.7 ms on one core, 2.8 on
/// eight and more). Since Linux 6.12 a thread that wakes takes the core at once from one with a longer slice; between equal
/// ones it waits for up to a tick, whatever their niceness. p99 of a waking thread beside eight that compute at nice 19: 3.8 ms
/// with equal slices, 0.2 ms with longer ones. Much longer would be turns that are far apart on a busy core.
const SLICE_NS: u64 = 3_000_000;

/// Lets the calling thread run on all cores that the process' first thread may use, though its creator, a worker, was bound to
/// some: a caller that starts a thread for all workers calls it there first. If that can't be done, it works where it
/// is.
pub fn unbind() {
    let _ = process_affinity().and_then(|cpus| set_affinity(&cpus));
}

/// The calling thread's scheduling policy and niceness.
#[cfg(test)]
pub(crate) fn priority() -> (i32, i32) {
    // SAFETY: no pointers; 0 is the calling thread.
    unsafe { (libc::sched_getscheduler(0), libc::getpriority(libc::PRIO_PROCESS, 0)) }
}

#[cfg(test)]
pub(crate) mod tests;
