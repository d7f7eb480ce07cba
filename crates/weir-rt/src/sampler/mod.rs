//! Samples of running threads: what spends the processor, and what a stuck loop is doing.
//!
//! A thread that [`attach`]es shows a [`ThreadProbe`]: where it is ([`CurrentWork`], written by the engine at its marks), since
//! when its turn runs, and a ring of stack samples. A timer of the kernel on the thread's own CPU time sends it a
//! signal; the handler walks the frame pointers, by [rules](UnwindTable) where libraries have none and through a [`StackGuest`]
//! where one runs, and writes the ring. It
//! allocates nothing, takes no lock, calls no unwinder and no function of the C library, and is not run at all while the
//! thread sleeps. Another thread
//! (`weir-engine`'s housekeeping) drains the rings; addresses get their names in the `weir` command, not here.
//!
//! The signal is SIGPROF: debuggers let it pass without stopping. A process whose SIGPROF belongs to another profiler
//! is not sampled ([`ThreadProbe::arm`] says so).

mod alloc;
mod counted;
mod current;
mod doze;
mod frame;
pub(crate) mod guard;
mod guest;
mod handler;
mod loaded;
pub mod names;
mod probe;
mod resume;
mod ring;
mod room;
mod switched;
pub(crate) mod timers;
mod unwind;
mod walk;

pub use alloc::{allocated, sample_allocations};
pub use counted::{COUNTER_NUMBER, COUNTERS, CountedPlace, prepare_counters};
pub use current::{CurrentWork, SitePlace};
pub use doze::doze;
pub(crate) use doze::rouse;
pub use frame::StackFrame;
pub use guest::{GuestStep, StackGuest, set_guest};
pub use loaded::{LoadCounts, LoadedCode, load_counts, loaded_code};
pub(crate) use probe::stack_of_thread;
pub use probe::{AttachedThread, LongTurn, MAX_FAULTS, ThreadProbe, attach, probes};
pub use ring::{SampleSource, StackSample};
pub use switched::{SWITCH_NUMBER, prepare_switches};
pub use unwind::{FrameBase, UnwindRule, UnwindTable, add_unwind_table};

/// Where the calling thread is: its own cells when it is attached, cells that are never read otherwise.
#[inline]
pub fn current() -> &'static CurrentWork {
    probe::mine().current()
}

/// The number of the calling thread among the sampled ones; 0 also for those that are not.
#[inline]
pub fn worker() -> u32 {
    probe::mine().worker()
}

/// The calling thread's probe.
#[inline]
pub(crate) fn mine() -> &'static ThreadProbe {
    probe::mine()
}

#[cfg(test)]
mod tests;
