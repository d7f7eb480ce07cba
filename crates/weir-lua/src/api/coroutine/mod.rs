//! `coroutine.*`. What scripts see as `coroutine.create` and the others is in the prelude, and
//! comes here where a run schedules; elsewhere Lua's own functions do.

use crate::api::ffi::guarded;
use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, function};
use crate::run::lend;
use crate::run::op::ThreadOp;
use crate::run::thread::{ThreadKind, ThreadStatus};
use crate::vm::phase::YIELDABLE;

pub(super) const TABLE: &[ApiFunction] = &[
    function("_co.deep", 0, |l| {
        l.push_boolean(crate::vm::limit::is_deep());
        Ok(CallDone::Results(1))
    }),
    function("_co.create", YIELDABLE, create),
    function("_co.resume", YIELDABLE, resume),
    function("_co.give", YIELDABLE, |l| {
        lend::run(|run| run.op = Some(ThreadOp::Yield))?;
        Ok(CallDone::Yield(l.top()))
    }),
    function("_co.status", YIELDABLE, status),
];

/// 1 where a run schedules the coroutines.
pub(crate) extern "C" fn scheduled() -> i32 {
    guarded(|| i32::from(lend::phase().is_in(YIELDABLE) && lend::run(|_| ()).is_ok()))
}

fn create(l: LuaState) -> CallOutcome {
    if l.kind(1) != kind::FUNCTION {
        return Err(LuaRaise::argument(1, "create", "Lua function expected"));
    }
    let wrap = l.boolean(2);
    l.push_value(1);
    let state = lend::run(|run| run.add(ThreadKind::Coroutine, l, wrap))??;
    state.push_self();
    state.give(l, 1);
    Ok(CallDone::Results(1))
}

fn resume(l: LuaState) -> CallOutcome {
    let Some(other) = l.thread(1) else { return Err(LuaRaise::argument(1, "resume", "coroutine expected")) };
    let refused = lend::run(|run| match run.find(other).map(|at| &run.threads[at]) {
        None => Some("cannot resume dead coroutine".to_owned()),
        Some(thread)
            if thread.kind != ThreadKind::Coroutine
                || !matches!(thread.status(), ThreadStatus::Suspended) =>
        {
            Some(format!("cannot resume {} coroutine", thread.status().name()))
        }
        Some(_) => None,
    })?;
    if let Some(message) = refused {
        l.push_boolean(false);
        l.push_bytes(message.as_bytes());
        return Ok(CallDone::Results(2));
    }
    l.remove(1);
    lend::run(|run| run.op = Some(ThreadOp::Resume(other)))?;
    Ok(CallDone::Yield(l.top()))
}

fn status(l: LuaState) -> CallOutcome {
    let Some(other) = l.thread(1) else { return Err(LuaRaise::argument(1, "status", "coroutine expected")) };
    let name = lend::run(|run| run.find(other).map_or("dead", |at| run.threads[at].status().name()))?;
    l.push_bytes(name.as_bytes());
    Ok(CallDone::Results(1))
}
