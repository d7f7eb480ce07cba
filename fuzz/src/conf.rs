//! Target for the configuration language.

use std::path::Path;

use weir_conf::{MemoryFiles, load};

/// Any text as a configuration file: it becomes a tree or errors, each with a place that can be shown.
pub fn conf(data: &[u8]) {
    let files = MemoryFiles::new().with("/etc/nginx.conf", data).with("/etc/conf.d/a.conf", "a b;");
    let lua = |name: &[u8]| name.ends_with(b"_by_lua_block");
    if let Err(failure) = load(Path::new("/etc/nginx.conf"), Path::new("/etc"), &files, lua, None) {
        assert!(!failure.errors.is_ok());
        assert!(!failure.errors.render(&failure.tree.source).is_empty());
    }
}
