//! Coroutines of a run that sleep: places of a heap, and one timer of the runtime for all of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::task::{Context, Poll};

use weir_rt::{Timer, clock};

/// See the module.
#[derive(Default)]
pub(crate) struct SleepingThreads {
    /// When they are due, in milliseconds of the worker's clock; how many slept before; the coroutine.
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    slept: u64,
    timer: Option<Timer>,
    /// What the timer is set to.
    armed: u64,
    /// Those that let others run and go on then (`ngx.sleep(0)`).
    brief: Vec<u32>,
    /// The others have been let run.
    passed: bool,
}

impl SleepingThreads {
    /// Lets the coroutine `at` sleep for so long: when it is due, 0 for as soon as others have run.
    pub(crate) fn add(&mut self, at: usize, ms: u64) -> u64 {
        let at = u32::try_from(at).expect("coroutines are counted in 32 bits");
        if ms == 0 {
            self.brief.push(at);
            return 0;
        }
        // Not the loop's time, which does not advance while a script computes: `ngx.now` goes on, too.
        let due = clock::monotonic_ms().saturating_add(ms);
        self.slept += 1;
        self.heap.push(Reverse((due, self.slept, at)));
        due
    }

    /// Calls `go` for each whose time has come, with what [`SleepingThreads::add`] gave; the task is woken for the next.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, mut go: impl FnMut(usize, u64)) {
        if !self.brief.is_empty() {
            if std::mem::take(&mut self.passed) {
                self.brief.drain(..).for_each(|at| go(at as usize, 0));
            } else {
                self.passed = true;
                cx.waker().wake_by_ref();
            }
        }
        loop {
            let now = weir_rt::now_ms();
            while let Some(&Reverse((due, _, at))) = self.heap.peek()
                && due <= now
            {
                self.heap.pop();
                go(at as usize, due);
            }
            let Some(&Reverse((due, ..))) = self.heap.peek() else { return };
            let timer = self.timer.get_or_insert_default();
            if self.armed != due {
                self.armed = due;
                timer.arm(due.saturating_sub(now));
            }
            if timer.poll_expired(cx) == Poll::Pending {
                return;
            }
        }
    }
}
