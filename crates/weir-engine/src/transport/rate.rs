//! `limit_rate` on a connection of HTTP/1.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use weir_rt::PeerClosed;
use weir_trace::WaitKind;

use super::send_rate::SendRate;
use super::wire::ClientWire;
use super::write::drained;
use crate::body::BodyBuf;
use crate::error::EngineError;
use crate::exchange::Exchange;

/// Waits for the next piece's time, unless the client leaves meanwhile: nothing is sent for seconds to a client that
/// has gone.
async fn pause(x: &Exchange, wire: &ClientWire, time: Duration) -> Result<(), EngineError> {
    let mut sleep = Box::pin(weir_rt::sleep(time));
    let paused = poll_fn(|cx| match wire.stream.poll_closed(cx) {
        Poll::Ready(PeerClosed::Eof) => Poll::Ready(Err(wire.why_gone())),
        Poll::Ready(PeerClosed::Reset(errno)) => {
            Poll::Ready(Err(EngineError { errno: Some(errno), ..EngineError::CLIENT_CLOSED }))
        }
        Poll::Pending => sleep.as_mut().poll(cx).map(Ok),
    });
    x.shared.clone().waiting_for(WaitKind::Timer, Box::pin(paused)).await
}

/// Hands over `buf` in the pieces that the rate allows.
pub(crate) async fn write(
    x: &mut Exchange,
    wire: &Rc<ClientWire>,
    buf: BodyBuf,
    rate: SendRate,
) -> Result<(), EngineError> {
    let total = buf.len();
    let before = x.body_sent.saturating_sub(total);
    let mut at = 0;
    while at < total {
        let allowed = match rate.allows(x.start_ms, before + at) {
            Ok(allowed) => allowed,
            Err(wait) => {
                wire.flush_through();
                pause(x, wire, Duration::from_millis(wait)).await?;
                continue;
            }
        };
        let part = allowed.min(total - at);
        wire.queue(buf.slice(at, at + part));
        at += part;
        drained(x, wire, 0).await?;
    }
    Ok(())
}
