//! nginx's words for what goes wrong with servers.

use std::fmt::Display;
use std::io;

use weir_rt::file::errno_text;

use super::reason::Reason;
use crate::exchange::Exchange;
use crate::log::Level;

/// At level error, with the request's context and the server's.
pub(super) fn error(x: &Exchange, message: &dyn Display) {
    x.log(Level::Error, message);
}

/// A connection that could not be made; why, as `*_next_upstream` sees it.
pub(super) fn connect(x: &Exchange, error: &io::Error) -> Reason {
    if error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none() {
        return timed_out(x, "connecting to upstream");
    }
    let errno = error.raw_os_error().unwrap_or(0);
    let level = if errno == 11 { Level::Crit } else { Level::Error };
    x.log(
        level,
        &format_args!("connect() failed ({errno}: {}) while connecting to upstream", errno_text(errno)),
    );
    Reason::ERROR
}

/// `upstream timed out (110: Connection timed out) while ...`
pub(super) fn timed_out(x: &Exchange, doing: &str) -> Reason {
    error(x, &format_args!("upstream timed out (110: Connection timed out) while {doing}"));
    Reason::TIMEOUT
}

/// `recv() failed (104: Connection reset by peer) while ...`
pub(super) fn receive(x: &Exchange, errno: i32) {
    let text = errno_text(errno);
    error(x, &format_args!("recv() failed ({errno}: {text}) while reading response header from upstream"));
}

/// The client left while a server was asked.
pub(super) fn client_gone(x: &Exchange) {
    x.log(Level::Info, &"epoll_wait() reported that client prematurely closed connection, so upstream connection is closed too while waiting for request");
}
