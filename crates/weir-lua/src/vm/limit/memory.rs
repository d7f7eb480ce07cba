//! `lua_memory_limit`: what a VM may allocate.
//!
//! LuaJIT's own allocator does the work; this one wraps it and counts. An allocation of a *script* that goes
//! beyond the limit fails, which LuaJIT makes an error of the script. Rust's functions work on Lua's stacks, too, and must
//! not be left by such an error halfway: while one of them runs the limit does not hold, and when it is done, the script gets
//! the error in its place. What goes beyond is what one such function pushes: texts that the server has in memory
//! anyway.
//!
//! LuaJIT does not collect garbage when memory is short. So the collector is woken when three quarters are in use,
//! and before a request runs when seven eighths are.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::luajit::state::LuaState;
use crate::luajit::sys::{self, AllocFunction, RawState};
use crate::vm::traps;

/// See the module.
pub(crate) struct MemoryLimit {
    /// LuaJIT's own.
    inner: AllocFunction,
    inner_data: *mut c_void,
    main: *mut RawState,
    /// Bytes.
    used: Cell<usize>,
    most: usize,
    /// A script runs, and no function of Rust's within.
    holds: Cell<bool>,
    /// More was allocated than `most` while it did not hold.
    excess: Cell<bool>,
    /// An allocation has failed since the last collection.
    refused: Cell<bool>,
    /// So much is in use when the collector is woken next.
    nudge_at: Cell<usize>,
    /// What was in use after the last whole collection.
    floor: Cell<usize>,
}

impl MemoryLimit {
    /// Puts itself before the allocator of the VM. It has to be [left](MemoryLimit::leave) before the VM is closed.
    pub(crate) fn of(main: LuaState, most: usize) -> Box<MemoryLimit> {
        let mut inner_data = std::ptr::null_mut();
        // SAFETY: the VM is open; collected bytes are counted in two parts.
        let (inner, used) = unsafe {
            let kilobytes = sys::lua_gc(main.raw(), sys::gc::COUNT, 0) as usize;
            let rest = sys::lua_gc(main.raw(), sys::gc::COUNTB, 0) as usize;
            (sys::lua_getallocf(main.raw(), &raw mut inner_data), kilobytes * 1024 + rest)
        };
        let memory = Box::new(MemoryLimit {
            inner,
            inner_data,
            main: main.raw(),
            used: Cell::new(used),
            most,
            holds: Cell::new(false),
            excess: Cell::new(false),
            refused: Cell::new(false),
            nudge_at: Cell::new(most / 4 * 3),
            floor: Cell::new(0),
        });
        // SAFETY: the box stays in place until the VM is closed, which `leave` comes before. The collector goes twice
        // as fast as it does by itself, so that it is done before the limit is reached.
        unsafe {
            sys::lua_gc(main.raw(), sys::gc::SETSTEPMUL, 400);
            sys::lua_setallocf(main.raw(), allocate, (&raw const *memory).cast_mut().cast());
        }
        memory
    }

    /// Gives the VM its own allocator back.
    pub(crate) fn leave(&self) {
        // SAFETY: what the VM has came from that allocator.
        unsafe { sys::lua_setallocf(self.main, self.inner, self.inner_data) };
    }

    /// Runs something for which the limit holds.
    pub(crate) fn limited<T>(&self, run: impl FnOnce() -> T) -> T {
        self.with_limit(true, run)
    }

    /// Runs something for which the limit does not hold.
    pub(crate) fn unlimited<T>(&self, run: impl FnOnce() -> T) -> T {
        self.with_limit(false, run)
    }

    fn with_limit<T>(&self, holds: bool, run: impl FnOnce() -> T) -> T {
        let before = self.holds.replace(holds);
        let result = run();
        self.holds.set(before);
        result
    }

    /// Whether the limit was exceeded where it does not hold; asked once.
    pub(crate) fn take_excess(&self) -> bool {
        self.excess.replace(false)
    }

    /// Collects garbage if little is left, or an allocation has failed. Not while Lua runs.
    ///
    /// What went beyond the limit after the last script's last function is not the next one's fault.
    pub(crate) fn make_room(&self, main: LuaState) {
        if self.holds.get() {
            return;
        }
        self.excess.set(false);
        let used = self.used.get();
        let tight = self.most / 8 * 7;
        let grown = used > self.floor.get() + self.most.saturating_sub(self.floor.get()) / 2;
        if !(self.refused.get() || used > tight && grown) {
            return;
        }
        self.refused.set(false);
        // SAFETY: no script runs, and the limit does not hold; errors of finalizers stay within.
        unsafe { sys::lua_gc(main.raw(), sys::gc::COLLECT, 0) };
        self.floor.set(self.used.get());
        self.excess.set(false);
    }

    /// Whether a block must not grow by this many bytes.
    fn refuses(&self, more: usize) -> bool {
        let used = self.used.get() + more;
        if used > self.most || is_injected() {
            let holds = self.holds.get();
            if holds { &self.refused } else { &self.excess }.set(true);
            traps::count("lua_memory_limit", "");
            return holds;
        }
        if used > self.nudge_at.get() {
            self.nudge(used);
        }
        false
    }

    /// Has the collector begin its next round.
    fn nudge(&self, used: usize) {
        self.nudge_at.set(used + (self.most - used) / 4 + 1);
        // SAFETY: stores the number of bytes at which the collector works next, and does nothing else; so it may be called
        // from within an allocation.
        unsafe { sys::lua_gc(self.main, sys::gc::RESTART, 0) };
    }

    fn count(&self, old: usize, new: usize) {
        let used = (self.used.get() + new).saturating_sub(old);
        self.used.set(used);
        if used < self.most / 2 {
            self.nudge_at.set(self.most / 4 * 3);
        }
    }
}

/// What LuaJIT calls for memory.
unsafe extern "C" fn allocate(data: *mut c_void, block: *mut c_void, old: usize, new: usize) -> *mut c_void {
    // SAFETY: the data is the `MemoryLimit` that was set with this function, and stays until `leave`.
    let memory = unsafe { &*data.cast::<MemoryLimit>() };
    if new > old && memory.refuses(new - old) {
        return std::ptr::null_mut();
    }
    // SAFETY: Lua's call, passed on.
    let made = unsafe { (memory.inner)(memory.inner_data, block, old, new) };
    if new == 0 || !made.is_null() {
        memory.count(old, new);
    }
    made
}

/// How many allocations from here on one fails; 0 for none. For tests, in all VMs that have a limit.
static INJECTED: AtomicU64 = AtomicU64::new(0);

/// See [`crate::fuzzed::fail_allocation`].
pub(crate) fn inject(number: u64) {
    INJECTED.store(number, Ordering::Relaxed);
}

/// How many of those that [`inject`] has asked for are still to come.
pub(crate) fn injected() -> u64 {
    INJECTED.load(Ordering::Relaxed)
}

/// Whether this one is to fail. Another thread may take the order back meanwhile.
fn is_injected() -> bool {
    injected() > 0
        && INJECTED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) == Ok(1)
}
