//! The request on its way to a server: its body, and what decides whether it may be sent twice.

use weir_http::Method;
use weir_rt::OutputChunk;
use weir_rt::net::SockAddr;

use crate::config::directives::{UpstreamSettings, local_address};
use crate::config::failure_reason::FailureReason;
use crate::connection::upstream_connection::UpstreamConnection;
use crate::protocol::{RECORD, RequestFraming, UpstreamProtocol};
use crate::request::overrides;
use weir_engine::exchange::Exchange;
use weir_engine::phase::Verdict;

/// Reads the client's body if it is to be sent as a whole.
pub(crate) async fn body(
    x: &mut Exchange,
    settings: &UpstreamSettings,
    protocol: &dyn UpstreamProtocol,
) -> Result<(), Verdict> {
    if !is_awaited(x, settings, protocol) {
        return Ok(());
    }
    // Boxed, as all that few requests wait for: it is no part of what every request's future holds.
    match Box::pin(x.read_body()).await {
        Ok(()) => Ok(()),
        Err(error) if x.body.is_gone() => Err(Verdict::Close(error.status())),
        Err(error) => Err(Verdict::Status(error.status())),
    }
}

/// Whether there is a body that is to be read before anything is sent. Most requests have none.
pub(crate) fn is_awaited(x: &Exchange, settings: &UpstreamSettings, protocol: &dyn UpstreamProtocol) -> bool {
    let unknown = x.request.head.chunked && protocol.needs_length();
    let buffered = settings.request_buffering || x.is_subrequest() || unknown;
    let none =
        !x.body.is_pending() && !x.body.is_read() && x.body.received() == 0 && x.transport.wire().is_some();
    settings.pass_request_body && buffered && !none
}

/// Queues a body that was read, or that has no content. The file is shared with the exchange, memory is copied: it may be sent again.
pub(crate) fn queue_body(
    x: &Exchange,
    protocol: &dyn UpstreamProtocol,
    framing: RequestFraming,
    connection: &UpstreamConnection,
) {
    match x.body.file() {
        Some(file) if framing == RequestFraming::Plain => {
            connection.stream.queue(OutputChunk::File {
                file: file.handle.clone(),
                offset: 0,
                len: file.len,
            });
        }
        Some(file) if framing == RequestFraming::Records => {
            for offset in (0..file.len).step_by(RECORD as usize) {
                let len = RECORD.min(file.len - offset);
                connection.stream.queue(OutputChunk::Bytes(protocol.body_head(len)));
                connection.stream.queue(OutputChunk::File { file: file.handle.clone(), offset, len });
            }
        }
        _ if !x.body.is_read() || x.body.memory().is_empty() => {}
        _ => connection.stream.queue(OutputChunk::Bytes(protocol.body(x.body.memory().to_vec(), framing))),
    }
    let end = protocol.body_end(framing);
    if !end.is_empty() {
        connection.stream.queue(OutputChunk::Bytes(end));
    }
}

/// How many servers may be asked.
pub(crate) fn tries(servers: usize, limit: u64) -> u64 {
    let servers = servers.max(1) as u64;
    if limit == 0 { servers } else { servers.min(limit) }
}

/// RFC 9110 section 9.2.2, as nginx has it.
pub(crate) fn is_idempotent(x: &Exchange) -> bool {
    !matches!(x.request.head.method, Method::Post | Method::Lock | Method::Patch)
}

/// Whether the request may go out again on a fresh connection when one kept alive turned out closed: as in nginx that
/// is an `error`, which `*_next_upstream` has to name.
pub(crate) fn may_repeat(x: &Exchange, settings: &UpstreamSettings) -> bool {
    let named = |reason| overrides::names(x, settings, reason);
    !named(FailureReason::OFF)
        && named(FailureReason::ERROR)
        && (is_idempotent(x) || named(FailureReason::NON_IDEMPOTENT))
}

/// The local address of connections (`*_bind`).
pub(crate) fn local(x: &mut Exchange, settings: &UpstreamSettings) -> Result<Option<SockAddr>, Verdict> {
    let Some(bind) = &settings.bind else { return Ok(None) };
    let value = bind.address.value(x);
    let text = String::from_utf8_lossy(x.text(&value)).into_owned();
    if text.is_empty() {
        return Ok(None);
    }
    let address = local_address(&text);
    if address.is_none() {
        x.log_error(&format_args!("invalid local address \"{text}\""));
    }
    Ok(address)
}
