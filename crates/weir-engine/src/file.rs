//! Files that are served: from a URI to a path, from a path to an open file, and its bytes.
//!
//! Opening and stat-ing are plain calls in the loop, as in nginx: they touch the directory cache. What they found is
//! shared by the requests of one loop turn, never longer, unless `open_file_cache` says so: a file that was replaced
//! is served replaced to every request that begins afterwards. [`FileStore`] holds both caches.

use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use weir_rt::file::errno::{EACCES, ELOOP, EMLINK, ENAMETOOLONG, ENOENT, ENOTDIR};
use weir_rt::file::{FileKind, SymlinkPolicy};

pub use crate::open_file::{FileCache, FileStore, FoundPath, OpenFile, SMALL, hash};

use crate::conf::core::{AliasedPart, DisableSymlinks};
use crate::exchange::Exchange;
use crate::log::LogLevel;
use crate::open_file::{errno, os_path};
use crate::text::{Arena, Span, Text};

/// A path in the arena of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathText {
    /// All of it.
    pub span: Span,
    /// Bytes of it that come from `root` or `alias`; the rest is of the URI.
    pub root: u32,
}

impl PathText {
    /// The path's bytes.
    pub fn bytes(self, arena: &Arena) -> &[u8] {
        arena.get(self.span)
    }
}

impl From<Span> for PathText {
    fn from(span: Span) -> PathText {
        PathText { span, root: 0 }
    }
}

/// The path of the request's URI under `root` or `alias` (nginx's `ngx_http_map_uri_to_path`).
///
/// The path may hold any byte but `/` sequences that the URI's normalisation removed; a NUL in it, which variables can bring
/// and which marks a URI that leads out of the directory, makes every call on it fail with `ENOENT`.
///
/// # Errors
/// As [`check_alias`].
pub fn map_uri(x: &mut Exchange) -> Result<PathText, u16> {
    check_alias(x)?;
    Ok(checked_path(x))
}

/// [`map_uri`] after [`check_alias`].
fn checked_path(x: &mut Exchange) -> PathText {
    // The end of the arena, so that the URI goes on where it ends.
    let root = root(x);
    let uri = x.request.uri;
    let skip = match x.plan.core.alias {
        None => 0,
        Some(AliasedPart::Prefix(len)) => len as u32,
        Some(AliasedPart::Whole) if x.add_uri_to_alias => 0,
        Some(AliasedPart::Whole) => uri.end - uri.start,
    };
    let rest = Span { start: (uri.start + skip).min(uri.end), end: uri.end };
    if climbs(x, rest) {
        mark_climbing(x, rest);
    }
    x.arena.copy(rest);
    PathText { span: x.arena.since(root.start), root: root.end - root.start }
}

/// Whether the URI may be looked for under `alias`, which replaces what the location's name is of it: a URI that was changed
/// (`rewrite ... break`) need not begin with that name.
///
/// # Errors
/// The status 500; the reason is in the log.
pub fn check_alias(x: &Exchange) -> Result<(), u16> {
    if x.valid_location || x.plan.core.alias.is_none() {
        return Ok(());
    }
    let location = &x.plan.name;
    let message = format_args!("\"alias\" cannot be used in location \"{location}\" where URI was rewritten");
    x.log(LogLevel::Alert, &message);
    Err(500)
}

/// To be called between what `root` gave and `rest`, which is to follow: if `rest` leads out of that directory, the path
/// becomes one that no file has.
pub fn mark_climbing(x: &mut Exchange, rest: Span) {
    if weir_http::uri::is_unsafe(x.arena.get(rest)) {
        let uri = String::from_utf8_lossy(x.uri()).into_owned();
        x.log_error(&format_args!("unsafe URI \"{uri}\" was detected"));
        x.arena.push(b"\0");
    }
}

/// Whether `rest`, what of the URI follows `root` or `alias`, leads out of their directory. What clients send was normalised,
/// so only an `alias` that cuts into a segment (`/als../x` of a location `/als`), or what a rewrite made, can do that.
fn climbs(x: &Exchange, rest: Span) -> bool {
    let rest = x.arena.get(rest);
    let cut = rest.starts_with(b"..") && matches!(rest.get(2), None | Some(b'/'));
    cut || (!x.request.uri_is_plain && weir_http::uri::is_unsafe(rest))
}

/// Writes `root` or `alias` at the end of the arena and names it (`$document_root`). A relative one that variables gave is
/// under the prefix.
pub fn root(x: &mut Exchange) -> Span {
    if let Some(root) = x.plan.core.root.constant()
        && matches!(root.first(), None | Some(b'/'))
    {
        return x.arena.push(root);
    }
    let script = x.plan.core.root.clone();
    let value = script.value(x);
    let start = x.arena.mark();
    if !matches!(x.text(&value).first(), None | Some(b'/')) {
        let link = x.server.generation();
        x.arena.push(link.configuration.prefix.as_os_str().as_bytes());
        x.arena.push(b"/");
    }
    match value {
        Text::Span(span) => x.arena.copy(span),
        Text::Static(bytes) => x.arena.push(bytes),
        Text::Shared(bytes) => x.arena.push(&bytes),
    };
    x.arena.since(start)
}

/// Opens `path`, or takes it from the caches, under the location's `open_file_cache` and `disable_symlinks`.
///
/// # Errors
/// The errno of open(2). [`failed`] turns it into nginx's message and status.
pub fn lookup(x: &mut Exchange, path: impl Into<PathText>) -> Result<FoundPath, i32> {
    let span = path.into().span;
    let links = links(x, span);
    let Exchange { arena, plan, worker, .. } = x;
    worker.files.lookup(arena.get(span), plan.core.open_file_cache.as_ref(), links)
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

/// nginx's answer to a file that can't be opened: logs, and gives the status.
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
pub fn log_forbidden_index(x: &mut Exchange) {
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
