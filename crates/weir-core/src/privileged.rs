//! Small files that a configuration needs whole when it is built and that only root may read, as keys are.
//!
//! A module reads them by [`read`], never by itself. A master remembers what was read while it built a configuration
//! ([`collect`]) and passes it with the configuration; the server process, which may not read the files, builds the
//! same with these contents ([`give`]).

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Contents by path.
pub type Contents = HashMap<PathBuf, Vec<u8>>;

/// The whole of a file, or what was given for it.
///
/// # Errors
/// Those of the file system.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    if let Some(given) = mode().given.as_ref().and_then(|given| given.get(path)) {
        return Ok(given.clone());
    }
    let content = std::fs::read(path)?;
    if let Some(collected) = &mut mode().collected {
        collected.add(path, &content);
    }
    Ok(content)
}

/// Runs `build`, and returns with its result what [`read`] has read meanwhile. Not to be nested, nor for two threads at
/// once: a process builds one configuration at a time.
pub fn collect<R>(build: impl FnOnce() -> R) -> (R, Contents) {
    mode().collected = Some(Collected::default());
    let result = build();
    let collected = mode().collected.take().unwrap_or_default();
    (result, collected.contents())
}

/// What was read so far. Contents lie one behind the other: pieces of their own would leave holes between what a
/// configuration keeps of very many of them.
#[derive(Default)]
struct Collected {
    bytes: Vec<u8>,
    places: HashMap<PathBuf, Range<usize>>,
}

impl Collected {
    fn add(&mut self, path: &Path, content: &[u8]) {
        if self.places.get(path).is_some_and(|place| self.bytes[place.clone()] == *content) {
            return;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(content);
        self.places.insert(path.to_path_buf(), start..self.bytes.len());
    }

    fn contents(self) -> Contents {
        let Collected { bytes, places } = self;
        places.into_iter().map(|(path, place)| (path, bytes[place].to_vec())).collect()
    }
}

/// Until the result is dropped, [`read`] gives these contents for their paths.
pub fn give(contents: Contents) -> Given {
    mode().given = Some(contents);
    Given(())
}

/// Contents are given while it lives; see [`give`].
#[must_use = "the contents are given while it lives"]
pub struct Given(());

impl Drop for Given {
    fn drop(&mut self) {
        mode().given = None;
    }
}

struct Mode {
    collected: Option<Collected>,
    given: Option<Contents>,
}

fn mode() -> MutexGuard<'static, Mode> {
    static MODE: Mutex<Mode> = Mutex::new(Mode { collected: None, given: None });
    MODE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_can_be_given() {
        let folder = weir_test::TempDir::new();
        let path = folder.path().join("key");
        std::fs::write(&path, "key").expect("ours");
        let (content, collected) = collect(|| read(&path).expect("there"));
        assert_eq!(content, b"key");
        // What other tests have read meanwhile is there, too.
        assert_eq!(collected.get(&path).map(Vec::as_slice), Some(&b"key"[..]));
        std::fs::remove_file(&path).expect("ours");
        assert!(read(&path).is_err());
        let given = give(collected);
        assert_eq!(read(&path).expect("given"), b"key");
        drop(given);
        assert!(read(&path).is_err());
    }
}
