//! `coroutine.*` and `ngx.thread.*`. What scripts see as `coroutine.create` and the others stands in the prelude, and
//! comes here where a run schedules; elsewhere Lua's own functions do.

use crate::api::{Done, Function, Outcome, Raise, fail, function};
use crate::hooks::phases::Settings;
use crate::luajit::state::State;
use crate::luajit::sys::kind;
use crate::run::lend;
use crate::run::op::Op;
use crate::run::thread::{Kind, Status, Waiting};
use crate::vm::phase::{OUTPUT, YIELDABLE};

pub(super) const TABLE: &[Function] = &[
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
        lend::run(|run| run.op = Some(Op::Yield))?;
        Ok(Done::Yield(l.top()))
    }),
    function("_co.status", YIELDABLE, status),
    function("on_abort", 0, on_abort),
    function("thread.spawn", YIELDABLE, spawn),
    function("thread.wait", YIELDABLE, wait),
    function("thread.kill", YIELDABLE, kill),
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
    lend::run(|run| run.op = Some(Op::Resume(other)))?;
    Ok(Done::Yield(l.top()))
}

fn status(l: State) -> Outcome {
    let Some(other) = l.thread(1) else { return Err(Raise::argument(1, "status", "coroutine expected")) };
    let name = lend::run(|run| run.find(other).map_or("dead", |at| run.threads[at].status().name()))?;
    l.push_bytes(name.as_bytes());
    Ok(Done::Results(1))
}

fn spawn(l: State) -> Outcome {
    if l.kind(1) != kind::FUNCTION {
        return Err(Raise::argument(1, "spawn", "Lua function expected"));
    }
    l.push_value(1);
    let state = lend::run(|run| run.add(Kind::Light, l, false))??;
    l.remove(1);
    lend::run(|run| run.op = Some(Op::Spawn(state)))?;
    Ok(Done::Yield(l.top()))
}

fn on_abort(l: State) -> Outcome {
    if lend::phase().is_alone() {
        return Err(lend::disabled());
    }
    if !lend::exchange(|x| x.plan.kept::<Settings>().is_some_and(|kept| kept.check_client_abort))? {
        return fail(l, "lua_check_client_abort is off");
    }
    if !lend::phase().is_in(OUTPUT) {
        return Err(lend::disabled());
    }
    if l.kind(1) != kind::FUNCTION {
        return Err(Raise::argument(1, "on_abort", "Lua function expected"));
    }
    if lend::run(|run| run.on_abort.is_some())? {
        return fail(l, "duplicate call");
    }
    l.push_value(1);
    lend::run(|run| {
        let (state, anchor) = run.vm.coroutine();
        l.give(state, 1);
        run.on_abort = Some((state, anchor));
    })?;
    l.push_number(1.0);
    Ok(Done::Results(1))
}

fn wait(l: State) -> Outcome {
    let mut list = Vec::new();
    for at in 1..=l.top() {
        let Some(thread) = l.thread(at) else {
            return Err(Raise::argument(at, "wait", "lua thread expected"));
        };
        list.push(thread);
    }
    if list.is_empty() {
        return Err(Raise::text("at least one coroutine should be specified"));
    }
    for thread in &list {
        let problem = lend::run(|run| match run.find(*thread) {
            None => Some("no co ctx found"),
            Some(at) if run.threads[at].kind != Kind::Light => {
                Some("attempt to wait on a coroutine that is not a user thread")
            }
            Some(at) if run.threads[at].parent != Some(run.current) => {
                Some("only the parent coroutine can wait on the thread")
            }
            Some(_) => None,
        })?;
        if let Some(problem) = problem {
            return Err(Raise::text(problem));
        }
    }
    for thread in &list {
        let ended = lend::run(|run| {
            let at = run.find(*thread)?;
            match run.threads[at].status() {
                Status::Zombie => Some(Ok(run.collect(at, l))),
                Status::Dead => Some(Err("already waited or killed")),
                _ => None,
            }
        })?;
        match ended {
            Some(Ok(count)) => return Ok(Done::Results(count)),
            Some(Err(message)) => return fail(l, message),
            None => {}
        }
    }
    lend::run(|run| run.op = Some(Op::Threads(list)))?;
    Ok(Done::Yield(0))
}

fn kill(l: State) -> Outcome {
    let Some(thread) = l.thread(1) else { return Err(Raise::argument(1, "kill", "lua thread expected")) };
    let refused = lend::run(|run| {
        let Some(at) = run.find(thread) else { return Some("no co ctx found") };
        if run.threads[at].kind != Kind::Light {
            return Some("not user thread");
        }
        if run.threads[at].parent != Some(run.current) {
            return Some("killer not parent");
        }
        match run.threads[at].status() {
            Status::Dead => return Some("already waited or killed"),
            Status::Zombie => {
                run.dismiss(at);
                return Some("already terminated");
            }
            Status::Waiting(Waiting::Capture(_) | Waiting::Captured(_)) => {
                return Some("pending subrequests");
            }
            _ => {}
        }
        run.kill(at);
        None
    })?;
    match refused {
        Some(message) => fail(l, message),
        None => {
            l.push_number(1.0);
            Ok(Done::Results(1))
        }
    }
}
