//! What error logs say of a request or a connection: nginx's lines, with their context.

pub mod debug;

use std::fmt::Display;
use std::io::Write;

use weir_http::KnownField;
use weir_rt::file::errno_text;
use weir_rt::net::SockAddr;

use crate::error::{EngineError, EngineErrorKind, FaultSide};
use crate::exchange::Exchange;
use crate::log::{LineReach, LogFile, LogLevel, LoggedRequest, compose, lost_file_words, now, tell};
use crate::transport::ClientConnection;
use crate::variable_index::VarIndex;
use crate::worker::Worker;

/// A variable whose value lines about requests end with, kept in a plan: as it is known when the line is logged.
#[derive(Clone, Copy, Debug)]
pub struct LoggedVariable(pub VarIndex);

impl Exchange {
    /// Logs at level error, with nginx's context (`client: ..., server: ..., request: "..."`).
    pub fn log_error(&self, message: &dyn Display) {
        self.log(LogLevel::Error, message);
    }

    /// Logs at `level`, with nginx's context. Costs a compare when the level is not logged.
    pub fn log(&self, level: LogLevel, message: &dyn Display) {
        if self.hears(level) {
            about_exchange(self, level, message);
        }
    }

    /// Whether what is logged at `level` is written anywhere.
    #[inline]
    pub fn hears(&self, level: LogLevel) -> bool {
        self.plan.core.error_log.enabled(level) || self.connection.debug
    }
}

impl ClientConnection {
    /// Logs a message about the connection, which has no request (yet).
    pub fn log(&self, level: LogLevel, message: &dyn Display) {
        let hosts = self.hosts.borrow().clone();
        about_connection(self, level, message, |out| connection_context(self, &hosts.addr, out));
    }

    /// Logs a message about the connection outside of its requests; nginx gives those no context.
    pub fn log_idle(&self, level: LogLevel, message: &dyn Display) {
        about_connection(self, level, message, |_| {});
    }
}

impl Worker {
    /// Logs one line (or more) to `file`, see [`WorkerLogs::write`](crate::log::WorkerLogs::write).
    ///
    /// # Panics
    /// When a worker's first line is logged outside of its runtime.
    pub fn log_line(&self, file: &LogFile, level: Option<LogLevel>, write: impl FnOnce(&mut Vec<u8>)) {
        let time = || self.dates(|dates| *dates.syslog());
        self.logs.write(file, level, &self.counters, time, write);
    }
}

#[cold]
fn about_exchange(x: &Exchange, level: LogLevel, message: &dyn Display) {
    let line = x.worker.dates(|dates| {
        compose(dates.error_log(), level, Some(x.connection.number), message, |out| {
            exchange_context(x, out);
        })
    });
    let presence = &x.shared.presence;
    tell(level, &line, Some(LoggedRequest { id: presence.id(), route: presence.route() }));
    let (log, reach) = (&x.plan.core.error_log, line_reach(&x.connection));
    if level.is_urgent() || log.is_main() {
        return log.put(level, &line, reach);
    }
    for file in log.files(level, reach) {
        x.worker.log_line(file, Some(level), |out| out.extend_from_slice(&line));
    }
}

fn about_connection(
    connection: &ClientConnection,
    level: LogLevel,
    message: &dyn Display,
    context: impl FnOnce(&mut Vec<u8>),
) {
    let server = connection.server();
    let log = &server.plan.core.error_log;
    if log.enabled(level) || connection.debug {
        let line = compose(&now(), level, Some(connection.number), message, context);
        tell(level, &line, None);
        log.put(level, &line, line_reach(connection));
    }
}

/// Logs why a response could not be sent to its end: nginx's lines at `info` for a client that is gone.
pub(crate) fn broken(x: &Exchange, error: EngineError) {
    // A server's response that broke off has words of its own, a script's or a filter's message is there already.
    if x.log_complaints() || matches!(error.kind, EngineErrorKind::Script | EngineErrorKind::Filter) {
        return;
    }
    let (level, message) = words_of(error);
    let action =
        if error.side == FaultSide::Upstream { "reading upstream" } else { "sending response to client" };
    x.log(level, &format_args!("{message} while {action}"));
}

/// Which files take lines about `connection`.
#[inline]
fn line_reach(connection: &ClientConnection) -> LineReach {
    if connection.debug { LineReach::EveryFile } else { LineReach::ByLevel }
}

/// `, client: ..., server: ..., request: "...", subrequest: "...", host: "...", referrer: "..."`
fn exchange_context(x: &Exchange, out: &mut Vec<u8>) {
    if let Some(alone) = x.is_alone() {
        put(out, format_args!(", context: {}", alone.context));
        if !x.connection.is_nobodys() {
            connection_context(&x.connection, &x.connection.hosts.borrow().addr, out);
        }
        return;
    }
    put(out, format_args!(", {}client: {}", kind(&x.connection), x.client().host()));
    if let Some(bytes) = x.session() {
        put(out, format_args!(", server: {}", x.connection.hosts.borrow().addr));
        x.write_part_context(out);
        if bytes.is_passed.get() {
            put(out, format_args!("{}", x.passed_bytes()));
        }
        return;
    }
    out.extend_from_slice(b", server: ");
    out.extend_from_slice(&x.server.name);
    quoted(out, "request", request_line(x));
    if x.is_subrequest() {
        quoted(out, "subrequest", x.uri());
    }
    x.write_part_context(out);
    quoted(out, "host", x.request.value(&x.arena, KnownField::Host).unwrap_or_default());
    quoted(out, "referrer", x.request.value(&x.arena, KnownField::Referer).unwrap_or_default());
    if let Some(id) = x.plan.kept::<LoggedVariable>().and_then(|logged| x.known_variable(logged.0)) {
        put(out, format_args!(", request_id: \""));
        out.extend_from_slice(x.text(id));
        out.push(b'"');
    }
}

/// `, client: ..., server: ADDRESS:PORT`
fn connection_context(connection: &ClientConnection, server: &SockAddr, out: &mut Vec<u8>) {
    put(out, format_args!(", {}client: {}, server: {server}", kind(connection), connection.peer.host()));
}

/// What nginx's lines say of clients over UDP.
fn kind(connection: &ClientConnection) -> &'static str {
    if connection.is_flow() { "udp " } else { "" }
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
fn words_of(error: EngineError) -> (LogLevel, String) {
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
        (FaultSide::Server, EngineErrorKind::File, errno) => lost_file_words(errno),
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

/// Formats to the end of `out`; an error can only be the message's own, and then it ends there.
fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}
