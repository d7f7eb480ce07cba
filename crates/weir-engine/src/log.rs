//! Logs: error_log's levels and lines, and the one thread that writes every log of the process. What a line says of a
//! request or a connection is in [`request_log`](crate::request_log).
//!
//! Nothing that serves requests writes to a file. A worker composes lines into buffers of its own
//! ([`WorkerLogs`]), hands them over once a turn of its loop, and the log thread (`writer`) writes what it was
//! given: one write(2) for all lines of a file that came together. A disk that is slow or full costs lines, which
//! are counted, never requests. Only `emerg` and `alert` are written at once by the thread that has them to say.

mod buffer;
mod capture;
mod dynamic;
pub mod file;
mod given;
mod gzip;
mod kept_lines;
mod last_lines;
mod level;
mod line;
mod program;
mod recovered_lines;
mod remote;
mod spec;
pub mod syslog;
#[cfg(test)]
mod tests;
mod worker;
mod writer;

use std::cell::RefCell;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use weir_conf::Error;

pub use buffer::LogBuffering;
pub(crate) use capture::tell;
pub use capture::{LineTaker, capture};
pub use dynamic::{dynamic_level, set_dynamic_level};
pub use file::{HeldLogs, LogFile, hold};
pub use given::{GivenFiles, give, opened, reopen_for};
pub use kept_lines::keep_lines;
pub use last_lines::{LastLine, LoggedRequest, last_lines, lines_logged};
pub use level::LogLevel;
pub use line::up_to;
pub(crate) use line::{compose, now};
pub use recovered_lines::recover;
pub use remote::{HostNames, RemoteLog, SocketLog, SocketLogState};
pub use spec::{LogSpec, LogTarget};
pub use worker::WorkerLogs;
pub use writer::{flush, lost, queued, reopen, threaded};

/// The error logs in force somewhere: where messages go, each from its level on. The default is the process' main
/// log, from `error` on.
#[derive(Clone, Debug)]
pub struct ErrorLog {
    /// The least grave level that any of the sinks takes.
    limit: LogLevel,
    /// `None`: those of the main log.
    sinks: Option<Arc<[LogSink]>>,
}

impl Default for ErrorLog {
    fn default() -> ErrorLog {
        ErrorLog { limit: LogLevel::Error, sinks: None }
    }
}

#[derive(Debug)]
struct LogSink {
    file: LogFile,
    limit: LogLevel,
}

/// Which files of a log take a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineReach {
    /// Those whose level is as low.
    ByLevel,
    /// All of them: it is about a client of `debug_connection`.
    EveryFile,
}

impl ErrorLog {
    /// Opens what the lines of one block name.
    ///
    /// # Errors
    /// `open() "/path" failed (13: Permission denied)` and the like, at the line's first argument.
    pub fn open(specs: &[LogSpec]) -> Result<ErrorLog, Error> {
        let open = |spec: &LogSpec| Ok(LogSink { file: spec.open()?, limit: spec.level });
        let sinks: Vec<LogSink> = specs.iter().map(open).collect::<Result<_, Error>>()?;
        Ok(ErrorLog::of(sinks))
    }

    /// One file, from `limit` on.
    pub fn to(file: LogFile, limit: LogLevel) -> ErrorLog {
        ErrorLog::of(vec![LogSink { file, limit }])
    }

    fn of(sinks: Vec<LogSink>) -> ErrorLog {
        let limit = sinks.iter().map(|sink| sink.limit).max().unwrap_or_default();
        ErrorLog { limit, sinks: Some(sinks.into()) }
    }

    /// The least grave level that is written anywhere, a [dynamic one](set_dynamic_level) included.
    pub fn limit(&self) -> LogLevel {
        dynamic::in_force(self.limit)
    }

    /// The least grave level that the configuration has written anywhere.
    pub fn configured_limit(&self) -> LogLevel {
        self.limit
    }

    /// Whether a message of `level` is written anywhere.
    #[inline]
    pub fn enabled(&self, level: LogLevel) -> bool {
        level <= dynamic::in_force(self.limit)
    }

    /// Whether it names no sinks of its own: messages go where those of the main log go.
    pub(crate) fn is_main(&self) -> bool {
        self.sinks.is_none()
    }

    /// The files that take a message of `level`.
    pub(crate) fn files(&self, level: LogLevel, reach: LineReach) -> impl Iterator<Item = &LogFile> {
        let sinks = self.sinks.as_deref().unwrap_or_default();
        sinks
            .iter()
            .filter(move |sink| reach == LineReach::EveryFile || level <= dynamic::in_force(sink.limit))
            .map(|sink| &sink.file)
    }

