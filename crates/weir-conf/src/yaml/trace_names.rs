//! What traces call the modules that a file of H2O uses: by the names of H2O's manual, by `trace_name` lines.

use super::level::{line, short};
use super::node::YamlNode;
use crate::{DirectiveLine, Span};

/// The lines of `http`.
pub(super) fn everywhere(at: Span) -> impl Iterator<Item = DirectiveLine> {
    NAMES.iter().map(move |(module, name)| short(TRACE_NAME, at, &[module, name]))
}

/// Modules, and what H2O calls what they do. The compressions are one filter there, `file`'s parts have keys.
const NAMES: &[(&str, &str)] = &[
    ("autoindex", "file.dirlisting"),
    ("brotli", "compress br"),
    ("edit_headers", "headers"),
    ("fastcgi_spawn", "fastcgi.spawn"),
    ("gzip", "compress gzip"),
    ("gzip_static", "file.send-compressed"),
    ("index", "file.index"),
    ("log", "access_log"),
    ("profile", "server_timing"),
    (REWRITE, "redirect"),
    ("static", "file"),
    ("status_json", "status"),
    ("zstd", "compress zstd"),
];

/// The line for what `rewrite` does among `lines`, if it does anything there: it is part of the handler of the key.
pub(super) fn of_handler(key: &YamlNode, lines: &[DirectiveLine]) -> Option<DirectiveLine> {
    let is_part = lines.iter().any(|line| ["return", "rewrite", "if"].iter().any(|name| line.name.is(name)));
    is_part.then(|| handler(key))
}

/// The line that makes what `rewrite` does part of the handler of the key.
pub(super) fn handler(key: &YamlNode) -> DirectiveLine {
    let name = key.text().unwrap_or_default();
    let handler = match name.split_once('.') {
        Some((handler, part)) if part != "custom-handler" => handler,
        _ => name,
    };
    line(TRACE_NAME, key.span, &[(REWRITE, key.span), (handler, key.span)])
}

/// The line for servers whose `set` lines are of `setenv`.
pub(super) fn of_environment(at: Span) -> DirectiveLine {
    short(TRACE_NAME, at, &[REWRITE, "setenv"])
}

/// The line for a path that `expires` is about and `header.*` is not.
pub(super) fn of_expires(at: Span) -> DirectiveLine {
    short(TRACE_NAME, at, &["edit_headers", "expires"])
}

/// The line for where `error-doc` has documents.
pub(super) fn of_documents(at: Span) -> DirectiveLine {
    short(TRACE_NAME, at, &["special_response", "errordoc"])
}

const TRACE_NAME: &str = "trace_name";
const REWRITE: &str = "rewrite";
