//! A request that waits in the `queue` of an upstream.

use std::future::poll_fn;
use std::task::Poll;

use weir_rt::Timer;

use crate::block::queue::{QueueLine, QueuePlace};
use crate::worker_side::local_upstream::LocalUpstream;

/// One that waits in the line of an upstream; its place is given up when this is dropped.
pub(crate) struct QueueTicket<'g> {
    _place: QueuePlace<'g>,
    line: &'g QueueLine,
    until: u64,
    timer: Timer,
}

impl<'g> QueueTicket<'g> {
    /// Joins the queue; `None`: there is no queue, or it is full.
    pub(crate) fn join(upstream: &'g LocalUpstream) -> Option<QueueTicket<'g>> {
        let queue = upstream.upstream.queue.as_ref()?;
        let until = weir_rt::now_ms().saturating_add(queue.timeout);
        Some(QueueTicket { _place: queue.enter()?, line: &upstream.line, until, timer: Timer::new() })
    }

    /// Waits until a server may be free; `false`: the time is over.
    pub(crate) async fn turn(&self) -> bool {
        let left = self.until.saturating_sub(weir_rt::now_ms());
        if left == 0 {
            return false;
        }
        self.timer.arm(left.min(LOOK));
        let mut joined = false;
        poll_fn(|cx| {
            // Woken for its place in the line, or by the timer.
            if std::mem::replace(&mut joined, true) {
                return Poll::Ready(());
            }
            self.line.join(cx);
            std::pin::pin!(self.timer.wait()).as_mut().poll(cx)
        })
        .await;
        true
    }
}

/// A server may be freed by another worker, or its time of failure be over: milliseconds between two looks.
pub(crate) const LOOK: u64 = 20;
