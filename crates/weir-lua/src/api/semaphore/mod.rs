//! `ngx.semaphore`: coroutines of one VM wait until others post.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::Display;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use weir_engine::log::LogLevel;
use weir_trace::WaitKind;

use crate::luajit::state::LuaState;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, expect_number, fail, function};
use crate::run::lend;
use crate::run::op::{PushResults, ThreadOp};
use crate::run::schedule::VmSchedule;
use crate::vm::phase::YIELDABLE;

pub(crate) const TABLE: &[ApiFunction] = &[
    function("_semaphore.new", 0, new),
    function("_semaphore.post", 0, |l| {
        let semaphore = of(l)?;
        let units = expect_number(l, 2, "post")? as u64;
        semaphore.log("post", &format_args!("n: {units}, resources: {}", semaphore.free.get()));
        semaphore.post(units);
        l.push_boolean(true);
        Ok(CallDone::Results(1))
    }),
    function("_semaphore.wait", 0, wait),
    function("_semaphore.count", 0, |l| {
        l.push_number(of(l)?.count() as f64);
        Ok(CallDone::Results(1))
    }),
];

/// See the module.
#[derive(Default)]
pub(crate) struct Semaphore {
    free: Cell<u64>,
    /// Those of the VM's waiters that have a unit and have not gone on ([`VmSchedule::units_given`]).
    given: Rc<Cell<usize>>,
    waiting: RefCell<VecDeque<Rc<SemaphoreWaiter>>>,
}

/// A coroutine that waits.
#[derive(Default)]
struct SemaphoreWaiter {
    /// It is in no queue any more.
    taken: Cell<bool>,
    /// A unit was given to it.
    given: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl SemaphoreWaiter {
    /// Has the task of `waker` woken by a unit.
    fn wait(&self, waker: &Waker) {
        let mut waiting = self.waker.borrow_mut();
        match &mut *waiting {
            Some(set) => set.clone_from(waker),
            None => *waiting = Some(waker.clone()),
        }
    }
}

impl Semaphore {
    /// Adds `units`, of which those that wait get one each, the first first.
    fn post(&self, units: u64) {
        self.free.set(self.free.get() + units);
        while self.free.get() > 0 {
            let Some(waiter) = self.waiting.borrow_mut().pop_front() else { return };
            self.free.set(self.free.get() - 1);
            waiter.taken.set(true);
            waiter.given.set(true);
            self.given.set(self.given.get() + 1);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }

    /// Whether `waiter` was given a unit, which it takes now.
    fn gave(&self, waiter: &SemaphoreWaiter) -> bool {
        let gave = waiter.given.take();
        self.given.set(self.given.get() - usize::from(gave));
        gave
    }

    /// Takes a unit that is free.
    fn take(&self) -> bool {
        let free = self.free.get();
        self.free.set(free.saturating_sub(1));
        free > 0
    }

    /// A debug line, as OpenResty begins it: which semaphore, and what is done with it.
    fn log(self: &Rc<Semaphore>, what: &str, more: &dyn Display) {
        let which = Rc::as_ptr(self);
        lend::log_plain(LogLevel::Debug, &format_args!("http lua semaphore {what}: {which:p}, {more}"));
    }

    /// Units that are free, or less how many wait.
    fn count(&self) -> i64 {
        self.free.get() as i64 - self.waiting.borrow().len() as i64
    }
}

/// A place in the queue; one that is left with a unit gives it back.
struct SemaphorePlace(Rc<Semaphore>, Rc<SemaphoreWaiter>);

impl Drop for SemaphorePlace {
    fn drop(&mut self) {
        if !self.1.taken.get() {
            self.0.waiting.borrow_mut().retain(|waiter| !Rc::ptr_eq(waiter, &self.1));
        }
        if self.0.gave(&self.1) {
            self.0.post(1);
        }
    }
}

fn new(l: LuaState) -> CallOutcome {
    let units = expect_number(l, 1, "new")?;
    let given = lend::vm(|vm| vm.part::<VmSchedule>().units_given());
    let semaphore = Rc::new(Semaphore { given, ..Semaphore::default() });
    semaphore.post(units as u64);
    semaphore.log("new", &format_args!("resources: {}", semaphore.free.get()));
    l.push_owned(semaphore, c"weir.semaphore");
    Ok(CallDone::Results(1))
}

/// The semaphore in the first argument.
fn of(l: LuaState) -> Result<Rc<Semaphore>, LuaRaise> {
    l.owned(1).ok_or_else(|| LuaRaise::text("not a semaphore"))
}

fn wait(l: LuaState) -> CallOutcome {
    let semaphore = of(l)?;
    let seconds = expect_number(l, 2, "wait")?;
    if !lend::phase().is_in(YIELDABLE) {
        return fail(l, &format!("API disabled in the context of {}", lend::phase().context()));
    }
    let milliseconds = (seconds * 1e3) as u64;
    semaphore.log("wait", &format_args!("timeout: {milliseconds}, resources: {}", semaphore.free.get()));
    if semaphore.waiting.borrow().is_empty() && semaphore.take() {
        l.push_boolean(true);
        return Ok(CallDone::Results(1));
    }
    if seconds == 0.0 {
        return fail(l, "timeout");
    }
    lend::log_plain(LogLevel::Debug, &"http lua semaphore wait yielding");
    let waiter = Rc::<SemaphoreWaiter>::default();
    semaphore.waiting.borrow_mut().push_back(waiter.clone());
    let place = SemaphorePlace(semaphore, waiter);
    let limit = Duration::from_secs_f64(seconds.min(1e9));
    lend::run(|run| {
        run.wait = WaitKind::Lock;
        run.op = Some(ThreadOp::Wait(Box::pin(waited(place, limit))));
    })?;
    Ok(CallDone::Yield(0))
}

/// Awaits a unit, for so long at most.
async fn waited(place: SemaphorePlace, limit: Duration) -> PushResults {
    let mut late = pin!(weir_rt::sleep(limit));
    let given = poll_fn(|cx| {
        if place.0.gave(&place.1) {
            return Poll::Ready(true);
        }
        place.1.wait(cx.waker());
        late.as_mut().poll(cx).map(|()| false)
    });
    match given.await {
        true => Box::new(|l: LuaState| {
            l.push_boolean(true);
            1
        }),
        // As in OpenResty, where a script that did not wait (for 0 seconds) gets nil.
        false => Box::new(|l: LuaState| {
            l.push_boolean(false);
            l.push_bytes(b"timeout");
            2
        }),
    }
}
