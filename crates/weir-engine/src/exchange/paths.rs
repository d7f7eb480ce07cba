//! From a URI to a path: `root`, `alias`, and what must not lead out of them.

use std::os::unix::ffi::OsStrExt;

use super::Exchange;
use crate::log::LogLevel;
use crate::settings::location::AliasedPart;
use crate::text::{Arena, Span, Text};

/// A path in the arena of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathText {
    /// Where the whole path is in the exchange's arena.
    pub span: Span,
    /// Bytes of it that come from `root` or `alias`; the rest is of the URI.
    pub root: u32,
}

impl PathText {
    /// The path's bytes, of `root` or `alias` and of the URI.
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
pub(crate) fn checked_path(x: &mut Exchange) -> PathText {
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
