//! The control socket's place: beside the pid file, through which the `weir` command asks a running server.
//!
//! What is spoken on it, and the threads that respond, are `weir-see`'s.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_engine::log::{self, LogLevel};
use weir_see::ServerSource;
use weir_see::control_server::{self, OwnQuestions};

use crate::orphan::OrphanOffer;

/// Opens the socket at `path`, readable and writable for the owner of this process alone, or for `owner`, and root.
/// A server without control socket serves all the same: the reason is logged.
pub(crate) fn bind(path: &Path, owner: Option<u32>) -> Option<UnixListener> {
    // One left by a server that was killed; a living one has its pid file, and the address would be in use.
    let _ = std::fs::remove_file(path);
    let listener = weir_rt::file::bind_private(path, owner);
    let refused = |error| {
        log::cycle(LogLevel::Warn, &format_args!("no control socket \"{}\": {error}", path.display()));
    };
    listener.map_err(refused).ok()
}

/// A name for a socket that takes its place at `path` later, with [`take_place`].
pub(crate) fn beside(path: &Path) -> PathBuf {
    path.with_extension("next")
}

/// The socket that was bound beside `path` is that one's from now on.
pub(crate) fn take_place(path: &Path) {
    if let Err(error) = std::fs::rename(beside(path), path) {
        log::cycle(LogLevel::Warn, &format_args!("no control socket \"{}\": {error}", path.display()));
    }
}

/// Responds on `listener` until the process ends; to the next master by `offer`.
pub(crate) fn serve(listener: UnixListener, source: &Arc<ServerSource>, offer: &OrphanOffer) {
    let offer = offer.clone();
    let own: OwnQuestions =
        Arc::new(move |question: &_, peer, stream: &_| offer.respond(question, peer, stream));
    if let Err(error) = control_server::serve(listener, source.clone(), own) {
        log::cycle(LogLevel::Warn, &format_args!("nobody answers on the control socket: {error}"));
    }
}
