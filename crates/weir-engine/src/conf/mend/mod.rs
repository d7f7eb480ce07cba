//! What can be mended mechanically: for findings with exactly one right mending, the edits that make it.
//!
//! `weir -t --fix` applies them, and editors offer them. A mending keeps what the configuration does, or what nginx did
//! with it when the line was written; where two lines could have been meant, nothing is changed.

mod edit;
mod listen;
mod renamed;
mod server;

use weir_conf::{ConfTree, DiagnosticFix, Error, Span, TextEdit};

use crate::cidr::Cidr;
use edit::{find_line, find_word, remove_line, remove_word};

/// Adds its mending to each of `found`, the findings about `tree`, that has one.
pub fn mend(tree: &ConfTree, found: &mut [Error]) {
    for error in found {
        let Some(span) = error.span else { continue };
        // In the text of `-g` there is nothing to write.
        if tree.source.file(span.file).is_none_or(|file| file.parameter) {
            continue;
        }
        let mending = MENDINGS.iter().find(|(message, _)| error.message.contains(message));
        error.fix = mending.and_then(|(_, mend)| mend(tree, span)).map(Box::new);
    }
}

/// What makes the edits for a finding at this place.
type MakeFix = fn(&ConfTree, Span) -> Option<DiagnosticFix>;

/// A part of the message, and what mends it.
const MENDINGS: [(&str, MakeFix); 12] = [
    ("the \"listen ... http2\" directive is deprecated", listen::http2),
    ("unknown directive \"ssl\"", listen::ssl),
    ("directive is obsolete, ignored", |tree, at| without_effect(tree, at)),
    ("lua_load_resty_core is deprecated", |tree, at| without_effect(tree, at)),
    ("low address bits of ", low_bits),
    ("duplicate MIME type ", duplicate_type),
    ("unknown directive \"\u{feff}", byte_order_mark),
    ("unknown directive \"limit_zone\"", renamed::limit_zone),
    ("unknown directive \"satisfy_any\"", renamed::satisfy_any),
    ("unknown directive \"optimize_server_names\"", renamed::optimize_server_names),
    ("unknown directive \"open_file_cache_retest\"", renamed::open_file_cache_retest),
    ("unknown directive \"connections\"", renamed::connections),
];

/// A line that does nothing goes.
fn without_effect(tree: &ConfTree, at: Span) -> Option<DiagnosticFix> {
    let line = find_line(tree, at)?;
    let about = format!("removes \"{}\", which has no effect", line.name);
    Some(DiagnosticFix { about, edits: vec![remove_line(tree, line)?] })
}

/// `10.1.2.3/8` is `10.0.0.0/8`.
fn low_bits(tree: &ConfTree, at: Span) -> Option<DiagnosticFix> {
    let word = find_word(tree, at).filter(|word| !word.quoted)?;
    let (_, bits) = word.str().split_once('/')?;
    let network = match Cidr::parse(word.bytes())? {
        (Cidr::V4 { net, .. }, true) => std::net::Ipv4Addr::from(net).to_string(),
        (Cidr::V6 { net, .. }, true) => std::net::Ipv6Addr::from(net).to_string(),
        _ => return None,
    };
    let text = format!("{network}/{bits}");
    let about = format!("writes \"{text}\", the same network");
    Some(DiagnosticFix { about, edits: vec![TextEdit { span: word.span, text }] })
}

/// One of several words that say the same goes.
fn duplicate_type(tree: &ConfTree, at: Span) -> Option<DiagnosticFix> {
    let line = find_line(tree, at).filter(|line| line.args.len() > 1)?;
    let word = find_word(tree, at)?;
    let about = format!("removes \"{word}\", which is there already");
    Some(DiagnosticFix { about, edits: vec![remove_word(tree, line, word)?] })
}

/// The mark at the beginning of a file goes.
fn byte_order_mark(tree: &ConfTree, at: Span) -> Option<DiagnosticFix> {
    let text = &tree.source.file(at.file)?.text;
    let span = Span { start: 0, end: MARK.len() as u32, ..at };
    let edits = vec![TextEdit { span, text: String::new() }];
    let about = "removes the byte order mark".to_owned();
    (at.start == 0 && text.starts_with(MARK)).then_some(DiagnosticFix { about, edits })
}

