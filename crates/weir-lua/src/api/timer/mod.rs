//! `ngx.timer`: functions that run by themselves, later, with no request.
//!
//! What is pending costs an entry of a sorted map ([`VmSchedule`]) and its arguments on Lua's side: no coroutine, no task
//! and no timer of the runtime, of which one task per VM has one, set to the first of all. A timer that runs is a task
//! with an [exchange of no request](weir_engine::exchange::StandaloneRun).

pub(crate) mod functions;
pub(crate) mod report;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use weir_engine::log::{self, LogLevel};

use crate::run::drive::drive_alone;
use crate::run::schedule::{PendingTimer, VmSchedule};
use crate::run::script_run::ScriptRun;
use crate::vm::lua_vm::{LuaVm, VmPart};
use crate::vm::phase::ScriptPhase;
use crate::vm::traps;

use report::ActiveTimer;

pub(crate) use functions::TABLE;

/// The timers of a VM that run.
#[derive(Default)]
pub(crate) struct VmTimers {
    /// Those that run, in the order in which they began.
    running: RefCell<BTreeMap<u64, ActiveTimer>>,
    ran: Cell<u64>,
    /// The configuration notifies it when it is replaced.
    reported: Cell<bool>,
}

impl VmPart for VmTimers {
    const PLACE: usize = 0;
}

impl VmTimers {
    /// How many run.
    pub(crate) fn running(&self) -> usize {
        self.running.borrow().len()
    }
}

/// Why a timer fires.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TimerFiring {
    /// Its time has come.
    Due,
    /// The configuration leaves.
    Premature,
}

impl LuaVm {
    /// Adds a timer; the function, or the table, is anchored.
    fn begin_timer(&self, delay: u64, timer: PendingTimer) {
        let vm = self.shared();
        self.part::<VmSchedule>().add_timer(&vm, delay, timer, |vm, timer| vm.fire(timer, TimerFiring::Due));
        if let (false, Some(link)) = (self.part::<VmTimers>().reported.replace(true), self.home.upgrade()) {
            let leaving = LeavingVm(Rc::downgrade(&vm));
            link.on_leave(move || leaving.fire());
        }
    }

    /// Runs a timer that is due.
    fn fire(self: &Rc<Self>, timer: PendingTimer, firing: TimerFiring) {
        log::cycle(LogLevel::Debug, &"lua ngx.timer expired");
        let l = self.main();
        if let (Some(delay), TimerFiring::Due) = (timer.every, firing) {
            l.push_anchored(timer.anchor);
            let next = PendingTimer { anchor: l.anchor(), origin: timer.origin.clone(), ..timer };
            self.begin_timer(delay, next);
        }
        let origin = timer.origin.clone().or_else(|| self.home.upgrade()?.nobody());
        self.push_timer(&timer, firing);
        let place = l.defined_at(-(timer.args + 2));
        let most = self.main_conf.running_timers();
        let Some(origin) = origin.filter(|_| self.part::<VmTimers>().running() < most) else {
            l.pop(timer.args + 2);
            traps::count("lua_max_running_timers", place.trim_start_matches(['=', '@']));
            let message = format_args!(
                "lua failed to run timer with function defined at {place}: {most} lua_max_running_timers are not enough"
            );
            return log::cycle(LogLevel::Alert, &message);
        };
        let place = place.trim_start_matches(['=', '@']).to_owned();
        let run = ScriptRun::with_arguments(self, ScriptPhase::Timer, timer.args + 1);
        let running = RunningTimer::new(self, place.clone(), timer.every.is_some());
        let number = self.part::<VmSchedule>().timer_fired();
        weir_rt::spawn(async move {
            running.vm.part::<VmSchedule>().timer_begins(number);
            drive_alone(run, &origin, &place).await;
            drop(running);
        });
    }

    /// Pushes function, `premature` and arguments on the main stack; the anchor is no more.
    fn push_timer(&self, timer: &PendingTimer, firing: TimerFiring) {
        let l = self.main();
        l.reserve(timer.args + 4);
        l.push_anchored(timer.anchor);
        l.release(timer.anchor);
        if timer.args == 0 {
            return l.push_boolean(firing == TimerFiring::Premature);
        }
        let table = l.top();
        l.raw_get_index(table, 1);
        l.push_boolean(firing == TimerFiring::Premature);
        (0..timer.args as usize).for_each(|at| l.raw_get_index(table, at + 2));
        l.remove(table);
    }
}

/// Fires what is pending when the configuration leaves; when it goes without that, what is pending does, too.
struct LeavingVm(std::rc::Weak<LuaVm>);

impl LeavingVm {
    fn fire(self) {
        let Some(vm) = self.0.upgrade() else { return };
        for timer in vm.part::<VmSchedule>().take_timers() {
            vm.fire(timer, TimerFiring::Premature);
        }
    }
}

impl Drop for LeavingVm {
    fn drop(&mut self) {
        if let Some(vm) = self.0.upgrade() {
            for timer in vm.part::<VmSchedule>().take_timers() {
                vm.main().release(timer.anchor);
            }
        }
    }
}

/// One that runs is listed.
struct RunningTimer {
    vm: Rc<LuaVm>,
    number: u64,
}

impl RunningTimer {
    fn new(vm: &Rc<LuaVm>, place: String, every: bool) -> RunningTimer {
        let number = vm.part::<VmTimers>().begin(ActiveTimer { place, every, since_ms: weir_rt::now_ms() });
        RunningTimer { vm: vm.clone(), number }
    }
}

impl Drop for RunningTimer {
    fn drop(&mut self) {
        self.vm.part::<VmTimers>().running.borrow_mut().remove(&self.number);
    }
}
