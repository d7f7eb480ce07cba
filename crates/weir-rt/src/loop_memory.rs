//! What a loop holds for itself: its pools and its tables.

use crate::executor::TaskEntry;
use crate::heap;
use crate::held::HeldMemory;
use crate::runtime::with_current;

/// What a loop itself holds. Sockets and tasks in use are their owners' ([`crate::Stream::held_bytes`], [`TASK_PLACE`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopMemory {
    /// Buffers to receive into.
    pub receive_buffers: HeldMemory,
    /// Emptied vectors and output queues.
    pub spare_vectors: HeldMemory,
    /// Freed blocks that were not given back to the system's allocator.
    pub freed_blocks: HeldMemory,
    /// Timers, of connections too.
    pub timers: HeldMemory,
    /// Places in the tables of sockets and tasks that nothing has.
    pub unused_places: HeldMemory,
}

impl LoopMemory {
    /// That of this thread's loop.
    ///
    /// # Panics
    /// Outside a runtime.
    pub fn now() -> LoopMemory {
        with_current(|core| {
            let mut unused_places = core.state.sched.unused();
            let (receive_buffers, spare_vectors) = core.io.with(|io| {
                unused_places += io.sockets.unused();
                (io.sockets.pool.held(), io.sockets.spares.held())
            });
            let (timers, freed_blocks) = (core.state.timers.held(), heap::stored());
            LoopMemory { receive_buffers, spare_vectors, freed_blocks, timers, unused_places }
        })
        .expect("a loop's memory is asked for on its thread")
    }
}

/// Bytes of a task's place in the loop's table, besides its future.
pub const TASK_PLACE: usize = size_of::<TaskEntry>();
