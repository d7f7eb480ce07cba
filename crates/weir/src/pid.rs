//! The pid file: written when the server is ready, read by `-s` and `weir trace`, removed at the end.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A pid file that goes with its owner.
pub(crate) struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes this process' number.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn write(path: PathBuf) -> io::Result<PidFile> {
        // A server in the background has no umask: the mode is the whole truth.
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o644).open(&path)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(PidFile { path })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // That somebody removed it already is no news.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The number in a pid file.
///
/// # Errors
/// The file can't be read, or holds no number.
pub(crate) fn read(path: &Path) -> io::Result<i32> {
    let text = std::fs::read_to_string(path)?;
    let invalid =
        || io::Error::new(io::ErrorKind::InvalidData, format!("invalid PID number \"{}\"", text.trim()));
    text.trim().parse().map_err(|_| invalid())
}

/// Where the control socket of the server with that pid file stands.
pub(crate) fn socket(pid: &Path) -> PathBuf {
    let mut name = pid.file_name().unwrap_or_default().to_owned();
    name.push(".sock");
    pid.with_file_name(name)
}
