//! The time Lua's collector and compiler take: added up by LuaJIT itself (`build.rs` has the other half), shown in
//! traces and in `weir lua gc` and `jit`.
//!
//! Two reads of the clock, 15 ns, for each step of the collector (a microsecond and more) and each instruction that the
//! compiler records (half of one); where neither is called it costs a request two comparisons.

use std::cell::{Cell, OnceCell};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_rt::clock;

use crate::luajit::sys;

/// `struct weir_times`, of a thread.
#[repr(C)]
pub(crate) struct VmTimes {
    /// Ticks in neither, the collector, the compiler. Other threads may read.
    spent: [AtomicU64; 3],
    since: Cell<u64>,
    clock: extern "C" fn() -> u64,
    doing: Cell<u32>,
}

// SAFETY: cells are its own thread's, all else is atomic or never written.
unsafe impl Sync for VmTimes {}

extern "C" fn ticks() -> u64 {
    clock::ticks()
}

impl VmTimes {
    /// Those of the thread, which has them from the first call on. A few bytes for each worker that ever was are not given
    /// back: VMs may be closed when the thread's own data is gone.
    pub(crate) fn of_thread() -> &'static VmTimes {
        thread_local! {
            static TIMES: OnceCell<&'static VmTimes> = const { OnceCell::new() };
        }
        TIMES.with(|times| {
            *times.get_or_init(|| {
                let (spent, since, doing) = Default::default();
                let times = Box::leak(Box::new(VmTimes { spent, since, clock: ticks, doing }));
                // SAFETY: it lives for ever, and this thread alone gets it.
                unsafe { sys::weir_lua_time(times) };
                times
            })
        })
    }

    /// Ticks in the collector and in the compiler so far.
    pub(crate) fn spent(&self) -> [u64; 2] {
        [self.spent[1].load(Relaxed), self.spent[2].load(Relaxed)]
    }

    /// As [`Self::spent`], in nanoseconds.
    pub(crate) fn spent_ns(&self) -> [u64; 2] {
        self.spent().map(|ticks| clock::scale().ticks_to_ns(ticks))
    }
}
