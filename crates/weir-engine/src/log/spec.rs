//! Where a log goes, as a directive says it: a file, standard error, syslog; and `error_log`'s arguments.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use weir_conf::{Error, LineCx, Span};

use super::buffer::LogBuffering;
use super::file::LogFile;
use super::remote::RemoteLog;
use super::syslog::SyslogServer;
use super::{LogLevel, line};

/// Where a log goes: a file, standard error, syslog or a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// A file, appended to; also a device, pipe or terminal by its path.
    File(PathBuf),
    /// A program that reads lines from its standard input: a command of the shell, with the bar in front of it.
    Program(String),
    /// Standard error.
    Stderr,
    /// A syslog server, by datagrams.
    Syslog(Arc<SyslogServer>),
    /// A server that takes lines.
    Remote(Arc<RemoteLog>),
}

impl LogTarget {
    /// What argument 0 names: `|command`, `syslog:server=...`, `tcp://host:port`, `udp://host:port`, `unix:/path`, or a path below the
    /// prefix.
    ///
    /// # Errors
    /// nginx's words for syslog's parameters, and those of [`RemoteLog::parse`].
    pub fn parse(line: &LineCx<'_>) -> Result<LogTarget, Error> {
        if let Some(command) = line.arg(0).strip_prefix('|') {
            return match command.trim() {
                "" => Err(line.invalid_value(0)),
                command => Ok(LogTarget::Program(format!("|{command}"))),
            };
        }
        match line.bytes(0).strip_prefix(b"syslog:") {
            Some(parameters) => Ok(LogTarget::Syslog(Arc::new(SyslogServer::parse(line, parameters)?))),
            None if let Some(remote) = RemoteLog::parse(line)? => Ok(LogTarget::Remote(Arc::new(remote))),
            None => Ok(LogTarget::File(line.paths().prefix.join(OsStr::from_bytes(line.bytes(0))))),
        }
    }

    /// Opens the log; `buffering`: how lines are collected, `None` writes each turn's lines at once.
    ///
    /// # Errors
    /// `open() "/path" failed (13: Permission denied)`, at `span`.
    pub fn open(&self, buffering: Option<LogBuffering>, span: Option<Span>) -> Result<LogFile, Error> {
        LogFile::open(self, buffering).map_err(|error| {
            let call = match self {
                LogTarget::Syslog(_) => "connect()",
                LogTarget::Program(_) => "fork()",
                _ => "open()",
            };
            let words = Error::new(format!("{call} \"{self}\" failed ({})", line::io(&error)));
            Error { span, ..words }
        })
    }
}

impl std::fmt::Display for LogTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LogTarget::File(path) => path.display().fmt(f),
            LogTarget::Program(command) => f.write_str(command),
            LogTarget::Stderr => f.write_str("stderr"),
            LogTarget::Syslog(syslog) => syslog.server.fmt(f),
            LogTarget::Remote(remote) => remote.fmt(f),
        }
    }
}

/// One `error_log` line: its target and level.
#[derive(Clone, Debug)]
pub struct LogSpec {
    /// Where the lines go: a file, standard error, syslog or a socket.
    pub target: LogTarget,
    /// From which level on.
    pub level: LogLevel,
    span: Span,
}

impl LogSpec {
    /// Reads `error_log file | stderr | syslog:... [level]`; without a level, `error`.
    ///
    /// # Errors
    /// nginx's words: `invalid log level "x"`, `duplicate log level "x"`, and those of syslog's parameters.
    pub fn parse(line: &LineCx<'_>) -> Result<LogSpec, Error> {
        let target = match line.bytes(0) {
            b"stderr" => LogTarget::Stderr,
            [b'm', b'e', b'm', b'o', b'r', b'y', b':', ..] => {
                return Err(line.fail_arg(0, "nginx was built without debug support"));
            }
            _ => LogTarget::parse(line)?,
        };
        let mut level = None;
        for i in 1..line.args().len() {
            let named = LogLevel::parse(line.bytes(i));
            let named =
                named.ok_or_else(|| line.fail_arg(i, format!("invalid log level \"{}\"", line.arg(i))))?;
            let parts =
                level == Some(LogLevel::Debug) && named == LogLevel::Debug && line.bytes(i) != b"debug";
            if level.is_some() && !parts {
                return Err(line.fail_arg(i, format!("duplicate log level \"{}\"", line.arg(i))));
            }
            level = Some(named);
        }
        let span = line.args().first().map_or(line.line().name.span, |word| word.span);
        Ok(LogSpec { target, level: level.unwrap_or(LogLevel::Error), span })
    }

    /// Opens it, see [`LogTarget::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(&self) -> Result<LogFile, Error> {
        self.target.open(None, Some(self.span))
    }
}
