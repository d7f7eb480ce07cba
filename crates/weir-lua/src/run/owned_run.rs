//! A run in use, whose memory serves the next run of the thread.
//!
//! Runs come and go with requests, and have lists and a place of some hundred bytes. So a run is emptied when it ends and kept for
//! the next one: that costs a third of making it.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use crate::run::script_run::ScriptRun;

/// A run that has begun. It [ends](ScriptRun::end) when this is dropped.
pub(crate) struct OwnedRun(ManuallyDrop<Box<ScriptRun>>);

thread_local! {
    /// Runs that have ended.
    #[allow(clippy::vec_box, reason = "a run is kept as the box it is in, not copied")]
    static SPARE: RefCell<Vec<Box<ScriptRun>>> = const { RefCell::new(Vec::new()) };
}

impl OwnedRun {
    /// One that has not begun.
    pub(super) fn take() -> OwnedRun {
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        OwnedRun(ManuallyDrop::new(spare.unwrap_or_else(|| Box::new(ScriptRun::empty()))))
    }
}

impl Deref for OwnedRun {
    type Target = ScriptRun;

    #[inline]
    fn deref(&self) -> &ScriptRun {
        &self.0
    }
}

impl DerefMut for OwnedRun {
    #[inline]
    fn deref_mut(&mut self) -> &mut ScriptRun {
        &mut self.0
    }
}

impl Drop for OwnedRun {
    fn drop(&mut self) {
        // SAFETY: nothing looks at it after this.
        let mut run = unsafe { ManuallyDrop::take(&mut self.0) };
        // Before the list of them is borrowed: what a coroutine waits for may be a subrequest, with runs of its own.
        run.end();
        // A thread that ends has no use for it.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < KEPT_RUNS && run.threads.capacity() <= KEPT_THREADS {
                spare.push(run);
            }
        });
    }
}

/// Runs that a thread keeps: more than are in use in one turn of the loop are rare.
const KEPT_RUNS: usize = 64;
/// Coroutines for which a run that is kept has room.
const KEPT_THREADS: usize = 16;
