//! A VM's memory: what its scripts allocate is counted, and sampled on request.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_rt::sampler;

use crate::luajit::state::LuaState;
use crate::luajit::sys::{self, AllocFunction};

/// LuaJIT's own allocator, with a count before it.
pub(crate) struct VmHeap {
    function: AllocFunction,
    data: *mut c_void,
    counts: Arc<HeapCounts>,
}

/// What other threads may read: written by the VM's alone.
#[derive(Default)]
pub(crate) struct HeapCounts {
    /// Bytes asked for since the VM was made, growth of blocks included.
    pub(crate) allocated: AtomicU64,
    /// Bytes given back.
    pub(crate) freed: AtomicU64,
}

impl HeapCounts {
    /// Bytes in use.
    pub(crate) fn live(&self) -> u64 {
        self.allocated.load(Relaxed).saturating_sub(self.freed.load(Relaxed))
    }
}

impl VmHeap {
    /// Counts what the VM of `main` allocates from here on. It must be [detached](VmHeap::detach) before the VM is closed.
    pub(crate) fn attach(main: LuaState) -> Box<VmHeap> {
        let mut data = std::ptr::null_mut();
        // SAFETY: the VM is open; what it has in use is given in two parts.
        let (function, used) = unsafe {
            let kilobytes = sys::lua_gc(main.raw(), sys::gc::COUNT, 0) as u64;
            let rest = sys::lua_gc(main.raw(), sys::gc::COUNTB, 0) as u64;
            (sys::lua_getallocf(main.raw(), &raw mut data), kilobytes * 1024 + rest)
        };
        let counts = HeapCounts { allocated: AtomicU64::new(used), ..HeapCounts::default() };
        let heap = Box::new(VmHeap { function, data, counts: Arc::new(counts) });
        // SAFETY: the box keeps its place; `allocate` hands on to the allocator that was there.
        unsafe { sys::lua_setallocf(main.raw(), allocate, std::ptr::from_ref(&*heap).cast_mut().cast()) };
        heap
    }

    /// The VM has its own allocator again, which frees all at once when it is closed.
    pub(crate) fn detach(&self, main: LuaState) {
        // SAFETY: what `attach` has found there.
        unsafe { sys::lua_setallocf(main.raw(), self.function, self.data) };
    }

    pub(crate) fn counts(&self) -> &Arc<HeapCounts> {
        &self.counts
    }
}

/// What LuaJIT calls for each block: `old` bytes at `block` become `new`.
unsafe extern "C" fn allocate(heap: *mut c_void, block: *mut c_void, old: usize, new: usize) -> *mut c_void {
    // SAFETY: `attach` has given the box's place; the VM is used by one thread.
    let heap = unsafe { &*heap.cast::<VmHeap>() };
    // One thread writes: a load and a store are enough, and cost a third of an addition that is atomic.
    let add = |sum: &AtomicU64, bytes: usize| {
        let before = sum.load(Relaxed);
        sum.store(before + bytes as u64, Relaxed);
        before ^ (before + bytes as u64)
    };
    if new <= old {
        add(&heap.counts.freed, old - new);
    } else if add(&heap.counts.allocated, new - old) >= STRIDE {
        sampler::allocated((new - old).max(STRIDE as usize));
        // SAFETY: as below.
        return unsafe { (heap.function)(heap.data, block, old, new) };
    }
    // SAFETY: LuaJIT's own allocator with its own data, and the block and sizes that LuaJIT has called with.
    unsafe { (heap.function)(heap.data, block, old, new) }
}

/// The sampler is asked when the sum passes a multiple of this many bytes, a power of two: a fraction of what a sample
/// represents, and a hundred blocks.
const STRIDE: u64 = 8 << 10;
