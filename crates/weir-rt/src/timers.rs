//! A worker's timers: the wheel, and the task that waits for each.

use std::task::Waker;

use crate::executor::RunQueue;
use crate::held::HeldMemory;
use crate::local::LoopLocal;
use crate::stats::LoopStats;
use crate::timer_wheel::TimerWheel;

/// The deadline of a timer that a task waits for though it is not armed.
pub(crate) const NEVER: u64 = u64::MAX / 2;

/// A worker's deadlines and the tasks that wait for them. The wheel's token is its own index.
pub(crate) struct WorkerTimers(pub(crate) LoopLocal<TimerTable>);

pub(crate) struct TimerTable {
    pub(crate) wheel: TimerWheel,
    pub(crate) waiters: Vec<Option<Waker>>,
}

impl WorkerTimers {
    pub(crate) fn new(now_ms: u64) -> WorkerTimers {
        WorkerTimers(LoopLocal::new(TimerTable { wheel: TimerWheel::new(now_ms), waiters: Vec::new() }))
    }

    /// Wakes those whose time has come, in the order of their deadlines.
    pub(crate) fn advance(&self, now_ms: u64, sched: &RunQueue, stats: &LoopStats) {
        self.0.with(|t| {
            let TimerTable { wheel, waiters } = t;
            wheel.advance(now_ms, |deadline_ms, i| {
                stats.timers_late_max_ms.max(now_ms.saturating_sub(deadline_ms));
                sched.notify(&mut waiters[i as usize]);
            });
        });
    }

    /// The timers that there are, armed or not, and the bytes of the wheel with all its places.
    pub(crate) fn held(&self) -> HeldMemory {
        self.0.with(|t| {
            let wheel = t.wheel.held();
            let waiters = t.waiters.capacity() * size_of::<Option<Waker>>();
            HeldMemory { bytes: wheel.bytes + waiters as u64, ..wheel }
        })
    }

    /// Milliseconds until something may be due; `None` if nothing is armed.
    pub(crate) fn sleep_for(&self, now_ms: u64) -> Option<u64> {
        self.0.with(|t| t.wheel.sleep_for(now_ms))
    }
}

impl TimerTable {
    pub(crate) fn add(&mut self, deadline_ms: u64) -> u32 {
        let i = self.wheel.add(deadline_ms, 0);
        self.wheel.set_token(i, i);
        if self.waiters.len() <= i as usize {
            self.waiters.resize(i as usize + 1, None);
        }
        i
    }
}
