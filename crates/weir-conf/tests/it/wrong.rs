//! Wrong inputs: the exact words, line and column of each.

use super::*;

/// One error each. `@` means ` in /etc/n.conf:`. The words and lines of those of syntax were compared with
/// nginx 1.31, which gives a line and no column.
const WRONG: &[(&str, &str)] = &[
    // what no directive can be
    (";", "unexpected \";\" @1:1"),
    ("http { };", "unexpected \";\" @1:9"),
    ("{ }", "unexpected \"{\" @1:1"),
    ("}", "unexpected \"}\" @1:1"),
    ("http {\n}\n}\n", "unexpected \"}\" @3:1"),
    ("http {\n gzip on\n}\n", "unexpected \"}\" @3:1"),
    ("http {\n gzip on;\n", "unexpected end of file, expecting \"}\" @3:1"),
    ("http { server {", "unexpected end of file, expecting \"}\" @1:16"),
    ("worker_processes 1", "unexpected end of file, expecting \";\" or \"}\" @1:19"),
    ("worker_processes 1 # ;\n", "unexpected end of file, expecting \";\" or \"}\" @2:1"),
    ("http", "unexpected end of file, expecting \";\" or \"}\" @1:5"),
    ("a\\", "unexpected end of file, expecting \";\" or \"}\" @1:3"),
    ("worker_processes \"1;", "unexpected end of file, expecting \";\" or \"}\" @1:21"),
    ("worker_processes '1;\n", "unexpected end of file, expecting \";\" or \"}\" @2:1"),
    ("worker_processes \"1\"x;", "unexpected \"x\" @1:21"),
    ("worker_processes \"1\"é;", "unexpected \"é\" @1:21"),
    ("worker_processes '1'#;\n;", "unexpected \"#\" @1:21"),
    ("worker_processes \"1\"\"2\";", "unexpected \"\"\" @1:21"),
    // directives and tables
    ("http { foo on; }", "unknown directive \"foo\" @1:8"),
    ("http { Gzip on; }", "unknown directive \"Gzip\" @1:8"),
    ("http { \"\" on; }", "unknown directive \"\" @1:8"),
    ("\u{feff}http { }", "unknown directive \"\u{feff}http\" @1:1"),
    ("http { g\\zip on; }", "unknown directive \"g\\zip\" @1:8"),
    ("gzip on;", "\"gzip\" directive is not allowed here @1:1"),
    ("http { http { } }", "\"http\" directive is not allowed here @1:8"),
    ("http { worker_processes 1; }", "\"worker_processes\" directive is not allowed here @1:8"),
    ("http;", "directive \"http\" has no opening \"{\" @1:1"),
    ("http {\n\tgzip on { }\n}", "directive \"gzip\" is not terminated by \";\" @2:2"),
    ("http x { }", "invalid number of arguments in \"http\" directive @1:1"),
    ("http { gzip; }", "invalid number of arguments in \"gzip\" directive @1:8"),
    ("http { gzip on on; }", "invalid number of arguments in \"gzip\" directive @1:8"),
    ("http { index; }", "invalid number of arguments in \"index\" directive @1:8"),
    ("http { odd a b; }", "invalid number of arguments in \"odd\" directive @1:8"),
    ("include a b;", "invalid number of arguments in \"include\" directive @1:1"),
    ("http { include; }", "invalid number of arguments in \"include\" directive @1:8"),
    ("include a { }", "directive \"include\" is not terminated by \";\" @1:1"),
    ("includ a;", "unknown directive \"includ\" @1:1"),
    // values
    ("http { odd a; }", "invalid parameter \"a\" @1:12"),
    ("http { gzip yes; }", "invalid value \"yes\" in \"gzip\" directive, it must be \"on\" or \"off\" @1:13"),
    ("http { gzip on; gzip off; }", "\"gzip\" directive is duplicate @1:17"),
    ("http { gzip on; gzip maybe; }", "\"gzip\" directive is duplicate @1:17"),
    ("http { gzip_comp_level x; }", "\"gzip_comp_level\" directive invalid number @1:24"),
    ("http { gzip_comp_level -1; }", "\"gzip_comp_level\" directive invalid number @1:24"),
    ("http { gzip_comp_level 10; }", "value must be between 1 and 9 @1:24"),
    ("http { gzip_comp_level 999; }", "value must be between 1 and 9 @1:24"),
    ("worker_processes 0;", "value must be equal to or greater than 1 @1:18"),
    ("http { port 65536; }", "\"port\" directive invalid number @1:13"),
    ("http { client_body_buffer_size 1g; }", "\"client_body_buffer_size\" directive invalid value @1:32"),
    ("http { client_max_body_size 1t; }", "\"client_max_body_size\" directive invalid value @1:29"),
    ("http { send_timeout 1.5s; }", "\"send_timeout\" directive invalid value @1:21"),
    ("http { open_file_cache_valid 1ms; }", "\"open_file_cache_valid\" directive invalid value @1:30"),
    ("http { gzip_buffers 0 8k; }", "\"gzip_buffers\" directive invalid value @1:21"),
    ("http { gzip_buffers 16 0; }", "\"gzip_buffers\" directive invalid value @1:24"),
    ("http { satisfy al; }", "invalid value \"al\" @1:16"),
    ("http { gzip_proxied expired public; }", "invalid value \"public\" @1:29"),
    ("http { gzip_proxied expired expired; }", "duplicate value \"expired\" @1:29"),
    ("http { old; }", "the \"old\" directive is deprecated @1:8"),
    ("http { types { text/html; } }", "\"text/html\" directive has no extension @1:16"),
    ("http { types { text/html { } } }", "unexpected \"{\" @1:26"),
    // raw blocks
    (
        "http { server { location / { content_by_lua_block; } } }",
        "directive \"content_by_lua_block\" has no opening \"{\" @1:30",
    ),
    ("content_by_lua_block { } #", "\"content_by_lua_block\" directive is not allowed here @1:1"),
    (
        "content_by_lua_block { s = \"}\"\n",
        "unexpected end of file, expecting terminating characters for lua code block @2:1",
    ),
    (
        "content_by_lua_block {\n s = [=[ }",
        "Lua code block missing the closing long bracket \"]=]\", the inlined Lua code may be too long @2:6",
    ),
    // files
    ("include /etc/none;", "open() \"/etc/none\" failed (2: No such file or directory) @1:9"),
    ("include  none;", "open() \"/etc/none\" failed (2: No such file or directory) @1:10"),
    ("http { include n.conf; }", "\"/etc/n.conf\" includes itself @1:16"),
];

