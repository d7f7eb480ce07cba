//! A thread, as the simulation sees it.

/// What a thread waits for.
#[derive(Clone, Debug)]
pub(crate) enum ThreadWait {
    /// Nothing: it runs, or could.
    Nothing,
    /// For its time alone.
    Time,
    /// For one of these descriptors.
    Descriptors(Vec<libc::pollfd>),
    /// To be woken at this address.
    Futex(usize),
    /// For the end of another thread.
    End(usize),
    /// It has ended.
    Gone,
}

/// Why a thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    ByEvent,
    ByTime,
}

/// A thread, as the simulation sees it.
#[derive(Debug)]
pub(crate) struct SimThread {
    pub(crate) wait: ThreadWait,
    /// Nanoseconds of the simulated clock.
    pub(crate) deadline: Option<u64>,
    /// What it waits for has come: by a wake, not by a descriptor.
    pub(crate) is_woken: bool,
    pub(crate) reason: Woken,
    pub(crate) handle: libc::pthread_t,
}

impl SimThread {
    pub(crate) fn new() -> SimThread {
        SimThread {
            wait: ThreadWait::Nothing,
            deadline: None,
            is_woken: false,
            reason: Woken::ByEvent,
            handle: 0,
        }
    }
}
