//! What the loop knows about itself: written by its thread alone, readable from any.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of one worker's loop. Its thread adds with plain loads and stores (no read-modify-write), so a
        /// reader sees each counter right but not all of them at one instant. In cache lines of its own (two, which x86
        /// fetches together).
        #[derive(Default)]
        #[repr(align(128))]
        pub struct LoopStats { $(pub(crate) $name: LoopCounter,)* }

        /// A copy of all counters, taken one after the other.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LoopSnapshot { $($(#[$doc])* pub $name: u64,)* }

        impl LoopStats {
            /// Reads all counters; they need not be of one moment.
            pub fn snapshot(&self) -> LoopSnapshot {
                LoopSnapshot { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Turns of the loop: waits ended.
    turns,
    /// Tasks spawned and not finished.
    tasks_live,
    /// Polls of tasks.
    tasks_polled,
    /// Tasks ended by a panic (and closures of [`crate::RuntimeHandle::run`] that panicked).
    panics,
    /// Nanoseconds spent in the driver's system call, waiting or submitting.
    parked_ns,
    /// Nanoseconds spent elsewhere: tasks, completions, timers.
    busy_ns,
    /// The longest time between two waits, in nanoseconds: an upper bound of the longest
    /// poll of one task (stamps are taken per turn, not per task).
    longest_poll_ns,
    /// Of turns above a millisecond, nanoseconds that the thread slept in calls that block.
    asleep_ns,
    /// Of turns above a millisecond, nanoseconds in which the thread could have run and had no core.
    no_core_ns,
    /// The latest timer, in milliseconds after its deadline.
    timers_late_max_ms,
    /// Receives that found the buffer pool empty.
    enobufs,
    /// Accepts that failed for want of descriptors or memory (accepting pauses until a close, or 50 ms).
    emfile,
    /// Connections accepted.
    accepted,
    /// Connected sockets open, accepted or made.
    connections_live,
    /// Small files written on the loop itself ([`crate::small_write::FileWrite`]).
    small_writes,
    /// The longest of these writes, in nanoseconds.
    longest_small_write_ns,
    /// The stamp ([`crate::clock::ticks`]) at which the turn began that the loop is in; 0 while it waits.
    turn_began,
}

impl LoopStats {
    /// How long the loop has been in its turn, in nanoseconds; 0 while it waits.
    pub fn turn_ns(&self) -> u64 {
        match self.turn_began.get() {
            0 => 0,
            began => clock::scale().ticks_to_ns(clock::ticks().saturating_sub(began)),
        }
    }

    /// The turn that the loop is in, another number for each; 0 while it waits.
    pub fn turn(&self) -> u64 {
        self.turn_began.get()
    }

    /// Counts an accept that failed for want of descriptors or memory: for a thread that accepts in the place of the
    /// worker, which does not then.
    pub fn accept_failed(&self) {
        self.emfile.add(1);
    }
}

/// One counter; all methods but `get` belong to the worker's thread.
#[derive(Default)]
pub(crate) struct LoopCounter(AtomicU64);

impl LoopCounter {
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, v: u64) {
        self.0.store(v, Relaxed);
    }

    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }

    #[inline]
    pub(crate) fn sub(&self, n: u64) {
        self.set(self.get().wrapping_sub(n));
    }

    #[inline]
    pub(crate) fn max(&self, v: u64) {
        if v > self.get() {
            self.set(v);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LoopStats;

    /// No two workers' counters are in one cache line, wherever the allocator puts them.
    #[test]
    fn counters_share_no_cache_line() {
        assert_eq!((align_of::<LoopStats>(), size_of::<LoopStats>() % 128), (128, 0));
    }

    #[test]
    fn the_largest_is_kept() {
        let stats = LoopStats::default();
        stats.longest_poll_ns.max(7);
        stats.longest_poll_ns.max(3);
        assert_eq!(stats.snapshot().longest_poll_ns, 7);
    }
}
