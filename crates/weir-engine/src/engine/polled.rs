//! Waits that need no future: a handler is polled by the task of the connection.
//!
//! A request that waits for the response of a server costs neither the memory of a future nor the way through those of all storeys
//! ([`finish_serve`](super::finish_serve)); to these it comes where something else must be waited for.

use std::task::{Context, Poll};

use super::phases::{PhaseWait, PhaseWalk};
use super::{EngineWait, NextStep, RequestCourse, ServeWait, try_advance, try_end};
use crate::exchange::{Exchange, KnownCourse, ResponseDelivery};
use crate::output::{self, ResponseEnd};
use crate::phase::Verdict;
use crate::progress::Progress;

/// A wait that needs no future: a handler is polled ([`Handler::poll`](crate::phase::Handler::poll)).
pub struct PolledWait {
    walk: PhaseWalk,
    /// It was polled before, and was not ready.
    waits: bool,
}

impl ServeWait {
    /// The wait as one that needs no future, as long as its handler says so.
    ///
    /// # Errors
    /// It needs one.
    #[inline]
    pub fn polled(self) -> Result<PolledWait, ServeWait> {
        match self {
            ServeWait::Response(
                RequestCourse { redirects: 0, refusals: 0 },
                EngineWait::Phases(PhaseWait::Handler(walk)),
            ) => Ok(PolledWait { walk, waits: false }),
            wait => Err(wait),
        }
    }
}

impl PolledWait {
    /// Serves and logs `x` once its handler is ready; what has to wait then is left to [`finish_serve`].
    #[inline]
    pub fn poll(&mut self, x: &mut Exchange, cx: &mut Context<'_>) -> Poll<Progress<(), ServeWait>> {
        let first = !self.waits;
        let verdict = x.shared.clone().poll_accounted(&mut self.waits, || self.walk.poll_asked(x, cx));
        let Poll::Ready(verdict) = verdict else {
            if first && let Some(wire) = x.transport.wire() {
                wire.flush_before_wait();
            }
            return Poll::Pending;
        };
        let walk = self.walk.here();
        let went_on = match verdict {
            Verdict::Wait => Progress::Wait(PhaseWait::Future(walk)),
            verdict => walk.went_on(x, verdict),
        };
        Poll::Ready(match went_on {
            Progress::Done(verdict) => judged(x, verdict),
            Progress::Wait(wait) => {
                Progress::Wait(ServeWait::Response(RequestCourse::default(), EngineWait::Phases(wait)))
            }
        })
    }
}

/// The handler of `x` that was waited for has come to `verdict`.
fn judged(x: &mut Exchange, verdict: Verdict) -> Progress<(), ServeWait> {
    // Its place may be another head's meanwhile.
    x.known = KnownCourse::Open;
    let mut course = RequestCourse::default();
    let progress = match verdict {
        Verdict::Respond => match output::try_respond(x) {
            Progress::Done(ResponseEnd::Whole) => {
                x.delivery.set(ResponseDelivery::Whole);
                Progress::Done(())
            }
            Progress::Done(end) => try_advance(x, &mut course, NextStep::Responded(end)),
            Progress::Wait(wait) => Progress::Wait(EngineWait::Response(wait)),
        },
        verdict => try_advance(x, &mut course, NextStep::Judge(verdict)),
    };
    if let Progress::Wait(wait) = progress {
        return Progress::Wait(ServeWait::Response(course, wait));
    }
    x.log_complaints();
    try_end(x)
}
