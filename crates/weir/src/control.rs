//! The control socket's place: beside the pid file, through which the `weir` command asks a running server.
//!
//! What is spoken on it, and the threads that respond, are `weir-see`'s.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use weir_engine::log::{self, LogLevel};
use weir_see::{ServerSource, control_server};

use crate::pid;

/// Opens the socket beside `pid`, readable and writable for the owner of this process alone, or for `owner`, and root.
/// A server without control socket serves all the same: the reason is logged.
pub(crate) fn bind(pid: &Path, owner: Option<u32>) -> Option<UnixListener> {
    let path = pid::socket(pid);
    // One left by a server that was killed; a living one has its pid file, and the address would be in use.
    let _ = std::fs::remove_file(&path);
    let listener = weir_rt::file::bind_private(&path, owner);
    let refused = |error| {
        log::cycle(LogLevel::Warn, &format_args!("no control socket \"{}\": {error}", path.display()));
    };
    listener.map_err(refused).ok()
}

/// Responds on `listener` until the process ends.
pub(crate) fn serve(listener: UnixListener, source: &Arc<ServerSource>) {
    if let Err(error) = control_server::serve(listener, source.clone()) {
        log::cycle(LogLevel::Warn, &format_args!("nobody answers on the control socket: {error}"));
    }
}
