//! Which stretches of a thread's time are the runs of requests, as the kernel's work is charged.

use crate::runtime::with_current;

/// Whether what this thread does from here on counts as the run of a request: what the kernel does then is in there, and is not
/// charged besides. Until it is set again; nothing outside a runtime.
#[inline]
pub fn set_request_runs(runs: bool) {
    let _outside = with_current(|core| core.state.kernel.set_runs(runs));
}
