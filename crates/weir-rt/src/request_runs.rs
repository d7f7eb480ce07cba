//! Which stretches of a thread's time are the runs of requests, as the kernel's work is charged.

use crate::runtime::with_current;

/// What this thread does from here on counts as the run of a request, which began at `now` ([`clock::ticks`](crate::clock::ticks)):
/// what the kernel does then is in there, and is not charged besides; what the thread has lost before is not the run's. Until
/// [`request_rests`]; nothing outside a runtime.
#[inline]
pub fn request_runs(now: u64) {
    let _outside = with_current(|core| {
        core.state.kernel.set_runs(true);
        core.state.cores.run_began(now, &core.state.stats);
    });
}

/// What this thread does from here on is no request's run.
#[inline]
pub fn request_rests() {
    let _outside = with_current(|core| core.state.kernel.set_runs(false));
}
