//! `weir -t --fix`: writes what can be mended mechanically.
//!
//! One mending after the other is tried in memory: the configuration with it must have no error and no warning more than
//! before. Files are written at the end, when all of that is known.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};
use std::path::PathBuf;

use weir::check::ConfFindings;
use weir_conf::{ConfSource, DiagnosticFix, Error, LevelName, OverlaidFiles, RealFiles, apply_edits};
use weir_see::commands::TextStyle;

use crate::cli::MendingMode;
use crate::load::ConfLocation;
use crate::{diff, rewrite};

/// Mends the files of a configuration, or shows how.
///
/// # Errors
/// A file can't be written; those before it are.
pub(crate) fn run(location: &ConfLocation, mode: MendingMode) -> Result<(), String> {
    let mut mended = MendedFiles::default();
    mended.mend_all(location);
    let failed = |path: &PathBuf, error: io::Error| format!("\"{}\": {error}", path.display());
    for (path, new) in &mended.files.texts {
        let old = &mended.originals[path];
        let shown = diff::unified(&path.display().to_string(), [old, new], TextStyle::of_stdout());
        // Who does not read the differences wants the files all the same.
        let _ = io::stdout().write_all(&shown);
        if mode == MendingMode::Write {
            rewrite::rewrite(path, old, new).map_err(|error| failed(path, error))?;
        }
    }
    for change in mended.changes {
        match mode {
            MendingMode::Write => say!("weir: {change}"),
            MendingMode::Show => say!("weir: \"--fix\" changes {change}"),
        }
    }
    Ok(())
}

/// What mending has come to.
#[derive(Default)]
struct MendedFiles {
    /// The files, with the new texts of those that change.
    files: OverlaidFiles<RealFiles>,
    /// The texts as they were read.
    originals: BTreeMap<PathBuf, Vec<u8>>,
    /// `FILE:LINE: what`, in their order.
    changes: Vec<String>,
}

impl MendedFiles {
    fn mend_all(&mut self, location: &ConfLocation) {
        let mut refused = HashSet::new();
        let mut now = location.findings(&self.files);
        while self.changes.len() + refused.len() < MOST {
            let next = now.found.iter().find_map(|found| {
                let name = found.headline(&now.tree.source);
                found.fix.as_deref().filter(|_| !refused.contains(&name)).map(|fix| (name, found, fix))
            });
            let Some((name, found, fix)) = next else { return };
            let tried = self.with(fix, &now.tree.source).map(|files| (location.findings(&files), files));
            match tried {
                Some((then, files)) if is_no_worse(&then, &now) => {
                    self.changes.extend(change(found, fix, &now.tree.source));
                    self.note_originals(&files, &now.tree.source);
                    (self.files, now) = (files, then);
                }
                _ => {
                    refused.insert(name);
                }
            }
        }
    }

    /// The files with the edits; `None` where they can't be made.
    fn with(&self, fix: &DiagnosticFix, source: &ConfSource) -> Option<OverlaidFiles<RealFiles>> {
        let mut files = self.files.clone();
        let changed: HashSet<_> = fix.edits.iter().map(|edit| edit.span.file).collect();
        for id in changed {
            let file = source.file(id).filter(|file| !file.parameter)?;
            let edits = fix.edits.iter().filter(|edit| edit.span.file == id);
            files.texts.insert(file.path.clone(), apply_edits(&file.text, edits)?);
        }
        Some(files)
    }

    /// Retains what a file contained before its first change; `source` has the texts before this one.
    fn note_originals(&mut self, files: &OverlaidFiles<RealFiles>, source: &ConfSource) {
        for path in files.texts.keys() {
            let read = source.files().iter().find(|file| !file.parameter && file.path == *path);
            if let Some(read) = read {
                self.originals.entry(path.clone()).or_insert_with(|| read.text.to_vec());
            }
        }
    }
}

/// Whether there are no more errors, no more warnings, and no error in other words.
fn is_no_worse(then: &ConfFindings, now: &ConfFindings) -> bool {
    let errors = |findings: &ConfFindings| -> Vec<String> {
        let errors = findings.found.iter().filter(|found| found.level == LevelName::Emerg);
        errors.map(|error| error.message.clone()).collect()
    };
    let (new, old) = (errors(then), errors(now));
    new.len() <= old.len()
        && then.found.len() < now.found.len()
        && new.iter().all(|message| old.contains(message))
}

/// `FILE:LINE: what`; nothing where the finding has no place.
fn change(found: &Error, fix: &DiagnosticFix, source: &ConfSource) -> Option<String> {
    let place = source.place(found.span?)?;
    Some(format!("{}:{}: {}", place.path.display(), place.line, fix.about))
}

/// Mendings tried: each costs a reading of the configuration.
const MOST: usize = 1000;
