//! Coroutines of a run that sleep.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Context;

use crate::run::schedule::{SleepingRun, VmSchedule};
use crate::vm::lua_vm::LuaVm;

/// See the module.
#[derive(Default)]
pub(crate) struct SleepingThreads {
    /// Those that sleep for a time, in the [schedule](VmSchedule) of their VM.
    timed: Option<Rc<SleepingRun>>,
    /// Their VM, since the first sleep.
    vm: Option<Rc<LuaVm>>,
    /// Those that let others run and go on then (`ngx.sleep(0)`), with their [numbers](VmSchedule::next_number).
    brief: VecDeque<(u32, u64)>,
    /// How often the others have been let run.
    turns: u8,
}

impl SleepingThreads {
    /// Lets the coroutine `at` sleep for so long: when it is due, 0 for as soon as others have run.
    pub(crate) fn add(&mut self, vm: &Rc<LuaVm>, at: usize, ms: u64) -> u64 {
        let at = u32::try_from(at).expect("coroutines are counted in 32 bits");
        let vm = self.vm.get_or_insert_with(|| vm.clone());
        let schedule = vm.part::<VmSchedule>();
        if ms == 0 {
            self.brief.push_back((at, schedule.next_number()));
            return 0;
        }
        schedule.add_sleeper(vm, self.timed.get_or_insert_default(), at, ms)
    }

    /// Calls `go` for each whose time has come, with what [`SleepingThreads::add`] gave; the task is woken for the next.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, mut go: impl FnMut(usize, u64)) {
        if !self.brief.is_empty() {
            self.poll_brief(&mut go);
            if !self.brief.is_empty() {
                cx.waker().wake_by_ref();
            }
        }
        if let Some(run) = &self.timed {
            run.wait(cx.waker());
            while let Some((at, due)) = run.take_due() {
                go(at as usize, due);
            }
        }
    }

    /// Calls `go` for those that have let others run. As in OpenResty they go on after the timers for 0 seconds that were made before
    /// them, and after coroutines that wait for semaphores which are posted one after the other in response to what they did.
    fn poll_brief(&mut self, go: &mut impl FnMut(usize, u64)) {
        let Some(vm) = &self.vm else { return };
        let schedule = vm.part::<VmSchedule>();
        let may_go = self.turns > 0 && (self.turns >= MOST_TURNS || !schedule.has_given_units());
        while let (true, Some((at, number))) = (may_go, self.brief.front().copied())
            && !schedule.is_after_timer(number)
        {
            self.brief.pop_front();
            go(at as usize, 0);
        }
        self.turns = if self.brief.is_empty() { 0 } else { self.turns.saturating_add(1) };
    }
}

/// Turns of the loop after which semaphores are not waited for: there may be some in every turn of a busy worker. A chain of semaphores
/// takes a turn for each; lua-resty-timer-ng has two.
const MOST_TURNS: u8 = 16;

impl Drop for SleepingThreads {
    fn drop(&mut self) {
        if let (Some(vm), Some(run)) = (&self.vm, &self.timed) {
            vm.part::<VmSchedule>().remove_run(run);
        }
    }
}