/// U+FEFF in UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weir_conf::{MemoryFiles, apply_edits, load};

    use super::*;

    /// What the file becomes when the first word of `at` is the place of the message `message`; `None` without a mending.
    fn mended(text: &str, message: &str, at: &str) -> Option<String> {
        let files = MemoryFiles::new().with("/n.conf", text);
        let tree = load(Path::new("/n.conf"), Path::new("/"), &files, |_| false, None).expect("valid");
        let start = text.find(at).expect("there") as u32;
        let file = tree.lines[0].name.span.file;
        let end = start + at.split(' ').next().expect("a word").len() as u32;
        let mut found = [Error::warning(message).at(Span { file, start, end })];
        mend(&tree, &mut found);
        let fix = found[0].fix.take()?;
        let out = apply_edits(text.as_bytes(), fix.edits.iter()).expect("edits of one file do not overlap");
        Some(String::from_utf8(out).expect("UTF-8"))
    }

    #[track_caller]
    fn becomes(text: &str, message: &str, at: &str, expected: &str) {
        assert_eq!(mended(text, message, at).as_deref(), Some(expected));
    }

    const HTTP2: &str =
        "the \"listen ... http2\" directive is deprecated, use the \"http2\" directive instead";
    const SSL: &str = "unknown directive \"ssl\": each address has its own, \"listen ... ssl\"";

    #[test]
    fn http2_becomes_a_line_of_each_server_that_shares_the_address() {
        becomes(
            "http {\n  server {\n    listen 443 ssl http2; # both\n    root a;\n  }\n  server {\n    listen *:443 http2 ssl;\n  }\n}\n",
            HTTP2,
            "listen",
            "http {\n  server {\n    listen 443 ssl; # both\n    http2 on;\n    root a;\n  }\n  server {\n    listen *:443 ssl;\n    http2 on;\n  }\n}\n",
        );
        becomes(
            "http { server { listen 443 ssl http2; http2 on; } }",
            HTTP2,
            "listen",
            "http { server { listen 443 ssl; http2 on; } }",
        );
        becomes(
            "http { http2 on; server { listen 443 ssl http2; } }",
            HTTP2,
            "listen",
            "http { http2 on; server { listen 443 ssl; } }",
        );
        becomes(
            "http { server { listen 443 http2; } }",
            HTTP2,
            "listen",
            "http { server { listen 443; http2 on; } }",
        );
        let refused = "http { server { listen 443 http2; } server { listen 443; http2 off; } }";
        assert_eq!(mended(refused, HTTP2, "listen"), None, "who is right?");
    }

    #[test]
    fn ssl_becomes_a_parameter_of_each_listen() {
        becomes(
            "http {\n server {\n  listen 443 default_server;\n  listen [::]:443 ssl;\n  ssl on;\n  root a;\n }\n}",
            SSL,
            "ssl on",
            "http {\n server {\n  listen 443 default_server ssl;\n  listen [::]:443 ssl;\n  root a;\n }\n}",
        );
        becomes("http { server { ssl off; listen 80; } }", SSL, "ssl", "http { server { listen 80; } }");
        for text in [
            "http { ssl on; server { listen 443; } }",
            "http { server { ssl on; } }",
            "http { server { listen 443; ssl on; } server { listen 443; } }",
        ] {
            assert_eq!(mended(text, SSL, "ssl on"), None, "{text}");
        }
        becomes(
            "http { server { listen 443; ssl on; } server { listen 443 ssl; } }",
            SSL,
            "ssl on",
            "http { server { listen 443 ssl; } server { listen 443 ssl; } }",
        );
    }

    #[test]
    fn lines_and_words_without_effect_go() {
        let obsolete = "the \"http2_push\" directive is obsolete, ignored";
        becomes(
            "http {\n  http2_push /a; # b\n  root c;\n}",
            obsolete,
            "http2_push",
            "http {\n  # b\n  root c;\n}",
        );
        becomes("http {\n  http2_push /a;\n\n  root c;\n}", obsolete, "http2_push", "http {\n\n  root c;\n}");
        becomes("http { http2_push /a; root c; }", obsolete, "http2_push", "http { root c; }");
        let duplicate = "duplicate MIME type \"text/html\"";
        becomes("gzip_types a/b text/html;", duplicate, "text/html", "gzip_types a/b;");
        becomes("gzip_types a/b\n  # c\n  text/html;", duplicate, "text/html", "gzip_types a/b\n  # c\n  ;");
        assert_eq!(mended("gzip_types text/html;", duplicate, "text/html"), None, "the line says something");
        becomes("\u{feff}http {}", "unknown directive \"\u{feff}http\"", "\u{feff}http", "http {}");
    }

    #[test]
    fn networks_have_no_low_bits() {
        let message = "low address bits of x are meaningless";
        becomes("allow 10.1.2.3/8;", message, "10.1.2.3/8", "allow 10.0.0.0/8;");
        becomes("geo { 2001:db8::1/32 a; }", message, "2001:db8::1/32", "geo { 2001:db8::/32 a; }");
        assert_eq!(
            mended("geo { delete 10.1.2.3/8; }", message, "delete"),
            None,
            "the place is another word"
        );
    }

    #[test]
    fn old_names_become_new_ones() {
        let unknown = |name: &str| format!("unknown directive \"{name}\"");
        for (text, name, expected) in [
            (
                "limit_zone one $binary_remote_addr 10m;",
                "limit_zone",
                "limit_conn_zone $binary_remote_addr zone=one:10m;",
            ),
            ("satisfy_any on;", "satisfy_any", "satisfy any;"),
            ("satisfy_any off;", "satisfy_any", "satisfy all;"),
            ("optimize_server_names off;", "optimize_server_names", "server_name_in_redirect off;"),
            ("open_file_cache_retest 30s;", "open_file_cache_retest", "open_file_cache_valid 30s;"),
            ("events { connections 512; }", "connections", "events { worker_connections 512; }"),
        ] {
            becomes(text, &unknown(name), name, expected);
        }
        assert_eq!(mended("satisfy_any yes;", &unknown("satisfy_any"), "satisfy_any"), None);
        assert_eq!(mended("limit_zone one;", &unknown("limit_zone"), "limit_zone"), None);
    }

    #[test]
    fn a_file_that_two_servers_include_has_no_single_mending() {
        let files = MemoryFiles::new()
            .with("/n.conf", "http { server { include l; } server { include l; } }")
            .with("/l", "listen 443 http2;");
        let tree = load(Path::new("/n.conf"), Path::new("/"), &files, |_| false, None).expect("valid");
        let block =
            tree.lines[0].block.as_ref().and_then(|http| http.lines[0].block.as_ref()).expect("a server");
        let mut found = [Error::warning(HTTP2).at(block.lines[0].name.span)];
        mend(&tree, &mut found);
        assert_eq!(found[0].fix, None);
    }
}
