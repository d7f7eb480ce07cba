//! Lines of the error log, as nginx composes them: time, level, process and thread, connection, message, context.

use std::cell::Cell;
use std::fmt::Display;
use std::io::{self, Write};

use weir_rt::clock;
use weir_rt::file::errno_text;

use super::LogLevel;

/// The longest line, its newline counted (nginx's `NGX_MAX_ERROR_STR`).
pub(super) const LONGEST: usize = 2048;

thread_local! {
    /// How long lines may be just now.
    static LIMIT: Cell<usize> = const { Cell::new(LONGEST) };
}

/// Lines that `tell` logs on this thread may have this many bytes instead of [`LONGEST`].
pub fn up_to<T>(longest: usize, tell: impl FnOnce() -> T) -> T {
    let before = LIMIT.replace(longest);
    let reported = tell();
    LIMIT.set(before);
    reported
}

/// Composes a line; `context` appends what follows the message, which nothing does at the level `debug`, as in nginx.
pub(crate) fn compose(
    time: &[u8; 19],
    level: LogLevel,
    connection: Option<u64>,
    message: &dyn Display,
    context: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(time);
    let (pid, tid) = thread();
    put(&mut out, format_args!(" [{}] {pid}#{tid}: ", level.name()));
    if let Some(number) = connection {
        put(&mut out, format_args!("*{number} "));
    }
    put(&mut out, format_args!("{message}"));
    if level != LogLevel::Debug {
        context(&mut out);
    }
    out.truncate(LIMIT.get() - 1);
    out.push(b'\n');
    out
}

/// `28: No space left on device`
pub(super) fn io(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => format!("{errno}: {}", errno_text(errno)),
        None => error.to_string(),
    }
}

/// The time now, for threads that keep no dates.
pub(crate) fn now() -> [u8; 19] {
    let (seconds, _) = clock::unix_time();
    weir_http::date::error_log(seconds as i64, clock::local_offset(seconds) / 60)
}

/// The process' and the calling thread's number.
pub(super) fn thread() -> (u32, u32) {
    thread_local! {
        static IDS: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    }
    let pid = std::process::id();
    IDS.with(|ids| {
        // After a fork the thread has another number.
        if ids.get().0 != pid {
            ids.set((pid, thread_id().unwrap_or(pid)));
        }
        ids.get()
    })
}

/// /proc/thread-self leads to `PID/task/TID`.
fn thread_id() -> Option<u32> {
    let link = std::fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
}

/// Formats to the end of `out`; an error can only be the message's own, and then it ends there.
fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}
