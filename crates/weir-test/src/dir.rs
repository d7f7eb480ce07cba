//! A temporary directory that goes away with its value.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// A new empty directory, removed with all it holds when dropped (kept when `WEIR_TEST_KEEP` is set).
///
/// Its path is short, since unix sockets inside it must fit in 107 bytes; it has no links in it, and is as long as that
/// of every other directory of the process, so that what differs between two servers is no length.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Makes the directory below the system's temporary directory.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    #[track_caller]
    #[expect(clippy::new_without_default, reason = "making a folder is no default value")]
    pub fn new() -> Self {
        // Servers that give up root must get at their files, whatever the umask of the user that runs the tests.
        UMASK.call_once(|| {
            let _ = weir_sys::process::set_umask(0o022);
        });
        let base = std::env::temp_dir();
        let base = base.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", base.display()));
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("weir-{}-{number:04}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Self { path },
                // Left over from a killed process of the same number.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("mkdir {}: {error}", path.display()),
            }
        }
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file, making the directories above it.
    ///
    /// # Panics
    /// When it cannot be written.
    #[track_caller]
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).unwrap_or_else(|error| panic!("mkdir {}: {error}", parent.display()));
        }
        fs::write(&path, content).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
        path
    }

    /// Reads a file as text (bytes that are no UTF-8 are replaced); a file that is not there is empty, since logs
    /// appear late.
    ///
    /// # Panics
    /// When it is there and cannot be read.
    #[must_use]
    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        let path = self.path.join(name);
        match fs::read(&path) {
            Ok(content) => String::from_utf8_lossy(&content).into_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => panic!("read {}: {error}", path.display()),
        }
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if std::env::var_os("WEIR_TEST_KEEP").is_some() {
            eprintln!("kept {}", self.path.display());
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}

static UMASK: Once = Once::new();

/// Tests of one process run at the same time.
static NEXT: AtomicU32 = AtomicU32::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_lives_as_long_as_its_value() {
        let dir = TempDir::new();
        let file = dir.write("a/b/c.txt", "x");
        assert_eq!(file.parent().and_then(Path::parent).and_then(Path::parent), Some(dir.path()));
        assert_eq!(dir.read("a/b/c.txt"), "x");
        assert_eq!(dir.read("nothing"), "");
        let path = dir.path().to_owned();
        assert_ne!(TempDir::new().path(), path);
        drop(dir);
        assert!(!path.exists() || std::env::var_os("WEIR_TEST_KEEP").is_some());
    }
}
