//! The control socket's place: beside the pid file, through which the `weir` command asks a running server.
//!
//! What is spoken on it, and the threads that answer, are `weir-see`'s.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_core::log::{self, Level};
use weir_see::{Source, control};

use crate::pid;

/// The socket; gone when dropped.
pub(crate) struct Control {
    path: PathBuf,
}

impl Control {
    /// Opens the socket beside `pid`, readable and writable for its owner alone.
    ///
    /// # Errors
    /// Those of bind(2) and chmod(2).
    pub(crate) fn bind(pid: &Path) -> std::io::Result<(UnixListener, Control)> {
        let path = pid::socket(pid);
        // One left by a server that was killed; a living one has its pid file, and the address would be in use.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok((listener, Control { path }))
    }

    /// Listens beside `pid`. A server without control socket serves all the same: the reason is logged.
    pub(crate) fn start(pid: &Path, source: &Arc<Source>) -> Option<Control> {
        let started = Control::bind(pid).and_then(|(listener, control)| {
            control::serve(listener, source.clone())?;
            Ok(control)
        });
        started
            .inspect_err(|error| {
                let path = pid::socket(pid);
                log::cycle(Level::Warn, &format_args!("no control socket \"{}\": {error}", path.display()));
            })
            .ok()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The threads end with the process; the name must not outlive it.
        let _ = std::fs::remove_file(&self.path);
    }
}
