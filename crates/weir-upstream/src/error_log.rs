//! nginx's words for what goes wrong with servers.

use std::fmt::Display;
use std::io;

use weir_rt::SendError;
use weir_rt::file::errno_text;
use weir_trace::Cause;

use crate::config::failure_reason::{AttemptFailure, AttemptFault, FailureReason};
use crate::peer::Peer;
use weir_engine::exchange::Exchange;
use weir_engine::log::{self, LogLevel};

/// At level error, with the request's context and the server's.
pub(crate) fn error(x: &Exchange, message: &dyn Display) {
    x.log(LogLevel::Error, message);
}

/// A connection that could not be made.
pub(crate) fn connect(x: &Exchange, peer: &Peer, error: &io::Error) -> AttemptFault {
    if error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none() {
        return timed_out(x, Cause::ConnectTimeout, CONNECTING);
    }
    let errno = error.raw_os_error().unwrap_or(0);
    let text = errno_text(errno);
    // What the call itself says names the address; what the network says later does not.
    let at_once = peer.name.starts_with("unix:")
        || matches!(errno, EAGAIN | EACCES | EINVAL | ENETUNREACH | EADDRNOTAVAIL);
    let level = if !at_once || EXPECTED.contains(&errno) { LogLevel::Error } else { LogLevel::Crit };
    let to = if at_once { format!(" to {}", peer.name) } else { String::new() };
    x.log(level, &format_args!("connect(){to} failed ({errno}: {text}) while {CONNECTING}"));
    let cause = match errno {
        ECONNREFUSED => Cause::ConnectRefused,
        ETIMEDOUT => Cause::ConnectTimeout,
        _ => Cause::ConnectFailed,
    };
    AttemptFault { reason: FailureReason::ERROR, cause }
}

/// `upstream timed out (110: Connection timed out) while ...`
pub(crate) fn timed_out(x: &Exchange, cause: Cause, doing: &str) -> AttemptFault {
    error(x, &format_args!("upstream timed out (110: Connection timed out) while {doing}"));
    AttemptFault { reason: FailureReason::TIMEOUT, cause }
}

/// A server takes nothing of the request.
pub(crate) fn send_timed_out(x: &Exchange) -> AttemptFailure {
    AttemptFailure::Next(timed_out(x, Cause::SendTimeout, SENDING))
}

/// `recv() failed (104: Connection reset by peer) while ...`
pub(crate) fn receive(x: &Exchange, errno: i32) -> AttemptFault {
    let text = errno_text(errno);
    error(x, &format_args!("recv() failed ({errno}: {text}) while {READING_HEAD}"));
    AttemptFault { reason: FailureReason::ERROR, cause: Cause::ResetBeforeResponse }
}

/// A file with a request's body can't be read, or ended before its length.
pub(crate) fn lost_file(x: &Exchange, error: SendError) {
    let (level, words) = log::lost_file_words(error.file_errno());
    x.log(level, &format_args!("{words} while {SENDING}"));
}

/// The client left while a server was asked; at level info.
pub(crate) fn client_gone(doing: &str) -> String {
    format!(
        "epoll_wait() reported that client prematurely closed connection, so upstream connection is closed too while \
         {doing}"
    )
}

/// A failure took a server out of those that are asked.
pub(crate) fn disabled(x: &Exchange, doing: &str) {
    x.log(LogLevel::Warn, &format_args!("upstream server temporarily disabled while {doing}"));
}

const EAGAIN: i32 = 11;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const EADDRNOTAVAIL: i32 = 99;
const ENETDOWN: i32 = 100;
const ENETUNREACH: i32 = 101;
const ETIMEDOUT: i32 = 110;
pub(crate) const ECONNREFUSED: i32 = 111;
const EHOSTDOWN: i32 = 112;
const EHOSTUNREACH: i32 = 113;

/// What a server that is not there is expected to cause, as nginx sees it.
const EXPECTED: [i32; 6] = [EAGAIN, ENETDOWN, ENETUNREACH, ECONNREFUSED, EHOSTDOWN, EHOSTUNREACH];

/// What nginx's messages say was being done.
pub(crate) const CONNECTING: &str = "connecting to upstream";

pub(crate) const SENDING: &str = "sending request to upstream";

pub(crate) const READING_HEAD: &str = "reading response header from upstream";
