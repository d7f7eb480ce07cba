//! Which threads are workers'.

use std::cell::Cell;

thread_local! {
    /// From its first step to its last, before and after it has a worker too.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread is a worker's to its end.
pub(super) fn mark() {
    IS_WORKER.set(true);
}

/// Whether this is a worker's thread, of any server of the process: it must not wait for a server's end. What its tasks leave
/// when it ends is dropped on it, too.
pub fn is_worker_thread() -> bool {
    IS_WORKER.get()
}
