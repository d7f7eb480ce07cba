//! Turns a bare VM into one for scripts: the functions of `ngx.*`, the part in Lua, reports and samples.

use std::rc::Rc;

use crate::api;
use crate::api::errlog;
use crate::api::prelude::PRELUDE;
use crate::inspect;
use crate::luajit::{symbols, sys};
use crate::run::function;
use crate::run::lend::lend;
use crate::vm::chunk;
use crate::vm::lua_vm::{LuaVm, VmWiring};
use crate::vm::phase::ScriptPhase;
use crate::vm::questions;

/// Of all VMs.
pub(crate) const WIRING: VmWiring = VmWiring { equip };

fn equip(vm: &Rc<LuaVm>) -> Result<(), String> {
    #[cfg(lua_walk)]
    inspect::sampler::install();
    if !vm.is_single() && !vm.is_rehearsed() {
        errlog::keep(vm.main_conf.captured);
    }
    if let Some(figures) = &vm.figures {
        inspect::report::show(figures);
        questions::open(vm);
    }
    register(vm);
    symbols::keep();
    prelude(vm)
}

/// Makes the tables `ngx` and `ndk` with the functions of [`api::TABLES`].
fn register(vm: &LuaVm) {
    let l = vm.main();
    l.new_table(0, 128);
    for function in api::TABLES.iter().copied().flatten().chain(inspect::report::TABLE) {
        let mut parts: Vec<&str> = function.name.split('.').collect();
        let name = parts.pop().unwrap_or_default();
        l.push_value(-1);
        for part in parts {
            l.push_bytes(part.as_bytes());
            l.raw_get(-2);
            if l.is_none_or_nil(-1) {
                l.pop(1);
                l.new_table(0, 16);
                l.push_bytes(part.as_bytes());
                l.push_value(-2);
                l.raw_set(-4);
            }
            l.remove(-2);
        }
        l.push_bytes(name.as_bytes());
        function::push(l, function);
        l.raw_set(-3);
        l.pop(1);
    }
    l.push_null();
    l.set_field(-2, c"null");
    l.push_mark();
    l.set_field(sys::REGISTRY, c"weir.json_empty_array");
    // SAFETY: the globals are a table without a metatable yet.
    l.set_field(sys::GLOBALS, c"ngx");
}

/// Runs the part of the API that is written in Lua.
fn prelude(vm: &LuaVm) -> Result<(), String> {
    for (name, text) in PRELUDE {
        chunk::load(vm.main(), text.as_bytes(), name)?;
        lend(vm, ScriptPhase::Init, None, None, || vm.call(0, 0))?;
    }
    fit(vm);
    Ok(())
}

/// The files have taken away half of what was in `ngx` for them alone. Scripts copy that table for each request (Kong for its
/// sandbox), with the places that nothing is in.
fn fit(vm: &LuaVm) {
    let l = vm.main();
    l.push_bytes(b"ngx");
    l.raw_get(sys::GLOBALS);
    l.fit();
    l.pop(1);
}
