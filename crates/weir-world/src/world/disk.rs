//! The disk of a machine that loses power: what was not synced may be gone.
//!
//! The names of files are as they were at some moment: a journal keeps the order of what was made, renamed and removed. Of a
//! file's bytes since it was synced last each block may be there or not, and the length may be the old one, the new one, or one between.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weir_sim::draw::Draw;
use weir_sim::files::KINDS;

/// Bytes that are written as one, or not.
const BLOCK: usize = 4096;

/// A change of names that may be undone.
#[derive(Debug)]
enum NameChange {
    Made(PathBuf),
    /// What was there has another link.
    Moved(PathBuf, PathBuf, Option<PathBuf>),
    Removed(PathBuf, PathBuf),
}

/// What the disk has.
#[derive(Debug)]
pub(crate) struct SimDisk {
    directory: PathBuf,
    draw: Draw,
    /// By the number of its node: what was in a file when it was synced last.
    durable: BTreeMap<u64, Vec<u8>>,
    changes: Vec<NameChange>,
    saved: u64,
}

impl SimDisk {
    pub(super) fn new(directory: &str, draw: Draw) -> SimDisk {
        let directory = PathBuf::from(directory);
        SimDisk { directory, draw, durable: BTreeMap::new(), changes: Vec::new(), saved: 0 }
    }

    /// The file at `path` was opened to be written; `is_new`: it was made.
    pub(crate) fn opened(&mut self, path: &Path, is_new: bool) {
        let Ok(meta) = fs::metadata(path) else { return };
        if is_new {
            self.changes.push(NameChange::Made(path.to_owned()));
            self.durable.insert(meta.ino(), Vec::new());
        } else if meta.is_file() && !self.durable.contains_key(&meta.ino()) {
            self.durable.insert(meta.ino(), fs::read(path).unwrap_or_default());
        }
    }

    /// All of an open file is on the disk.
    pub(crate) fn synced(&mut self, fd: i32) {
        let path = PathBuf::from(format!("/proc/self/fd/{fd}"));
        if let (Ok(meta), Ok(content)) = (fs::metadata(&path), fs::read(&path)) {
            self.durable.insert(meta.ino(), content);
        }
    }

    /// Another link of the file at `path`, which is about to be removed or replaced; `None` without one.
    pub(crate) fn save(&mut self, path: &Path) -> Option<PathBuf> {
        let lost = self.directory.join("lost");
        if fs::create_dir_all(&lost).is_err() {
            return None;
        }
        self.saved += 1;
        let link = lost.join(self.saved.to_string());
        fs::hard_link(path, &link).ok().map(|()| link)
    }

    /// A file was renamed; what it has replaced was saved.
    pub(crate) fn moved(&mut self, from: &Path, to: &Path, saved: Option<PathBuf>) {
        self.changes.push(NameChange::Moved(from.to_owned(), to.to_owned(), saved));
    }

    /// A file was removed, and saved before.
    pub(crate) fn removed(&mut self, path: &Path, saved: PathBuf) {
        self.changes.push(NameChange::Removed(path.to_owned(), saved));
    }

    /// Power is lost. What can't be undone stays as it is: a directory may be gone.
    pub(super) fn lose_power(&mut self) {
        let all = self.changes.len() as u64;
        let stay = if self.draw.chance(1, 2) { all } else { self.draw.between(0, all) };
        for change in self.changes.drain(stay as usize..).rev() {
            let _undone = match change {
                NameChange::Made(path) => fs::remove_file(path),
                NameChange::Removed(path, saved) => fs::rename(saved, path),
                NameChange::Moved(from, to, saved) => {
                    let back = fs::rename(&to, from);
                    saved.map_or(back, |saved| fs::rename(saved, to))
                }
            };
        }
        let _gone = fs::remove_dir_all(self.directory.join("lost"));
        for path in self.files() {
            let durable = fs::metadata(&path).ok().and_then(|meta| self.durable.get(&meta.ino()).cloned());
            if let (Some(durable), Ok(content)) = (durable, fs::read(&path)) {
                let left = self.left(&durable, content);
                let _written = fs::write(&path, left);
            }
        }
    }

    /// What is left of a file that had these bytes when it was synced, and has others now.
    fn left(&mut self, durable: &[u8], content: Vec<u8>) -> Vec<u8> {
        if durable == content || self.draw.chance(1, 3) {
            return content;
        }
        let (least, most) = (durable.len().min(content.len()), durable.len().max(content.len()));
        let between = self.draw.between(least as u64, most as u64) as usize;
        let length = *self.draw.one_of(&[durable.len(), content.len(), content.len(), between]);
        let mut left = vec![0; length];
        for at in (0..length).step_by(BLOCK) {
            let from = if self.draw.chance(1, 2) { durable } else { content.as_slice() };
            let some = from.get(at..from.len().min(at + BLOCK).min(length)).unwrap_or_default();
            if let Some(place) = left.get_mut(at..at + some.len()) {
                place.copy_from_slice(some);
            }
        }
        left
    }

    /// All files of the server that have a kind, in the order of their names.
    fn files(&self) -> Vec<PathBuf> {
        let mut ways: Vec<PathBuf> = KINDS.iter().map(|(.., begin)| self.directory.join(begin)).collect();
        let mut files = Vec::new();
        while let Some(way) = ways.pop() {
            match fs::read_dir(&way) {
                Ok(entries) => ways.extend(entries.flatten().map(|entry| entry.path())),
                Err(_) => files.push(way),
            }
        }
        files.sort();
        files
    }
}
