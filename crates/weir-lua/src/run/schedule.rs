//! What of a VM waits for its time: timers, and runs some of whose coroutines sleep. One task and one timer of the
//! runtime for all of them.
//!
//! A script that holds the loop makes all others late. What has become due meanwhile goes on in the order of the
//! deadlines, as by nginx's tree of timers, whether a timer or a coroutine waits for it: the one task wakes runs and
//! spawns timers in that order, and the run queue keeps it.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::pin::pin;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use weir_engine::exchange::RunOrigin;
use weir_rt::clock;
use weir_rt::notify::{Notify, either};

use crate::vm::lua_vm::{LuaVm, VmPart};

/// When something is due, in milliseconds of the worker's clock, and how many were scheduled before it.
pub(crate) type DueKey = (u64, u64);

/// See the module.
#[derive(Default)]
pub(crate) struct VmSchedule {
    timers: RefCell<BTreeMap<DueKey, PendingTimer>>,
    /// Each by the first of its coroutines.
    runs: RefCell<BTreeMap<DueKey, Rc<SleepingRun>>>,
    made: Cell<u64>,
    /// The number of the timer that fires.
    firing: Cell<u64>,
    /// Timers that have fired and whose functions have not begun.
    starting: RefCell<VecDeque<u64>>,
    /// Waiters of semaphores that have a unit and have not gone on.
    given: Rc<Cell<usize>>,
    /// Timers wait, whatever their time, until the configuration is in force.
    held: Cell<bool>,
    /// Something is due before all others, or was taken out.
    changed: Notify,
    /// The task that waits for the first of all is there.
    awaited: Cell<bool>,
    /// Runs a timer: set before there is one.
    fire: Cell<Option<FireTimer>>,
}

type FireTimer = fn(&Rc<LuaVm>, PendingTimer);

impl VmPart for VmSchedule {
    const PLACE: usize = 4;
}

/// A timer that waits for its time.
pub(crate) struct PendingTimer {
    /// The function, or a table of it and its arguments.
    pub(crate) anchor: i32,
    pub(crate) args: i32,
    /// Milliseconds until it is due again (`ngx.timer.every`).
    pub(crate) every: Option<u64>,
    /// Where it was made; `None`: before there were requests.
    pub(crate) origin: Option<Rc<RunOrigin>>,
}

/// The coroutines of a run that sleep.
#[derive(Default)]
pub(crate) struct SleepingRun {
    /// When they are due, and which they are.
    heap: RefCell<BinaryHeap<Reverse<(DueKey, u32)>>>,
    /// Its key in [`VmSchedule::runs`].
    listed: Cell<Option<DueKey>>,
    /// Those whose time has come, with the time, until the run takes them.
    due: RefCell<VecDeque<(u32, u64)>>,
    waker: RefCell<Option<Waker>>,
}

impl SleepingRun {
    /// Has the task of `waker` woken when the time of the next has come.
    pub(crate) fn wait(&self, waker: &Waker) {
        let mut waiting = self.waker.borrow_mut();
        match &mut *waiting {
            Some(set) => set.clone_from(waker),
            None => *waiting = Some(waker.clone()),
        }
    }

    /// Takes the first of those whose time has come: the coroutine, and what [`VmSchedule::add_sleeper`] gave.
    pub(crate) fn take_due(&self) -> Option<(u32, u64)> {
        self.due.borrow_mut().pop_front()
    }
}

/// How far [`VmSchedule::dispatch`] came.
enum Dispatched {
    /// Until a run is due again that has not taken its turn yet.
    RunFirst,
    /// The next is due then.
    Until(u64),
    /// Nothing waits.
    All,
}

impl VmSchedule {
    /// How many timers wait.
    pub(crate) fn pending_timers(&self) -> usize {
        self.timers.borrow().len()
    }

    /// Calls `f` with the timers that wait, in the order in which they are due.
    pub(crate) fn with_timers<R>(&self, f: impl FnOnce(&BTreeMap<DueKey, PendingTimer>) -> R) -> R {
        f(&self.timers.borrow())
    }

    /// Takes all timers, in the order in which they are due.
    pub(crate) fn take_timers(&self) -> impl Iterator<Item = PendingTimer> + use<> {
        self.changed.notify();
        self.timers.take().into_values()
    }

    /// Has `fire` run a timer of `vm` in `delay` milliseconds.
    pub(crate) fn add_timer(&self, vm: &Rc<LuaVm>, delay: u64, timer: PendingTimer, fire: FireTimer) {
        // The loop's clock may lag; by it what is due at once is due in this turn, perhaps the worker's last one.
        let now = if delay == 0 { weir_rt::now_ms() } else { clock::monotonic_ms() };
        let key = (now + delay, self.next_number());
        self.fire.set(Some(fire));
        if !self.held.get() {
            self.before_adding(vm, key);
        }
        self.timers.borrow_mut().insert(key, timer);
    }

    /// Lets no timer fire before [`VmSchedule::let_timers_fire`].
    pub(crate) fn hold_timers(&self) {
        self.held.set(true);
    }

    /// Lets timers of `vm` fire: at once those whose time has come.
    pub(crate) fn let_timers_fire(&self, vm: &Rc<LuaVm>) {
        self.held.set(false);
        if !self.timers.borrow().is_empty() {
            self.changed.notify();
            self.await_first(vm);
        }
    }

    /// Whether a timer for 0 seconds goes before the coroutine with this number, which was made later.
    pub(crate) fn is_after_timer(&self, number: u64) -> bool {
        let is_due = |(due, made)| !self.held.get() && made < number && due <= weir_rt::now_ms();
        self.starting.borrow().iter().any(|made| *made < number)
            || self.timers.borrow().first_key_value().is_some_and(|(key, _)| is_due(*key))
    }

