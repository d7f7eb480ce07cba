//! What a client asks about a place in a file: what is written there, where it is defined, what mends it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use weir_conf::{ConfFiles, ConfTree, Contexts, DirectiveLine, Word, read_one};
use weir_http::json::JsonWriter;

use super::analysis::{Analysis, Finding};
use super::completion::markdown;
use super::cursor::{CursorLine, outer_blocks, word_at};
use super::place::{EditorRange, uri_of};
use crate::check::is_lua_block;
use crate::reference;

/// A place in a file, with the configuration that the file belongs to.
pub(super) struct AskedPlace<'a> {
    pub path: &'a Path,
    pub text: &'a [u8],
    /// The byte.
    pub at: usize,
    pub analysis: &'a Analysis,
    pub files: &'a dyn ConfFiles,
}

/// What an editor shows below the pointer.
pub(super) struct HoverText {
    /// Markdown.
    text: String,
    /// What it is about.
    range: EditorRange,
}

impl AskedPlace<'_> {
    /// The file as it is, with errors in it passed over.
    fn tree(&self) -> ConfTree {
        match read_one(self.path, self.text, is_lua_block) {
            Ok(tree) => tree,
            Err(failure) => failure.tree,
        }
    }

    /// What is written here.
    pub(super) fn hover(&self) -> Option<HoverText> {
        let tree = self.tree();
        let (blocks, line, word) = word_at(&tree.lines, self.at)?;
        let (start, end) = (word.span.start as usize, word.span.end as usize);
        if word.span == line.name.span {
            let here = self.contexts(blocks);
            let name = line.name.str();
            let text = match reference::directive(name, here) {
                _ if here == Contexts::NONE => return None,
                Some(row) => row.text(),
                None => reference::absent(name)?,
            };
            return Some(HoverText { text, range: EditorRange::of(self.text, start, end) });
        }
        let (name, start) =
            variable_at(&self.text[start..end], self.at - start).map(|(n, s)| (n, s + start))?;
        let variable = reference::variable(&name)?;
        let text = format!("`${name}`: variable of the module `{}`", variable.module);
        Some(HoverText { text, range: EditorRange::of(self.text, start, start + name.len() + 1) })
    }

    /// The contexts of a line in these blocks of the file.
    fn contexts(&self, blocks: Vec<String>) -> Contexts {
        let outer = outer_blocks(&self.analysis.tree, self.path);
        CursorLine { blocks, words: Vec::new(), word: String::new() }.contexts(outer.as_deref())
    }

    /// The places where what is written here is defined.
    pub(super) fn definitions(&self) -> Vec<(PathBuf, EditorRange)> {
        let tree = self.tree();
        let Some((_, line, word)) = word_at(&tree.lines, self.at) else { return Vec::new() };
        if word.span == line.name.span {
            return Vec::new();
        }
        if line.name.is("include") {
            return self.included(word);
        }
        let (block, name) = match word.str() {
            name if name.starts_with('@') => ("location", name),
            text => ("upstream", upstream_of(text)),
        };
        let mut found = Vec::new();
        named(&self.analysis.tree.lines, block, name, &mut found);
        found.into_iter().filter_map(|word| self.analysis.place(word.span)).collect()
    }

    fn included(&self, word: &Word) -> Vec<(PathBuf, EditorRange)> {
        // Relative to the directory of the main file, which may be another one.
        let main = self.analysis.tree.source.files().iter().find(|file| !file.parameter);
        let directory = main.map_or(self.path, |file| file.path.as_path()).parent().unwrap_or(Path::new("/"));
        let path = directory.join(OsStr::from_bytes(word.bytes()));
        let start = EditorRange::of(b"", 0, 0);
        let is_mask = word.bytes().iter().any(|byte| b"*?[".contains(byte));
        let paths = if is_mask { self.files.glob(&path).unwrap_or_default() } else { vec![path] };
        paths.into_iter().filter(|path| self.files.read(path).is_ok()).map(|path| (path, start)).collect()
    }
}

