//! Lines of level debug: what a connection and a request said, where they led, what they passed and how long that took.
//!
//! The level is looked at once when a connection is accepted, once when a request's head was read and once when it is
//! over; everything else is cold. The boundaries that a request passed are those of its trace, so they are listed at its
//! end; what is still in flight is shown by `weir reqs`.

use weir_rt::clock;
use weir_trace::SiteTable;
use weir_trace::render::flow;

use crate::exchange::Exchange;
use crate::log::LogLevel;
use crate::transport::ClientConnection;

/// A connection was accepted.
#[inline]
pub fn accepted(connection: &ClientConnection) {
    let wanted = connection.debug || {
        let hosts = connection.hosts.borrow();
        hosts.default().plan.core.error_log.enabled(LogLevel::Debug)
    };
    if wanted {
        tell_accepted(connection);
    }
}

#[cold]
fn tell_accepted(connection: &ClientConnection) {
    let (peer, fd) = (&connection.peer, connection.fd);
    connection.log(LogLevel::Debug, &format_args!("accept: {peer} fd:{fd}"));
}

/// A request's head was read, and its server is chosen.
#[inline]
pub fn begun(x: &Exchange) {
    if wanted(x) {
        tell_head(x);
    }
}

#[cold]
fn tell_head(x: &Exchange) {
    let say = |what: &str, text: &[u8]| {
        x.log(LogLevel::Debug, &format_args!("http {what}: \"{}\"", String::from_utf8_lossy(text)));
    };
    say("request line", x.arena.get(x.request.head.line));
    for field in &x.request.head.fields {
        let line = [x.arena.get(field.name), b": ", x.arena.get(field.value)].concat();
        say("header", &line);
    }
    say("uri", x.uri());
    say("args", x.args());
    say("exten", x.arena.get(x.request.exten));
}

/// A request is over.
#[inline]
pub(crate) fn ended(x: &Exchange) {
    if wanted(x) {
        tell_end(x);
    }
}

#[cold]
fn tell_end(x: &Exchange) {
    let location = &x.plan.name;
    x.log(LogLevel::Debug, &format_args!("using configuration \"{location}\""));
    let scale = clock::scale();
    let ns = |ticks| scale.ticks_to_ns(ticks);
    let passed = x.shared.events(|events| flow(events, SiteTable::global(), &ns));
    for line in passed.lines() {
        x.log(LogLevel::Debug, &format_args!("trace: {line}"));
    }
    let (status, uri) = (x.response.status, String::from_utf8_lossy(x.uri()));
    let (args, sent) = (String::from_utf8_lossy(x.args()), x.bytes_sent());
    x.log(LogLevel::Debug, &format_args!("http finalize request: {status}, \"{uri}?{args}\" sent:{sent}"));
}

#[inline]
fn wanted(x: &Exchange) -> bool {
    x.plan.core.error_log.enabled(LogLevel::Debug) || x.connection.debug
}
