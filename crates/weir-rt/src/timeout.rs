//! Timers of tasks, over the wheel of [`crate::timer_wheel`].

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::runtime::{RuntimeCore, current};
use crate::timers::NEVER;

const NONE: u32 = u32::MAX;

/// A deadline that is moved often and rarely reached. Never early; late by a tick of 4 ms and the length of a turn.
///
/// One task waits for it, by [`Timer::wait`] or by giving it to a receive or a drain.
pub struct Timer {
    core: Rc<RuntimeCore>,
    entry: Cell<u32>,
    interval_ms: Cell<u64>,
}

impl Timer {
    /// An unarmed timer: it takes no place in the wheel.
    pub fn new() -> Timer {
        Timer { core: current(), entry: Cell::new(NONE), interval_ms: Cell::new(0) }
    }

    /// Sets the deadline `ms` milliseconds from now (the loop's now), whether armed, expired or neither.
    pub fn arm(&self, ms: u64) {
        self.touch(ms);
    }

    /// Sets the deadline `ms` milliseconds from now, as [`Timer::arm`]; postponing an armed timer costs one store.
    #[inline]
    pub fn touch(&self, ms: u64) {
        self.interval_ms.set(ms);
        self.set(self.core.state.now_ms().saturating_add(ms));
    }

    /// Forgets the deadline. A waiting task goes on waiting.
    pub fn disarm(&self) {
        let entry = self.entry.get();
        if entry == NONE {
            return;
        }
        let waited_for = self.core.state.timers.0.with(|t| {
            let waited_for = t.waiters[entry as usize].is_some();
            if waited_for {
                t.wheel.touch(entry, NEVER);
            } else {
                t.wheel.remove(entry);
            }
            waited_for
        });
        if !waited_for {
            self.entry.set(NONE);
        }
    }

    /// Whether the deadline has passed since the timer was last armed.
    #[inline]
    pub fn expired(&self) -> bool {
        let entry = self.entry.get();
        entry != NONE && self.core.state.timers.0.with(|t| t.wheel.expired(entry))
    }

    /// Whether there is a deadline and it has not passed.
    pub fn is_armed(&self) -> bool {
        let entry = self.entry.get();
        entry != NONE
            && self.core.state.timers.0.with(|t| !t.wheel.expired(entry) && t.wheel.deadline(entry) != NEVER)
    }

    /// Waits for the deadline, however often it is moved.
    pub fn wait(&self) -> impl Future<Output = ()> {
        poll_fn(|cx| self.poll_expired(cx))
    }

    /// [`Timer::wait`] for hand-written futures.
    pub fn poll_expired(&self, cx: &Context<'_>) -> Poll<()> {
        if self.expired() {
            return Poll::Ready(());
        }
        self.register(cx);
        Poll::Pending
    }

    /// Has the polling task woken at the deadline.
    #[inline]
    pub(crate) fn register(&self, cx: &Context<'_>) {
        if self.entry.get() == NONE {
            self.set(NEVER);
        }
        let entry = self.entry.get() as usize;
        let known = self
            .core
            .state
            .timers
            .0
            .with(|t| t.waiters[entry].as_ref().is_some_and(|w| w.will_wake(cx.waker())));
        if !known {
            // Cloned and dropped with no window open: it may be a foreign waker.
            let new = cx.waker().clone();
            drop(self.core.state.timers.0.with(|t| t.waiters[entry].replace(new)));
        }
    }

    /// After an expiry: moves the deadline to one interval after `since_ms` if that is yet to come.
    pub(crate) fn extend(&self, since_ms: u64) -> bool {
        let deadline = since_ms.saturating_add(self.interval_ms.get());
        let ahead = deadline > self.core.state.now_ms();
        if ahead {
            self.set(deadline);
        }
        ahead
    }

    #[inline]
    fn set(&self, deadline_ms: u64) {
        let entry = self.entry.get();
        self.core.state.timers.0.with(|t| {
            if entry == NONE {
                self.entry.set(t.add(deadline_ms));
            } else {
                t.wheel.touch(entry, deadline_ms);
            }
        });
    }
}

impl Default for Timer {
    fn default() -> Timer {
        Timer::new()
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let entry = self.entry.get();
        if entry != NONE {
            drop(self.core.state.timers.0.with(|t| {
                t.wheel.remove(entry);
                t.waiters[entry as usize].take()
            }));
        }
    }
}

/// Waits for `d`, rounded up to milliseconds.
pub async fn sleep(d: Duration) {
    let timer = Timer::new();
    timer.arm(u64::try_from(d.as_nanos().div_ceil(1_000_000)).unwrap_or(NEVER).min(NEVER));
    timer.wait().await;
}
