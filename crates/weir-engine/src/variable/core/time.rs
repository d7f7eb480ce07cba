//! Moments and durations, as of the turn of the loop that the request is handled in.

use weir_http::h1;

use crate::exchange::Exchange;
use crate::text::Text;

/// `$request_time`: since the first byte of the request.
pub(super) fn request(x: &mut Exchange) -> Option<Text> {
    let ms = weir_rt::now_ms().saturating_sub(x.start_ms);
    seconds(x, ms)
}

/// `$connection_time`: since the connection was accepted.
pub(super) fn connection(x: &mut Exchange) -> Option<Text> {
    let ms = weir_rt::now_ms().saturating_sub(x.connection.started_ms);
    seconds(x, ms)
}

/// `$msec`: seconds since 1970.
pub(super) fn msec(x: &mut Exchange) -> Option<Text> {
    let (whole, ms) = weir_rt::unix_time();
    seconds(x, whole * 1000 + u64::from(ms))
}

pub(super) fn iso8601(x: &mut Exchange) -> Option<Text> {
    let Exchange { arena, worker, .. } = x;
    Some(Text::Span(worker.dates(|dates| arena.push(dates.iso8601()))))
}

pub(super) fn local(x: &mut Exchange) -> Option<Text> {
    let Exchange { arena, worker, .. } = x;
    Some(Text::Span(worker.dates(|dates| arena.push(dates.local()))))
}

/// Milliseconds as seconds with three decimals.
fn seconds(x: &mut Exchange, ms: u64) -> Option<Text> {
    Some(Text::Span(x.arena.write(|out| h1::thousandths(out, ms))))
}
