//! The lines of a coroutine that waits, or runs a C function: the functions of `inspect/walk.c` that need no VM.

use std::ffi::c_void;

use weir_rt::sampler::{GuestStep, StackFrame};

use crate::luajit::state::LuaState;
use crate::luajit::sys::RawState;

unsafe extern "C" {
    fn weir_walk_coroutine(l: *mut RawState, step: *mut GuestStep);
    fn weir_walk_number(l: *mut RawState) -> u64;
    fn weir_walk_here(l: *mut RawState, frame: *mut c_void, step: *mut GuestStep);
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

/// The lines, innermost first, of the script that has called the C function with that frame pointer.
///
/// # Safety
/// Scripts of `l`'s VM run on this thread; `frame` is the frame pointer of a C function that they have called, which waits
/// for the caller.
pub(crate) unsafe fn lines_here(l: *mut RawState, frame: *mut c_void, step: &mut GuestStep) -> &[u64] {
    // SAFETY: the caller's; the walk reads the VM's structures and the stack between that frame and Lua's.
    unsafe { weir_walk_here(l, frame, step) };
    &step.frames[..(step.count as usize).min(step.frames.len())]
}
