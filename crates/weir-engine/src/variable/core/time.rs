//! Moments and durations, as of the turn of the loop that the request is handled in.

use weir_http::h1;

use crate::exchange::Exchange;
use crate::text::Text;

/// `$request_time`: since the first byte of the request.
pub(super) fn request(x: &mut Exchange) -> Option<Text> {
    let ms = weir_rt::now_ms().saturating_sub(x.start_ms);
    seconds(x, ms / 1000, ms % 1000)
}

/// `$connection_time`: since the connection was accepted.
pub(super) fn connection(x: &mut Exchange) -> Option<Text> {
    let ms = weir_rt::now_ms().saturating_sub(x.connection.started_ms);
    seconds(x, ms / 1000, ms % 1000)
}

/// `$msec`: seconds since 1970.
pub(super) fn msec(x: &mut Exchange) -> Option<Text> {
    let (whole, ms) = weir_rt::unix_time();
    seconds(x, whole, u64::from(ms))
}

pub(super) fn iso8601(x: &mut Exchange) -> Option<Text> {
    let Exchange { arena, worker, .. } = x;
    Some(Text::Span(worker.dates(|dates| arena.push(dates.iso8601()))))
}

pub(super) fn local(x: &mut Exchange) -> Option<Text> {
    let Exchange { arena, worker, .. } = x;
    Some(Text::Span(worker.dates(|dates| arena.push(dates.local()))))
}

/// Seconds with three decimals.
fn seconds(x: &mut Exchange, whole: u64, ms: u64) -> Option<Text> {
    let digit = |power| b'0' + (ms / power % 10) as u8;
    Some(Text::Span(x.arena.write(|out| {
        h1::number(out, whole);
        out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
    })))
}