#[test]
fn each_has_the_words_and_the_place() {
    for (text, expected) in WRONG {
        let found = errors(*text);
        assert_eq!(found.first().map(String::as_str), Some(*expected), "{text}");
        assert_eq!(found.len(), 1, "{text}: {found:?}");
    }
}

#[test]
fn words_are_as_long_as_in_nginx() {
    let text = |quote: &str, length, end: &str| {
        format!("http {{ index {quote}{}{quote}{end} }}{}", "a".repeat(length), " ".repeat(9))
    };
    for (quote, length, end) in [("", 4095, ";"), ("\"", 4094, ";"), ("", 4094, " ;"), ("'", 4093, " ;")] {
        assert_eq!(errors(text(quote, length, end)), Vec::<String>::new(), "{length}");
        let column = 14 + quote.len();
        let expected = format!("too long parameter \"aaaaaaaaaa...\" started @1:{column}");
        assert_eq!(errors(text(quote, length + 1, end)), [expected], "{length}");
    }
    let open = text("\"", 4096, ";").replacen('"', "\n\"", 1);
    let expected = "too long parameter, probably missing terminating \"\"\" character @2:1";
    assert_eq!(errors(open)[0], expected);
}

#[test]
fn all_errors_of_a_file_come_in_one_run() {
    let text = "\
worker_processes 1
http {
    gzip on;;
    gzipp_comp_level 4;
    index \"a\"b c;
    server {
        listen 80;
        gzip_comp_level 10
    }
    add 'x;
    location / { }
}
";
    let expected = [
        "unexpected \";\" @3:13",
        "unexpected \"b\" @5:14",
        "unexpected \"}\" @9:5",
        "unexpected end of file, expecting \";\" or \"}\" @13:1",
        "directive \"worker_processes\" is not terminated by \";\" @1:1",
    ];
    assert_eq!(errors(text), expected);

    let mended = errors(text.replace("1\n", "1;\n"));
    assert_eq!(mended[..4], expected[..4]);
    let further = [
        "unknown directive \"gzipp_comp_level\" @4:5",
        "unknown directive \"listen\" @7:9",
        "\"location\" directive is not allowed here @11:5",
    ];
    assert_eq!(mended[4..], further);
}

