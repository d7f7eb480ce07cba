//! The rest of a request on a stream that has to wait.

use weir_engine::engine::{self, ServeWait};
use weir_engine::exchange::Exchange;
use weir_engine::request_head::HeadFailure;

/// What is left of a request.
pub(super) enum StreamTask {
    Serve(ServeWait),
    Refuse(HeadFailure),
}

impl StreamTask {
    /// Does it, to the end of the exchange.
    pub(super) async fn finish(self, x: &mut Exchange) {
        match self {
            StreamTask::Serve(wait) => engine::finish_serve(x, wait).await,
            StreamTask::Refuse(HeadFailure::Refuse(status)) => engine::refuse(x, status).await,
            StreamTask::Refuse(HeadFailure::Silent(status)) => engine::close(x, status).await,
            StreamTask::Refuse(HeadFailure::Nothing) => {}
        }
    }
}
