//! Files that are served: from a URI to a path, from a path to an open file, and its bytes.
//!
//! Opening and stat-ing are plain calls in the loop, as in nginx: they touch the directory cache. What they found is
//! shared by the requests of one loop turn, never longer, unless `open_file_cache` says so: a file that was replaced
//! is served replaced to every request that begins afterwards. [`FileStore`] holds both caches.

use std::rc::Rc;

use weir_rt::file::errno::{EACCES, ELOOP, EMLINK, ENAMETOOLONG, ENOENT, ENOTDIR};
use weir_rt::file::{FileKind, SymlinkPolicy};

pub use crate::exchange::paths::{PathText, check_alias, map_uri, mark_climbing, root};
pub use crate::open_file::{FileCache, FileStore, FoundPath, OpenFile, SMALL, hash};

use crate::deep_traces::{self, DeepKind};
use crate::exchange::Exchange;
use crate::exchange::paths::checked_path;
use crate::log::LogLevel;
use crate::open_file::{errno, os_path};
use crate::settings::location::DisableSymlinks;
use crate::text::Span;

/// Opens `path`, or takes it from the caches, under the location's `open_file_cache` and `disable_symlinks`.
///
/// # Errors
/// The errno of open(2). [`failed`] turns it into nginx's message and status.
pub fn lookup(x: &mut Exchange, path: impl Into<PathText>) -> Result<FoundPath, i32> {
    let span = path.into().span;
    let links = links(x, span);
    let find = |x: &mut Exchange| {
        let Exchange { arena, plan, worker, .. } = x;
        worker.files.lookup(arena.get(span), plan.core.open_file_cache.as_ref(), links)
    };
    if deep_traces::is_asked() {
        let path = String::from_utf8_lossy(x.arena.get(span)).into_owned();
        return x.inside(DeepKind::File, &path, find);
    }
    find(x)
}

/// Opens what the request's URI leads to under `root` or `alias`, or takes it from the caches: [`map_uri`] and [`lookup`]
/// in one, which composes no path where another request of the loop turn did.
///
/// # Errors
/// The status; the reason is in the log ([`check_alias`], [`failed`]).
pub fn lookup_uri(x: &mut Exchange) -> Result<FoundPath, u16> {
    check_alias(x)?;
    let Exchange { arena, plan, worker, request, .. } = &*x;
    let core = &plan.core;
    let shared = core.open_file_cache.is_none()
        && matches!(core.disable_symlinks, DisableSymlinks::Off)
        && !x.add_uri_to_alias
        && core.root.constant().is_some();
    if shared && let Some(found) = worker.files.found(Rc::as_ptr(plan).addr(), arena.get(request.uri)) {
        return Ok(found);
    }
    let path = checked_path(x);
    let found = lookup(x, path).map_err(|errno| failed(x, path, errno))?;
    if shared {
        x.worker.files.remember(Rc::as_ptr(&x.plan).addr(), x.uri(), &found);
    }
    Ok(found)
}

/// What `path` leads to. As [`lookup`], but a file that may not be read is still found.
///
/// # Errors
/// The errno of open(2) or stat(2).
pub fn test(x: &mut Exchange, path: impl Into<PathText>) -> Result<FileKind, i32> {
    let path = path.into();
    match lookup(x, path) {
        Ok(FoundPath::File(_)) => Ok(FileKind::File),
        Ok(FoundPath::Dir { .. }) => Ok(FileKind::Dir),
        Ok(FoundPath::Other) => Ok(FileKind::Other),
        Err(EACCES) => {
            weir_rt::file::stat(os_path(path.bytes(&x.arena))).map(|meta| meta.kind).map_err(errno)
        }
        Err(errno) => Err(errno),
    }
}

/// nginx's response to a file that can't be opened: logs, and gives the status.
pub fn failed(x: &Exchange, path: impl Into<PathText>, errno: i32) -> u16 {
    let call = match x.plan.core.disable_symlinks {
        DisableSymlinks::Off => "open()",
        _ => "openat()",
    };
    call_failed(x, call, path, errno)
}

/// As [`failed`], for another system call than open(2) (`opendir()`).
pub fn call_failed(x: &Exchange, call: &str, path: impl Into<PathText>, errno: i32) -> u16 {
    let (level, status) = match errno {
        ENOENT | ENOTDIR | ENAMETOOLONG => (LogLevel::Error, 404),
        EACCES | ELOOP | EMLINK => (LogLevel::Error, 403),
        _ => (LogLevel::Crit, 500),
    };
    if status != 404 || x.plan.core.log_not_found {
        let path = String::from_utf8_lossy(path.into().bytes(&x.arena));
        let text = weir_rt::file::errno_text(errno);
        x.log(level, &format_args!("{call} \"{path}\" failed ({errno}: {text})"));
    }
    status
}

/// nginx's message for a directory that has no index and may not be listed.
pub(crate) fn log_forbidden_index(x: &mut Exchange) {
    let Ok(path) = map_uri(x) else { return };
    let path = String::from_utf8_lossy(path.bytes(&x.arena));
    x.log_error(&format_args!("directory index of \"{path}\" is forbidden"));
}

/// The location's `disable_symlinks` for the path at `span`.
fn links(x: &mut Exchange, span: Span) -> SymlinkPolicy {
    let (checked, from) = match &x.plan.core.disable_symlinks {
        DisableSymlinks::Off => return SymlinkPolicy::Follow,
        DisableSymlinks::On(from) => (SymlinkPolicy::Refuse { from: 0 }, from.clone()),
        DisableSymlinks::IfNotOwner(from) => (SymlinkPolicy::OwnersOnly { from: 0 }, from.clone()),
    };
    let Some(script) = from else { return checked };
    let value = script.value(x);
    match unchecked(x.arena.get(span), x.text(&value)) {
        Some(from) => checked.starting_at(from),
        None => SymlinkPolicy::Follow,
    }
}

/// How many bytes of `path` the parameter `from=` exempts; `None` for all. It counts only where it ends with a whole
/// component.
fn unchecked(path: &[u8], from: &[u8]) -> Option<usize> {
    if from.is_empty() || !path.starts_with(from) {
        return Some(0);
    }
    match path.get(from.len()) {
        None => None,
        Some(b'/') => Some(from.len()),
        Some(_) if from.ends_with(b"/") => Some(from.len() - 1),
        Some(_) => Some(0),
    }
}

#[cfg(test)]
pub(crate) mod tests;
