//! `log`: access logs (nginx's `ngx_http_log_module`). Each request has a line, composed by a compiled format into
//! the worker's buffers; [`weir_engine::log`] writes it to its file.

mod cache;
mod format;
mod handler;
mod lines;
pub mod profile_key;
mod set;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use weir_conf::names::*;
use weir_conf::{Directive, Error, Span};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::log::{LogBuffering, LogFile, LogTarget};
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::ValueScript;
use weir_engine::{Module, Phase, inherit};

use cache::LogCacheSize;
use format::{LogFormat, LogFormats};
use handler::AccessLogs;
pub use lines::{LogLine, LogLineFormat};

/// The module `log`.
pub struct Log;

impl Module for Log {
    const NAME: &'static str = "log";
    type Conf = LogConf;
    const DIRECTIVES: &'static [Directive<LogConf>] = TABLE;

    fn inherit(conf: &mut LogConf, parent: &LogConf) {
        conf.depth = parent.depth + 1;
        if conf.written.is_empty() && !conf.off {
            conf.off = parent.off;
            conf.open = parent.open.clone();
        }
        inherit!(conf, parent, cache);
    }

    /// Opens the block's own logs. What a server or location neither has nor inherits is `logs/access.log combined`;
    /// not earlier, since that file is not made when every server has a log of its own.
    fn resolve(conf: &mut LogConf, registry: &mut ConfRegistry) -> Result<(), Error> {
        let is_unsaid = conf.open.is_none() && !conf.off && conf.written.is_empty();
        if is_unsaid && conf.depth >= SERVER_DEPTH && !registry.is_stream {
            conf.written.push(usual(registry));
        }
        if !conf.written.is_empty() {
            let open = |log: &WrittenLog| log.open(registry.shared::<LogBuffers>());
            let opened = conf.written.iter().map(open).collect::<Result<Arc<[_]>, _>>();
            // One that can't be opened is there all the same for blocks inside: they do not open the usual one.
            conf.open = Some(opened.as_ref().map_or_else(|_| Arc::default(), Clone::clone));
            opened?;
        }
        Ok(())
    }

    fn install(conf: &LogConf, plan: &mut PlanBuilder<'_>) {
        if let Some(logs) = conf.open.as_ref().filter(|logs| !conf.off && !logs.is_empty()) {
            let cache = conf.cache.iter().flatten().next().map(cache::of_worker);
            plan.handler(Phase::Log, Self::NAME, AccessLogs { logs: logs.clone(), cache });
        }
    }
}

/// The module's settings of one block.
#[derive(Default)]
pub struct LogConf {
    /// `access_log`, as written in this block.
    written: Vec<WrittenLog>,
    /// `access_log off`
    off: bool,
    /// The opened logs, own or inherited.
    open: Option<Arc<[AccessLog]>>,
    /// `open_log_file_cache`; the inner `None` is `off`.
    cache: Option<Option<Arc<LogCacheSize>>>,
    /// How many blocks are around: 0 in the main context, 1 in `http`.
    depth: u8,
}

/// One `access_log` line.
struct WrittenLog {
    path: LogPath,
    format: Arc<LogFormat>,
    condition: Option<ValueScript>,
    /// `None`: it is not configured.
    span: Option<Span>,
}

/// Where a line goes.
enum LogPath {
    Fixed(LogTarget),
    /// With variables: opened for each line, or by the cache.
    Script(ValueScript),
}

/// An access log in force.
struct AccessLog {
    to: LogDestination,
    format: Arc<LogFormat>,
    /// `if=`
    condition: Option<ValueScript>,
}

enum LogDestination {
    File(LogFile),
    Script(ValueScript),
}

/// The buffered logs of a configuration: all lines to one file or server share its buffer.
#[derive(Default)]
struct LogBuffers(Vec<(LogTarget, LogBuffering)>);

impl LogBuffers {
    fn of(&self, target: &LogTarget) -> Option<LogBuffering> {
        self.0.iter().find(|(known, _)| known == target).map(|(_, buffering)| *buffering)
    }
}

impl WrittenLog {
    fn open(&self, buffers: &LogBuffers) -> Result<AccessLog, Error> {
        let to = match &self.path {
            LogPath::Fixed(target) => LogDestination::File(target.open(buffers.of(target), self.span)?),
            LogPath::Script(script) => LogDestination::Script(script.clone()),
        };
        Ok(AccessLog { to, format: self.format.clone(), condition: self.condition.clone() })
    }
}

/// What is logged where nothing was written about it.
fn usual(registry: &mut ConfRegistry) -> WrittenLog {
    let path = LogPath::Fixed(LogTarget::File(registry.paths.prefix.join("logs/access.log")));
    // The variables of `combined` are the core's: their place is never asked for.
    let format = LogFormats::combined(registry, Span::default());
    WrittenLog { path, format, condition: None, span: None }
}

// The alias gives the closures of the table the type of `c`.
type LogRow = Directive<LogConf>;

const TABLE: &[LogRow] = &[
    LogRow::new("access_log", ANY_OR_IF.or(LIMIT_EXCEPT).or(STREAM_ANY), MORE, set::access_log)
        .syntax(
            "access_log path [format [buffer=size] [gzip[=level]] [flush=time] [if=condition]]\n\
             access_log off",
        )
        .default("logs/access.log combined")
        .doc(
            "Logs requests, or in `stream` sessions, which have no format by default, to a file, to `syslog:...`, `tcp://host:port`, \
             `udp://host:port` or `unix:path`, or to the standard input of a program, `|command`. With `buffer` or `gzip` (64k) lines are written \
             when the buffer is full or older than `flush`. With `if` only requests are logged for \
             which the condition is neither empty nor `0`. The path of a file \
             may contain variables. `off` cancels all logs of this level.",
        )
        .example(
            "log_format main '$remote_addr \"$request\" $status $body_bytes_sent $request_time';\n\
             access_log logs/access.log main buffer=64k flush=5s;",
        ),
    LogRow::new("log_format", HTTP_OR_STREAM, TWO_OR_MORE, set::log_format)
        .syntax(
            "log_format name [escape=default|json|none] string ...\n\
             log_format name json field=value ...",
        )
        .doc(
            "Defines a format of access logs: a text with variables, or, with `json`, a JSON \
             object per line. `escape` is how values of variables are escaped.",
        ),
    LogRow::new("open_log_file_cache", ANY_OR_STREAM, ONE.or(TWO).or(THREE).or(FOUR), set::open_log_file_cache)
        .syntax(
            "open_log_file_cache max=number [inactive=time] [min_uses=number] [valid=time]\n\
             open_log_file_cache off",
        )
        .default("off")
        .doc(
            "Keeps log files open whose paths contain variables, at most `max`. Files with fewer \
             than `min_uses` (1) uses in `inactive` (10s) are closed. Every `valid` (60s) it is \
             checked that a file still has its name.",
        ),
];

const FOUR: weir_conf::ArgCount = weir_conf::ArgCount::range(4, 4);
/// How deep a server block lies.
const SERVER_DEPTH: u8 = 2;
