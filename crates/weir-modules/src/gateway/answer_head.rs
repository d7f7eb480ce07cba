//! The head of a server's response as it was parsed, made the exchange's.

use weir_engine::{Exchange, Span};
use weir_http::h1::{BadResponse, ResponseHead};
use weir_upstream::protocol::IncomingHead;

/// What is wrong with the head at the start of `bytes`, in nginx's words.
pub(crate) fn complaint(head: &ResponseHead, bad: BadResponse, bytes: &[u8]) -> String {
    String::from_utf8_lossy(&head.log_message(bad, bytes)).into_owned()
}

/// Moves the head at the start of `bytes` into the arena of `x`; the status too, if its first line has one. Where the
/// body ends is for the caller to determine.
pub(crate) fn keep(x: &mut Exchange, bytes: &[u8], head: ResponseHead, incoming: &mut IncomingHead) {
    let base = x.arena.push(bytes.get(..head.len).unwrap_or_default()).start;
    let moved = |span: Span| Span { start: span.start + base, end: span.end + base };
    if head.status != 0 {
        incoming.status = head.status;
        // `HTTP/1.1 ` comes before it.
        incoming.reason = Some(moved(Span { start: 9, end: head.reason.end.max(12) }));
    }
    incoming.content_length = head.content_length;
    incoming.fields = head.fields;
    for field in &mut incoming.fields {
        field.name = moved(field.name);
        field.value = moved(field.value);
    }
}
