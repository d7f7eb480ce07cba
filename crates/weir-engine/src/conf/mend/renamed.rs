//! Directives that nginx deprecated under these names and has removed since.

use weir_conf::{ConfTree, DiagnosticFix, Span, TextEdit, Word};

use super::edit::find_line;

/// `limit_zone name $key size` is `limit_conn_zone $key zone=name:size` (nginx 1.1.8).
pub(super) fn limit_zone(tree: &ConfTree, at: Span) -> Option<DiagnosticFix> {
    let line = find_line(tree, at)?;
    let [name, key, size] = &line.args[..] else { return None };
    if line.args.iter().any(|word| word.quoted) {
        return None;
    }
    let text = format!("limit_conn_zone {key} zone={name}:{size}");
    Some(written(Span { end: size.span.end, ..line.name.span }, text))
}

/// `satisfy_any on | off` is `satisfy any | all` (nginx 0.6.25).
pub(super) fn satisfy_any(tree: &ConfTree, at: Span) -> Option<DiagnosticFix> {
    let line = find_line(tree, at)?;
    let value = match line.args.iter().map(Word::str).collect::<Vec<_>>()[..] {
        ["on"] => "any",
        ["off"] => "all",
        _ => return None,
    };
    Some(written(Span { end: line.args[0].span.end, ..line.name.span }, format!("satisfy {value}")))
}

/// Another name for the same values.
pub(super) fn optimize_server_names(_: &ConfTree, at: Span) -> Option<DiagnosticFix> {
    Some(written(at, "server_name_in_redirect".to_owned()))
}

/// As [`optimize_server_names`].
pub(super) fn open_file_cache_retest(_: &ConfTree, at: Span) -> Option<DiagnosticFix> {
    Some(written(at, "open_file_cache_valid".to_owned()))
}

/// As [`optimize_server_names`].
pub(super) fn connections(_: &ConfTree, at: Span) -> Option<DiagnosticFix> {
    Some(written(at, "worker_connections".to_owned()))
}

fn written(span: Span, text: String) -> DiagnosticFix {
    DiagnosticFix {
        about: format!("writes \"{text}\", as it is called now"),
        edits: vec![TextEdit { span, text }],
    }
}
