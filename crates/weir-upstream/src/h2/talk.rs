//! A try over HTTP/2: a call on a session, its content, and the head of its response.

use std::task::{Context, Poll};

use weir_http::h2::StreamEnd;
use weir_rt::Timer;

use super::body::StreamUpload;
use super::call::{CallProgress, StreamCall};
use weir_engine::error::EngineError;
use weir_engine::transport::client::TunnelBytes;

/// A call, and what is still to be sent of its request.
pub(crate) struct StreamRequest {
    pub(crate) call: StreamCall,
    pub(crate) upload: StreamUpload,
    /// Armed while something is waited for.
    pub(crate) timer: Timer,
}

impl StreamRequest {
    /// The next thing of the response, while the rest of the request leaves.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<CallProgress, EngineError>> {
        if let Err(error) = self.poll_upload(cx) {
            return Poll::Ready(Err(error));
        }
        self.call.poll(cx, Some(&self.timer)).map(Ok)
    }

    /// Passes on what has come of the rest of the request.
    ///
    /// # Errors
    /// It can't be had.
    pub(crate) fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), EngineError> {
        self.upload.poll(cx, &self.call)
    }

    /// What comes next through a tunnel.
    pub(crate) fn poll_bytes(&self, cx: &mut Context<'_>) -> Poll<TunnelBytes> {
        loop {
            match self.call.poll(cx, None) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(CallProgress::Data(bytes)) => return Poll::Ready(TunnelBytes::Piece(bytes)),
                Poll::Ready(CallProgress::End) => return Poll::Ready(TunnelBytes::End),
                Poll::Ready(CallProgress::Reset(..) | CallProgress::Lost(_) | CallProgress::TimedOut) => {
                    return Poll::Ready(TunnelBytes::Broken);
                }
                Poll::Ready(
                    CallProgress::Head(..) | CallProgress::Interim(_) | CallProgress::Trailers(_),
                ) => {}
            }
        }
    }

    /// Sends bytes through a tunnel.
    pub(crate) fn pass(&self, bytes: Vec<u8>) {
        self.call.offer(bytes, StreamEnd::More);
    }

    /// Says that no more comes through a tunnel.
    pub(crate) fn end(&self) {
        self.call.offer(Vec::new(), StreamEnd::Last);
    }

    /// Ready when less than a tunnel's share is on its way to the server, or, `all`, nothing.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>, all: bool) -> Poll<()> {
        let room = self.call.has_room(cx) && (!all || self.call.unsent() == 0);
        if room {
            return Poll::Ready(());
        }
        self.call.wake_when_moved(cx);
        Poll::Pending
    }

    /// Bytes of its frames that were sent, and received.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.call.counts()
    }

    /// The next thing, if it is there.
    pub(crate) fn next(&mut self) -> Option<CallProgress> {
        self.call.next()
    }
}