#[test]
fn a_quote_opened_by_mistake_does_not_hide_the_lines_after_it() {
    let found = errors("http {\n  add \"x;\n  foo 1;\n  add \"y\";\n  bar 1;\n}\n");
    let expected =
        ["unexpected \"y\" @4:8", "unknown directive \"foo\" @3:3", "unknown directive \"bar\" @5:3"];
    assert_eq!(found, expected);
}

#[test]
fn hints_tell_how_to_mend_it() {
    for (text, hint) in [
        ("http { gizp on; }", "did you mean \"gzip\"?"),
        ("http { satisfy al; }", "did you mean \"all\"?"),
        ("gzip on;", "it is allowed in \"http\", \"server\", \"location\", \"if\" in \"location\""),
        ("worker_processes 1\nhttp { }", "is \";\" missing after \"1\"?"),
        ("http { root a\n gzip on; }", "is \";\" missing after \"a\"?"),
        ("http { old\n gzip on; }", "is \";\" missing after \"old\"?"),
        ("http { gzip on }", "is \";\" missing after \"on\"?"),
        ("includ a;", "did you mean \"include\"?"),
        ("\u{feff}http { }", "the file begins with a byte order mark; save it without"),
        ("http { client_body_buffer_size 1g; }", "its units are k and m: 1024m"),
        ("http {\n\n server {\n }\n", "the \"{\" in line 1 is not closed"),
        ("\nadd \"x;\n", "the quote opened in line 2 is not closed"),
        ("\nadd \"x;\nadd \"y\";", "the \" opened in line 2 closes here"),
        ("\ncontent_by_lua_block {", "the \"{\" of Lua code in line 2 is not closed"),
    ] {
        let (tree, errors) = match read(text) {
            Ok(tree) => (tree, Vec::new()),
            Err(failure) => (failure.tree, failure.errors.0),
        };
        let all: Vec<_> = errors.into_iter().chain(apply(&tree).1).collect();
        assert_eq!(all[0].hint.as_deref(), Some(hint), "{text}");
    }
}

#[test]
fn depth_is_limited_and_the_rest_is_read() {
    let nested = |n| format!("{}{}foo;", "a {".repeat(n), "}".repeat(n));
    assert_eq!(errors(nested(64)), ["unknown directive \"a\" @1:1", "unknown directive \"foo\" @1:257"]);
    let found = errors(nested(100_000));
    assert_eq!(found[0], "too deep blocks: more than 64 @1:195");
    assert_eq!(found.last().map(String::as_str), Some("unknown directive \"foo\" @1:400001"));
}

#[test]
fn errors_without_end_end() {
    for text in [";".repeat(100_000), "\"a\"b ".repeat(100_000)] {
        let found = errors(text);
        assert_eq!(found.len(), 101);
        assert_eq!(found[100], "too many errors, the rest is not read");
    }
}

#[test]
fn the_whole_of_an_error_shows_the_line() {
    let failure = read("http {\n\tgzip \"on\"x;\n}\n").unwrap_err();
    let expected = "unexpected \"x\" in /etc/n.conf:2:11\n\tgzip \"on\"x;\n\t         ^\n";
    assert_eq!(failure.errors.render(&failure.tree.source), expected);
}
