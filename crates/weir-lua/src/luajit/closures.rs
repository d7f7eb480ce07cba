//! Tests of functions that compiled code makes (`closures.h`).

use crate::luajit::state::LuaState;
use crate::luajit::sys;

/// Runs a program in a VM of its own.
pub(super) fn run(text: &str) {
    // SAFETY: the VM is the test's own; the text lives during the call; a function is on the stack.
    unsafe {
        let l = sys::luaL_newstate();
        sys::luaL_openlibs(l);
        let loaded = sys::luaL_loadbuffer(l, text.as_ptr().cast(), text.len(), c"=closures".as_ptr());
        let status = if loaded == sys::status::OK { sys::lua_pcall(l, 0, 0, 0) } else { loaded };
        assert_eq!(status, sys::status::OK, "{}", LuaState::new(l).lossy(-1));
        sys::lua_close(l);
    }
}

#[test]
fn functions_have_their_upvalues_however_they_are_made() {
    let program = include_str!("closures_test.lua");
    for options in [
        "jit.off()",
        "jit.on()",
        "jit.opt.start('hotloop=2', 'hotexit=2')",
        "jit.opt.start(0, 'hotloop=3')",
        "jit.opt.start('-fwd', '-dse', 'hotloop=5')",
    ] {
        run(&format!("{options}\n{program}"));
    }
}

/// A table with two functions as metamethods, as lua-resty-http makes for each response: without a trace that is given up.
/// In a coroutine, as all scripts run: those that came before have no open upvalues there.
#[test]
fn what_makes_functions_is_compiled() {
    run("
        local made, given_up = 0, {}
        jit.attach(function(what, trace, func, pc, why, info)
            if what == 'stop' then made = made + 1 end
            if what == 'abort' then given_up[#given_up + 1] = tostring(why) .. ' ' .. tostring(info) end
        end, 'trace')
        local function new()
            local names = {}
            local of = { __index = function(t, k) return rawget(t, names[k]) end }
            of.__newindex = function(t, k, v) names[k] = k rawset(t, k, v) end
            return setmetatable({}, of)
        end
        local last
        coroutine.wrap(function() for at = 1, 500 do last = new() end end)()
        jit.attach(function() end)
        last.field = 7
        assert(last.field == 7)
        assert(made > 0 and #given_up == 0, made .. ' made; ' .. table.concat(given_up, ', '))");
}
