//! A body that comes in frames.

use weir_rt::Timer;
use weir_trace::WaitKind;

use crate::error::{EngineError, EngineErrorKind, FaultSide};
use crate::exchange::Exchange;
use crate::exchange::request_body::{BodyFraming, RequestBody};
use crate::log::LogLevel;
use crate::transport::ClientStream;

/// The next piece; `None` at the end.
pub(super) async fn piece(x: &mut Exchange, stream: &ClientStream) -> Result<Option<Vec<u8>>, EngineError> {
    if !x.body.is_pending() {
        return Ok(None);
    }
    send_continue(x, stream);
    stream.read_ahead();
    loop {
        if let Some(piece) = stream.take() {
            x.body.received += piece.len() as u64;
            x.body.framed += piece.len() as u64;
            x.check_size()?;
            if stream.is_ended() {
                x.body.framing = BodyFraming::Done;
            }
            return Ok(Some(piece));
        }
        if stream.is_ended() && !stream.is_broken() {
            x.body.framing = BodyFraming::Done;
            return Ok(None);
        }
        if stream.is_closed() {
            return Err(left(x));
        }
        if stream.is_broken() {
            (x.body.broken, x.body.framing) = (true, BodyFraming::Done);
            return Err(EngineError {
                kind: EngineErrorKind::Protocol,
                side: FaultSide::Client,
                errno: None,
            });
        }
        more(x, stream).await?;
    }
}

/// Waits for more.
async fn more(x: &mut Exchange, stream: &ClientStream) -> Result<(), EngineError> {
    let timer = Timer::new();
    timer.arm(x.plan.core.client_body_timeout);
    let shared = x.shared.clone();
    let waited = shared.waiting_for(WaitKind::ClientRead, Box::pin(stream.readable(&timer))).await;
    if waited {
        return Ok(());
    }
    let message = "client timed out (110: Connection timed out) while reading client request body";
    x.log(LogLevel::Info, &message);
    x.body.framing = BodyFraming::Done;
    stream.blame();
    Err(EngineError::CLIENT_TIMED_OUT)
}

fn left(x: &mut Exchange) -> EngineError {
    let RequestBody { gone, framing, .. } = &mut x.body;
    (*gone, *framing) = (true, BodyFraming::Done);
    x.log(LogLevel::Info, &"client prematurely closed stream while reading client request body");
    EngineError { kind: EngineErrorKind::Protocol, side: FaultSide::Client, errno: None }
}

/// `Expect: 100-continue`
fn send_continue(x: &mut Exchange, stream: &ClientStream) {
    if x.request.head.expect_continue && !x.body.continued && x.body.received == 0 && !x.response.header_sent
    {
        x.body.continued = true;
        stream.interim(100, std::iter::empty());
    }
}
