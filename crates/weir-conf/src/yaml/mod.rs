//! H2O's configuration files: YAML to the lines that nginx's language would have.
//!
//! A file in H2O's language becomes the same tree as an nginx.conf, and every word of it knows the place in the YAML it came
//! from: what the tables find wrong is shown there. Which keys are known and what they become is one table, [`keys`]; a key
//! that is not in it is an error with the nearest name, never ignored.

mod access_log;
mod document;
mod fastcgi;
mod files;
mod global;
mod handlers;
mod headers;
mod hosts;
mod keys;
mod level;
mod listen;
mod mime;
mod node;
mod proxy;
mod refused;
mod responses;
#[cfg(test)]
mod tests;
mod tls;
mod trace_names;

use std::path::Path;
use std::sync::Arc;

use crate::{DirectiveLine, Error, Errors, FileId};

pub use keys::h2o_keys;

/// Whether a configuration file is in H2O's language: by its first significant line, which is a key of a mapping or a
/// directive of nginx. Of a text that has no such line, and of a flow mapping, the name `path` decides: `.yaml` or `.yml`.
pub fn is_h2o_language(path: &Path, text: &[u8]) -> bool {
    let named = path.extension().is_some_and(|name| name == "yaml" || name == "yml");
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let line = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).find(|line| {
        !line.is_empty() && !line.starts_with(b"#") && !line.starts_with(b"%") && *line != b"---"
    });
    match line {
        Some(line) if line.starts_with(b"--- ") || is_key(line) => true,
        Some(line) if !b"{[-!&*?|>".contains(&line[0]) => false,
        _ => named,
    }
}

/// Whether a line begins with a word and a colon.
fn is_key(line: &[u8]) -> bool {
    let end = match line.first() {
        Some(quote @ (b'"' | b'\'')) => line.iter().skip(1).position(|byte| byte == quote).map(|at| at + 2),
        _ => line.iter().position(|byte| byte.is_ascii_whitespace() || b":;{}\"'[]$#".contains(byte)),
    };
    let rest = line.get(end.unwrap_or(line.len())..).unwrap_or_default().trim_ascii_start();
    end != Some(0) && matches!(rest, [b':'] | [b':', b' ' | b'\t' | b'\r', ..])
}

/// Reads a file that `!file` names, for the tree.
pub(crate) type OpenYaml<'o> = dyn FnMut(&Path) -> Result<(FileId, Arc<[u8]>), Error> + 'o;

/// What the file is read with.
pub(crate) struct YamlSource<'o> {
    pub(crate) text: &'o [u8],
    pub(crate) file: FileId,
    /// The machine has IPv6: a `listen` without host is of both families.
    pub(crate) has_ipv6: bool,
    pub(crate) open: &'o mut OpenYaml<'o>,
}

/// The lines of the main context that the file is translated to; what is wrong goes to `errors`.
pub(crate) fn lines(source: YamlSource<'_>, errors: &mut Errors) -> Vec<DirectiveLine> {
    match document::parse(source.text, source.file, source.open) {
        Ok(root) => hosts::translate(&root, source.has_ipv6, errors),
        Err(error) => {
            errors.push(error);
            Vec::new()
        }
    }
}
