//! An open log: a file, standard error, syslog or a socket, shared by all that log to it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use weir_rt::FileHandle;
use weir_rt::file as rt;

use crate::privileged::set_during;

use super::buffer::LogBuffering;
use super::kept_lines::KeptFile;
use super::program::{ProgramPipe, ProgramRestarts};
use super::remote::SenderHandle;
use super::syslog::{self, SyslogSocket};
use super::{LogLevel, LogTarget, given, line, writer};

/// An open log. Clones are the same log; the file is closed when the last one is gone and its lines are written.
#[derive(Clone)]
pub struct LogFile(pub(super) Arc<SharedLogFile>);

impl LogFile {
    /// Opens `target`; a caller that opens the same with the same buffering gets the same, as long as the path still
    /// leads there. Waits for the disk, and for the reader of a FIFO.
    ///
    /// # Errors
    /// The errno of open(2).
    pub fn open(target: &LogTarget, buffering: Option<LogBuffering>) -> io::Result<LogFile> {
        let mut open = table();
        let given = given::find(target);
        let same = |file: &Arc<SharedLogFile>| {
            let is_it = |given: &FileHandle| file.is(given);
            file.target == *target
                && file.buffering == buffering
                && given.as_ref().map_or_else(|| file.is_there(), is_it)
        };
        if let Some(file) = open.alike(target).iter().filter_map(Weak::upgrade).find(same) {
            return Ok(LogFile(file));
        }
        let file = Arc::new(match given {
            Some(given) => SharedLogFile::new(target.clone(), buffering, LogOutput::File(Arc::new(given))),
            None => SharedLogFile::open(target.clone(), buffering)?,
        });
        open.add(&file);
        Ok(LogFile(file))
    }

    /// From here on this process starts no program for a log: it only tests a configuration.
    pub fn start_no_programs() {
        WITHOUT_PROGRAMS.store(true, Relaxed);
    }

    /// From here on whatever log this process opens is discarded: a rehearsal writes none.
    pub fn discard_all() {
        DISCARDS.store(true, Relaxed);
    }

    /// Runs `build`; the logs that it opens are discarded, and no file is made for them: an editor's configuration is
    /// looked at while it is being typed. Holds for this thread.
    pub fn discard_during<R>(build: impl FnOnce() -> R) -> R {
        set_during(&DISCARDS_HERE, build)
    }

    /// Standard error as it is now.
    ///
    /// A process without one gets a log that fails to write, which is counted like a full disk.
    pub fn stderr() -> LogFile {
        LogFile::open(&LogTarget::Stderr, None)
            .unwrap_or_else(|_| LogFile(Arc::new(SharedLogFile::nowhere())))
    }

    /// Writes a line before it returns: for messages that may be the last of the process.
    pub(super) fn write_now(&self, level: LogLevel, line: &[u8]) {
        let framed = self.framed(level, line);
        if let Err(failure) = self.0.write(&framed) {
            writer::report(&self.0, &failure.error, self.0.lines(&framed[failure.written..]));
        }
    }

    /// Hands a line to the log thread.
    pub(super) fn hand_over(&self, level: LogLevel, line: &[u8]) {
        writer::push(&self.0, self.framed(level, line));
    }

    fn framed(&self, level: LogLevel, line: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(line.len() + 64);
        let start = self.begin(&mut out, Some(level), syslog::now);
        out.extend_from_slice(line);
        self.end(&mut out, start);
        out
    }

    /// Begins a line at the end of `out`; syslog's has a header.
    #[inline]
    pub(super) fn begin(
        &self,
        out: &mut Vec<u8>,
        level: Option<LogLevel>,
        time: impl FnOnce() -> [u8; 15],
    ) -> usize {
        let start = out.len();
        if let LogTarget::Syslog(syslog) = &self.0.target {
            syslog.begin(out, level, &time());
        }
        start
    }

    /// Ends the line that began at `start`.
    #[inline]
    pub(super) fn end(&self, out: &mut Vec<u8>, start: usize) {
        if let LogTarget::Syslog(_) = self.0.target {
            syslog::end(out, start);
        }
    }

