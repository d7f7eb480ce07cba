//! How the streams of a connection wake its task.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};

/// The task of a connection with streams, as these see it.
#[derive(Default)]
pub(super) struct TaskCall {
    /// The task, while it waits.
    task: RefCell<Option<Waker>>,
    /// A stream has done something that the task has to act on.
    woken: Cell<bool>,
    /// The task is at work.
    serving: Cell<bool>,
}

impl TaskCall {
    /// The task is at work from here on, and looks at what streams did before it waits; or it is not.
    pub(super) fn serves(&self, on: bool) {
        self.serving.set(on);
    }

    /// Whether a stream has woken the task; else it will.
    pub(super) fn is_woken(&self, cx: &Context<'_>) -> bool {
        if self.woken.take() {
            return true;
        }
        let mut task = self.task.borrow_mut();
        if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
        false
    }

    /// Has the task look at what a stream has done.
    pub(super) fn wake(&self) {
        if self.serving.get() {
            // It is the caller itself, and looks before it waits.
            return;
        }
        if !self.woken.replace(true)
            && let Some(task) = self.task.borrow_mut().take()
        {
            task.wake();
        }
    }

    /// Forgets that it was woken, and has `cx` woken from here on.
    pub(super) fn waits(&self, cx: &Context<'_>) {
        self.woken.set(false);
        *self.task.borrow_mut() = Some(cx.waker().clone());
    }
}
