//! Whether a connection takes another request, as the settings of the request's location have it, and what is logged
//! when none comes.

use weir_http::{KnownField, Method};
use weir_rt::RecvOutcome;

use super::wire::ClientWire;
use super::{ClientConnection, closing};
use crate::agent;
use crate::exchange::Exchange;
use crate::log::{self, LogLevel};
use crate::settings::location::CoreSettings;
use crate::worker::Worker;

/// Applies the settings of the location that was just found, or of the server that an internal redirect begins again in: nothing of
/// the server's own counts before, and a location that ends keep-alive ends it for the ones that the request is redirected to.
pub(crate) fn update(x: &mut Exchange) {
    if x.keep_alive && !x.is_subrequest() && ends(x, &x.plan.core, x.connection.requests.get()) {
        x.keep_alive = false;
    }
}

/// What the connection itself says, whatever the location.
#[inline]
pub fn possible(x: &Exchange) -> bool {
    x.worker.keeps_connections() && !x.connection.is_retired()
}

/// Whether the connection may be kept alive as things are when the head of the response is made: a reload or the end of the server
/// may have come since the request's head was read. What is responded before a location is found has no other settings to end by
/// ([`update`]) than that a connection with no time to wait in does not wait, as in nginx; which says that it is kept, though.
#[inline]
pub(crate) fn lasts(x: &Exchange) -> bool {
    possible(x) && x.plan.core.keepalive_timeout > 0
}

/// Notes and logs why a connection ends that was waiting for a request: `gone` is what came instead of it. Nothing is logged
/// where the server itself ends it; a file that can't be sent is logged by [`lost_file`].
#[cold]
pub fn gone(connection: &ClientConnection, worker: &Worker, wire: &ClientWire, gone: &RecvOutcome) {
    if let Some(lost) = closing::of_lost_file(wire) {
        return connection.ends(lost);
    }
    connection.ends(closing::while_idle(connection, worker, gone));
    if worker.is_stopping() || connection.is_retired() {
        return;
    }
    let first = connection.requests.get() == 0;
    let host = connection.peer.host();
    match *gone {
        RecvOutcome::Eof if first => {
            connection.log(LogLevel::Info, &"client closed connection while waiting for request");
        }
        RecvOutcome::Eof => {
            connection.log_idle(LogLevel::Info, &format_args!("client {host} closed keepalive connection"));
        }
        RecvOutcome::TimedOut if first => {
            let message = "client timed out (110: Connection timed out) while waiting for request";
            connection.log(LogLevel::Info, &message);
        }
        RecvOutcome::Err(errno) if first => {
            let reason = weir_rt::file::errno_text(errno);
            let message = format_args!("recv() failed ({errno}: {reason}) while waiting for request");
            connection.log(LogLevel::Info, &message);
        }
        RecvOutcome::Err(errno) => {
            let reason = weir_rt::file::errno_text(errno);
            let message = format_args!("client {host} closed keepalive connection ({errno}: {reason})");
            connection.log_idle(LogLevel::Info, &message);
        }
        RecvOutcome::TimedOut | RecvOutcome::Data(_) => {}
    }
}

/// Logs that what a connection was to send of a file could not be read, if that is so and no request has waited for it: a
/// response that fits into the connection's own buffers is over before its file is read.
#[cold]
pub fn lost_file(connection: &ClientConnection, wire: &ClientWire) {
    let Some(error) = wire.stream.file_error().filter(|_| !wire.file_is_reported.get()) else { return };
    let (level, words) = log::lost_file_words(error.file_errno());
    connection.log(level, &format_args!("{words} while sending response to client"));
}

/// Whether a connection ends because of the status of a response: the client can't be trusted to have its framing right.
pub(crate) fn closes(code: u16) -> bool {
    matches!(code, 400 | 413 | 414 | 495..=497 | 500 | 501)
}

/// Whether a location with these settings ends the connection after `x`, which is its `nth` request.
#[inline(always)]
pub(crate) fn ends(x: &Exchange, core: &CoreSettings, nth: u64) -> bool {
    let age = x.start_ms.saturating_sub(x.connection.started_ms);
    core.keepalive_timeout == 0
        || nth >= core.keepalive_requests
        || age > core.keepalive_time
        || (core.keepalive_disable_msie6 && x.request.head.method == Method::Post && agent::msie6(browser(x)))
        || (core.keepalive_disable_safari && agent::safari(browser(x)))
}

fn browser(x: &Exchange) -> &[u8] {
    x.request.value(&x.arena, KnownField::UserAgent).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::testing;

    /// Whether the connection, which is in its second request, is kept alive after `head` under `http`.
    fn kept(http: &str, head: &str) -> bool {
        testing::run(http, head, async |x| x.keep_alive)
    }

    #[test]
    fn a_location_says_how_long_a_connection_is_kept() {
        let get = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
        for (server, location, keeps) in [
            ("", "", true),
            ("keepalive_requests 2;", "", false),
            ("keepalive_requests 2;", "keepalive_requests 4;", true),
            ("", "keepalive_requests 2;", false),
            ("", "keepalive_timeout 0;", false),
            ("keepalive_timeout 0;", "keepalive_timeout 1;", true),
        ] {
            let http = format!("server {{ listen 80; {server} location /a {{ {location} }} }}");
            assert_eq!(kept(&http, get), keeps, "{http}");
        }
    }

    #[test]
    fn old_browsers_are_not_trusted_with_a_connection() {
        let http = |disable: &str| format!("server {{ listen 80; {disable} }}");
        let head = |method: &str, agent: &str| {
            format!("{method} / HTTP/1.1\r\nHost: h\r\nUser-Agent: {agent}\r\n\r\n")
        };
        let (ie, mac) = ("MSIE 5.0", "Mac OS X Safari/7534.48.3");
        assert!(!kept(&http(""), &head("POST", ie)));
        assert!(kept(&http(""), &head("GET", ie)) && kept(&http(""), &head("GET", mac)));
        assert!(kept(&http("keepalive_disable none;"), &head("POST", ie)));
        assert!(!kept(&http("keepalive_disable safari;"), &head("GET", mac)));
    }
}
