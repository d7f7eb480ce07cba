//! What other threads may read of a VM.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_rt::RuntimeHandle;

use crate::dict::SharedDict;
use crate::luajit::times::VmTimes;
use crate::vm::heap::HeapCounts;

/// What other threads may read of a VM.
pub(crate) struct VmFigures {
    /// Which of all VMs that were made, counted from 0.
    pub(crate) number: u64,
    pub(crate) worker: u8,
    pub(crate) remote: RuntimeHandle,
    /// Of its worker.
    pub(crate) times: &'static VmTimes,
    pub(crate) heap: Arc<HeapCounts>,
    pub(crate) dicts: Vec<(String, Arc<SharedDict>)>,
    /// Traces that were compiled.
    pub(crate) traces: AtomicU64,
    /// Times that all of them were thrown away.
    pub(crate) flushes: AtomicU64,
    /// How often the compiler gave up, by place and reason.
    pub(crate) aborts: Mutex<BTreeMap<(String, String), u64>>,
}

impl VmFigures {
    /// Those of a VM that is made now.
    pub(crate) fn new(
        worker: u8,
        heap: Arc<HeapCounts>,
        dicts: Vec<(String, Arc<SharedDict>)>,
    ) -> Arc<VmFigures> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let (traces, flushes, aborts) = Default::default();
        Arc::new(VmFigures {
            number: MADE.fetch_add(1, Relaxed),
            worker,
            remote: weir_rt::remote(),
            times: VmTimes::of_thread(),
            heap,
            dicts,
            traces,
            flushes,
            aborts,
        })
    }

    pub(crate) fn aborted(&self, place: String, reason: String) {
        let mut aborts = lock(&self.aborts);
        let full = aborts.len() >= PLACES;
        match aborts.get_mut(&(place.clone(), reason.clone())) {
            Some(count) => *count += 1,
            None if full => *aborts.entry(("elsewhere".to_owned(), String::new())).or_default() += 1,
            None => {
                aborts.insert((place, reason), 1);
            }
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of places that are counted separately.
pub(crate) const PLACES: usize = 1000;
