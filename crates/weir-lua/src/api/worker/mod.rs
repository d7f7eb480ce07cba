//! `ngx.worker`

use crate::run::function::{ApiFunction, CallDone, LuaRaise, function};
use crate::run::lend;
use crate::vm::lua_vm::LuaVm;
use crate::vm::phase::ScriptPhase;

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
    // One process has them all.
    function("worker.pids", 0, |l| {
        if lend::phase() == ScriptPhase::Init {
            return Err(LuaRaise::text("API disabled in the current context"));
        }
        let count = lend::vm(|vm| vm.main_conf.workers);
        l.new_table(count, 0);
        for at in 0..count {
            l.push_number(f64::from(std::process::id()));
            l.raw_set_index(-2, at + 1);
        }
        Ok(CallDone::Results(1))
    }),
    function("worker.exiting", 0, |l| {
        l.push_boolean(lend::vm(LuaVm::is_leaving));
        Ok(CallDone::Results(1))
    }),
];