    /// Hands a composed line to the log thread, or writes it now if it can't wait.
    pub(crate) fn put(&self, level: LogLevel, line: &[u8], reach: LineReach) {
        if self.sinks.is_none() {
            return main(level, line, line, reach);
        }
        for file in self.files(level, reach) {
            match level.is_urgent() {
                true => file.write_now(level, line),
                false => file.hand_over(level, line),
            }
        }
    }
}

/// From here on messages of this thread that belong to no request, and those of requests whose configuration names no
/// log, go to `log`; `None`: to the process' main log. For workers: a process may have several servers.
pub fn set_own(log: Option<ErrorLog>) {
    OWN.set(log.filter(|log| log.sinks.is_some()));
}

/// Logs a message that belongs to no request: to the main log, and until there is one to standard error as
/// `weir: [emerg] message`.
pub fn cycle(level: LogLevel, message: &dyn Display) {
    if main_enabled(level) {
        let line = compose(&now(), level, None, message, |_| {});
        tell(level, &line, None);
        main(level, &line, format!("weir: [{}] {message}\n", level.name()).as_bytes(), LineReach::ByLevel);
    }
}

/// Logs that the calling worker has ended with a configuration, or ended: nginx's line of a worker process, with the
/// thread's number.
pub fn worker_exited() {
    cycle(LogLevel::Notice, &format_args!("worker process {} exited with code 0", line::thread().1));
}

/// Logs why the server can't start: as [`cycle`], and to standard error even when the main log is open, since that is
/// where the person who starts it looks.
pub fn startup(message: &dyn Display) {
    cycle(LogLevel::Emerg, message);
    let main = MAIN.read().unwrap_or_else(PoisonError::into_inner);
    let reported = main.log.as_ref().is_none_or(|log| {
        log.files(LogLevel::Emerg, LineReach::ByLevel).any(|file| file.0.target == LogTarget::Stderr)
    });
    if !reported && !LED.load(Relaxed) {
        eprintln!("weir: [emerg] {message}");
    }
}

fn main_enabled(level: LogLevel) -> bool {
    level <= main_limit()
}

/// The least grave level at which a message of this thread without a request is written anywhere, a [dynamic
/// one](set_dynamic_level) included.
pub fn main_limit() -> LogLevel {
    dynamic::in_force(configured_main_limit())
}

/// The least grave level at which the configuration has a message of this thread without a request written anywhere.
pub fn configured_main_limit() -> LogLevel {
    if let Some(limit) = OWN.with_borrow(|own| own.as_ref().map(ErrorLog::limit)) {
        return limit;
    }
    let main = MAIN.read().unwrap_or_else(PoisonError::into_inner);
    match (&main.log, &main.early) {
        (Some(log), _) => log.limit,
        (None, early) => early.as_ref().map_or(EARLY_STDERR, |log| log.limit.max(EARLY_STDERR)),
    }
}

/// Writes `line` to the main log; until there is one, to the file of `-e`, and `short` to standard error.
fn main(level: LogLevel, line: &[u8], short: &[u8], reach: LineReach) {
    if let Some(log) = OWN.with_borrow(Clone::clone) {
        return log.put(level, line, reach);
    }
    let main = MAIN.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(log) = &main.log {
        return log.put(level, line, reach);
    }
    // No thread may be started yet, since `daemon` forks: written here.
    let mut reported = false;
    for file in main.early.iter().flat_map(|log| log.files(level, LineReach::ByLevel)) {
        reported |= file.0.target == LogTarget::Stderr;
        file.write_now(level, line);
    }
    if level <= EARLY_STDERR && !reported {
        // A standard error that is closed has no reader.
        let _ = std::io::stderr().write_all(short);
    }
}

/// Logs to the main log about another log that can't be written; when it is that one, standard error. Whether that was
/// possible: where the disk is full, neither takes a line.
fn complain(trouble: &mut writer::LogTrouble) -> bool {
    let message = format_args!("{}, {} lines lost", trouble.message, trouble.lines);
    let line = compose(&now(), trouble.level, None, &message, |_| {});
    if !std::mem::replace(&mut trouble.is_remembered, true) {
        last_lines::remember(trouble.level, line.strip_suffix(b"\n").unwrap_or(&line), None);
    }
    let mut reported = false;
    if let Some(log) = &MAIN.read().unwrap_or_else(PoisonError::into_inner).log {
        for file in
            log.files(trouble.level, LineReach::ByLevel).filter(|file| file.0.target != trouble.target)
        {
            reported |= file.0.write(&line).is_ok();
        }
    }
    reported || file::write_to_stderr(&line)
}

