//! Time of a site in which its thread did not run, as one worker counts it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Ticks asleep in calls that block, and ticks without a core: seldom written, so that it has memory only where it was. One
/// thread writes.
#[derive(Debug, Default)]
pub(crate) struct LiveOffCore(OnceLock<Box<[AtomicU64; 2]>>);

impl LiveOffCore {
    /// Adds to both.
    #[cold]
    pub(crate) fn add(&self, ticks: [u64; 2]) {
        let counts = self.0.get_or_init(Box::default);
        counts.iter().zip(ticks).for_each(|(count, ticks)| count.store(count.load(Relaxed) + ticks, Relaxed));
    }

    pub(crate) fn read(&self) -> [u64; 2] {
        self.0.get().map_or([0; 2], |counts| std::array::from_fn(|at| counts[at].load(Relaxed)))
    }
}
