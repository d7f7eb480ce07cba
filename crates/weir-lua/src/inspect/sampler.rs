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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::ffi::c_int;

    use weir_rt::sampler::StackFrame;

    use super::*;
    use crate::luajit::state::LuaState;
    use crate::luajit::sys;

    thread_local! {
        static MAIN: RefCell<Option<*mut RawState>> = const { RefCell::new(None) };
        static FOUND: RefCell<Vec<FoundLines>> = const { RefCell::new(Vec::new()) };
    }

    /// The innermost two lines, and how often they were found.
    #[derive(Debug)]
    struct FoundLines {
        lines: Vec<FoundLine>,
        count: u32,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct FoundLine {
        line: u32,
        jit: bool,
        guessed: bool,
    }

    /// What a script calls by ffi: walks its own stack as if nothing were known of it but where it is.
    extern "C" fn look(_: c_int) {
        let main = MAIN.with_borrow(|main| main.expect("a VM"));
        let here = 0u64;
        let sp = &raw const here as u64;
        let mut step = GuestStep { sp: sp & !7, stack_end: u64::MAX, ..GuestStep::default() };
        // SAFETY: the VM is the test's own and runs this; its stack is this thread's.
        unsafe { weir_walk_lost(main, &raw mut step) };
        // The interpreter has the function of ffi that makes the call as a frame, too.
        let frames = &step.frames[..(step.count as usize).min(step.frames.len())];
        let line = |word: &u64| match StackFrame::unpack(*word) {
            StackFrame::Lua { line, jit, guessed, .. } => Some(FoundLine { line, jit, guessed }),
            _ => None,
        };
        let lines: Vec<_> = frames.iter().filter_map(line).take(2).collect();
        FOUND.with_borrow_mut(|all| match all.iter_mut().find(|found| found.lines == lines) {
            Some(found) => found.count += 1,
            None => all.push(FoundLines { lines, count: 1 }),
        });
    }

    /// Runs a script that has `look`, and returns which lines were found, with how often.
    fn found_in(text: &str) -> Vec<FoundLines> {
        // SAFETY: no stack is walked before.
        unsafe { weir_walk_install(number) };
        // SAFETY: the VM is the test's own; the text lives during the call; a function is on the stack.
        unsafe {
            let l = sys::luaL_newstate();
            sys::luaL_openlibs(l);
            MAIN.with_borrow_mut(|main| *main = Some(l));
            let loaded = sys::luaL_loadbuffer(l, text.as_ptr().cast(), text.len(), c"=lost".as_ptr());
            sys::lua_pushlightuserdata(l, look as *mut _);
            let status = if loaded == sys::status::OK { sys::lua_pcall(l, 1, 0, 0) } else { loaded };
            assert_eq!(status, sys::status::OK, "{}", LuaState::new(l).lossy(-1));
            sys::lua_close(l);
        }
        FOUND.with_borrow_mut(std::mem::take)
    }

    const SCRIPT: &str = "local look = require 'ffi'.cast('void (*)(int)', ...)
local function run(n)
    local s, a, b, c, d = 0, n, n + 1, n * 2, n % 7
    for i = 1, n do
        s = s + i
        look(i)
        a, b, c, d = b + i, c - a, d * 2 % 1000, a % 100 + s
        if i % 3 == 0 then
            look(a)
        end
    end
    return s + a + b + c + d
end
return nil, run(600)";

    /// Where the native stack can't be followed, the line is that of the call all the same: in compiled code, in what branches off from it,
    /// and in what is interpreted.
    #[test]
    fn lines_are_known_without_the_native_stack() {
        for (options, is_compiled) in [("jit.on()", true), ("jit.off()", false)] {
            let found = found_in(&format!("{options} {SCRIPT}"));
            let of = |line: u32, jit: bool| {
                let wanted = FoundLine { line, jit, guessed: false };
                found.iter().find(|found| found.lines[0] == wanted).map_or(0, |found| found.count)
            };
            assert_eq!((of(6, true) + of(6, false), of(9, true) + of(9, false)), (600, 200), "{found:?}");
            assert_eq!(of(6, true) > 400, is_compiled, "{found:?}");
            assert_eq!(of(9, true) > 100, is_compiled, "{found:?}");
            assert!(found.iter().all(|found| found.lines[1].line == 14), "called by the chunk: {found:?}");
        }
    }
}
