//! Completing a test's configuration text.
//!
//! What is added before the test's text goes on its first line, and what is added inside a block right after its
//! brace, so that every line keeps its number.

use std::path::Path;

use weir_sys::socket::effective_user;

use crate::Driver;

/// How many ports the text asks for: one more than its highest `%%PORT_n%%`.
pub(crate) fn ports_wanted(text: &str) -> usize {
    text.split("%%")
        .filter_map(|word| if word == "PORT" { Some(0) } else { word.strip_prefix("PORT_")?.parse().ok() })
        .map(|highest: usize| highest + 1)
        .max()
        .unwrap_or(0)
}

/// The text as the server reads it.
///
/// Adds `pid`, `error_log`, `daemon` and `master_process` (`on` if there is to be a `master`) unless the text has them in its outermost level, an
/// `access_log` to an `http` block without one of its own, `http` to every `http` block, and `events` with `use` for
/// a `driver`.
pub(crate) fn complete(
    text: &str,
    http: &str,
    dir: &Path,
    ports: &[u16],
    driver: Option<Driver>,
    master: bool,
) -> String {
    let dir = dir.display().to_string();
    let mut full = substitute(text, &dir, ports);
    let http = substitute(http, &dir, ports);
    let found = directives(&full);
    let has = |inside: &[&str], name: &str| found.iter().any(|d| d.name == name && d.inside == inside);

    let mut inserts = Vec::new();
    let mut front = String::new();
    for (name, value) in [
        ("pid", format!("{dir}/nginx.pid")),
        ("error_log", format!("{dir}/error.log info")),
        ("daemon", "off".to_owned()),
        ("master_process", if master { "on" } else { "off" }.to_owned()),
    ] {
        if !has(&[], name) {
            front.push_str(&format!("{name} {value}; "));
        }
    }
    if master && effective_user() == 0 && !has(&[], "user") && !has(&[], "master_process") {
        // The test's files are root's.
        front.push_str("user root; ");
    }
    for block in found.iter().filter(|d| d.inside.is_empty() && d.name == "http") {
        let Some(brace) = block.brace else { continue };
        let log = if has(&["http"], "access_log") { "" } else { &format!(" access_log {dir}/access.log;") };
        inserts.push((brace, format!("{log}{http}")));
    }
    let chosen = driver.map(|driver| format!(" use {};", driver.name())).unwrap_or_default();
    match found.iter().find(|d| d.inside.is_empty() && d.name == "events") {
        Some(FoundDirective { brace: Some(brace), .. }) if !has(&["events"], "use") => {
            inserts.push((*brace, chosen));
        }
        Some(_) => {}
        None => inserts.push((full.len(), format!("\nevents {{{chosen} }}\n"))),
    }
    inserts.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    for (at, addition) in inserts {
        full.insert_str(at, &addition);
    }
    front + &full
}

fn substitute(text: &str, dir: &str, ports: &[u16]) -> String {
    let mut full = text.replace("%%DIR%%", dir);
    for (number, port) in ports.iter().enumerate() {
        full = full.replace(&format!("%%PORT_{number}%%"), &port.to_string());
    }
    match ports.first() {
        Some(first) => full.replace("%%PORT%%", &first.to_string()),
        None => full,
    }
}

/// A directive of the text.
#[derive(Debug, PartialEq, Eq)]
struct FoundDirective<'t> {
    /// Names of the blocks around it, outermost first.
    inside: Vec<&'t str>,
    name: &'t str,
    /// The byte after its `{`.
    brace: Option<usize>,
}

/// Finds directives by nginx's lexical rules, forgiving everything: a text with mistakes is the server's to judge.
fn directives(text: &str) -> Vec<FoundDirective<'_>> {
    let mut found: Vec<FoundDirective<'_>> = Vec::new();
    let mut inside: Vec<&str> = Vec::new();
    let mut at_start = true;
    let mut at = 0;
    while let Some(token) = next_token(text, at) {
        at = token.end;
        match token.kind {
            TokenKind::Word if at_start => {
                found.push(FoundDirective {
                    inside: inside.clone(),
                    name: &text[token.start..token.end],
                    brace: None,
                });
                at_start = false;
            }
            TokenKind::Word => {}
            TokenKind::Semicolon => at_start = true,
            TokenKind::Open => {
                let opener = found.iter_mut().rev().find(|d| d.inside == inside);
                if let Some(opener) = opener.filter(|d| d.brace.is_none()) {
                    opener.brace = Some(token.end);
                    inside.push(opener.name);
                } else {
                    inside.push("");
                }
                at_start = true;
            }
            TokenKind::Close => {
                inside.pop();
                at_start = true;
            }
        }
    }
    found
}

enum TokenKind {
    Word,
    Semicolon,
    Open,
    Close,
}

struct ConfToken {
    kind: TokenKind,
    start: usize,
    end: usize,
}