    /// Standard error becomes this file, if it is one; after a reopening too.
    pub(super) fn lead_stderr(&self) -> io::Result<()> {
        let LogTarget::File(_) = self.0.target else { return Ok(()) };
        self.0.leads_stderr.store(true, Relaxed);
        self.0.lead_stderr()
    }
}

impl PartialEq for LogFile {
    /// Whether both are the same open log.
    fn eq(&self, other: &LogFile) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for LogFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogFile({})", self.0.target)
    }
}

/// What the clones of a [`LogFile`] share.
pub(super) struct SharedLogFile {
    pub(super) target: LogTarget,
    pub(super) buffering: Option<LogBuffering>,
    /// Bytes handed over and not written; the queue's lock is held for additions.
    pub(super) queued: AtomicUsize,
    leads_stderr: AtomicBool,
    /// The last write to the file ended within a line.
    is_torn: AtomicBool,
    /// When its program was started again, if it is one.
    restarts: ProgramRestarts,
    /// How its lines are kept until they are written.
    pub(super) kept: KeptFile,
    /// Held for a pointer's time, never while something is written.
    output: Mutex<LogOutput>,
}

#[derive(Clone)]
enum LogOutput {
    File(Arc<FileHandle>),
    Program(Arc<ProgramPipe>),
    Syslog(Arc<SyslogSocket>),
    Remote(Arc<SenderHandle>),
    Nowhere,
}

/// A write that did not come to its end.
#[derive(Debug)]
pub(super) struct WriteFailure {
    pub(super) error: io::Error,
    /// Bytes that were written before it.
    pub(super) written: usize,
}

impl SharedLogFile {
    fn open(target: LogTarget, buffering: Option<LogBuffering>) -> io::Result<SharedLogFile> {
        let mut is_torn = false;
        let output = match &target {
            _ if DISCARDS.load(Relaxed) || DISCARDS_HERE.get() => {
                LogOutput::File(Arc::new(rt::open_append(Path::new("/dev/null"))?))
            }
            LogTarget::File(path) => {
                let handle = rt::open_append(path)?;
                is_torn = ends_within_line(path, &handle);
                LogOutput::File(Arc::new(handle))
            }
            LogTarget::Program(_) if WITHOUT_PROGRAMS.load(Relaxed) => {
                LogOutput::File(Arc::new(rt::open_append(Path::new("/dev/null"))?))
            }
            LogTarget::Program(command) => LogOutput::Program(Arc::new(ProgramPipe::start(command)?)),
            LogTarget::Stderr => {
                LogOutput::File(Arc::new(FileHandle::from(io::stderr().as_fd().try_clone_to_owned()?)))
            }
            LogTarget::Syslog(syslog) => LogOutput::Syslog(Arc::new(SyslogSocket::new(syslog.clone()))),
            LogTarget::Remote(remote) => LogOutput::Remote(Arc::new(SenderHandle::new(remote))),
        };
        let file = SharedLogFile::new(target, buffering, output);
        file.is_torn.store(is_torn, Relaxed);
        Ok(file)
    }

    fn new(target: LogTarget, buffering: Option<LogBuffering>, output: LogOutput) -> SharedLogFile {
        let (queued, leads_stderr) = (AtomicUsize::new(0), AtomicBool::new(false));
        let is_torn = AtomicBool::new(false);
        let kept = KeptFile::new(match (&target, buffering) {
            (LogTarget::File(path), None) => Some(path),
            _ => None,
        });
        let restarts = ProgramRestarts::default();
        let output = Mutex::new(output);
        SharedLogFile { target, buffering, queued, leads_stderr, is_torn, restarts, kept, output }
    }

    fn nowhere() -> SharedLogFile {
        SharedLogFile::new(LogTarget::Stderr, None, LogOutput::Nowhere)
    }

    /// Whether the path still leads to the open file: not after a rename, and not after it was removed.
    fn is_there(&self) -> bool {
        match (&self.target, self.output()) {
            (LogTarget::File(path), LogOutput::File(handle)) => same_file(path, &handle),
            (_, LogOutput::Nowhere) => false,
            _ => true,
        }
    }

