//! Formatting: the layout, and what it never changes.

use std::path::Path;

use proptest::prelude::*;
use weir_conf::{Span, format};

use super::*;

fn is_lua(name: &[u8]) -> bool {
    name.ends_with(b"_by_lua_block")
}

#[track_caller]
fn formatted(text: impl AsRef<[u8]>) -> Vec<u8> {
    let once = format(Path::new("n.conf"), text.as_ref(), is_lua);
    let once = once.unwrap_or_else(|failure| panic!("{}", failure.errors.render(&failure.tree.source)));
    let twice = format(Path::new("n.conf"), &once, is_lua).expect("what is formatted is valid");
    assert_eq!(String::from_utf8_lossy(&once), String::from_utf8_lossy(&twice), "formatted again");
    once
}

#[track_caller]
fn becomes(text: &str, expected: &str) {
    assert_eq!(String::from_utf8_lossy(&formatted(text)), expected);
}

#[test]
fn a_directive_a_line_four_spaces_a_block_one_space_between_words() {
    becomes(
        "events{}http{server{listen 80;location /{root   /srv ;\n}}\n}",
        "events {}\nhttp {\n    server {\n        listen 80;\n        location / {\n            root /srv;\n        }\n    }\n}\n",
    );
    becomes("server\n{\n\n\tlisten\t80\n;\n\n}\n", "server {\n    listen 80;\n}\n");
    becomes("if ($a = \"x y\"){ return 403; }", "if ($a = \"x y\") {\n    return 403;\n}\n");
    becomes("a 'x'\n\"y\\\"  z\" ${v};", "a 'x'\n    \"y\\\"  z\" ${v};\n");
    becomes("a \"x\n  y\"  z;", "a \"x\n  y\" z;\n");
}

#[test]
fn empty_texts_stay_and_one_empty_line_of_several() {
    becomes("", "");
    becomes(" \n\n", "");
    becomes("\n\n\na;\n\n\n\nb;\n\n", "a;\n\nb;\n");
    becomes("a {\n\n\nb;\n\n}\n\n\n", "a {\n    b;\n}\n");
}

#[test]
fn comments_keep_their_place_and_text() {
    becomes(
        "# top  \n\n  # next\na{ # open\n#  commented out;\nb; # end\n\n# last\n} # close\n#",
        "# top  \n\n# next\na { # open\n    #  commented out;\n    b; # end\n\n    # last\n} # close\n#\n",
    );
    becomes("a b # why\n c\n # own\n ;", "a b # why\n    c\n    # own\n    ;\n");
    becomes("a # x\n{ # y\n}\n", "a # x\n    { # y\n}\n");
    becomes(
        "listen   80;   # one\n               # two\n# three\nb;",
        "listen 80; # one\n           # two\n# three\nb;\n",
    );
}

#[test]
fn columns_in_common_stay() {
    becomes(
        "types{\n  text/html    html htm;\n  text/css     css;\n  image/svg+xml      svg;\n}",
        "types {\n    text/html html htm;\n    text/css  css;\n    image/svg+xml svg;\n}\n",
    );
    becomes(
        "proxy_set_header Host            $host;\nproxy_set_header X-Forwarded-For $x;\n",
        "proxy_set_header Host            $host;\nproxy_set_header X-Forwarded-For $x;\n",
    );
    becomes("listen  80;    # a\nroot    /x;    # b\n", "listen 80; # a\nroot   /x; # b\n");
    becomes("listen  80;\n\nroot    /x;\n", "listen 80;\n\nroot /x;\n");
}

#[test]
fn further_lines_of_a_directive_stay_below_a_word() {
    becomes(
        "http {\nlog_format  main  '$a '\n                  '$b'\n      '$c';\n}",
        "http {\n    log_format main '$a '\n                    '$b'\n        '$c';\n}\n",
    );
    becomes("server_name\n a\n\n b;", "server_name\n    a\n    b;\n");
}

#[test]
fn lua_moves_as_a_whole_or_stays() {
    becomes(
        "server {\ncontent_by_lua_block {\n  ngx.say( \"}\" )\n\n    -- {\n}\n}",
        "server {\n    content_by_lua_block {\n      ngx.say( \"}\" )\n\n        -- {\n    }\n}\n",
    );
    becomes(
        "server {\ncontent_by_lua_block {\n  ngx.say([[\n  x]])\n}\n}",
        "server {\n    content_by_lua_block {\n  ngx.say([[\n  x]])\n}\n}\n",
    );
    becomes("content_by_lua_block{  a( )}  b;", "content_by_lua_block {  a( )}\nb;\n");
}

#[test]
fn line_ends_are_those_of_the_first_line_that_ends_outside_of_words() {
    becomes("a 'x\ny';\r\nb; # c\nd;", "a 'x\ny';\r\nb; # c\r\nd;\r\n");
    becomes("a;\nb; # c\r\r\nd 'x\r\ny';\r\n", "a;\nb; # c\nd 'x\r\ny';\n");
}

#[test]
fn bytes_that_are_not_utf8_stay() {
    assert_eq!(formatted(b"a  \xff\xfe \"\xc3\"; #\xf0"), b"a \xff\xfe \"\xc3\"; #\xf0\n");
    becomes("é   ü;\nab  ü;", "é  ü;\nab ü;\n");
}

#[test]
fn includes_are_lines_as_others() {
    becomes("include  conf.d/*.conf ;include n.conf;", "include conf.d/*.conf;\ninclude n.conf;\n");
}

