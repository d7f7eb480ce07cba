//! `ngx.thread`

use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, fail, function};
use crate::run::lend;
use crate::run::op::ThreadOp;
use crate::run::thread::{ThreadKind, ThreadStatus, ThreadWait};
use crate::vm::phase::YIELDABLE;

pub(crate) const TABLE: &[ApiFunction] = &[
    function("thread.spawn", YIELDABLE, spawn),
    function("thread.wait", YIELDABLE, wait),
    function("thread.kill", YIELDABLE, kill),
];

fn spawn(l: LuaState) -> CallOutcome {
    if l.kind(1) != kind::FUNCTION {
        return Err(LuaRaise::argument(1, "spawn", "Lua function expected"));
    }
    l.push_value(1);
    let state = lend::run(|run| run.add(ThreadKind::Light, l, false))??;
    l.remove(1);
    lend::run(|run| run.op = Some(ThreadOp::Spawn(state)))?;
    Ok(CallDone::Yield(l.top()))
}

fn wait(l: LuaState) -> CallOutcome {
    let mut list = Vec::new();
    for at in 1..=l.top() {
        let Some(thread) = l.thread(at) else {
            return Err(LuaRaise::argument(at, "wait", "lua thread expected"));
        };
        list.push(thread);
    }
    if list.is_empty() {
        return Err(LuaRaise::text("at least one coroutine should be specified"));
    }
    for thread in &list {
        let problem = lend::run(|run| match run.find(*thread) {
            None => Some("no co ctx found"),
            Some(at) if run.threads[at].kind != ThreadKind::Light => {
                Some("attempt to wait on a coroutine that is not a user thread")
            }
            Some(at) if run.threads[at].parent != Some(run.current) => {
                Some("only the parent coroutine can wait on the thread")
            }
            Some(_) => None,
        })?;
        if let Some(problem) = problem {
            return Err(LuaRaise::text(problem));
        }
    }
    for thread in &list {
        let ended = lend::run(|run| {
            let at = run.find(*thread)?;
            match run.threads[at].status() {
                ThreadStatus::Zombie => Some(Ok(run.collect(at, l))),
                ThreadStatus::Dead => Some(Err("already waited or killed")),
                _ => None,
            }
        })?;
        match ended {
            Some(Ok(count)) => return Ok(CallDone::Results(count)),
            Some(Err(message)) => return fail(l, message),
            None => {}
        }
    }
    lend::run(|run| run.op = Some(ThreadOp::Threads(list)))?;
    Ok(CallDone::Yield(0))
}

fn kill(l: LuaState) -> CallOutcome {
    let Some(thread) = l.thread(1) else { return Err(LuaRaise::argument(1, "kill", "lua thread expected")) };
    let refused = lend::run(|run| {
        let Some(at) = run.find(thread) else { return Some("no co ctx found") };
        if run.threads[at].kind != ThreadKind::Light {
            return Some("not user thread");
        }
        if run.threads[at].parent != Some(run.current) {
            return Some("killer not parent");
        }
        match run.threads[at].status() {
            ThreadStatus::Dead => return Some("already waited or killed"),
            ThreadStatus::Zombie => {
                run.dismiss(at);
                return Some("already terminated");
            }
            ThreadStatus::Waiting(ThreadWait::Capture(_) | ThreadWait::Captured(_)) => {
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
            Ok(CallDone::Results(1))
        }
    }
}
