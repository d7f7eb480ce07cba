//! `coroutine.*`. What scripts see as `coroutine.create` and the others stands in the prelude, and
//! comes here where a run schedules; elsewhere Lua's own functions do.

use crate::luajit::state::State;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, Done, Outcome, Raise, function};
use crate::run::lend;
use crate::run::op::ThreadOp;
use crate::run::thread::{Kind, Status};
use crate::vm::phase::YIELDABLE;

pub(super) const TABLE: &[ApiFunction] = &[
    function("_co.scheduled", 0, |l| {
        l.push_boolean(lend::phase().is_in(YIELDABLE) && lend::run(|_| ()).is_ok());
        Ok(Done::Results(1))
    }),
    function("_co.deep", 0, |l| {
        l.push_boolean(crate::vm::limit::is_deep());
        Ok(Done::Results(1))
    }),
    function("_co.create", YIELDABLE, create),
    function("_co.resume", YIELDABLE, resume),
    function("_co.give", YIELDABLE, |l| {
        lend::run(|run| run.op = Some(ThreadOp::Yield))?;
        Ok(Done::Yield(l.top()))
    }),
    function("_co.status", YIELDABLE, status),
];

fn create(l: State) -> Outcome {
    if l.kind(1) != kind::FUNCTION {
        return Err(Raise::argument(1, "create", "Lua function expected"));
    }
    let wrap = l.boolean(2);
    l.push_value(1);
    let state = lend::run(|run| run.add(Kind::Coroutine, l, wrap))??;
    state.push_self();
    state.give(l, 1);
    Ok(Done::Results(1))
}

fn resume(l: State) -> Outcome {
    let Some(other) = l.thread(1) else { return Err(Raise::argument(1, "resume", "coroutine expected")) };
    let refused = lend::run(|run| match run.find(other).map(|at| &run.threads[at]) {
        None => Some("cannot resume dead coroutine".to_owned()),
        Some(thread) if thread.kind != Kind::Coroutine || !matches!(thread.status(), Status::Suspended) => {
            Some(format!("cannot resume {} coroutine", thread.status().name()))
        }
        Some(_) => None,
    })?;
    if let Some(message) = refused {
        l.push_boolean(false);
        l.push_bytes(message.as_bytes());
        return Ok(Done::Results(2));
    }
    l.remove(1);
    lend::run(|run| run.op = Some(ThreadOp::Resume(other)))?;
    Ok(Done::Yield(l.top()))
}

fn status(l: State) -> Outcome {
    let Some(other) = l.thread(1) else { return Err(Raise::argument(1, "status", "coroutine expected")) };
    let name = lend::run(|run| run.find(other).map_or("dead", |at| run.threads[at].status().name()))?;
    l.push_bytes(name.as_bytes());
    Ok(Done::Results(1))
}
