//! What handlers call that produce their response piece by piece.

use std::task::{Context, Poll};

use weir_trace::WaitKind;

use super::{body_part, drain, finish, send_head};
use crate::body::BodyChain;
use crate::error::EngineError;
use crate::exchange::Exchange;
use crate::exchange::family::SubrequestFamily;
use crate::filter::FilterSlot;
use crate::phase::LocalFuture;
use crate::plan::included::IncludedRequest;

impl Exchange {
    /// Sends the head now if it was not, then `chain` through the body filters: for handlers that produce their
    /// response piece by piece and end with [`Verdict::Done`](crate::phase::Verdict::Done). The last chain has `last`
    /// set.
    ///
    /// # Errors
    /// The client is gone or too slow; the handler should return [`Verdict::Close`](crate::phase::Verdict::Close).
    pub async fn send(&mut self, chain: BodyChain) -> Result<(), EngineError> {
        if !send_head(self).await {
            // Imperative handlers can't start over: the engine makes what the filter wants once the handler has ended.
            return Err(EngineError {
                kind: crate::error::EngineErrorKind::Internal,
                side: crate::error::FaultSide::Server,
                errno: None,
            });
        }
        let last = chain.last;
        match self.family.clone() {
            None => body_part(self, chain).await?,
            Some(family) => {
                let shared = self.shared.clone();
                family.attend(&shared, body_part(self, chain)).await?;
            }
        }
        if last { finish(self).await } else { Ok(()) }
    }
}

impl Exchange {
    /// Includes a subrequest after what [`Exchange::send`] was given, sending the head if it was not: for handlers that
    /// produce their response piece by piece. One that is not waited for runs while later pieces are sent.
    ///
    /// # Errors
    /// As [`Exchange::send`].
    pub async fn include(&mut self, include: IncludedRequest) -> Result<(), EngineError> {
        self.includes();
        self.send(BodyChain::default()).await?;
        let Some(family) = self.family.clone() else { return Ok(()) };
        let shared = self.shared.clone();
        let mut filters = std::mem::take(&mut self.body_filters);
        let own = filters.partition_point(|entry| entry.slot < FilterSlot::Postpone);
        let rest = &mut filters[own..];
        let main = async {
            drain(self, &family, rest, SubrequestFamily::has_room).await?;
            if let Some(waited) = self.begin_include(&family, include) {
                drain(self, &family, rest, |_| waited.is_done()).await?;
                self.end_include(waited);
            }
            Ok(())
        };
        let result = family.attend(&shared, main).await;
        self.body_filters = filters;
        result
    }

    /// Ready when the client has left or given the request up; `None` for subrequests.
    pub fn client_gone(&self) -> Option<impl Future<Output = ()> + 'static> {
        let client = self.transport.client()?;
        Some(async move { client.gone().await })
    }

    /// Whether it has made subrequests, which go on while it waits as [`waiting_beside`](Exchange::waiting_beside) does.
    #[inline]
    pub fn has_family(&self) -> bool {
        self.family.is_some()
    }

    /// Awaits `future`, accounted as waiting; subrequests that were included go on meanwhile.
    pub async fn waiting_beside<T>(&self, mut future: LocalFuture<'_, T>) -> T {
        self.waiting_beside_until(WaitKind::Other, |cx| future.as_mut().poll(cx)).await
    }

    /// As [`waiting_beside`](Exchange::waiting_beside), until `poll` is ready, and saying what for.
    pub async fn waiting_beside_until<T>(
        &self,
        kind: WaitKind,
        poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> T {
        let shared = &self.shared;
        match &self.family {
            None => shared.waiting_until(kind, poll).await,
            // In a box: few have subrequests, and every wait has room for them otherwise.
            Some(family) => Box::pin(family.attend(shared, shared.waiting_until(kind, poll))).await,
        }
    }
}