    /// Whether coroutines whose semaphores were posted have not gone on.
    pub(crate) fn has_given_units(&self) -> bool {
        self.given.get() > 0
    }

    /// Counts the waiters of semaphores that have a unit and have not gone on.
    pub(crate) fn units_given(&self) -> Rc<Cell<usize>> {
        self.given.clone()
    }

    /// A timer has fired, and its function will begin with the task that was made for it: its number.
    pub(crate) fn timer_fired(&self) -> u64 {
        self.starting.borrow_mut().push_back(self.firing.get());
        self.firing.get()
    }

    /// The function of a timer that has fired begins.
    pub(crate) fn timer_begins(&self, number: u64) {
        let mut starting = self.starting.borrow_mut();
        if let Some(at) = starting.iter().position(|made| *made == number) {
            starting.remove(at);
        }
    }

    /// Lets the coroutine `at` of a run of `vm` sleep for `ms` milliseconds; when it is due.
    pub(crate) fn add_sleeper(&self, vm: &Rc<LuaVm>, run: &Rc<SleepingRun>, at: u32, ms: u64) -> u64 {
        // Not the loop's time, which does not advance while a script computes: `ngx.now` goes on, too.
        let key = (clock::monotonic_ms().saturating_add(ms), self.next_number());
        run.heap.borrow_mut().push(Reverse((key, at)));
        if run.listed.get().is_none_or(|listed| key < listed) {
            self.before_adding(vm, key);
            self.list(run);
        }
        key.0
    }

    /// Forgets a run that is no more.
    pub(crate) fn remove_run(&self, run: &SleepingRun) {
        if let Some(key) = run.listed.take() {
            self.runs.borrow_mut().remove(&key);
            // Where nothing is left, the task is to end, which holds the VM.
            self.changed.notify();
        }
    }

    /// A number larger than those of all timers and sleepers before, also for a coroutine that lets others go first (`ngx.sleep(0)`).
    pub(crate) fn next_number(&self) -> u64 {
        self.made.replace(self.made.get() + 1)
    }

    /// Has the task wait for `key` if it is the first of all.
    fn before_adding(&self, vm: &Rc<LuaVm>, key: DueKey) {
        if self.first().is_none_or(|first| key < first) {
            self.changed.notify();
        }
        self.await_first(vm);
    }

    /// Has the task there that waits for the first of all.
    fn await_first(&self, vm: &Rc<LuaVm>) {
        if !self.awaited.replace(true) {
            weir_rt::spawn(await_due(vm.clone()));
        }
    }

    fn first(&self) -> Option<DueKey> {
        let timers = self.timers.borrow();
        let timer = timers.first_key_value().map(|(key, _)| *key).filter(|_| !self.held.get());
        let run = self.runs.borrow().first_key_value().map(|(key, _)| *key);
        timer.into_iter().chain(run).min()
    }

    /// Lists a run by the first of its coroutines.
    fn list(&self, run: &Rc<SleepingRun>) {
        let next = run.heap.borrow().peek().map(|Reverse((key, _))| *key);
        let mut runs = self.runs.borrow_mut();
        if let Some(listed) = run.listed.replace(next) {
            runs.remove(&listed);
        }
        if let Some(next) = next {
            runs.insert(next, run.clone());
        }
    }

    /// Wakes and spawns what is due. A run that was woken and is due again after others goes on before them: with
    /// `wait` the rest is left for when it has taken its turn.
    fn dispatch(&self, vm: &Rc<LuaVm>, mut wait: bool) -> Dispatched {
        let now = weir_rt::now_ms();
        let mut last = std::ptr::null();
        while let Some(key) = self.first() {
            if key.0 > now {
                return Dispatched::Until(key.0);
            }
            let timer = self.timers.borrow_mut().remove(&key);
            if let (Some(timer), Some(fire)) = (timer, self.fire.get()) {
                last = std::ptr::null();
                self.firing.set(key.1);
                fire(vm, timer);
                continue;
            }
            let run = self.runs.borrow().get(&key).cloned().expect("the first is a timer or a run");
            if wait && last != Rc::as_ptr(&run) && !run.due.borrow().is_empty() {
                return Dispatched::RunFirst;
            }
            (last, wait) = (Rc::as_ptr(&run), true);
            self.wake(&run);
        }
        Dispatched::All
    }

    /// Lets the first coroutine of a run go on.
    fn wake(&self, run: &Rc<SleepingRun>) {
        let first = run.heap.borrow_mut().pop();
        if let Some(Reverse(((due, _), at))) = first {
            run.due.borrow_mut().push_back((at, due));
        }
        self.list(run);
        if let Some(waker) = &*run.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// Waits for the first of all again and again, until nothing is left.
async fn await_due(vm: Rc<LuaVm>) {
    let schedule = vm.part::<VmSchedule>();
    // After one turn the run has gone on, or is never polled again: it is waited for once.
    let mut wait = true;
    loop {
        match schedule.dispatch(&vm, std::mem::replace(&mut wait, true)) {
            Dispatched::All => break,
            Dispatched::RunFirst => {
                wait = false;
                weir_rt::yield_now().await;
            }
            Dispatched::Until(due) => {
                let left = Duration::from_millis(due.saturating_sub(weir_rt::now_ms()));
                either(schedule.changed.notified(), pin!(weir_rt::sleep(left))).await;
            }
        }
    }
    schedule.awaited.set(false);
}