#[test]
fn errors_of_syntax_have_their_place() {
    for (text, headline) in [
        ("a {\n", "unexpected end of file, expecting \"}\" in n.conf:2:1"),
        ("a; }", "unexpected \"}\" in n.conf:1:4"),
        ("a", "unexpected end of file, expecting \";\" or \"}\" in n.conf:1:2"),
        ("a \"b\"c;", "unexpected \"c\" in n.conf:1:6"),
        ("include a b;", "invalid number of arguments in \"include\" directive in n.conf:1:1"),
    ] {
        let failure = format(Path::new("n.conf"), text.as_bytes(), is_lua).expect_err(text);
        assert_eq!(failure.errors.0[0].headline(&failure.tree.source), headline);
    }
}

#[test]
fn a_word_without_room_for_a_blank_is_an_error_and_nothing_else() {
    let longest = "a".repeat(4095);
    assert!(read(format!("{longest}{{}}{}", " ".repeat(5000))).is_ok());
    let failure = format(Path::new("n.conf"), format!("{longest}{{b {longest};}}").as_bytes(), is_lua);
    let failure = failure.expect_err("no room");
    assert!(failure.errors.0[0].message.contains("a word is too long"), "{}", failure.errors.0[0]);
}

/// Words as written, `;`, braces, Lua and comments, in their order: a reading of its own, by the spans of the tree.
fn tokens(text: &[u8]) -> Result<Vec<Vec<u8>>, Box<LoadFailure>> {
    let tree = weir_conf::read_one(Path::new("n.conf"), text, is_lua)?;
    let mut spans = Vec::new();
    tokens_of(&tree.lines, &mut spans);
    let (mut found, mut at) = (Vec::new(), 0);
    for (start, end) in spans.into_iter().chain([(text.len(), text.len())]) {
        let between = String::from_utf8_lossy(&text[at..start]);
        let comments = between.split('\n').filter_map(|line| Some(&line[line.find('#')?..]));
        found.extend(comments.map(|comment| comment.trim_end_matches('\r').as_bytes().to_vec()));
        let token = &text[start..end];
        let is_lua = token.len() > 1 && token.starts_with(b"{");
        let indented = |line: &[u8]| line.trim_ascii_start().to_vec();
        found.extend(match is_lua {
            true => token.split(|&byte| byte == b'\n').map(indented).collect(),
            false => vec![token.to_vec()],
        });
        at = end;
    }
    Ok(found)
}

fn tokens_of(lines: &[DirectiveLine], spans: &mut Vec<(usize, usize)>) {
    let range = |span: Span| (span.start as usize, span.end as usize);
    for line in lines {
        spans.extend(line.words().map(|word| range(word.span)));
        let end = line.span.end as usize;
        match (&line.block, &line.raw) {
            (Some(block), _) => {
                spans.push(range(block.open()));
                tokens_of(&block.lines, spans);
                spans.push((end - 1, end));
            }
            (None, Some(raw)) => spans.push((raw.span.start as usize - 1, end)),
            (None, None) => spans.push((end - 1, end)),
        }
    }
}

/// Blanks and comments, at least one blank.
fn blanks() -> impl Strategy<Value = String> {
    let pieces =
        prop::sample::select(vec![" ", " ", "\t", "\n", "\n", "\r\n", " # c\n", "\n#d \r\n", "\n    "]);
    prop::collection::vec(pieces, 1..4).prop_map(|pieces| pieces.concat())
}

/// A directive, or a block of some.
fn directive() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "a", "server", "\"b c\"", "'d\n e'", "${f}", "g\\;h", "é", "listen", "\"x\")", "~^/i{", "content",
        "t\\\t",
    ]);
    let word = (words, blanks()).prop_map(|(word, blanks)| word.replace('{', "${") + &blanks).boxed();
    let words = || prop::collection::vec(word.clone(), 1..5).prop_map(|words| words.concat());
    let lua =
        prop::sample::select(vec![" a() ", "\n  b('}')\n", "\n\t\tc([[\n]])\n\t", "\n    d()\n\n    -- }\n"]);
    let leaf = prop_oneof![
        4 => (words(), blanks()).prop_map(|(words, after)| words + ";" + &after),
        1 => (lua, blanks()).prop_map(|(lua, after)| format!("x_by_lua_block {{{lua}}}{after}")),
    ];
    let block = words().boxed();
    leaf.prop_recursive(3, 16, 4, move |inner| {
        (block.clone(), prop::collection::vec(inner, 0..4), blanks(), blanks())
            .prop_map(|(words, inner, open, close)| format!("{words}{{{open}{}}}{close}", inner.concat()))
    })
}

proptest! {
    #[test]
    fn formatting_is_idempotent_and_keeps_all_tokens(
        directives in prop::collection::vec(directive(), 0..6),
        before in blanks(),
    ) {
        let text = before + &directives.concat();
        let once = format(Path::new("n.conf"), text.as_bytes(), is_lua);
        let once = once.map_err(|f| TestCaseError::fail(f.errors.render(&f.tree.source) + &text))?;
        let twice = format(Path::new("n.conf"), &once, is_lua).expect("what is formatted is valid");
        prop_assert_eq!(String::from_utf8_lossy(&once), String::from_utf8_lossy(&twice));
        let (written, kept) = (tokens(text.as_bytes()).expect("valid"), tokens(&once).expect("valid"));
        prop_assert_eq!(written, kept, "{}", text);
    }

    #[test]
    fn any_text_is_formatted_or_has_an_error(text in properties::text()) {
        match (format(Path::new("n.conf"), &text, is_lua), tokens(&text)) {
            (Ok(out), Ok(written)) => {
                prop_assert_eq!(written, tokens(&out).expect("valid"));
                prop_assert_eq!(format(Path::new("n.conf"), &out, is_lua).expect("valid"), out);
            }
            (Err(failure), Err(_)) => prop_assert!(!failure.errors.is_ok()),
            (one, other) => prop_assert!(false, "{:?} {:?}", one.is_ok(), other.is_ok()),
        }
    }
}
