//! A cached response, too.

use std::future::poll_fn;
use std::task::{Context, Poll};

use weir_trace::WaitKind;

use super::response_body::UpstreamBody;
use weir_engine::body::{BodyPiece, BodySource};
use weir_engine::error::EngineError;
use weir_engine::exchange::Exchange;

/// A response that becomes a file: whichever client stops asking for it, it is read to its end.
pub(crate) struct SavedBody(pub(crate) Option<Box<UpstreamBody>>);

impl BodySource for SavedBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<BodyPiece, EngineError>> {
        match &mut self.0 {
            Some(response) => response.poll_next(cx),
            None => Poll::Ready(Ok(BodyPiece::End)),
        }
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        if let Some(response) = &mut self.0 {
            response.poll_ahead(cx);
        }
    }

    fn busy(&self) -> Option<u64> {
        self.0.as_ref()?.busy()
    }

    fn finish(&mut self, x: &mut Exchange) {
        if let Some(response) = &mut self.0 {
            response.finish(x);
        }
    }

    fn is_wanted_anyway(&self) -> bool {
        true
    }

    fn waits_for(&self) -> WaitKind {
        WaitKind::UpstreamBody
    }
}

impl Drop for SavedBody {
    fn drop(&mut self) {
        let unfinished = |response: &UpstreamBody| response.saving.is_some() && response.failed.is_none();
        let Some(mut response) = self.0.take_if(|response| unfinished(response)) else { return };
        let busy = response.worker.busy();
        weir_rt::spawn(async move {
            while let Ok(BodyPiece::Data(_) | BodyPiece::Flush) = poll_fn(|cx| response.poll_next(cx)).await {
            }
            response.records.tell_nobody();
            drop(busy);
        });
    }
}
