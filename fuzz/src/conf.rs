//! Targets for the configuration languages.

use std::path::Path;

use weir_conf::{DirectiveLine, LoadFailure, MemoryFiles, format, load, read_one};

/// Any text as a configuration file that may include itself: it becomes a tree, or errors, each with a place and
/// a first line that is one line and drives no terminal.
pub fn conf(data: &[u8]) {
    let files = MemoryFiles::new().with("/etc/nginx.conf", data).with("/etc/conf.d/a.conf", "a b;");
    let lua = |name: &[u8]| name.ends_with(b"_by_lua_block");
    let loaded = load(Path::new("/etc/nginx.conf"), Path::new("/etc"), &files, lua, None);
    if let Err(failure) = loaded {
        reported(*failure);
    }
}

/// Any text as a file of H2O.
pub fn yaml(data: &[u8]) {
    let files = MemoryFiles::new().with("/etc/h2o.yaml", data);
    if let Err(failure) = load(Path::new("/etc/h2o.yaml"), Path::new("/etc"), &files, |_| false, None) {
        reported(*failure);
    }
}

/// Any text is formatted, so that it says the same and a second time changes nothing; or it has a syntax error, or a word
/// without room for a blank.
pub fn conf_format(data: &[u8]) {
    let path = Path::new("/etc/nginx.conf");
    let lua = |name: &[u8]| name.ends_with(b"_by_lua_block");
    match (format(path, data, lua), read_one(path, data, lua)) {
        (Ok(out), Ok(tree)) => {
            assert_eq!(format(path, &out, lua).ok().as_ref(), Some(&out));
            let again = read_one(path, &out, lua).expect("what is formatted is valid");
            assert_eq!(words(&tree.lines), words(&again.lines));
        }
        (Err(failure), Err(_)) => reported(*failure),
        (Err(_), Ok(_)) => assert!(data.len() >= 4000),
        (Ok(_), Err(_)) => panic!("a syntax error was formatted"),
    }
}

/// The words of all lines, with what ends them.
fn words(lines: &[DirectiveLine]) -> Vec<(Vec<u8>, bool)> {
    let one = |line: &DirectiveLine| {
        let mut found: Vec<_> = line.words().map(|word| (word.bytes().to_vec(), word.quoted)).collect();
        let inner = line.block.as_ref().map(|block| words(&block.lines));
        found.push((if inner.is_some() { b"{".to_vec() } else { b";".to_vec() }, false));
        found.extend(inner.into_iter().flatten());
        found
    };
    lines.iter().flat_map(one).collect()
}

/// Every error has a place and is fit to be shown.
fn reported(failure: LoadFailure) {
    assert!(!failure.errors.is_ok());
    for error in failure.errors {
        let source = &failure.tree.source;
        let headline = error.headline(source);
        assert!(error.span.is_none_or(|span| source.place(span).is_some()), "{headline}");
        assert!(!headline.contains(char::is_control), "{headline:?}");
        assert!(error.render(source).lines().count() <= 4, "{headline}");
    }
}
