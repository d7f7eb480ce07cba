//! A run's lists, whose memory serves the next run of the thread.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::run::thread::RunThreads;

/// See the module.
#[derive(Default)]
pub(crate) struct RunLists {
    pub(crate) threads: RunThreads,
    /// The coroutine that goes on, with how many values on its stack as results of what it called.
    pub(crate) ready: VecDeque<(usize, i32)>,
}

thread_local! {
    /// Of runs that have ended.
    static SPARE: RefCell<Vec<RunLists>> = const { RefCell::new(Vec::new()) };
}

impl RunLists {
    /// Empty lists.
    pub(crate) fn take() -> RunLists {
        SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten().unwrap_or_default()
    }

    /// Keeps them, emptied, for another run.
    pub(crate) fn give_back(mut self) {
        // Before the list of them is borrowed: what a coroutine waits for may be a subrequest, with runs of its own.
        self.threads.clear();
        self.ready.clear();
        // A thread that ends has no use for them.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < KEPT_LISTS && self.threads.capacity() <= KEPT_THREADS {
                spare.push(self);
            }
        });
    }
}

/// Lists that a thread keeps: more than are in use in one turn of the loop are rare.
const KEPT_LISTS: usize = 64;
/// Coroutines in the largest list that is kept for reuse.
const KEPT_THREADS: usize = 16;
