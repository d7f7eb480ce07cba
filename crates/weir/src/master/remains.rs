//! What a server process that was killed has left: the report of its last seconds, a file beside the pid file, and lines
//! of its logs that it had not written.

use std::io;
use std::path::Path;

use weir_engine::log::{self, LogLevel};
use weir_rt::file::replace_file;
use weir_rt::process::ProcessEnd;
use weir_see::remains::{self, CrashRemains};

use super::child::{MasterChild, words};
use crate::{pid, settings};

/// Writes it, if `server` was killed and has left something, and says where.
pub(super) fn keep(server: &MasterChild, how: ProcessEnd, pid_file: &Path) {
    let ProcessEnd::Killed(..) = how else { return };
    let Some(record) = server.remains.as_ref().and_then(CrashRemains::take) else { return };
    let path = remains::beside(&pid::socket(pid_file));
    match write(&path, &remains::complete(record, server.pid, &words(how))) {
        Ok(()) => log::cycle(
            LogLevel::Error,
            &format_args!("what worker process {} did last is in \"{}\"", server.pid, path.display()),
        ),
        Err(error) => {
            let reason = settings::reason(&error);
            log::cycle(LogLevel::Error, &format_args!("open() \"{}\" failed ({reason})", path.display()));
        }
    }
}

/// Writes the lines of logs that `server`, which has ended, had not written.
pub(super) fn write_lines(server: &MasterChild) {
    let Some(lines) = &server.lines else { return };
    let pid = server.pid;
    match log::recover(lines) {
        Ok(0) => {}
        Ok(count) => log::cycle(
            LogLevel::Notice,
            &format_args!("{count} lines of logs that worker process {pid} had not written were written"),
        ),
        Err(error) => {
            let reason = settings::reason(&error);
            log::cycle(LogLevel::Alert, &format_args!("lines of worker process {pid} are lost ({reason})"));
        }
    }
}

/// Whole or not at all, for its owner alone: paths of requests are in it. What is in it is the server process' own, so it
/// is never written through a link that the process' user may have made.
fn write(path: &Path, record: &[u8]) -> io::Result<()> {
    replace_file(path, &path.with_extension("pftrace.new"), 0o600, record)
}
