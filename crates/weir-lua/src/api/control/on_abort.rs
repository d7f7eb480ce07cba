//! `ngx.on_abort`

use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, fail, function};
use crate::run::lend;
use crate::run::settings::ScriptSettings;
use crate::vm::phase::OUTPUT;

pub(crate) const TABLE: &[ApiFunction] = &[function("on_abort", 0, on_abort)];

fn on_abort(l: LuaState) -> CallOutcome {
    if lend::phase().is_alone() {
        return Err(lend::disabled());
    }
    if !lend::exchange(|x| x.plan.kept::<ScriptSettings>().is_some_and(|kept| kept.check_client_abort))? {
        return fail(l, "lua_check_client_abort is off");
    }
    if !lend::phase().is_in(OUTPUT) {
        return Err(lend::disabled());
    }
    if l.kind(1) != kind::FUNCTION {
        return Err(LuaRaise::argument(1, "on_abort", "Lua function expected"));
    }
    if lend::run(|run| run.on_abort.is_some())? {
        return fail(l, "duplicate call");
    }
    l.push_value(1);
    lend::run(|run| {
        let (state, anchor) = run.vm().coroutine();
        l.give(state, 1);
        run.on_abort = Some((state, anchor));
    })?;
    l.push_number(1.0);
    Ok(CallDone::Results(1))
}
