//! Wakers without reference counts: the data pointer *is* the task (slot of the runtime << 32 | task index).
//!
//! Cloning copies two words, dropping does nothing, and waking on the task's own thread pushes an index. Waking
//! from another thread goes through that runtime's inbox. A waker that outlives its task wakes the task that has the
//! index now, which then polls once in vain: the price of carrying no generation, and every future allows it.

use std::ptr::without_provenance;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::with_current_queue;
use crate::inbox;

const _: () = assert!(usize::BITS >= 64, "the task is packed into a pointer of 64 bits");

static VTABLE: RawWakerVTable = RawWakerVTable::new(|data| RawWaker::new(data, &VTABLE), wake, wake, |_| ());

/// The waker of `task` of the runtime registered at `slot`.
pub(crate) fn waker(slot: u16, task: u32) -> Waker {
    let data = without_provenance((usize::from(slot) << 32) | task as usize);
    // SAFETY: the functions of VTABLE treat the data as a number, may be called from any thread and any number of
    // times, and own nothing, which is all that the contract of RawWaker asks for.
    unsafe { Waker::from_raw(RawWaker::new(data, &VTABLE)) }
}

/// The task behind one of our wakers, if it is one and belongs to the runtime at `slot`.
#[inline]
pub(crate) fn task_of(waker: &Waker, slot: u16) -> Option<u32> {
    let data = waker.data().addr();
    (std::ptr::eq(waker.vtable(), &raw const VTABLE) && data >> 32 == usize::from(slot))
        .then_some(data as u32)
}

fn wake(data: *const ()) {
    let (slot, task) = ((data.addr() >> 32) as u16, data.addr() as u32);
    let here = with_current_queue(|sched| {
        let mine = sched.slot() == slot;
        if mine {
            sched.wake(task);
        }
        mine
    });
    if here != Some(true) {
        inbox::wake_remote(slot, task);
    }
}
