//! `table.clone` and others of OpenResty's LuaJIT; what is not Lua of them is in `luajit/tables.h`.

use crate::luajit::sys;
use crate::run::function::{ApiFunction, CallDone, function};

pub(super) const TABLE: &[ApiFunction] = &[function("_tables", 0, |l| {
    l.push_function(sys::weir_lua_clone);
    l.push_function(sys::weir_lua_nkeys);
    l.push_function(sys::weir_lua_isarray);
    Ok(CallDone::Results(3))
})];
