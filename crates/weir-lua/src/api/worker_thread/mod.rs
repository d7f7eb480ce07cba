//! `ngx.run_worker_thread`: functions that take their time run on threads of a `thread_pool`, each with a VM of its own,
//! while the worker goes on.

mod pool;
mod value;

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;

use weir_trace::WaitKind;

use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, function};
use crate::run::lend;
use crate::run::op::{PushResults, ThreadOp};
use crate::vm::lua_vm::{LuaVm, VmPart};
use crate::vm::phase::YIELDABLE;
use pool::{LuaThreadPool, ThreadCall};
pub(crate) use value::LuaValue;

/// The pools of a worker that were used, by name.
#[derive(Default)]
pub(crate) struct ThreadPools(RefCell<HashMap<Vec<u8>, LuaThreadPool>>);

impl VmPart for ThreadPools {
    const PLACE: usize = 1;
}

pub(crate) const TABLE: &[ApiFunction] = &[function("run_worker_thread", YIELDABLE, run)];

/// `ngx.run_worker_thread(pool, module, function, argument…)`
fn run(l: LuaState) -> CallOutcome {
    if l.top() < 3 {
        return refuse(l, b"expecting at least 3 arguments");
    }
    let wrong = [(1, "threadpool"), (2, "module name"), (3, "function name")];
    if let Some((_, what)) = wrong.iter().find(|(at, _)| !matches!(l.kind(*at), kind::STRING | kind::NUMBER))
    {
        return refuse(l, format!("{what} should be a string").as_bytes());
    }
    let [name, module, function] = [1, 2, 3].map(|at| l.bytes(at).unwrap_or_default().to_vec());
    let args = match LuaValue::all(l, 4) {
        Ok(args) => args,
        Err(why) => return refuse(l, format!("{why} in the argument").as_bytes()),
    };
    let slot = match lend::vm(|vm| call(vm, &name, ThreadCall { module, function, args })) {
        Ok(slot) => slot,
        Err(why) => return refuse(l, why.as_bytes()),
    };
    lend::run(|run| {
        run.wait = WaitKind::Other;
        run.op = Some(ThreadOp::Wait(Box::pin(async move {
            let answer = poll_fn(|cx| slot.poll(cx.waker())).await;
            Box::new(move |l: LuaState| match answer {
                Ok(values) => {
                    l.reserve(values.len() as i32 + 8);
                    l.push_boolean(true);
                    values.iter().for_each(|value| value.push(l));
                    values.len() as i32 + 1
                }
                Err(why) => {
                    l.push_boolean(false);
                    l.push_bytes(&why);
                    2
                }
            }) as PushResults
        })));
    })?;
    Ok(CallDone::Yield(0))
}

/// `false, message`
fn refuse(l: LuaState, why: &[u8]) -> CallOutcome {
    l.push_boolean(false);
    l.push_bytes(why);
    Ok(CallDone::Results(2))
}

fn call(vm: &LuaVm, name: &[u8], call: ThreadCall) -> Result<std::sync::Arc<pool::ResultSlot>, String> {
    if let Some(pool) = vm.part::<ThreadPools>().0.borrow().get(name) {
        return pool.call(call);
    }
    let known = vm.home.upgrade().and_then(|home| {
        let pools = &home.configuration.main.thread_pools;
        pools.iter().find(|pool| pool.name == name).cloned()
    });
    let Some(known) = known else {
        return Err(format!("thread pool {} not found", String::from_utf8_lossy(name)));
    };
    let bounded = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let threads = bounded(known.threads).min(vm.main_conf.thread_vms());
    let pool = LuaThreadPool::new(vm, threads, bounded(known.max_queue));
    let slot = pool.call(call);
    vm.part::<ThreadPools>().0.borrow_mut().insert(name.to_vec(), pool);
    slot
}
