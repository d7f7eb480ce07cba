//! Lines of the error log, as nginx composes them: time, level, process and thread, connection, message, context.

use std::cell::Cell;
use std::fmt::Display;
use std::io::{self, Write};

use weir_http::KnownField;
use weir_rt::clock;
use weir_rt::file::errno_text;
use weir_rt::net::SockAddr;

use super::LogLevel;
use crate::error::{EngineError, EngineErrorKind, FaultSide};
use crate::exchange::Exchange;
use crate::transport::ClientConnection;

/// The longest line, its newline counted (nginx's `NGX_MAX_ERROR_STR`).
pub(super) const LONGEST: usize = 2048;

thread_local! {
    /// How long lines may be just now.
    static LIMIT: Cell<usize> = const { Cell::new(LONGEST) };
}

/// Lines that `tell` logs on this thread may have so many bytes instead of [`LONGEST`].
pub fn up_to<T>(longest: usize, tell: impl FnOnce() -> T) -> T {
    let before = LIMIT.replace(longest);
    let told = tell();
    LIMIT.set(before);
    told
}

/// Composes a line; `context` appends what follows the message, which nothing does at the level `debug`, as in nginx.
pub(super) fn compose(
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

/// `, client: ..., server: ..., request: "...", subrequest: "...", host: "...", referrer: "..."`
pub(super) fn exchange(x: &Exchange, out: &mut Vec<u8>) {
    if let Some(alone) = x.is_alone() {
        put(out, format_args!(", context: {}", alone.context));
        if !x.connection.is_nobodys() {
            connection(&x.connection, &x.connection.hosts.borrow().addr, out);
        }
        return;
    }
    put(out, format_args!(", client: {}", x.client().host()));
    out.extend_from_slice(b", server: ");
    out.extend_from_slice(&x.server.name);
    quoted(out, "request", request_line(x));
    if x.is_subrequest() {
        quoted(out, "subrequest", x.uri());
    }
    x.write_part_context(out);
    quoted(out, "host", x.request.value(&x.arena, KnownField::Host).unwrap_or_default());
    quoted(out, "referrer", x.request.value(&x.arena, KnownField::Referer).unwrap_or_default());
}

/// `, client: ..., server: ADDRESS:PORT`
pub(super) fn connection(connection: &ClientConnection, server: &SockAddr, out: &mut Vec<u8>) {
    put(out, format_args!(", client: {}, server: {server}", connection.peer.host()));
}

/// The request line as sent; of a head that could not be read, what there is of its first line.
fn request_line(x: &Exchange) -> &[u8] {
    let line = x.arena.get(x.request.head.line);
    if !line.is_empty() || x.request.head.len > 0 {
        return line;
    }
    let all = x.arena.get(weir_http::Span { start: 0, end: x.arena.mark() });
    let start = all.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
    let all = all.get(start..).unwrap_or_default();
    let end = all.iter().position(|b| matches!(b, b'\r' | b'\n')).unwrap_or(all.len());
    all.get(..end).unwrap_or_default()
}

fn quoted(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    if !value.is_empty() {
        put(out, format_args!(", {name}: \""));
        out.extend_from_slice(value);
        out.push(b'"');
    }
}

/// The level and words of an error that ended a response. What a client does to its own connection is `info`.
pub(super) fn broken(error: EngineError) -> (LogLevel, String) {
    match (error.side, error.kind, error.errno) {
        (FaultSide::Client, EngineErrorKind::TimedOut, _) => {
            (LogLevel::Info, "client timed out (110: Connection timed out)".to_owned())
        }
        (FaultSide::Client, EngineErrorKind::Closed, Some(errno)) => {
            (client_level(errno), format!("writev() failed ({errno}: {})", errno_text(errno)))
        }
        (FaultSide::Client, EngineErrorKind::Closed, None) => {
            (LogLevel::Info, "client prematurely closed connection".to_owned())
        }
        (FaultSide::Client, ..) => (LogLevel::Info, error.to_string()),
        (FaultSide::Upstream, ..) => (LogLevel::Error, error.to_string()),
        (FaultSide::Server, EngineErrorKind::File, Some(errno)) => {
            (LogLevel::Crit, format!("file error ({errno}: {})", errno_text(errno)))
        }
        (FaultSide::Server, EngineErrorKind::File, None) => {
            (LogLevel::Alert, "sendfile() reported that a file was truncated".to_owned())
        }
        (FaultSide::Server, ..) => (LogLevel::Alert, error.to_string()),
    }
}

/// nginx's list of what happens to connections all the time; anything else deserves an alert.
fn client_level(errno: i32) -> LogLevel {
    // ENETUNREACH is not reached twice in a row by accident: 100-101 and 103-104, 107, 110-113, and EPIPE.
    match errno {
        32 | 100 | 101 | 103 | 104 | 107 | 110..=113 => LogLevel::Info,
        _ => LogLevel::Alert,
    }
}

/// `28: No space left on device`
pub(super) fn io(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => format!("{errno}: {}", errno_text(errno)),
        None => error.to_string(),
    }
}

/// The time now, for threads that keep no dates.
pub(super) fn now() -> [u8; 19] {
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
