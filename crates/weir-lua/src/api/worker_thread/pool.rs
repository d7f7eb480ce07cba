//! The threads of a `thread_pool` that run Lua: those of one worker, each with a VM of its own.
//!
//! They start as calls come that no idle one can take, and end with the worker's VM.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

use crate::api::worker_thread::value::LuaValue;
use crate::luajit::state::{LuaState, error_text};
use crate::luajit::sys;
use crate::run::lend::lend;
use crate::vm::lua_vm::{LuaVm, VmWiring};
use crate::vm::phase::ScriptPhase;
use crate::vm::settings::VmSettings;

/// A function of a module, with its arguments.
pub(super) struct ThreadCall {
    pub(super) module: Vec<u8>,
    pub(super) function: Vec<u8>,
    pub(super) args: Vec<LuaValue>,
}

/// What it has returned, or why it failed.
pub(super) type ThreadResult = Result<Vec<LuaValue>, Vec<u8>>;

/// Where a call's result arrives.
#[derive(Default)]
pub(super) struct ResultSlot(Mutex<(Option<ThreadResult>, Option<Waker>)>);

impl ResultSlot {
    /// Ready with the result, once.
    pub(super) fn poll(&self, waker: &Waker) -> Poll<ThreadResult> {
        let mut slot = lock(&self.0);
        match slot.0.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                slot.1 = Some(waker.clone());
                Poll::Pending
            }
        }
    }

    fn put(&self, answer: ThreadResult) {
        let waker = {
            let mut slot = lock(&self.0);
            slot.0 = Some(answer);
            slot.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// See the module.
pub(crate) struct LuaThreadPool(Arc<PoolShared>);

struct PoolShared {
    state: Mutex<ThreadCalls>,
    called: Condvar,
    most_threads: usize,
    most_queued: usize,
    main: VmSettings,
    wiring: VmWiring,
}

#[derive(Default)]
struct ThreadCalls {
    calls: VecDeque<(ThreadCall, Weak<ResultSlot>)>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl LuaThreadPool {
    /// A pool whose VMs have the settings and the API of `vm`, without its scripts.
    pub(super) fn new(vm: &LuaVm, most_threads: usize, most_queued: usize) -> LuaThreadPool {
        let main = VmSettings {
            init: None,
            init_worker: None,
            exit_worker: None,
            single: true,
            ..vm.main_conf.clone()
        };
        let (state, called) = Default::default();
        LuaThreadPool(Arc::new(PoolShared {
            state,
            called,
            most_threads,
            most_queued,
            main,
            wiring: vm.wiring,
        }))
    }

    /// Has a thread make the call. A call that is no longer waited for when its turn comes is not made.
    ///
    /// # Errors
    /// Too many wait, or no thread can be started.
    pub(super) fn call(&self, call: ThreadCall) -> Result<Arc<ResultSlot>, String> {
        let slot = Arc::new(ResultSlot::default());
        let mut state = lock(&self.0.state);
        if state.calls.len() >= self.0.most_queued {
            return Err("no available Lua vm".to_owned());
        }
        if state.calls.len() >= state.idle && state.threads < self.0.most_threads {
            let shared = self.0.clone();
            let builder = std::thread::Builder::new().name("weir lua thread".to_owned()).stack_size(STACK);
            match builder.spawn(move || shared.run()) {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => return Err(format!("no thread can be started: {error}")),
                // Those there are will come to it.
                Err(_) => {}
            }
        }
        state.calls.push_back((call, Arc::downgrade(&slot)));
        self.0.called.notify_one();
        Ok(slot)
    }
}

impl Drop for LuaThreadPool {
    fn drop(&mut self) {
        lock(&self.0.state).closed = true;
        self.0.called.notify_all();
    }
}

impl PoolShared {
    /// A thread's life.
    fn run(&self) {
        weir_rt::process::unbind();
        let vm = LuaVm::start(self.main.clone(), std::rc::Weak::new(), self.wiring);
        while let Some((call, slot)) = self.next() {
            if let Some(slot) = slot.upgrade() {
                slot.put(match &vm {
                    Ok(vm) => make(vm, &call),
                    Err(_) => Err(b"failed to initialize Lua VM".to_vec()),
                });
            }
        }
    }

    /// The next call; `None` when there will be no more.
    fn next(&self) -> Option<(ThreadCall, Weak<ResultSlot>)> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if let Some(next) = state.calls.pop_front() {
                return Some(next);
            }
            state.idle += 1;
            state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

/// Calls the function in the VM of this thread.
fn make(vm: &Rc<LuaVm>, call: &ThreadCall) -> ThreadResult {
    let l = vm.main();
    l.set_top(0);
    let answer = lend(vm, ScriptPhase::Init, None, None, || {
        l.field(sys::GLOBALS, c"require");
        l.push_bytes(&call.module);
        protected(vm, 1, 1)?;
        if l.kind(1) != sys::kind::TABLE {
            return Err(b"invalid lua module".to_vec());
        }
        l.push_bytes(&call.function);
        l.raw_get(1);
        if l.kind(2) != sys::kind::FUNCTION {
            return Err(b"invalid function".to_vec());
        }
        l.reserve(call.args.len() as i32 + 8);
        call.args.iter().for_each(|value| value.push(l));
        protected(vm, call.args.len() as i32, sys::MULTRET)?;
        LuaValue::all(l, 2).map_err(|why| format!("{why} in the return value").into_bytes())
    });
    l.set_top(0);
    answer
}

/// Calls the function on the main stack below its arguments.
fn protected(vm: &LuaVm, args: i32, results: i32) -> Result<(), Vec<u8>> {
    let l: LuaState = vm.main();
    // SAFETY: function and arguments are on the stack.
    match vm.limits.within(|| unsafe { sys::lua_pcall(l.raw(), args, results, 0) }) {
        sys::status::OK => Ok(()),
        _ => Err(match l.bytes(-1) {
            Some(text) => text.to_vec(),
            None => error_text(l).into_bytes(),
        }),
    }
}

/// The state a panicking thread leaves is consistent: nothing here is changed in two steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of a thread's stack, of which only those touched are memory.
const STACK: usize = 8 << 20;
