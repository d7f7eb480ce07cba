//! Which configuration a file belongs to, and what there is to say of it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use weir_conf::{
    ConfFiles, ConfTree, Error, LevelName, LoadFailure, RealFiles, Span, TextEdit, load, read_one,
};

use weir_engine::log::LogFile;
use weir_engine::privileged::without_name_servers;
use weir_http::json::JsonWriter;

use super::place::EditorRange;
use crate::check::{ConfFindings, is_lua_block, prefix_of};

/// A configuration as of now.
pub(super) struct Analysis {
    pub tree: ConfTree,
    pub found: Vec<Finding>,
}

/// An error or a warning, in one of the files.
pub(super) struct Finding {
    pub path: PathBuf,
    pub range: EditorRange,
    pub level: LevelName,
    pub message: String,
    pub fix: Option<FindingFix>,
}

/// What mends it.
pub(super) struct FindingFix {
    pub about: String,
    /// Edits by file.
    pub edits: Vec<(PathBuf, EditorRange, String)>,
}

impl Analysis {
    /// Of the file `path` with what includes it: `main` if that is named, or the nearest configuration that does. A part of
    /// a configuration that no one includes is looked at alone, for its syntax.
    pub(super) fn of(path: &Path, main: Option<&Path>, files: &dyn ConfFiles) -> Analysis {
        let main = main.map(Path::to_path_buf).filter(|main| includes(main, path, files));
        match main.or_else(|| find_main(path, files)) {
            Some(main) => Analysis::whole(&main, files),
            None => Analysis::part(path, files),
        }
    }

    fn whole(main: &Path, files: &dyn ConfFiles) -> Analysis {
        let prefix = prefix_of(main);
        let loaded = load(main, &prefix, files, is_lua_block, None);
        let findings = without_effects(|| ConfFindings::of(loaded, prefix));
        let ConfFindings { configuration, mut found, tree } = findings;
        if configuration.is_some_and(|configuration| !configuration.main.events) {
            found.push(Error::new("no \"events\" section in configuration"));
        }
        Analysis::new(main, tree, &found)
    }

    fn part(path: &Path, files: &dyn ConfFiles) -> Analysis {
        let text = files.read(path).unwrap_or_default();
        let (tree, found) = match read_one(path, &text, is_lua_block) {
            Ok(tree) => (tree, Vec::new()),
            Err(failure) => (failure.tree, failure.errors.0),
        };
        Analysis::new(path, tree, &found)
    }

    fn new(main: &Path, tree: ConfTree, found: &[Error]) -> Analysis {
        let found = found.iter().map(|error| finding(main, &tree, error)).collect();
        Analysis { tree, found }
    }

    /// The file and place of a span.
    pub(super) fn place(&self, span: Span) -> Option<(PathBuf, EditorRange)> {
        place(&self.tree, span)
    }
}

impl Finding {
    /// As a `Diagnostic`.
    pub(super) fn object(&self) -> String {
        let severity = match self.level {
            LevelName::Emerg => 1,
            LevelName::Alert | LevelName::Warn => 2,
            LevelName::Notice => 3,
        };
        JsonWriter::object(|json| {
            json.key("range");
            self.range.write(json);
            json.key("severity").raw(severity);
            json.key("source").text("weir");
            json.key("message").text(&self.message);
        })
    }
}

fn place(tree: &ConfTree, span: Span) -> Option<(PathBuf, EditorRange)> {
    let file = tree.source.file(span.file)?;
    let range = EditorRange::of(&file.text, span.start as usize, span.end as usize);
    Some((file.path.clone(), range))
}

fn finding(main: &Path, tree: &ConfTree, error: &Error) -> Finding {
    let at = error.span.and_then(|span| place(tree, span));
    let (path, range) = at.unwrap_or_else(|| (main.to_path_buf(), EditorRange::of(b"", 0, 0)));
    let message = match &error.hint {
        Some(hint) => format!("{}\n{hint}", error.message),
        None => error.message.clone(),
    };
    let edit = |edit: &TextEdit| place(tree, edit.span).map(|(path, range)| (path, range, edit.text.clone()));
    let fix = error.fix.as_ref().and_then(|fix| {
        let edits = fix.edits.iter().map(edit).collect::<Option<_>>()?;
        Some(FindingFix { about: fix.about.clone(), edits })
    });
    Finding { path, range, level: error.level, message, fix }
}

/// The file system as an editor needs it: pipes and devices are not read, for which nobody may write, and one of which brings
/// the editor's own messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct EditorFiles;

impl ConfFiles for EditorFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let kind = fs::metadata(path)?.file_type();
        if kind.is_file() || kind.is_dir() {
            return RealFiles.read(path);
        }
        Err(io::Error::other("no regular file, which an editor does not read"))
    }

    fn glob(&self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        RealFiles.glob(pattern)
    }
}

/// Builds for an editor: at each keystroke no name server and no writer of a pipe is waited for, and no log is made, whose
/// name may be half written.
pub(super) fn without_effects<R>(build: impl FnOnce() -> R) -> R {
    LogFile::discard_during(|| without_name_servers(build))
}

/// The configuration that `path` is or belongs to: itself if it has `events` or `http`; otherwise one of the usual name in
/// a directory around it that includes it.
fn find_main(path: &Path, files: &dyn ConfFiles) -> Option<PathBuf> {
    let text = files.read(path).ok()?;
    let tree = readable(read_one(path, &text, is_lua_block));
    if tree.lines.iter().any(|line| line.name.is("events") || line.name.is("http")) {
        return Some(path.to_path_buf());
    }
    let mut candidates =
        path.ancestors().skip(1).flat_map(|directory| NAMES.map(|name| directory.join(name)));
    candidates.find(|main| main != path && includes(main, path, files))
}

/// Whether the configuration `main` is `path` or reads it.
fn includes(main: &Path, path: &Path, files: &dyn ConfFiles) -> bool {
    if main == path {
        return true;
    }
    if files.read(main).is_err() {
        return false;
    }
    let tree = readable(load(main, &prefix_of(main), files, is_lua_block, None));
    tree.source.files().iter().any(|file| file.path == path)
}

/// What was read, as far as it could be.
fn readable(read: Result<ConfTree, Box<LoadFailure>>) -> ConfTree {
    read.unwrap_or_else(|failure| failure.tree)
}

/// Usual names of the main file.
const NAMES: [&str; 4] = ["weir.conf", "nginx.conf", "conf/weir.conf", "conf/nginx.conf"];
