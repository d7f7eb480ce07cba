//! What a script may use: CPU time without coming back ([`cpu`]), memory ([`memory`]), and the worker's stack.

mod cpu;
pub(crate) mod memory;

use std::cell::Cell;
use std::ffi::c_char;
use std::ptr;
use std::time::Duration;

use weir_engine::log::LogLevel;

use crate::luajit::state::LuaState;
use crate::luajit::sys;
use crate::vm::phase::ScriptPhase;
use crate::vm::settings::VmSettings;

pub(crate) use cpu::CpuLimit;
pub(crate) use memory::MemoryLimit;

/// The limits of a VM.
pub(crate) struct VmLimits {
    cpu: Option<CpuLimit>,
    pub(crate) memory: Option<Box<MemoryLimit>>,
}

impl VmLimits {
    /// The limits of the VM whose main coroutine this is, from here on.
    pub(crate) fn new(main: LuaState, conf: &VmSettings) -> VmLimits {
        guard_stack();
        let cpu = conf.cpu_limit.filter(|most| *most > 0).and_then(|most| {
            let limit = CpuLimit::new(Duration::from_millis(most));
            limit
                .map_err(|error| {
                    weir_engine::log::cycle(
                        LogLevel::Error,
                        &format_args!("lua_cpu_limit is not in force: {error}"),
                    );
                })
                .ok()
        });
        let memory = conf
            .memory_limit
            .filter(|most| *most > 0)
            .map(|most| MemoryLimit::of(main, usize::try_from(most).unwrap_or(usize::MAX)));
        VmLimits { cpu, memory }
    }

    /// Runs scripts until they come back to the event loop; what they may not exceed is counted from here on, unless
    /// they run within such a call already.
    pub(crate) fn watch<T>(&self, main: LuaState, phase: ScriptPhase, scripts: impl FnOnce() -> T) -> T {
        if let Some(memory) = &self.memory {
            memory.make_room(main);
        }
        match &self.cpu {
            // Before it serves, a worker may take its time.
            Some(cpu) if !matches!(phase, ScriptPhase::Init | ScriptPhase::InitWorker) => {
                cpu.watch(main, scripts)
            }
            _ => scripts(),
        }
    }

    /// Lets Lua run, for which alone the limit of memory is one.
    pub(crate) fn within<T>(&self, lua: impl FnOnce() -> T) -> T {
        match &self.memory {
            Some(memory) => memory.limited(lua),
            None => lua(),
        }
    }
}

/// Runs what works on a Lua stack and must not be interrupted by an error: the running script's limit of memory does
/// not hold meanwhile.
pub(crate) fn unlimited<T>(work: impl FnOnce() -> T) -> T {
    match running() {
        Some(memory) => memory.unlimited(work),
        None => work(),
    }
}

/// Whether the running script's limit of memory was exceeded by what ran [`unlimited`].
pub(crate) fn is_exceeded() -> bool {
    running().is_some_and(MemoryLimit::take_excess)
}

/// Whether so little is left of the stack that C must not call Lua again.
pub(crate) fn is_deep() -> bool {
    let here = 0u8;
    ((&raw const here) as usize) < FLOOR.get()
}

/// The limit that holds for the scripts that run from here on; what comes back is to be put in force again after them.
///
/// # Safety
/// `memory` stays where it is until another one is in force.
pub(crate) unsafe fn enforce(memory: *const MemoryLimit) -> *const MemoryLimit {
    RUNNING.replace(memory)
}

/// What the running script's VM may allocate, if that is limited.
fn running() -> Option<&'static MemoryLimit> {
    // SAFETY: `enforce`'s contract; callers use it while the script runs that it holds for.
    unsafe { RUNNING.get().as_ref() }
}

thread_local! {
    /// See [`enforce`].
    static RUNNING: Cell<*const MemoryLimit> = const { Cell::new(ptr::null()) };
    /// The lowest address for calls from C to Lua.
    static FLOOR: Cell<usize> = const { Cell::new(0) };
}

/// Room left for a call that was let through: LuaJIT's buffers take 8 KB each, our own functions less than 100 KB.
const RESERVE: usize = 512 << 10;

/// Sets, for LuaJIT, where this thread's stack ends.
fn guard_stack() {
    let floor = match weir_rt::alarm::stack_floor() {
        Ok(floor) => floor,
        Err(error) => {
            let message = format_args!("calls from C to Lua are not limited to the stack there is: {error}");
            return weir_engine::log::cycle(LogLevel::Error, &message);
        }
    };
    FLOOR.set(floor + RESERVE);
    // SAFETY: an address, which is only compared.
    unsafe { sys::weir_lua_stack(ptr::without_provenance_mut::<c_char>(floor + RESERVE)) };
}