fn next_token(text: &str, from: usize) -> Option<ConfToken> {
    let bytes = text.as_bytes();
    let mut start = from;
    loop {
        match bytes.get(start)? {
            b'#' => start = end_of(bytes, start, |byte| byte == b'\n'),
            byte if byte.is_ascii_whitespace() => start += 1,
            _ => break,
        }
    }
    let (kind, end) = match bytes[start] {
        b';' => (TokenKind::Semicolon, start + 1),
        b'{' => (TokenKind::Open, start + 1),
        b'}' => (TokenKind::Close, start + 1),
        quote @ (b'"' | b'\'') => (TokenKind::Word, end_of(bytes, start + 1, |byte| byte == quote) + 1),
        _ => (TokenKind::Word, end_of_word(bytes, start)),
    };
    // Every end is after an ASCII byte or at the end of the text: never inside a character.
    Some(ConfToken { kind, start, end: end.min(bytes.len()) })
}

/// The first byte at or after `from` for which `is_end` holds; a backslash hides the byte after it.
fn end_of(bytes: &[u8], from: usize, is_end: impl Fn(u8) -> bool) -> usize {
    let mut at = from;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            byte if is_end(*byte) => return at,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// A brace right after a dollar belongs to the word: `${name}`.
fn end_of_word(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    loop {
        at = end_of(bytes, at, |byte| byte.is_ascii_whitespace() || matches!(byte, b';' | b'{'));
        if at == 0 || bytes.get(at) != Some(&b'{') || bytes[at - 1] != b'$' {
            return at;
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn completed(text: &str, driver: Option<Driver>) -> String {
        complete(text, "", Path::new("/d"), &[7001, 7002], driver, false)
    }

    #[test]
    fn ports_are_counted_by_their_highest_number() {
        assert_eq!(ports_wanted("http { }"), 0);
        assert_eq!(ports_wanted("listen %%PORT%%;"), 1);
        assert_eq!(ports_wanted("listen %%PORT_0%%; listen %%PORT_2%%; root %%DIR%%;"), 3);
    }

    #[test]
    fn ports_and_directory_are_substituted() {
        let full = completed("root %%DIR%%; listen %%PORT%% %%PORT_0%% %%PORT_1%%;", None);
        assert!(full.contains("root /d; listen 7001 7001 7002;"), "{full}");
    }

    #[test]
    fn what_a_test_needs_is_added_and_lines_keep_their_numbers() {
        let full = completed("http {\n  root x;\n}", Some(Driver::Epoll));
        let lines: Vec<_> = full.lines().collect();
        assert_eq!(
            lines,
            [
                "pid /d/nginx.pid; error_log /d/error.log info; daemon off; master_process off; \
                 http { access_log /d/access.log;",
                "  root x;",
                "}",
                "events { use epoll; }",
            ]
        );
    }

    #[test]
    fn what_the_test_says_itself_is_not_said_twice() {
        let text = "daemon off; pid x; master_process on; error_log e; events { use poll; } \
                    http { access_log off; }";
        assert_eq!(completed(text, Some(Driver::IoUring)), text);
    }

    #[test]
    fn directives_for_http_go_into_it() {
        let full = complete("pid p; http { root r; }", " t %%DIR%%/t;", Path::new("/d"), &[], None, false);
        assert!(full.contains("http { access_log /d/access.log; t /d/t; root r; }"), "{full}");
    }

    #[test]
    fn the_driver_goes_into_an_events_block_of_the_test() {
        let full = completed("events { worker_connections 9; }", Some(Driver::IoUring));
        assert!(full.ends_with("events { use io_uring; worker_connections 9; }"), "{full}");
        let full = completed("events { worker_connections 9; }", None);
        assert!(full.ends_with("events { worker_connections 9; }"), "{full}");
    }

    #[test]
    fn names_in_comments_strings_and_inner_blocks_do_not_count() {
        let full = completed(
            "# pid x;\nset 'daemon off;' \"a;\\\" pid y;\";\nhttp { server { access_log z; } }",
            None,
        );
        assert!(full.starts_with("pid /d/nginx.pid; error_log /d/error.log info; daemon off; "), "{full}");
        assert!(full.contains("http { access_log /d/access.log; server { access_log z; } }"), "{full}");
    }

    #[test]
    fn a_braced_variable_is_part_of_its_word() {
        let found = directives("http { set $a ${b}c; root d; }");
        let names: Vec<_> = found.iter().map(|d| (d.inside.as_slice(), d.name)).collect();
        assert_eq!(names, [(&[][..], "http"), (&["http"][..], "set"), (&["http"][..], "root")]);
    }

    proptest! {
        /// A text with mistakes still reaches the server.
        #[test]
        fn any_text_is_completed(text in "[a-zé {};'\"#$\\\\\n%]{0,60}") {
            let full = completed(&text, Some(Driver::Epoll));
            prop_assert!(full.starts_with("pid /d/nginx.pid; ") || text.contains("pid"));
        }
    }
}
