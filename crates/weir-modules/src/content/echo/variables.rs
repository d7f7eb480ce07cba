//! What can be asked of a request that is echoed.

use std::cell::Cell;

use weir_engine::variable::Variable;
use weir_engine::{Exchange, Text};
use weir_http::{Span, Version, h1};

pub(super) const VARIABLES: &[Variable] = &[
    Variable::new("echo_timer_elapsed", elapsed).volatile(),
    Variable::new("echo_request_method", |x| Some(Text::Span(x.request.head.method_span))).volatile(),
    Variable::new("echo_client_request_method", client_method),
    Variable::new("echo_request_uri", request_uri).volatile(),
    Variable::new("echo_cacheable_request_uri", request_uri),
    Variable::new("echo_request_body", request_body).volatile(),
    Variable::new("echo_client_request_headers", request_head).volatile(),
    Variable::new("echo_response_status", response_status).volatile(),
    Variable::new("echo_incr", incr).volatile(),
    Variable::new("echo_it", it).volatile(),
];

/// When the timer was set, in the worker's milliseconds.
#[derive(Default)]
pub(super) struct EchoTimer(pub(super) Option<u64>);

/// The part that `echo_foreach_split` is at.
#[derive(Default)]
pub(super) struct EchoIt(pub(super) Option<Vec<u8>>);

/// How often `$echo_incr` was asked for, by the request and its subrequests.
#[derive(Default)]
struct EchoCount(Cell<u64>);

/// Seconds since the request began, or the timer was reset.
fn elapsed(x: &mut Exchange) -> Option<Text> {
    let since = x.state_if::<EchoTimer>().and_then(|timer| timer.0).unwrap_or(x.start_ms);
    let ms = weir_rt::now_ms().saturating_sub(since);
    Some(Text::Span(x.arena.write(|out| h1::thousandths(out, ms))))
}

/// The method that the client sent, whatever a subrequest's is: the beginning of its request line.
fn client_method(x: &mut Exchange) -> Option<Text> {
    let line = x.arena.get(x.request.head.line);
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let method = line[..end].to_vec();
    Some(Text::Span(x.arena.push(&method)))
}

/// Path and arguments, a subrequest's own.
fn request_uri(x: &mut Exchange) -> Option<Text> {
    let mut uri = x.uri().to_vec();
    if !x.args().is_empty() {
        uri.push(b'?');
        uri.extend_from_slice(x.args());
    }
    Some(Text::Span(x.arena.push(&uri)))
}

fn request_body(x: &mut Exchange) -> Option<Text> {
    let body = x.body.memory().to_vec();
    (!body.is_empty()).then(|| Text::Span(x.arena.push(&body)))
}

/// The request's head as it came, with the empty line.
fn request_head(x: &mut Exchange) -> Option<Text> {
    if matches!(x.request.head.version, Version::V10 | Version::V11) {
        let (start, end) = (x.request.head.leading_crlf as u32, x.request.head.len as u32);
        return Some(Text::Span(Span { start, end }));
    }
    let mut head = x.arena.get(x.request.head.line).to_vec();
    head.extend_from_slice(b"\r\n");
    for field in &x.request.head.fields {
        let line = [x.arena.get(field.name), b": ", x.arena.get(field.value), b"\r\n"];
        head.extend_from_slice(&line.concat());
    }
    head.extend_from_slice(b"\r\n");
    Some(Text::Span(x.arena.push(&head)))
}

fn response_status(x: &mut Exchange) -> Option<Text> {
    let status = x.response.status;
    (status != 0).then(|| Text::Span(x.arena.push(status.to_string().as_bytes())))
}

fn incr(x: &mut Exchange) -> Option<Text> {
    let count = &x.common::<EchoCount>().0;
    count.set(count.get() + 1);
    Some(Text::Span(x.arena.push(count.get().to_string().as_bytes())))
}

fn it(x: &mut Exchange) -> Option<Text> {
    let part = x.state_if::<EchoIt>()?.0.clone()?;
    Some(Text::Span(x.arena.push(&part)))
}
