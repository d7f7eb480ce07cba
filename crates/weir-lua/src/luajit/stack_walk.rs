//! The lines of a coroutine that waits: the functions of `inspect/walk.c` that need no VM.

use weir_rt::sampler::{GuestStep, StackFrame};

use crate::luajit::state::LuaState;
use crate::luajit::sys::RawState;

unsafe extern "C" {
    fn weir_walk_coroutine(l: *mut RawState, step: *mut GuestStep);
    fn weir_walk_number(l: *mut RawState) -> u64;
}

/// The lines of a coroutine that has yielded, innermost first.
pub(crate) fn stack_of(l: LuaState) -> Vec<StackFrame> {
    let mut step = GuestStep::default();
    // SAFETY: the coroutine is anchored and does not run.
    unsafe { weir_walk_coroutine(l.raw(), &raw mut step) };
    step.frames[..(step.count as usize).min(step.frames.len())]
        .iter()
        .map(|word| StackFrame::unpack(*word))
        .collect()
}

/// A number for the lines of such a coroutine: those of another one that is called so are the same.
pub(crate) fn number_of(l: LuaState) -> u64 {
    // SAFETY: the coroutine is anchored and does not run; its stack is only read.
    unsafe { weir_walk_number(l.raw()) }
}
