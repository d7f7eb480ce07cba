//! What there is to say of a configuration, for `weir -t` and editors.

use std::path::{Path, PathBuf};

use weir_conf::{ConfTree, Error, LoadFailure};
use weir_engine::Configuration;
use weir_engine::conf::build::build;
use weir_engine::conf::lint::lint;
use weir_engine::conf::mend::mend;

use crate::modules::MODULES;

/// Everything there is to say of a configuration.
pub struct ConfFindings {
    /// What it says; `None` where an error forbids the start.
    pub configuration: Option<Configuration>,
    /// Errors first, then warnings, each with what mends it.
    pub found: Vec<Error>,
    /// The configuration as written, as far as it could be read.
    pub tree: ConfTree,
}

impl ConfFindings {
    /// Checks what was loaded; relative paths begin in `prefix`.
    pub fn of(loaded: Result<ConfTree, Box<LoadFailure>>, prefix: PathBuf) -> ConfFindings {
        let (tree, unread) = match loaded {
            Ok(tree) => (tree, None),
            Err(failure) => (failure.tree, Some(failure.errors.0)),
        };
        // The rest of a file with errors of syntax is checked too: one run shows everything that is wrong.
        let (built, warnings) = build(tree.clone(), MODULES, prefix);
        let (configuration, errors) = match built {
            Ok(configuration) => (Some(configuration).filter(|_| unread.is_none()), Vec::new()),
            Err((errors, _)) => (None, errors.0),
        };
        let is_whole = unread.is_none();
        let mut found = unread.unwrap_or_default();
        found.extend(errors);
        found.extend(warnings);
        if is_whole {
            found.extend(lint(&tree));
        }
        mend(&tree, &mut found);
        ConfFindings { configuration, found, tree }
    }
}

/// Whether the text in the braces of this directive is Lua.
pub fn is_lua_block(name: &[u8]) -> bool {
    name.ends_with(b"_by_lua_block")
}

/// The prefix of a configuration file where none is named: its directory, or the parent of one called `conf`, as in nginx's
/// own layout. `conf` is a full path.
pub fn prefix_of(conf: &Path) -> PathBuf {
    let directory = conf.parent().unwrap_or(Path::new("/"));
    match directory.file_name() {
        Some(name) if name == "conf" => directory.parent().unwrap_or(directory).to_path_buf(),
        _ => directory.to_path_buf(),
    }
}
