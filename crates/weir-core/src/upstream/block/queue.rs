//! `queue`: requests that find no server free wait for one, for a while and not too many.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use weir_rt::Timer;

use crate::upstream::worker_side::local_upstream::LocalGroup;

/// The line of a group, of all workers together.
#[derive(Debug)]
pub struct Queue {
    /// How many may wait.
    pub number: u32,
    /// Milliseconds that each waits at most.
    pub timeout: u64,
    waiting: AtomicU32,
}

impl Queue {
    /// An empty line.
    pub fn new(number: u32, timeout: u64) -> Queue {
        Queue { number, timeout, waiting: AtomicU32::new(0) }
    }

    /// A place in the line, unless it is full.
    fn enter(&self) -> Option<Place<'_>> {
        if self.waiting.fetch_add(1, Relaxed) >= self.number {
            self.waiting.fetch_sub(1, Relaxed);
            return None;
        }
        Some(Place(self))
    }
}

struct Place<'q>(&'q Queue);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

/// Those of one worker that wait, first come first served.
#[derive(Default)]
pub(crate) struct Line(RefCell<VecDeque<Waker>>);

impl Line {
    /// A server may be free: the first looks.
    #[inline]
    pub(crate) fn next(&self) {
        if let Some(waker) = self.0.borrow_mut().pop_front() {
            waker.wake();
        }
    }

    fn join(&self, cx: &Context<'_>) {
        let mut line = self.0.borrow_mut();
        if !line.iter().any(|waker| waker.will_wake(cx.waker())) {
            line.push_back(cx.waker().clone());
        }
    }
}

/// One that waits in the line of a group; its place is given up when this is dropped.
pub(crate) struct Waiting<'g> {
    _place: Place<'g>,
    line: &'g Line,
    until: u64,
    timer: Timer,
}

impl<'g> Waiting<'g> {
    /// Joins the line; `None`: there is none, or it is full.
    pub(crate) fn join(group: &'g LocalGroup) -> Option<Waiting<'g>> {
        let queue = group.group.queue.as_ref()?;
        let until = weir_rt::now_ms().saturating_add(queue.timeout);
        Some(Waiting { _place: queue.enter()?, line: &group.line, until, timer: Timer::new() })
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
const LOOK: u64 = 20;
