//! A body's way to the client of an HTTP/1 connection: in chunks or not, at a rate, and no faster than it is taken.

use std::rc::Rc;
use std::task::Context;

use weir_http::h1::{chunk_head, last_chunk};
use weir_trace::WaitKind;

use super::closing;
use super::wire::{COPIED, ClientWire};
use crate::body::BodyChain;
use crate::error::EngineError;
use crate::exchange::Exchange;

/// Hands over a part of the body, at the rate that is allowed; to the kernel where the chain is flushed.
pub(crate) async fn write_body(
    x: &mut Exchange,
    wire: &Rc<ClientWire>,
    chain: &mut BodyChain,
) -> Result<(), EngineError> {
    if x.response.chunked {
        return chunked(x, wire, chain).await;
    }
    let rate = super::send_rate::of(x);
    while let Some(buf) = chain.pop() {
        match rate {
            Some(rate) => Box::pin(super::rate::write(x, wire, buf, rate)).await?,
            None => wire.queue(buf),
        }
        pace(x, wire).await?;
    }
    if chain.flush {
        wire.flush_through();
    }
    Ok(())
}

/// Queues a part of a body, in chunks or not.
pub(crate) fn queue_part(x: &Exchange, wire: &ClientWire, chain: &mut BodyChain) {
    if x.response.chunked {
        return queue_chunk(x, wire, chain);
    }
    while let Some(buf) = chain.pop() {
        wire.queue(buf);
    }
    if chain.flush {
        wire.flush_through();
    }
}

async fn chunked(x: &mut Exchange, wire: &Rc<ClientWire>, chain: &mut BodyChain) -> Result<(), EngineError> {
    queue_chunk(x, wire, chain);
    pace(x, wire).await
}

fn queue_chunk(x: &Exchange, wire: &ClientWire, chain: &mut BodyChain) {
    if !chain.is_empty() {
        let size = chain.len();
        if size <= COPIED as u64 {
            wire.compose(|out| chunk_head(out, size));
        } else {
            wire.frame(|out| chunk_head(out, size));
        }
        while let Some(buf) = chain.pop() {
            wire.queue(buf);
        }
        wire.frame(|out| out.extend_from_slice(b"\r\n"));
    }
    if chain.last {
        wire.compose(|out| {
            let trailers = x.response.trailers.iter();
            last_chunk(out, trailers.map(|t| (t.name.bytes(&x.arena), t.value.bytes(&x.arena))));
        });
    }
    if chain.flush {
        wire.flush_through();
    }
}

/// The high-water mark: how many bytes may be on their way to the client before it is waited for.
pub(crate) fn high(x: &Exchange) -> u64 {
    x.response.ahead.map_or(x.busy, |ahead| ahead.min(x.busy))
}

/// Above the high-water mark the writer waits until the client took half of it.
async fn pace(x: &mut Exchange, wire: &Rc<ClientWire>) -> Result<(), EngineError> {
    let high = high(x);
    if wire.pending() <= high {
        return Ok(());
    }
    drained(x, wire, high / 2).await
}

impl ClientWire {
    /// Hands over what was composed, to the kernel as far as that takes it.
    pub(super) fn flush_through(&self) {
        self.flush();
        self.stream.flush();
    }

    /// Nothing more is said to this client: where `reset_timedout_connection` is on the connection ends with a reset, which
    /// leaves no socket in FIN_WAIT1. As in nginx not with TLS.
    pub(crate) fn reset_at_close(&self, x: &Exchange) {
        if x.plan.core.reset_timedout_connection && !self.stream.has_layer() {
            self.stream.set_linger_reset();
            self.resets.set(true);
        }
    }
}

/// Waits until at most `below` bytes are left to send, for `send_timeout` at most between two writes.
///
/// # Errors
/// The client closed or reset the connection, or `send_timeout` is over; or a file can't be sent, which the request logs.
pub async fn drained(x: &mut Exchange, wire: &Rc<ClientWire>, below: u64) -> Result<(), EngineError> {
    let sent = drained_after(x, wire, below).await;
    sent.inspect_err(|_| wire.file_is_reported.set(wire.stream.file_error().is_some()))
}

/// As [`drained`] for a request that is over: a file that can't be sent is the connection's to log.
///
/// # Errors
/// Those of [`drained`].
pub async fn drained_after(x: &mut Exchange, wire: &Rc<ClientWire>, below: u64) -> Result<(), EngineError> {
    wire.flush_through();
    wire.timer.arm(x.plan.core.send_timeout);
    let shared = x.shared.clone();
    let drained = |cx: &mut Context<'_>| wire.stream.poll_drained(cx, below, Some(&wire.timer));
    let sent = shared.waiting_until(WaitKind::ClientWrite, drained).await;
    sent.map_err(|error| {
        wire.broken.set(true);
        x.connection.ends(closing::while_sending(error));
        if error == weir_rt::SendError::TimedOut && x.plan.core.reset_timedout_connection {
            wire.stream.set_linger_reset();
        }
        EngineError::from(error)
    })
}
