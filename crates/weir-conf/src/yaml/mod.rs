//! H2O's configuration files: YAML to the lines that nginx's language would have.
//!
//! A file whose name ends with `.yaml` or `.yml` becomes the same tree as an nginx.conf, and every word of it knows the
//! place in the YAML it came from: what the tables find wrong is shown there. Which keys are known and what they become
//! is one table, [`keys`]; a key that is not in it is an error with the nearest name, never ignored.

mod access_log;
mod keys;
mod level;
mod node;
mod paths;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::{DirectiveLine, Errors, FileId};

/// Whether the name of `path` says that it is YAML.
pub(crate) fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|name| name == "yaml" || name == "yml")
}

/// The lines of the main context that `text`, the file `file`, is translated to; what is wrong goes to `errors`.
pub(crate) fn lines(text: &[u8], file: FileId, errors: &mut Errors) -> Vec<DirectiveLine> {
    match node::parse(text, file) {
        Ok(root) => keys::translate(&root, errors),
        Err(error) => {
            errors.push(error);
            Vec::new()
        }
    }
}
