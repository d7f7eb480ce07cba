//! When a simulation begins.

/// What the monotonic clock says at the beginning, seconds.
pub(crate) const MONOTONIC_START: u64 = 1000;
/// What the wall clock says at the beginning, seconds since 1970.
pub(crate) const WALL_START: u64 = 1_900_000_000;
/// The number of the simulated process. A thread's is so much more as its place among the simulation's threads.
pub(crate) const PROCESS: i32 = 4242;
