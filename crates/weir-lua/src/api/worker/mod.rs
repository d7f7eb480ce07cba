//! `ngx.worker`

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use weir_engine::worker::AGENT;

use crate::api::ffi::guarded;
use crate::run::function::{ApiFunction, CallDone, function};
use crate::run::lend;
use crate::vm::lua_vm::LuaVm;

pub(super) const TABLE: &[ApiFunction] = &[
    function("worker.pid", 0, |l| {
        l.push_number(f64::from(lend::vm(register)));
        Ok(CallDone::Results(1))
    }),
    function("worker.id", 0, |l| {
        match lend::vm(|vm| vm.worker().filter(|_| !vm.is_agent())) {
            Some(id) => l.push_number(f64::from(id)),
            None => l.push_nil(),
        }
        Ok(CallDone::Results(1))
    }),
    function("worker.count", 0, |l| {
        l.push_number(lend::vm(|vm| vm.main_conf.workers) as f64);
        Ok(CallDone::Results(1))
    }),
];

/// What takes the place of a worker's process: its thread. Libraries tell workers apart by this number (who holds a
/// lock, whose event it is, what random numbers begin with), and a signal that is sent to it reaches the process.
/// Without a master process, the first worker's is that of the only process, as in nginx.
fn register(vm: &LuaVm) -> u32 {
    let process = std::process::id();
    match vm.worker().filter(|worker| *worker < AGENT) {
        Some(worker) => {
            let alone = worker == 0 && vm.main_conf.one_process;
            let number = if alone { process } else { weir_rt::thread_id().unsigned_abs() };
            NUMBERS[usize::from(worker)].store(number, Relaxed);
            number
        }
        None => process,
    }
}

/// The number of a worker, for compiled code; 0 before it has started.
pub(crate) extern "C" fn number(worker: f64) -> f64 {
    NUMBERS.get(worker as usize).map_or(0.0, |number| f64::from(number.load(Relaxed)))
}

/// Of all workers of this process.
static NUMBERS: [AtomicU32; AGENT as usize] = [const { AtomicU32::new(0) }; AGENT as usize];

/// Whether the worker is about to end, for compiled code.
pub(crate) extern "C" fn exiting() -> i32 {
    guarded(|| i32::from(lend::vm(LuaVm::is_leaving)))
}
