//! What the sampler needs to walk Lua's stacks: the functions of `walk.c`, for the VM that runs on the thread.
//!
//! All but [`install`] run in the signal handler: they read, and intern names in a table that takes no
//! lock.

use std::ffi::{c_char, c_int};
use std::sync::Once;

use weir_rt::sampler::{self, GuestStep, StackGuest, names};

use crate::luajit::sys::RawState;
use crate::run::lend;

unsafe extern "C" {
    /// The interpreter's first instruction.
    static lj_vm_asm_begin: u8;
    fn weir_walk_install(number: extern "C" fn(*const c_char, usize) -> u32);
    fn weir_walk_is_trace(main: *mut RawState, address: u64) -> c_int;
    fn weir_walk_state(main: *mut RawState) -> c_int;
    fn weir_walk_frames(main: *mut RawState, step: *mut GuestStep) -> c_int;
    fn weir_walk_boundary(main: *mut RawState, sp: u64) -> u64;
    fn weir_walk_lost(main: *mut RawState, step: *mut GuestStep) -> c_int;
}

/// From here on samples have Lua's frames.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(set);
}

fn set() {
    // SAFETY: no stack is walked before the guest is set.
    unsafe { weir_walk_install(number) };
    let begin = &raw const lj_vm_asm_begin as u64;
    let length: u64 = env!("WEIR_LUA_VM_LENGTH").parse().expect("the build script wrote a number");
    sampler::set_guest(StackGuest {
        code: begin..begin + length,
        is_compiled,
        frames,
        lost,
        boundary,
        state,
    });
}

extern "C" fn is_compiled(address: u64) -> bool {
    // SAFETY: the VM is open as long as it is lent; the sampler catches faults, here and below.
    lend::main().is_some_and(|main| unsafe { weir_walk_is_trace(main, address) != 0 })
}

extern "C" fn frames(step: &mut GuestStep) -> i32 {
    // SAFETY: the VM is open as long as it is lent, `step` is the caller's; the sampler catches faults of the walk.
    lend::main().map_or(0, |main| unsafe { weir_walk_frames(main, step) })
}

extern "C" fn lost(step: &mut GuestStep) -> i32 {
    // SAFETY: the VM is open as long as it is lent, `step` is the caller's; the sampler catches faults of the search.
    lend::main().map_or(0, |main| unsafe { weir_walk_lost(main, step) })
}

extern "C" fn boundary(sp: u64) -> u64 {
    // SAFETY: the VM is open as long as it is lent, and only read; the sampler catches faults.
    lend::main().map_or(0, |main| unsafe { weir_walk_boundary(main, sp) })
}

extern "C" fn state() -> u8 {
    // SAFETY: the VM is open as long as it is lent, and its state is only read.
    lend::main().map_or(0, |main| unsafe { weir_walk_state(main) as u8 })
}

/// The number of a chunk's or a function's name, for `walk.c`.
extern "C" fn number(name: *const c_char, length: usize) -> u32 {
    // SAFETY: a string of the VM's, or of the table of functions; if it is not, reading it faults, which is caught.
    names::number(unsafe { std::slice::from_raw_parts(name.cast(), length.min(LONGEST)) })
}

/// Of a name so much is looked at: a chunk that was loaded from a text is named for all of it.
const LONGEST: usize = 4096;
