//! `limit_rate`: bytes leave no faster than this many a second.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use weir_rt::PeerClosed;
use weir_trace::WaitKind;

use super::wire::ClientWire;
use super::write::drained;
use crate::body::BodyBuf;
use crate::error::EngineError;
use crate::exchange::Exchange;
use crate::value_script::ValueScript;

/// Whether a rate may be set for the body of `x`.
#[inline]
pub(crate) fn is_paced(x: &Exchange) -> bool {
    x.limit_rate.is_some() || x.plan.core.limit_rate.is_some()
}

/// A limit in force: bytes a second, and how many bytes are free.
#[derive(Clone, Copy)]
pub(crate) struct SendRate {
    per_second: u64,
    free: u64,
}

/// The limit of `x`, if there is one: what the request was given (`$limit_rate`, a script), else the location's.
pub(crate) fn of(x: &mut Exchange) -> Option<SendRate> {
    if !is_paced(x) {
        return None;
    }
    let plan = x.plan.clone();
    let per_second = match x.limit_rate {
        Some(rate) => rate,
        None => size(x, plan.core.limit_rate.as_ref()),
    };
    let free = size(x, plan.core.limit_rate_after.as_ref());
    (per_second > 0).then_some(SendRate { per_second, free })
}

impl SendRate {
    /// How many bytes may leave now of a request that began at `start_ms` and has sent `sent` bytes of its body; else how
    /// many milliseconds to wait. nginx's formula, a second ahead from the request's start.
    pub(super) fn allows(self, start_ms: u64, sent: u64) -> Result<u64, u64> {
        let seconds = weir_rt::now_ms().saturating_sub(start_ms) / 1000 + 1;
        let budget = self.per_second * seconds + self.free;
        match budget.saturating_sub(sent) {
            0 => Err(((sent + 1).saturating_sub(budget) * 1000 / self.per_second).max(1) + 1),
            allowed => Ok(allowed),
        }
    }
}

fn size(x: &mut Exchange, script: Option<&ValueScript>) -> u64 {
    let Some(script) = script else { return 0 };
    let value = script.value(x);
    weir_conf::parse_size(x.text(&value)).unwrap_or(0)
}

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