/// From here on [`cycle`] logs to `log` only; to standard error for the default log.
pub fn set_main(log: ErrorLog) {
    let log = if log.sinks.is_some() { log } else { ErrorLog::to(LogFile::stderr(), log.limit) };
    MAIN.write().unwrap_or_else(PoisonError::into_inner).log = Some(log);
}

/// Messages before the configuration is read go to `target` too, and those of a configuration without
/// `error_log` (`-e`).
///
/// # Errors
/// The errno of open(2).
pub fn open_early(target: &LogTarget) -> std::io::Result<()> {
    let file = LogFile::open(target, None)?;
    let log = ErrorLog::to(file, LogLevel::Notice);
    MAIN.write().unwrap_or_else(PoisonError::into_inner).early = Some(log);
    Ok(())
}

/// Takes the main log of a configuration into use: `configured`, and without an `error_log` the file of `-e` or
/// `logs/error.log` below `prefix`, from `error` on.
///
/// # Errors
/// `open() "/path" failed (2: No such file or directory)`, in nginx's words.
pub fn start(configured: Option<&ErrorLog>, prefix: &Path) -> Result<(), String> {
    set_main(main_of(configured, prefix)?);
    Ok(())
}

/// The main log of a configuration, for [`set_main`]: opened now, taken into use when nothing can fail any more.
///
/// # Errors
/// As [`start`].
pub fn main_of(configured: Option<&ErrorLog>, prefix: &Path) -> Result<ErrorLog, String> {
    match configured {
        Some(log) => Ok(log.clone()),
        None => usual(prefix),
    }
}

/// From here on standard error leads to the main log, so that what libraries print is found there. Not before the
/// server serves: until then it may be observed.
///
/// # Errors
/// dup2(2) failed, in nginx's words.
pub fn lead_stderr() -> Result<(), String> {
    let main = MAIN.read().unwrap_or_else(PoisonError::into_inner);
    let Some(file) = main.log.as_ref().and_then(|log| log.files(LogLevel::Stderr, LineReach::ByLevel).next())
    else {
        return Ok(());
    };
    file.lead_stderr().map_err(|error| format!("dup2(STDERR) failed ({})", line::io(&error)))?;
    LED.store(true, Relaxed);
    Ok(())
}

/// The main log of a configuration that names none.
fn usual(prefix: &Path) -> Result<ErrorLog, String> {
    let early = MAIN.read().unwrap_or_else(PoisonError::into_inner).early.clone();
    if let Some(file) = early.as_ref().and_then(|log| log.files(LogLevel::Emerg, LineReach::ByLevel).next()) {
        return Ok(ErrorLog::to(file.clone(), LogLevel::Error));
    }
    let target = LogTarget::File(prefix.join("logs/error.log"));
    let file = LogFile::open(&target, None);
    let file = file.map_err(|error| format!("open() \"{target}\" failed ({})", line::io(&error)))?;
    Ok(ErrorLog::to(file, LogLevel::Error))
}

/// Where [`cycle`] logs to.
struct MainLog {
    /// The file of `-e`.
    early: Option<ErrorLog>,
    /// The main log; `None` while the server starts.
    log: Option<ErrorLog>,
}

thread_local! {
    /// Where [`cycle`] logs to on a worker whose server has a log of its own.
    static OWN: RefCell<Option<ErrorLog>> = const { RefCell::new(None) };
}

/// The level and words of a file whose bytes can't be sent: it can't be read, or ended before its length (`None`).
pub fn lost_file_words(errno: Option<i32>) -> (LogLevel, String) {
    match errno {
        Some(errno) => {
            (LogLevel::Crit, format!("file error ({errno}: {})", weir_rt::file::errno_text(errno)))
        }
        None => (LogLevel::Alert, "sendfile() reported that a file was truncated".to_owned()),
    }
}

/// Standard error leads to the main log.
static LED: AtomicBool = AtomicBool::new(false);
/// Read for messages without a request only.
static MAIN: RwLock<MainLog> = RwLock::new(MainLog { early: None, log: None });
/// From this level on messages also go to standard error while the server starts.
const EARLY_STDERR: LogLevel = LogLevel::Warn;
