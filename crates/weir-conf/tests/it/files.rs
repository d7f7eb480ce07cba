//! `include`, its patterns and its limits.

use super::*;

#[test]
fn includes_stand_where_they_are_written() {
    let files = MemoryFiles::new()
        .with("/etc/m", "b { include sub/x; }")
        .with("/etc/sub/x", "c; include y;")
        .with("/etc/y", "d");
    let failure = read_with(files.clone(), "a; include m; e;").unwrap_err();
    let shown = failure.errors.0[0].headline(&failure.tree.source);
    assert_eq!(shown, "unexpected end of file, expecting \";\" or \"}\" in /etc/y:1:2");
    let tree = read_with(files.with("/etc/y", "d;"), "a; include m; 'include' \"y\";").unwrap();
    assert_eq!(show(&tree.lines), "[a][b]{[c][d]}[d]");
    let names: Vec<_> = tree.source.files().iter().map(|f| f.path.display().to_string()).collect();
    assert_eq!(names, ["/etc/n.conf", "/etc/m", "/etc/sub/x", "/etc/y"], "a file read twice is held once");
}

#[test]
fn braces_are_balanced_in_each_file() {
    let files = MemoryFiles::new().with("/etc/open", "a {").with("/etc/close", "}");
    let failure = read_with(files, "include open; include close; b { include close; }").unwrap_err();
    let shown: Vec<_> = failure.errors.0.iter().map(|e| e.headline(&failure.tree.source)).collect();
    let expected = [
        "unexpected end of file, expecting \"}\" in /etc/open:1:4",
        "unexpected \"}\" in /etc/close:1:1",
        "unexpected \"}\" in /etc/close:1:1",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn patterns_are_sorted_and_may_match_nothing() {
    let files = MemoryFiles::new()
        .with("/etc/d/10.conf", "ten;")
        .with("/etc/d/9.conf", "nine;")
        .with("/etc/d/.9.conf", "hidden;")
        .with("/etc/d/9.txt", "text;");
    assert_eq!(
        show(&read_with(files, "include d/*.conf; include none/*; include d/[a-z]*;").unwrap().lines),
        "[ten][nine]"
    );
}

#[test]
fn loops_are_errors_in_their_place() {
    let files = MemoryFiles::new().with("/etc/a", "\n include b;").with("/etc/b", "x;\ninclude a;");
    let failure = read_with(files, "include a;").unwrap_err();
    let shown: Vec<_> = failure.errors.0.iter().map(|e| e.headline(&failure.tree.source)).collect();
    assert_eq!(shown, ["\"/etc/a\" includes itself in /etc/b:2:9"]);
}

/// Files whose text names the next one, without end.
struct Endless;

impl ConfFiles for Endless {
    fn read(&self, path: &std::path::Path) -> std::io::Result<Vec<u8>> {
        Ok(format!("include {}x; include {0}y;", path.display()).into())
    }
    fn glob(&self, _: &std::path::Path) -> std::io::Result<Vec<std::path::PathBuf>> {
        Err(std::io::Error::from_raw_os_error(13))
    }
}

#[test]
fn endless_includes_end() {
    let failure = read_all(&Endless, None).unwrap_err();
    let first = failure.errors.0[0].headline(&failure.tree.source);
    assert!(first.starts_with("too deep include of \"/etc/n.conf"), "{first}");
    assert_eq!(failure.errors.0.len(), 101);
}

#[test]
fn many_includes_end() {
    let mut files = MemoryFiles::new().with("/etc/0", "");
    for i in 1..30 {
        files = files.with(format!("/etc/{i}"), format!("include {}; include {0};", i - 1));
    }
    let failure = read_with(files, "include 29;").unwrap_err();
    let first = failure.errors.0[0].headline(&failure.tree.source);
    assert!(first.starts_with("too many included files: more than 20000 at \"/etc/"), "{first}");
}

#[test]
fn a_pattern_that_fails_says_so() {
    struct Fails;
    impl ConfFiles for Fails {
        fn read(&self, _: &std::path::Path) -> std::io::Result<Vec<u8>> {
            Ok(b"include *;".to_vec())
        }
        fn glob(&self, _: &std::path::Path) -> std::io::Result<Vec<std::path::PathBuf>> {
            Err(std::io::Error::from_raw_os_error(13))
        }
    }
    let failure = read_all(&Fails, None).unwrap_err();
    let shown = failure.errors.0[0].headline(&failure.tree.source);
    assert_eq!(shown, "glob() \"/etc/*\" failed (13: Permission denied) in /etc/n.conf:1:9");
}

/// What is in blocks is skipped: not read, not included, and not checked.
#[test]
fn an_outline_has_the_lines_of_the_main_context() {
    let files = MemoryFiles::new()
        .with(
            "/etc/n.conf",
            "a 1; include m; b { c; include none; d { } 'x'y } l_by_lua_block { s = \"}\" } e \"2\"; f {",
        )
        .with("/etc/m", "g; h { i { } } j_by_lua_block { -- }\n } k;");
    let lua = |name: &[u8]| name.ends_with(b"_by_lua_block");
    let tree = weir_conf::outline("/etc/n.conf".as_ref(), "/etc".as_ref(), &files, lua, Some("z;"));
    assert_eq!(show(&tree.unwrap().lines), "[z][a][1][g][k][e][2]");
}
