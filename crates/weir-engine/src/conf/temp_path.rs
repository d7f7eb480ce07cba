//! Directories of temporary files: the directives that name them (`client_body_temp_path` and its like), and how they
//! are made before the server runs.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_conf::{LineCx, Result, parse_number};
use weir_rt::file::open_trusted_dir;

use super::Configuration;

/// One directory, as a directive names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TempPath {
    /// The path of the directory.
    pub path: Arc<PathBuf>,
    /// How many characters of a file's number name the directory of each level; 0: no such level.
    pub levels: [u8; 3],
}

impl TempPath {
    /// `path [level1 [level2 [level3]]]`, once in a block.
    ///
    /// # Errors
    /// nginx's words: `"x" directive is duplicate`, and `"x" directive invalid value` for levels whose names would be
    /// longer than the ten digits of a file.
    pub fn set(slot: &mut Option<TempPath>, line: &mut LineCx<'_>) -> Result {
        let mut path = None;
        line.path(&mut path)?;
        let mut levels = [0; 3];
        for (i, level) in (1..line.args().len()).zip(&mut levels) {
            let number = parse_number(line.bytes(i)).filter(|n| (1..=LEVELS_TOTAL).contains(n));
            *level = number.ok_or_else(|| line.refuse_arg(i, "invalid value"))? as u8;
        }
        if levels.iter().map(|level| u64::from(*level)).sum::<u64>() > LEVELS_TOTAL {
            return Err(line.refuse("invalid value"));
        }
        let path = Arc::new(path.unwrap_or_default());
        line.once(slot, TempPath { path, levels })
    }
}

/// All directories of temporary files that a configuration names. Modules add theirs when they resolve; the caller that
/// starts the server creates them with [`create`].
#[derive(Debug, Default)]
pub struct TempPaths(pub Vec<Arc<PathBuf>>);

impl TempPaths {
    /// Adds the directory at `path`, unless it is there already.
    pub fn add(&mut self, path: &Arc<PathBuf>) {
        if !self.0.contains(path) {
            self.0.push(path.clone());
        }
    }
}

/// Makes the directories that are missing, mode 0700. When root starts the server for a `user`, all of them are that
/// user's afterwards.
///
/// # Errors
/// What nginx says of the first that can't be made: `mkdir() "/path" failed (2: No such file or directory)`.
pub fn create(configuration: &Configuration) -> std::result::Result<(), String> {
    let owner = configuration.main.run_as().map(|(user, _)| user.uid);
    let sections = configuration.sections().filter_map(|section| section.shared::<TempPaths>());
    for path in sections.flat_map(|paths| &paths.0) {
        make(path)?;
        if let Some(uid) = owner {
            give(path, uid)?;
        }
    }
    Ok(())
}

fn make(path: &Path) -> std::result::Result<(), String> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed("mkdir", path, &error)),
        _ => Ok(()),
    }
}

fn give(path: &Path, uid: u32) -> std::result::Result<(), String> {
    // What is given away is what was opened, and no link that the user has put there leads to it.
    let directory = open_trusted_dir(path).map_err(|error| failed("open", path, &error))?;
    let meta = directory.metadata().map_err(|error| failed("stat", path, &error))?;
    if meta.uid() != uid {
        std::os::unix::fs::fchown(&directory, Some(uid), None)
            .map_err(|error| failed("chown", path, &error))?;
    }
    let mode = meta.permissions().mode();
    if mode & 0o700 != 0o700 {
        let mode = fs::Permissions::from_mode(mode | 0o700);
        directory.set_permissions(mode).map_err(|error| failed("chmod", path, &error))?;
    }
    Ok(())
}

fn failed(call: &str, path: &Path, error: &io::Error) -> String {
    let errno = error.raw_os_error().unwrap_or(0);
    let reason = weir_rt::file::errno_text(errno);
    format!("{call}() \"{}\" failed ({errno}: {reason})", path.display())
}

/// The characters of all levels together, as nginx limits them: its file numbers have ten digits.
const LEVELS_TOTAL: u64 = 10;

#[cfg(test)]
mod tests {
    use weir_test::TempDir;

    use super::*;

    #[test]
    fn directories_are_made_private_and_only_one_deep() {
        let directory = TempDir::new();
        let base = directory.path().join("base");
        make(&base).expect("nothing there");
        make(&base).expect("it is there");
        assert_eq!(fs::metadata(&base).expect("made").permissions().mode() & 0o777, 0o700);
        let deep = base.join("a/b");
        let words = format!("mkdir() \"{}\" failed (2: No such file or directory)", deep.display());
        assert_eq!(make(&deep), Err(words));
    }

    #[test]
    fn a_directory_becomes_usable_for_its_owner() {
        let directory = TempDir::new();
        let base = directory.path().join("base");
        make(&base).expect("nothing there");
        let uid = fs::metadata(&base).expect("made").uid();
        fs::set_permissions(&base, fs::Permissions::from_mode(0o500)).expect("ours");
        give(&base, uid).expect("ours");
        assert_eq!(fs::metadata(&base).expect("there").permissions().mode() & 0o777, 0o700);
    }
}
