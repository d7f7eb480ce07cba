//! `ngx.worker`

mod number;

use crate::api::ffi::guarded;
use crate::run::function::{ApiFunction, CallDone, function};
use crate::run::lend;
use crate::vm::lua_vm::LuaVm;

pub(super) const TABLE: &[ApiFunction] = &[
    function("worker.pid", 0, |l| {
        l.push_number(f64::from(lend::vm(number::of)));
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

/// The number of a worker, for compiled code; 0 before it has started.
pub(crate) extern "C" fn number(worker: f64) -> f64 {
    f64::from(number::in_force(worker as u8))
}

/// Whether the worker is about to end, for compiled code.
pub(crate) extern "C" fn exiting() -> i32 {
    guarded(|| i32::from(lend::vm(LuaVm::is_leaving)))
}
