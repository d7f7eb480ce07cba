//! What runs in the log phase.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use weir_engine::log::{LogFile, LogLevel, LogTarget};
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Handler, Verdict};
use weir_rt::file::{self, FileKind, errno_text};

use super::cache::OpenLogs;
use super::{AccessLog, LogDestination};

/// The access logs of a location.
pub(super) struct AccessLogs {
    pub(super) logs: Arc<[AccessLog]>,
    /// For paths with variables.
    pub(super) cache: Option<Rc<OpenLogs>>,
}

impl Handler for AccessLogs {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        if !x.is_subrequest() || x.plan.core.log_subrequest {
            self.logs.iter().for_each(|log| self.log(x, log));
        }
        Verdict::Declined
    }
}

impl AccessLogs {
    fn log(&self, x: &mut Exchange, log: &AccessLog) {
        if log.condition.as_ref().is_some_and(|condition| !holds(x, condition)) {
            return;
        }
        match &log.to {
            LogDestination::File(file) => write(x, file, log),
            LogDestination::Script(script) => {
                if let Some(file) = self.open(x, script) {
                    write(x, &file, log);
                }
            }
        }
    }

    /// Opens the log whose path `script` is. As in nginx, only while the request's root is a directory: names that
    /// clients make up make no files.
    fn open(&self, x: &mut Exchange, script: &ValueScript) -> Option<LogFile> {
        if !x.is_session() && !root_exists(x) {
            return None;
        }
        let value = script.value(x);
        let path = x.text(&value).to_vec();
        let target = LogTarget::File(PathBuf::from(OsStr::from_bytes(&path)));
        let opened = match &self.cache {
            Some(cache) => cache.open(&path, weir_rt::now_ms(), &target),
            None => LogFile::open(&target, None),
        };
        if let Err(error) = &opened {
            x.log(LogLevel::Crit, &format_args!("open() \"{target}\" failed ({})", words(error)));
        }
        opened.ok()
    }
}

fn write(x: &mut Exchange, file: &LogFile, log: &AccessLog) {
    let worker = x.worker.clone();
    worker.log_line(file, None, |out| {
        log.format.write(x, out);
        out.push(b'\n');
    });
}

/// `if=`: neither empty nor `0`.
fn holds(x: &mut Exchange, condition: &ValueScript) -> bool {
    let value = condition.value(x);
    !matches!(x.text(&value), b"" | b"0")
}

fn root_exists(x: &mut Exchange) -> bool {
    let plan = x.plan.clone();
    let root = plan.core.root.value(x);
    let root = Path::new(OsStr::from_bytes(x.text(&root)));
    let error = match file::stat(root) {
        Ok(meta) if meta.kind == FileKind::Dir => return true,
        Ok(_) => io::Error::from_raw_os_error(ENOTDIR),
        Err(error) => error,
    };
    x.log_error(&format_args!("testing \"{}\" existence failed ({})", root.display(), words(&error)));
    false
}

fn words(error: &io::Error) -> String {
    let errno = error.raw_os_error().unwrap_or_default();
    format!("{errno}: {}", errno_text(errno))
}

/// Not a directory.
const ENOTDIR: i32 = 20;
