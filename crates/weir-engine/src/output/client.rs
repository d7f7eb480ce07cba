//! A part of a body on its way to whatever the response is for.

use weir_trace::{ConnectionStep as ConnStep, Site};

use super::capture;
use crate::body::BodyChain;
use crate::error::EngineError;
use crate::exchange::Exchange;
use crate::transport::{Transport, write};

/// Hands bytes to the connection at the client's pace and the configured rate.
pub(super) async fn write(x: &mut Exchange, chain: BodyChain) -> Result<(), EngineError> {
    after_errors(x).await;
    x.trace().open(Site::step(ConnStep::Write));
    let written = hand_over(x, chain).await;
    x.trace().close(Site::step(ConnStep::Write));
    written
}

/// Waits until the error log's lines so far are in their files: they are there before what the client gets next.
pub(super) async fn after_errors(x: &Exchange) {
    let wire = match &x.transport {
        _ if !x.worker.logs.has_errors_unwritten() => return,
        Transport::H1(wire) | Transport::Session(wire) => Some(wire),
        Transport::Stream(_) => None,
        _ => return,
    };
    // The head does not leave before, though a handler waits.
    let hold = |on| wire.into_iter().for_each(|wire| wire.awaits_lines.set(on));
    hold(true);
    x.trace().open(Site::step(ConnStep::Write));
    x.shared.waiting(Box::pin(x.worker.logs.errors_written())).await;
    x.trace().close(Site::step(ConnStep::Write));
    hold(false);
}

/// [`write`] of a part of a body that is not paced, where an HTTP/1 connection takes it without waiting. `false`: nothing was
/// done.
pub(super) fn try_write(x: &mut Exchange, chain: &mut BodyChain) -> bool {
    let Transport::H1(wire) = &x.transport else { return false };
    if x.worker.logs.has_errors_unwritten() || wire.pending() + chain.len() > write::high(x) {
        return false;
    }
    let wire = wire.clone();
    x.trace().open(Site::step(ConnStep::Write));
    x.body_sent += chain.len();
    write::queue_part(x, &wire, chain);
    x.trace().close(Site::step(ConnStep::Write));
    true
}

async fn hand_over(x: &mut Exchange, mut chain: BodyChain) -> Result<(), EngineError> {
    x.body_sent += chain.len();
    match &mut x.transport {
        Transport::H1(wire) | Transport::Session(wire) => {
            let wire = wire.clone();
            write::write_body(x, &wire, &mut chain).await?;
        }
        Transport::Stream(stream) => {
            let stream = stream.clone();
            stream.write_body(x, &mut chain).await?;
        }
        Transport::Capture(_) => Box::pin(capture::capture(x, &mut chain)).await?,
        Transport::Splice(outlet) => {
            let (outlet, shared) = (outlet.clone(), x.shared.clone());
            shared.waiting(Box::pin(outlet.put(&mut chain))).await;
        }
        // Datagrams are sent one by one, and are no body.
        Transport::None | Transport::Flow(_) => {}
    }
    Ok(())
}
