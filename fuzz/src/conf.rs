//! Targets for the configuration languages.

use std::path::Path;

use weir_conf::{LoadFailure, MemoryFiles, load};

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