    /// Whether it is the file that `other` has open.
    fn is(&self, other: &FileHandle) -> bool {
        match (self.output(), other.meta()) {
            (LogOutput::Program(pipe), Ok(there)) => {
                pipe.handle.meta().is_ok_and(|here| (there.dev, there.ino) == (here.dev, here.ino))
            }
            (LogOutput::File(handle), Ok(there)) => {
                handle.meta().is_ok_and(|here| (there.dev, there.ino) == (here.dev, here.ino))
            }
            _ => false,
        }
    }

    /// Its path and descriptor, if it is a file or a program.
    pub(super) fn handle(&self) -> Option<(&Path, Arc<FileHandle>)> {
        match (&self.target, self.output()) {
            (LogTarget::File(path), LogOutput::File(handle)) => Some((path, handle)),
            // Its text stands for the path among those that a child is given.
            (LogTarget::Program(text), LogOutput::File(handle)) => Some((Path::new(text), handle)),
            (LogTarget::Program(text), LogOutput::Program(pipe)) => {
                Some((Path::new(text), Arc::clone(&pipe.handle)))
            }
            _ => None,
        }
    }

    /// Bytes of the file, if it is one.
    pub(super) fn length(&self) -> Option<u64> {
        let (_, handle) = self.handle()?;
        handle.meta().ok().map(|meta| meta.size)
    }

