//! Configurations for tests, of this crate and of modules: from a text in memory, errors as a user sees them.

use std::path::{Path, PathBuf};

use weir_conf::{ConfTree, Error, MemoryFiles};

use super::Configuration;
use crate::module::ModuleDef;

/// Where the text of [`load`] seems to be.
pub const FILE: &str = "/srv/weir/conf/weir.conf";
/// Where relative paths of [`load`] begin.
pub const PREFIX: &str = "/srv/weir";

/// Reads `text` as a configuration of `modules`. Warnings are lost.
///
/// # Errors
/// Everything wrong with it, rendered: message and place, source line, carets, hint, and an empty line.
pub fn load(text: &str, modules: &'static [ModuleDef]) -> Result<Configuration, String> {
    load_files(&MemoryFiles::new().with(FILE, text), modules).0
}

/// Reads [`FILE`] of `files`. Warnings, rendered, are the second value.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_files(
    files: &MemoryFiles,
    modules: &'static [ModuleDef],
) -> (Result<Configuration, String>, String) {
    let tree = match weir_conf::load(FILE.as_ref(), PREFIX.as_ref(), files, |_| false, None) {
        Ok(tree) => tree,
        Err(failure) => return (Err(failure.errors.render(&failure.tree.source)), String::new()),
    };
    let source = tree.source.clone();
    let (result, warnings) = build(tree, modules);
    (result, warnings.iter().map(|warning| warning.headline(&source) + "\n").collect())
}

fn build(tree: ConfTree, modules: &'static [ModuleDef]) -> (Result<Configuration, String>, Vec<Error>) {
    let (result, warnings) = super::build::build(tree, modules, PathBuf::from(PREFIX));
    (result.map_err(|(errors, tree)| errors.render(&tree.source)), warnings)
}

/// The first line of each error of `text`, without [`FILE`]'s directory: `unknown directive "x" in weir.conf:3:5`.
///
/// # Panics
/// When the configuration has no error.
pub fn headlines(text: &str, modules: &'static [ModuleDef]) -> Vec<String> {
    let Err(errors) = load(text, modules) else { panic!("no error in {text}") };
    let directory =
        Path::new(FILE).parent().map_or_else(String::new, |directory| format!("{}/", directory.display()));
    let place = format!(" in {directory}");
    errors.lines().filter(|line| line.contains(&place)).map(|line| line.replace(&place, " in ")).collect()
}
