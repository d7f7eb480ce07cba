//! Memory that a peak of work has left unused goes back to the system.
//!
//! The C library keeps what is freed between blocks that are still in use: after a hundred connections with a hundred streams
//! each it would be hundreds of megabytes, for ever. Giving it back takes milliseconds, in which other threads may wait for
//! memory; so it is done at a quiet moment after connections have ended, and where it is worth that.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_rt::process;

use crate::worker::Worker;

/// Bytes of the process that were in memory when memory was given back last.
static LEFT: AtomicU64 = AtomicU64::new(0);

/// A connection has ended that may have held much: looks, soon and once, whether memory is to be given back.
pub fn trim_later(worker: &Rc<Worker>) {
    if worker.is_trimming.replace(true) {
        return;
    }
    let worker = Rc::downgrade(worker);
    weir_rt::spawn(async move {
        for _ in 0..TRIES {
            weir_rt::sleep(PAUSE).await;
            let Some(worker) = worker.upgrade() else { return };
            if worker.counters.writing.get() == 0 {
                worker.trim_exchanges();
                drop(worker);
                // Not on the loop: others may come meanwhile.
                weir_rt::blocking(trim).await;
                break;
            }
        }
        if let Some(worker) = worker.upgrade() {
            worker.is_trimming.set(false);
        }
    });
}

fn trim() {
    let mut left = process::resident_bytes();
    if left > LEFT.load(Ordering::Relaxed) + WORTH {
        process::trim_memory();
        left = process::resident_bytes();
    } else {
        left = left.min(LEFT.load(Ordering::Relaxed));
    }
    LEFT.store(left, Ordering::Relaxed);
}

/// Between looks, of which there are so many.
const PAUSE: Duration = Duration::from_secs(1);
const TRIES: u32 = 60;
/// Less is not looked for: what workers keep for their next requests comes and goes by as much.
const WORTH: u64 = 8 << 20;
