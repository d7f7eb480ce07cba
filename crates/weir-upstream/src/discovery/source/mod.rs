//! `source`: where the servers of an upstream come from while the server runs: a file that is watched, a URL that is
//! asked now and then, a key of etcd, a service of Consul.
//!
//! One mechanism, four [readers](reader::SourceReader): a reader gives the next list whenever there is one; a task takes it into
//! use and keeps it on disk. What can't be read changes nothing: the last good list stays in use, and is the one that the
//! next start begins with. The tasks run on the [thread](weir_engine::services) that runs no requests, so that a source that hangs costs no
//! request anything, and a worker that is stuck keeps no list from being followed.

mod consul;
mod etcd;
mod http;
pub(crate) mod reader;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use weir_conf::{LineCx, Result, parse_time_ms};
use weir_rt::clock;

pub use http::{SourceTrust, SourceUrl};

/// What a `source` line says, and what became of it.
pub struct ServerSource {
    pub(crate) config: SourceConfig,
    status: Mutex<SourceStatus>,
    /// It is followed.
    pub(crate) begun: AtomicBool,
}

/// Where lists come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceConfig {
    kind: SourceKind,
    /// As it is written.
    place: Box<str>,
    /// Milliseconds between two looks, of readers that look.
    interval: u64,
    /// Milliseconds that a response may take.
    timeout: u64,
    token: Option<Box<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SourceKind {
    File(PathBuf),
    Url(SourceUrl),
    /// The value of a key, a list; or those of all keys that begin with a prefix, a server each.
    Etcd {
        url: SourceUrl,
        key: Box<str>,
        prefix: bool,
    },
    Consul {
        url: SourceUrl,
        service: Box<str>,
        tag: Option<Box<str>>,
        passing: bool,
    },
}

/// What became of the last attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceStatus {
    /// Milliseconds of the monotonic clock when a list was taken; 0: none was.
    pub taken: u64,
    /// Why the last attempt failed; `None` if it succeeded.
    pub error: Option<String>,
}

impl PartialEq for ServerSource {
    fn eq(&self, other: &ServerSource) -> bool {
        self.config == other.config
    }
}

impl fmt::Debug for ServerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}

/// What a line says beside where the source is.
#[derive(Default)]
struct SourceWords {
    key: Option<Box<str>>,
    prefix: Option<Box<str>>,
    service: Option<Box<str>>,
    tag: Option<Box<str>>,
    all: bool,
    token: Option<Box<str>>,
    interval: Option<u64>,
    timeout: Option<u64>,
    /// `Some(None)`: `keep=off`
    keep: Option<Option<PathBuf>>,
    trust: SourceTrust,
}

impl ServerSource {
    /// `source file PATH | url URL | etcd URL key=|prefix= | consul URL service= [tag=] [all] [token=] [interval=]
    /// [timeout=] [keep=PATH|off] [trusted_certificate=PATH]
    /// [verify=on|off]`. The second value is where the list is stored, if the line says so.
    pub(crate) fn parse(line: &LineCx<'_>) -> Result<(ServerSource, Option<Option<PathBuf>>)> {
        let mut words = SourceWords::default();
        for at in 2..line.args().len() {
            words.read(line, at).ok_or_else(|| line.invalid_parameter(at))?;
        }
        let trust = std::mem::take(&mut words.trust);
        if !line.arg(1).starts_with("https://") && (trust.file.is_some() || trust.blind) {
            return Err(line.fail("\"trusted_certificate\" and \"verify\" are for sources with \"https://\""));
        }
        let url = || SourceUrl::parse(line.arg(1), &trust).map_err(|message| line.fail_arg(1, message));
        let lacks = |word: &str| line.fail(format!("\"source\" must have \"{word}\" parameter"));
        let kind = match line.arg(0) {
            "file" => SourceKind::File(line.paths().conf_prefix.join(line.arg(1))),
            "url" => SourceKind::Url(url()?),
            "etcd" => {
                let url = url()?;
                match (words.key.take(), words.prefix.take()) {
                    (Some(key), None) => SourceKind::Etcd { url, key, prefix: false },
                    (None, Some(key)) => SourceKind::Etcd { url, key, prefix: true },
                    _ => return Err(lacks("key")),
                }
            }
            "consul" => SourceKind::Consul {
                url: url()?,
                service: words.service.take().ok_or_else(|| lacks("service"))?,
                tag: words.tag.take(),
                passing: !std::mem::take(&mut words.all),
            },
            _ => return Err(line.invalid_parameter(0)),
        };
        if let Some(name) = words.left() {
            return Err(line.fail(format!("\"source {}\" has no parameter \"{name}\"", line.arg(0))));
        }
        let interval = words.interval.unwrap_or(if let SourceKind::File(_) = kind { FILE } else { URL });
        let timeout = words.timeout.unwrap_or(TIMEOUT);
        let place = format!("{} {}", line.arg(0), line.arg(1)).into();
        let config = SourceConfig { kind, place, interval, timeout, token: words.token };
        Ok((ServerSource { config, status: Mutex::default(), begun: AtomicBool::new(false) }, words.keep))
    }

    /// The source as the configuration names it: its kind and its place, `etcd http://127.0.0.1:2379`.
    pub fn place(&self) -> &str {
        &self.config.place
    }

    /// When the source was read last, and what went wrong since.
    pub fn status(&self) -> SourceStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes what became of an attempt; `true`: it is not what became of the one before.
    pub(crate) fn note(&self, error: Option<String>) -> bool {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if error.is_none() {
            status.taken = clock::monotonic_ms().max(1);
        }
        std::mem::replace(&mut status.error, error.clone()) != error
    }
}

impl SourceWords {
    /// `None`: there is no such word.
    fn read(&mut self, line: &LineCx<'_>, at: usize) -> Option<()> {
        let text = line.arg(at);
        let Some((name, value)) = text.split_once('=') else {
            self.all |= text == "all";
            return (text == "all").then_some(());
        };
        let plain = || Some(value).filter(|value| is_plain(value)).map(Box::from);
        let time = || parse_time_ms(value.as_bytes()).filter(|ms| *ms > 0);
        match name {
            "key" => self.key = Some(plain()?),
            "prefix" => self.prefix = Some(plain()?),
            "service" => self.service = Some(plain()?),
            "tag" => self.tag = Some(plain()?),
            "token" => self.token = Some(plain()?),
            "interval" => self.interval = Some(time()?),
            "timeout" => self.timeout = Some(time()?),
            "trusted_certificate" if !value.is_empty() => {
                self.trust.file = Some(line.paths().conf_prefix.join(value));
            }
            "verify" if value == "on" => self.trust.blind = false,
            "verify" if value == "off" => self.trust.blind = true,
            "keep" if value == "off" => self.keep = Some(None),
            "keep" if !value.is_empty() => self.keep = Some(Some(line.paths().prefix.join(value))),
            _ => return None,
        }
        Some(())
    }

    /// A word that the kind of source had no use for.
    fn left(&self) -> Option<&'static str> {
        let all = [
            ("key", self.key.is_some()),
            ("prefix", self.prefix.is_some()),
            ("service", self.service.is_some()),
            ("tag", self.tag.is_some()),
            ("all", self.all),
        ];
        all.into_iter().find(|(_, left)| *left).map(|(name, _)| name)
    }
}

/// Nothing that would end a line or a word of a request.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Milliseconds between two looks at a file; a look is a system call.
const FILE: u64 = 200;
/// Milliseconds between two looks at a URL.
const URL: u64 = 5_000;
/// Milliseconds that a response may take.
const TIMEOUT: u64 = 10_000;
