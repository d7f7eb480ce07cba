//! A language whose code runs inside of the program without frame pointers, on stacks of its own: how the walk passes
//! through it. There is one, Lua; `weir-lua` knows its stacks, and this crate the signals.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::OnceLock;

use super::guard;
use super::walk::{InnerWalk, WalkRegisters};

/// What the walk asks. All functions are called in the signal handler, on the sampled thread; they read memory that the
/// interrupted code may be changing, and may fault doing so.
#[derive(Clone, Debug)]
pub struct StackGuest {
    /// Addresses of the machine's code: its interpreter.
    pub code: Range<u64>,
    /// Whether the address is in code that the machine running on this thread has compiled.
    pub is_compiled: extern "C" fn(address: u64) -> bool,
    /// Puts the frames at `ip` and sets `ip`, `sp` and `fp` to where native code has called the machine; 0 if that is not
    /// known. Registers after these are those of the machine.
    pub frames: extern "C" fn(step: &mut GuestStep) -> i32,
    /// The same where the native stack from `sp` on could not be followed.
    pub lost: extern "C" fn(step: &mut GuestStep) -> i32,
    /// Where on the native stack the innermost C code is that has called the machine, if that is at `sp` or above; 0 where there
    /// is none.
    pub boundary: extern "C" fn(sp: u64) -> u64,
    /// What the machine does: [`StackSample::vm_state`](super::StackSample::vm_state).
    pub state: extern "C" fn() -> u8,
}

/// One step of a stack walk through guest code.
#[repr(C)]
#[derive(Debug)]
pub struct GuestStep {
    /// The address of the instruction.
    pub ip: u64,
    /// The stack pointer, after the address of return that was taken from there.
    pub sp: u64,
    /// The frame pointer.
    pub fp: u64,
    /// rdx of the interrupted instruction.
    pub base: u64,
    /// rbx of the interrupted instruction.
    pub pc: u64,
    /// The end of the thread's stack.
    pub stack_end: u64,
    /// `ip` is the interrupted instruction, not an address of return.
    pub leaf: u32,
    /// How many frames there are.
    pub count: u32,
    /// Packed [`StackFrame`](super::StackFrame)s, innermost first.
    pub frames: [u64; 64],
}

impl Default for GuestStep {
    fn default() -> GuestStep {
        GuestStep::at(WalkRegisters { ip: 0, sp: 0, fp: 0, base: 0, pc: 0 }, false, 0)
    }
}

impl GuestStep {
    /// At these registers, without frames.
    fn at(at: WalkRegisters, leaf: bool, stack_end: u64) -> GuestStep {
        let WalkRegisters { ip, sp, fp, base, pc } = at;
        GuestStep { ip, sp, fp, base, pc, stack_end, leaf: leaf.into(), count: 0, frames: [0; 64] }
    }
}

static GUEST: OnceLock<StackGuest> = OnceLock::new();

/// From here on stacks are walked through this language. The first call counts.
pub fn set_guest(guest: StackGuest) {
    GUEST.get_or_init(|| guest);
}

/// The guest, if the calling thread's stack may be walked through it.
pub(super) struct GuestPassage {
    pub(super) stack_end: u64,
}

impl GuestPassage {
    /// State of the machine on this thread.
    pub(super) fn state() -> u8 {
        let Some(guest) = GUEST.get() else { return 0 };
        let mut state = (guest.state, 0u8);
        extern "C" fn ask(argument: *mut c_void) {
            // SAFETY: `state` below.
            let state = unsafe { &mut *argument.cast::<(extern "C" fn() -> u8, u8)>() };
            state.1 = (state.0)();
        }
        // SAFETY: `ask` is given what it expects, and owns nothing.
        unsafe { guard::attempt(ask, (&raw mut state).cast()) };
        state.1
    }

    fn run(
        &self,
        function: extern "C" fn(&mut GuestStep) -> i32,
        step: GuestStep,
        emit: &mut dyn FnMut(u64) -> bool,
    ) -> Option<WalkRegisters> {
        let mut call = (function, step, 0i32);
        extern "C" fn ask(argument: *mut c_void) {
            // SAFETY: `call` below.
            let call =
                unsafe { &mut *argument.cast::<(extern "C" fn(&mut GuestStep) -> i32, GuestStep, i32)>() };
            call.2 = (call.0)(&mut call.1);
        }
        // SAFETY: `ask` is given what it expects, and owns nothing.
        let ended = unsafe { guard::attempt(ask, (&raw mut call).cast()) };
        let (_, step, found) = &call;
        let count = (step.count as usize).min(step.frames.len());
        let went_on = step.frames[..count].iter().all(|frame| emit(*frame));
        let after = WalkRegisters { ip: step.ip, sp: step.sp, fp: step.fp, base: 0, pc: 0 };
        (ended && went_on && *found != 0).then_some(after)
    }
}

impl InnerWalk for GuestPassage {
    fn boundary(&self, sp: u64) -> Option<u64> {
        let mut call = (GUEST.get()?.boundary, sp, 0u64);
        extern "C" fn ask(argument: *mut c_void) {
            // SAFETY: `call` above.
            let call = unsafe { &mut *argument.cast::<(extern "C" fn(u64) -> u64, u64, u64)>() };
            call.2 = (call.0)(call.1);
        }
        // SAFETY: `ask` is given what it expects, and owns nothing.
        let ended = unsafe { guard::attempt(ask, (&raw mut call).cast()) };
        (ended && (sp..self.stack_end).contains(&call.2)).then_some(call.2)
    }

    fn owns(&self, address: u64, of_program: bool) -> bool {
        let Some(guest) = GUEST.get() else { return false };
        if of_program {
            return guest.code.contains(&address);
        }
        let mut call = (guest.is_compiled, address, false);
        extern "C" fn ask(argument: *mut c_void) {
            // SAFETY: `call` above.
            let call = unsafe { &mut *argument.cast::<(extern "C" fn(u64) -> bool, u64, bool)>() };
            call.2 = (call.0)(call.1);
        }
        // SAFETY: `ask` is given what it expects, and owns nothing.
        unsafe { guard::attempt(ask, (&raw mut call).cast()) };
        call.2
    }

    fn pass(
        &self,
        at: WalkRegisters,
        leaf: bool,
        emit: &mut dyn FnMut(u64) -> bool,
    ) -> Option<WalkRegisters> {
        self.run(GUEST.get()?.frames, GuestStep::at(at, leaf, self.stack_end), emit)
    }

    fn lost(&self, sp: u64, emit: &mut dyn FnMut(u64) -> bool) -> Option<WalkRegisters> {
        let at = WalkRegisters { ip: 0, sp, fp: 0, base: 0, pc: 0 };
        self.run(GUEST.get()?.lost, GuestStep::at(at, false, self.stack_end), emit)
    }
}