/// `http://NAME/path` names an upstream, as does `NAME:80`.
fn upstream_of(text: &str) -> &str {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    rest.split(['/', ':', '$', '?']).next().unwrap_or(rest)
}

/// The names of blocks `block NAME`.
fn named<'t>(lines: &'t [DirectiveLine], block: &str, name: &str, found: &mut Vec<&'t Word>) {
    for line in lines {
        if line.name.is(block) && !name.is_empty() {
            found.extend(line.args.iter().filter(|word| word.is(name)));
        }
        if let Some(inner) = &line.block {
            named(&inner.lines, block, name, found);
        }
    }
}

/// The variable in the word `text` that its byte `at` is in: its name, and where its `$` is.
fn variable_at(text: &[u8], at: usize) -> Option<(String, usize)> {
    let start = text[..at.min(text.len()).max(1)].iter().rposition(|&byte| byte == b'$')?;
    let braces = usize::from(text.get(start + 1) == Some(&b'{'));
    let is_letter = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
    let name: Vec<u8> = text[start + 1 + braces..].iter().take_while(is_letter).copied().collect();
    let inside = at <= start + 1 + braces + name.len() && !name.is_empty();
    inside.then(|| (String::from_utf8_lossy(&name).into_owned(), start))
}

/// Writes a list of places as `Location`s.
pub(super) fn write_places(json: &mut JsonWriter, places: &[(PathBuf, EditorRange)]) {
    json.list(|json| {
        for (path, range) in places {
            json.nested(|json| {
                json.key("uri").text(&uri_of(path));
                json.key("range");
                range.write(json);
            });
        }
    });
}

/// Writes what a hover shows.
pub(super) fn write_hover(json: &mut JsonWriter, HoverText { text, range }: &HoverText) {
    json.nested(|json| {
        json.key("contents");
        markdown(json, text);
        json.key("range");
        range.write(json);
    });
}

/// Writes the mendings of findings in a range of a file as code actions.
pub(super) fn write_actions(json: &mut JsonWriter, analysis: &Analysis, path: &Path, range: EditorRange) {
    let here = |finding: &&Finding| finding.path == path && finding.range.touches(range);
    json.list(|json| {
        for finding in analysis.found.iter().filter(here) {
            let Some(fix) = &finding.fix else { continue };
            json.nested(|json| {
                json.key("title").text(&format!("weir: {}", fix.about));
                json.key("kind").text("quickfix");
                json.key("isPreferred").raw(true);
                json.key("diagnostics").raws([finding.object()]);
                json.key("edit")
                    .nested(|json| json.key("changes").nested(|json| write_edits(json, &fix.edits)));
            });
        }
    });
}

/// Edits, by their files.
fn write_edits(json: &mut JsonWriter, edits: &[(PathBuf, EditorRange, String)]) {
    let mut paths: Vec<&PathBuf> = edits.iter().map(|(path, ..)| path).collect();
    paths.sort();
    paths.dedup();
    for path in paths {
        json.key(&uri_of(path)).list(|json| {
            for (_, range, text) in edits.iter().filter(|(other, ..)| other == path) {
                write_edit(json, *range, text);
            }
        });
    }
}

/// Writes a `TextEdit`.
pub(super) fn write_edit(json: &mut JsonWriter, range: EditorRange, text: &str) {
    json.nested(|json| {
        json.key("range");
        range.write(json);
        json.key("newText").text(text);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_where_the_cursor_is() {
        let at = |text: &str, at| variable_at(text.as_bytes(), at);
        assert_eq!(at("a$host/x", 3), Some(("host".to_owned(), 1)));
        assert_eq!(at("a$host/x", 1), None);
        assert_eq!(at("$host", 0), Some(("host".to_owned(), 0)));
        assert_eq!(at("${host}x", 4), Some(("host".to_owned(), 0)));
        assert_eq!(at("$host/x", 7), None);
        assert_eq!(at("$", 1), None);
    }

    #[test]
    fn upstreams_are_named_in_urls() {
        for text in ["http://back/x", "grpc://back:80", "back", "https://back$uri"] {
            assert_eq!(upstream_of(text), "back", "{text}");
        }
    }
}
