//! Right inputs: what nginx's grammar makes of them.

use super::*;

#[test]
fn words_blocks_and_comments() {
    for (text, expected) in [
        ("", ""),
        (" \t\r\n # nothing; { } \" \n", ""),
        ("a;", "[a]"),
        ("a b  c\t\td\r\ne;", "[a][b][c][d][e]"),
        ("a{b;}c{}", "[a]{[b]}[c]{}"),
        ("a { b { c d; } e; }", "[a]{[b]{[c][d]}[e]}"),
        ("a 'b c' \"d;{}#\";", "[a][b c][d;{}#]"),
        ("a \"b\nc\";", "[a][b\nc]"),
        ("a '' \"\";", "[a][][]"),
        ("'a'{}\"b\";", "[a]{}[b]"),
        ("a b#c d; # e", "[a][b#c][d]"),
        ("a b\"c\" d'e;", "[a][b\"c\"][d'e]"),
        ("a b} c;", "[a][b}][c]"),
        ("if ($a = \"b\") { }", "[if][($a][=][b][)]{}"),
    ] {
        assert_eq!(show(&read(text).unwrap().lines), expected, "{text}");
    }
}

#[test]
fn escapes_are_those_of_nginx() {
    for (text, expected) in [
        (r#"a \"b\" \'c\';"#, "[a][\"b\"]['c']"),
        (r#"a "\"" '\'' "'" '"';"#, "[a][\"][']['][\"]"),
        (r"a \t\r\n\\;", "[a][\t\r\n\\]"),
        (r#"a "\t\n" '\r\\';"#, "[a][\t\n][\r\\]"),
        (r"a ^/\.php$ \d+\;;", r"[a][^/\.php$][\d+\;]"),
        (r"a b\ c\{d;", r"[a][b\ c\{d]"),
        (r"\include x;", r"[\include][x]"),
        (r"a \\n \\\n;", "[a][\\n][\\\n]"),
    ] {
        assert_eq!(show(&read(text).unwrap().lines), expected, "{text}");
    }
}

#[test]
fn variables_keep_their_braces() {
    for (text, expected) in [
        ("a ${b}c $d;", "[a][${b}c][$d]"),
        ("a \"${b};\" c;", "[a][${b};][c]"),
        ("a b${c}d{ e; }", "[a][b${c}d]{[e]}"),
        ("a $b{ c; }", "[a][$b]{[c]}"),
        ("a $;", "[a][$]"),
        ("a $${b};", "[a][$${b}]"),
        ("a ^/x{2}$;", "[a][^/x]{"),
        ("a \"^/x{2}$\";", "[a][^/x{2}$]"),
    ] {
        match read(text) {
            Ok(tree) => assert_eq!(show(&tree.lines), expected, "{text}"),
            Err(failure) => assert!(expected.ends_with('{'), "{text}: {:?}", failure.errors),
        }
    }
}

#[test]
fn bytes_that_are_not_utf8_stay_what_they_are() {
    let tree = read(b"a \xff\xfe\\n;".to_vec()).unwrap();
    assert_eq!(tree.lines[0].args[0].bytes(), b"\xff\xfe\n");
}

#[test]
fn lua_blocks_are_taken_whole() {
    let text = "a_by_lua_block $x {\n if x then y = '}' end -- }\n}\nb_by_lua_block{}c;";
    let tree = read(text).unwrap();
    assert_eq!(
        show(&tree.lines),
        "[a_by_lua_block][$x]|\n if x then y = '}' end -- }\n|[b_by_lua_block]||[c]"
    );
    let raw = tree.lines[0].raw.as_ref().unwrap();
    assert_eq!((raw.span.start, raw.span.end), (19, 48));
    assert_eq!(tree.source.place(raw.span).map(|p| p.line), Some(1));
    assert_eq!(show(&read("a_by_lua { b; }").unwrap().lines), "[a_by_lua]{[b]}");
}

#[test]
fn spans_cover_what_was_written() {
    let tree = read("x;\n'a b' c {\n  d;\n} e;").unwrap();
    let text = |span: weir_conf::Span| {
        let file = tree.source.file(span.file).unwrap();
        String::from_utf8(file.text[span.start as usize..span.end as usize].to_vec()).unwrap()
    };
    let line = &tree.lines[1];
    assert_eq!(text(line.name.span), "'a b'");
    assert_eq!(text(line.span), "'a b' c {\n  d;\n}");
    let block = line.block.as_ref().unwrap();
    assert_eq!((text(block.span), text(block.open())), ("{\n  d;\n}".into(), "{".into()));
    assert_eq!(text(block.lines[0].span), "d;");
}

#[test]
fn the_text_of_g_comes_first_and_has_no_blocks() {
    let files = MemoryFiles::new().with("/etc/n.conf", "b;").with("/etc/m", "m;");
    let tree = read_all(&files, Some("a x; include m;")).unwrap();
    assert_eq!(show(&tree.lines), "[a][x][m][b]");

    for (globals, expected) in [
        ("a", "unexpected end of parameter, expecting \";\" in command line"),
        ("a \"b", "unexpected end of parameter, expecting \";\" in command line"),
        ("a;}", "unexpected \"}\" in command line"),
        ("a { b; }", "block directives are not supported in -g option in command line"),
    ] {
        let failure = read_all(&files, Some(globals)).unwrap_err();
        let first = failure.errors.0[0].headline(&failure.tree.source);
        assert_eq!((first.as_str(), failure.errors.0.len()), (expected, 1), "{globals}");
    }
}
