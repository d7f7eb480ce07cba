//! `ngx.worker`

use crate::api::ffi::guarded;
use crate::run::function::{ApiFunction, CallDone, function};
use crate::run::lend;
use crate::vm::lua_vm::LuaVm;

pub(super) const TABLE: &[ApiFunction] = &[
    function("worker.pid", 0, |l| {
        l.push_number(f64::from(std::process::id()));
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

/// Whether the worker is about to end, for compiled code.
pub(crate) extern "C" fn exiting() -> i32 {
    guarded(|| i32::from(lend::vm(LuaVm::is_leaving)))
}