    /// Writes all of `bytes`, in one call as a rule.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<(), WriteFailure> {
        match self.output() {
            LogOutput::File(handle) => self.append_or_restart(&handle, bytes),
            LogOutput::Program(pipe) => self.append_or_restart(&pipe.handle, bytes),
            LogOutput::Syslog(socket) => socket.send_all(bytes),
            LogOutput::Remote(remote) => {
                remote.send(bytes, writer::is_threaded()).map_err(|error| WriteFailure { error, written: 0 })
            }
            LogOutput::Nowhere => {
                Err(WriteFailure { error: io::Error::from_raw_os_error(EBADF), written: 0 })
            }
        }
    }

    /// Appends lines; a program that has ended is started again, and gets what it has not got.
    fn append_or_restart(&self, handle: &FileHandle, bytes: &[u8]) -> Result<(), WriteFailure> {
        let failure = match self.append(handle, bytes) {
            Err(failure) if failure.error.kind() == io::ErrorKind::BrokenPipe => failure,
            result => return result,
        };
        let LogTarget::Program(command) = &self.target else { return Err(failure) };
        if !self.restarts.allow() {
            return Err(failure);
        }
        let Ok(pipe) = ProgramPipe::start(command).map(Arc::new) else { return Err(failure) };
        *self.output.lock().unwrap_or_else(PoisonError::into_inner) = LogOutput::Program(Arc::clone(&pipe));
        // What the one before has got of a line is no part of another.
        self.is_torn.store(false, Relaxed);
        let written = failure.written;
        self.append(&pipe.handle, bytes.get(written..).unwrap_or_default())
            .map_err(|failure| WriteFailure { written: written + failure.written, ..failure })
    }

    /// Appends lines. What was left of a line by a write that failed is ended first: it would go on in the next line.
    fn append(&self, handle: &FileHandle, bytes: &[u8]) -> Result<(), WriteFailure> {
        let is_text = self.buffering.is_none_or(|how| how.gzip.is_none());
        if is_text && self.is_torn.load(Relaxed) {
            write_all(handle, b"\n").map_err(|failure| WriteFailure { written: 0, ..failure })?;
            self.is_torn.store(false, Relaxed);
        }
        write_all(handle, bytes).inspect_err(|failure| {
            let last = failure.written.checked_sub(1).and_then(|at| bytes.get(at));
            self.is_torn.store(last.is_some_and(|last| *last != b'\n'), Relaxed);
        })
    }

    /// How many lines `bytes`, which were to be written, are.
    pub(super) fn lines(&self, bytes: &[u8]) -> u64 {
        match self.target {
            LogTarget::Syslog(_) => syslog::frames(bytes).count() as u64,
            _ => memchr_count(bytes),
        }
    }

    /// Opens the path again, or takes the descriptor that was given for it; the old file stays when that fails. With
    /// an `owner` the file becomes that user's.
    pub(super) fn reopen(&self, owner: Option<u32>) -> Result<(), String> {
        let LogTarget::File(path) = &self.target else { return Ok(()) };
        let handle = match given::find(&self.target) {
            Some(given) => given,
            None => rt::open_append(path)
                .map_err(|error| format!("open() \"{}\" failed ({})", path.display(), line::io(&error)))?,
        };
        if let Some(owner) = owner {
            given::hand_to(&handle, path, owner)?;
        }
        if !self.is(&handle) {
            self.is_torn.store(ends_within_line(path, &handle), Relaxed);
        }
        *self.output.lock().unwrap_or_else(PoisonError::into_inner) = LogOutput::File(Arc::new(handle));
        if self.leads_stderr.load(Relaxed) {
            self.lead_stderr().map_err(|error| format!("dup2(STDERR) failed ({})", line::io(&error)))?;
        }
        Ok(())
    }

    fn lead_stderr(&self) -> io::Result<()> {
        if let LogOutput::File(handle) = self.output() {
            weir_rt::process::redirect_stderr(OwnedFd::from(handle.try_clone()?).as_fd())?;
        }
        Ok(())
    }

    fn output(&self) -> LogOutput {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Writes a line to standard error, or to the log that it leads to; whether all of it is written.
pub(super) fn write_to_stderr(line: &[u8]) -> bool {
    match all().iter().find(|file| file.leads_stderr.load(Relaxed)) {
        Some(file) => file.write(line).is_ok(),
        None => io::stderr().write_all(line).is_ok(),
    }
}

/// Opens all logs again by their paths; what failed, in nginx's words.
pub(super) fn reopen_all() -> Vec<String> {
    all().iter().filter_map(|file| file.reopen(None).err()).collect()
}

/// Waits until what socket logs have is sent, as far as their servers can be reached; `limit` each at most.
pub(super) fn drain(limit: Duration) {
    for file in all() {
        if let LogOutput::Remote(remote) = file.output() {
            remote.drain(limit);
        }
    }
}

/// Keeps all logs open that are open now, until the result is dropped: those of a configuration that is dropped and will
/// be built again.
pub fn hold() -> HeldLogs {
    HeldLogs { _files: all() }
}

/// Logs that stay open while it lives; see [`hold`].
#[derive(Default)]
#[must_use = "the logs stay open while it lives"]
pub struct HeldLogs {
    _files: Vec<Arc<SharedLogFile>>,
}

/// All open logs, in the order in which they were opened.
pub(super) fn all() -> Vec<Arc<SharedLogFile>> {
    table().files.iter().filter_map(Weak::upgrade).collect()
}

/// Whether the path leads to the open file, as far as that can be known: one that can't be looked at does. What is opened twice
/// is written by two that do not know where the other's lines end.
fn same_file(path: &Path, handle: &FileHandle) -> bool {
    let is_gone =
        |error: io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
    match (rt::stat(path), handle.meta()) {
        (Ok(there), Ok(here)) => (there.dev, there.ino) == (here.dev, here.ino),
        (Err(error), _) => !is_gone(error),
        (Ok(_), Err(_)) => true,
    }
}

/// Whether a file that is there already ends within a line: that of a process that was cut off, as by a loss of power.
fn ends_within_line(path: &Path, handle: &FileHandle) -> bool {
    let is_file = |meta: &rt::FileMeta| meta.kind == rt::FileKind::File && meta.size > 0;
    let Some(meta) = handle.meta().ok().filter(is_file) else { return false };
    let mut last = [b'\n'];
    // The log itself is open for writing alone. One that can't be read is taken for whole.
    rt::open(path).is_ok_and(|file| file.pread(&mut last, meta.size - 1).is_ok()) && last != [b'\n']
}

fn write_all(handle: &FileHandle, bytes: &[u8]) -> Result<(), WriteFailure> {
    let mut written = 0;
    while written < bytes.len() {
        match handle.append(&bytes[written..]) {
            Ok(0) => return Err(WriteFailure { error: io::ErrorKind::WriteZero.into(), written }),
            Ok(n) => written += n,
            Err(error) => return Err(WriteFailure { error, written }),
        }
    }
    Ok(())
}

fn memchr_count(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Every open log of the process, for [`reopen_all`] and to open each once.
fn table() -> MutexGuard<'static, OpenLogs> {
    static OPEN: Mutex<OpenLogs> =
        Mutex::new(OpenLogs { files: Vec::new(), by_target: BTreeMap::new(), room: 0 });
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs, also those that are closed by now.
struct OpenLogs {
    /// In the order in which they were opened.
    files: Vec<Weak<SharedLogFile>>,
    /// By the target as text: thousands of servers have a log each.
    by_target: BTreeMap<String, Vec<Weak<SharedLogFile>>>,
    /// How many there are before those that are closed are looked for.
    room: usize,
}

impl OpenLogs {
    /// Those whose target reads like `target`.
    fn alike(&self, target: &LogTarget) -> &[Weak<SharedLogFile>] {
        self.by_target.get(&target.to_string()).map_or(&[], Vec::as_slice)
    }

    fn add(&mut self, file: &Arc<SharedLogFile>) {
        if self.files.len() >= self.room {
            let open = |file: &Weak<SharedLogFile>| file.strong_count() > 0;
            self.files.retain(open);
            self.by_target.retain(|_, files| {
                files.retain(open);
                !files.is_empty()
            });
            self.room = 2 * self.files.len() + MOST_CLOSED;
        }
        self.files.push(Arc::downgrade(file));
        self.by_target.entry(file.target.to_string()).or_default().push(Arc::downgrade(file));
    }
}

/// So many closed logs may stay listed, or as many as were open.
const MOST_CLOSED: usize = 16;

/// Bad file descriptor.
const EBADF: i32 = 9;

/// See [`LogFile::start_no_programs`].
static WITHOUT_PROGRAMS: AtomicBool = AtomicBool::new(false);

/// See [`LogFile::discard_all`].
static DISCARDS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// See [`LogFile::discard_during`].
    static DISCARDS_HERE: Cell<bool> = const { Cell::new(false) };
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_a_crash_has_left_of_a_line_is_ended_before_the_next_one() {
        let directory = weir_test::TempDir::new();
        for (before, after) in [("", "new\n"), ("whole\n", "whole\nnew\n"), ("whole\nto", "whole\nto\nnew\n")]
        {
            let path = directory.path().join("log");
            std::fs::write(&path, before).expect("ours");
            let file = SharedLogFile::open(LogTarget::File(path.clone()), None).expect("ours");
            file.write(b"new\n").expect("there is room");
            assert_eq!(std::fs::read_to_string(&path).expect("ours"), after);
        }
    }

    #[test]
    fn a_log_whose_path_can_t_be_looked_at_is_not_opened_twice() {
        let directory = weir_test::TempDir::new();
        let (inner, away) = (directory.path().join("logs"), directory.path().join("away"));
        std::fs::create_dir(&inner).expect("ours");
        let path = inner.join("log");
        let file = SharedLogFile::open(LogTarget::File(path.clone()), None).expect("ours");
        std::fs::rename(&inner, &away).expect("ours");
        assert!(!file.is_there(), "the path leads nowhere");
        // A circle: what is at the path is not known.
        std::os::unix::fs::symlink(&inner, &inner).expect("ours");
        assert!(file.is_there());
    }

    #[test]
    fn a_line_that_was_cut_off_does_not_go_on_in_the_next_one() {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        ours.set_nonblocking(true).expect("an open socket");
        theirs.set_nonblocking(true).expect("an open socket");
        let output = LogOutput::File(Arc::new(FileHandle::from(OwnedFd::from(ours))));
        let file = SharedLogFile::new(LogTarget::File("of a test".into()), None, output);
        let long = vec![b'x'; 8 << 20];
        let failure = file.write(&long).expect_err("more than a socket takes");
        assert!(failure.written > 0 && failure.written < long.len());
        let mut read = |expected: &str| {
            let mut bytes = Vec::new();
            // It ends with "would block".
            let _end = theirs.read_to_end(&mut bytes);
            assert_eq!(String::from_utf8_lossy(&bytes).trim_start_matches('x'), expected);
        };
        read("");
        file.write(b"whole\n").expect("there is room");
        file.write(b"and another\n").expect("there is room");
        read("\nwhole\nand another\n");
    }
}
