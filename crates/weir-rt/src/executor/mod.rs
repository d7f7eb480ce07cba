//! The tasks of one worker and their run queue.
//!
//! A task is one boxed future, allocated once (per connection, not per request). The queue is run in rounds: what is
//! woken during a round waits for the next, so completions and timers are never starved by tasks that wake each other.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

mod waker;

use crate::held::HeldMemory;
use crate::local::LoopLocal;
use crate::task::{self, TaskId};

pub(crate) use waker::{task_of, waker};

/// The index of `block_on`'s own future, which lives on its stack and not in the slab.
pub(crate) const MAIN: u32 = 0;

type BoxedTask = Pin<Box<dyn Future<Output = ()>>>;

pub(crate) struct TaskEntry {
    /// Taken out while it is polled, so that a poll may spawn.
    future: Option<BoxedTask>,
    generation: u32,
    /// On the run queue already.
    queued: bool,
}

struct TaskTable {
    entries: Vec<TaskEntry>,
    free: Vec<u32>,
    queue: VecDeque<u32>,
    live: u64,
}

/// What became of one poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PollOutcome {
    Pending,
    Finished,
    Panicked,
    /// Woken after its end.
    Gone,
}

thread_local! {
    static CURRENT: Cell<*const RunQueue> = const { Cell::new(std::ptr::null()) };
}

/// Calls `f` with the run queue of this thread's running runtime, if there is one.
#[inline]
fn with_current_queue<R>(f: impl FnOnce(&RunQueue) -> R) -> Option<R> {
    let sched = CURRENT.get();
    // SAFETY: null, or set by `set_current_sched`, whose callers keep what they set alive until they set another.
    unsafe { sched.as_ref() }.map(f)
}

/// Makes `sched` the run queue that wakers of this thread find; the one before is returned.
///
/// # Safety
/// `sched` is null, or stays where it is until another is set.
pub(crate) unsafe fn set_current_queue(sched: *const RunQueue) -> *const RunQueue {
    CURRENT.replace(sched)
}

/// Tasks, run queue, and foreign wakers that wait for a moment when no window is open.
pub(crate) struct RunQueue {
    slot: u16,
    tasks: LoopLocal<TaskTable>,
    foreign: LoopLocal<Vec<Waker>>,
}

impl RunQueue {
    /// `slot`: this runtime's place in the registry of inboxes, part of its wakers.
    pub(crate) fn new(slot: u16) -> RunQueue {
        let main = TaskEntry { future: None, generation: 0, queued: false };
        let tasks = TaskTable { entries: vec![main], free: Vec::new(), queue: VecDeque::new(), live: 0 };
        RunQueue { slot, tasks: LoopLocal::new(tasks), foreign: LoopLocal::new(Vec::new()) }
    }

    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    /// Adds a task and puts it on the queue: it runs first in the next round.
    pub(crate) fn spawn(&self, future: BoxedTask) -> TaskId {
        self.tasks.with(|t| {
            let index = t.free.pop().unwrap_or_else(|| {
                t.entries.push(TaskEntry { future: None, generation: 0, queued: false });
                t.entries.len() as u32 - 1
            });
            let entry = &mut t.entries[index as usize];
            entry.future = Some(future);
            t.live += 1;
            let generation = entry.generation;
            t.wake(index);
            TaskId { index, generation }
        })
    }

    /// Queues `task` unless it is queued already.
    #[inline]
    pub(crate) fn wake(&self, task: u32) {
        self.tasks.with(|t| t.wake(task));
    }

    /// Wakes from inside a driver's window: our own tasks at once, foreign wakers (which may run anything) later.
    #[inline]
    pub(crate) fn notify(&self, waiting: &mut Option<Waker>) {
        let Some(waker) = waiting.take() else { return };
        match task_of(&waker, self.slot) {
            Some(task) => self.wake(task),
            None => self.foreign.with(|f| f.push(waker)),
        }
    }

    /// Wakes the foreign wakers put aside. Call with no window open.
    pub(crate) fn wake_foreign(&self) {
        if self.foreign.with(|f| f.is_empty()) {
            return;
        }
        for waker in self.foreign.with(std::mem::take) {
            waker.wake();
        }
    }

    /// Tasks on the queue: the length of the next round.
    pub(crate) fn queued(&self) -> usize {
        self.tasks.with(|t| t.queue.len())
    }

    /// Whether the loop must not sleep.
    pub(crate) fn is_runnable(&self) -> bool {
        self.queued() > 0 || self.foreign.with(|f| !f.is_empty())
    }

    /// Tasks spawned and not finished.
    pub(crate) fn live(&self) -> u64 {
        self.tasks.with(|t| t.live)
    }

    /// The places that no task has now.
    pub(crate) fn unused(&self) -> HeldMemory {
        self.tasks.with(|t| {
            let unused = t.entries.capacity() - t.live as usize;
            let lists = (t.free.capacity() + t.queue.capacity()) * size_of::<u32>();
            HeldMemory::new(unused, unused * size_of::<TaskEntry>() + lists)
        })
    }

    /// Takes the next task off the queue.
    pub(crate) fn next(&self) -> Option<u32> {
        self.tasks.with(|t| {
            let task = t.queue.pop_front()?;
            t.entries[task as usize].queued = false;
            Some(task)
        })
    }

    /// Polls a task once. A panic ends that task only; it is reported by [`task::catch`].
    pub(crate) fn poll(&self, task: u32) -> PollOutcome {
        let taken = self.tasks.with(|t| t.entries[task as usize].future.take());
        let Some(mut future) = taken else { return PollOutcome::Gone };
        let waker = waker(self.slot, task);
        match task::catch(|| future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()) {
            Some(false) => {
                self.tasks.with(|t| t.entries[task as usize].future = Some(future));
                PollOutcome::Pending
            }
            finished => {
                // With the future go its sockets and timers; a destructor may panic as well.
                let dropped = task::catch(|| drop(future));
                self.tasks.with(|t| t.release(task));
                if finished.is_some() && dropped.is_some() {
                    PollOutcome::Finished
                } else {
                    PollOutcome::Panicked
                }
            }
        }
    }

    /// Drops all tasks, also those which the destructors of others spawn.
    pub(crate) fn clear(&self) {
        while let Some(task) = self.tasks.with(|t| t.entries.iter().position(|e| e.future.is_some())) {
            let future = self.tasks.with(|t| {
                t.release(task as u32);
                t.entries[task].future.take()
            });
            task::catch(|| drop(future));
        }
        drop(self.foreign.with(std::mem::take));
    }
}

impl TaskTable {
    fn wake(&mut self, task: u32) {
        // A foreign thread may name an index this runtime (in a reused registry slot) has never had.
        let Some(entry) = self.entries.get_mut(task as usize) else { return };
        if !std::mem::replace(&mut entry.queued, true) {
            self.queue.push_back(task);
        }
    }

    fn release(&mut self, task: u32) {
        let entry = &mut self.entries[task as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(task);
        self.live -= 1;
    }
}
