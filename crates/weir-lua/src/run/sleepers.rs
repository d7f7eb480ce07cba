//! Coroutines of a run that sleep.

use std::rc::Rc;
use std::task::Context;

use crate::run::schedule::{SleepingRun, VmSchedule};
use crate::vm::lua_vm::LuaVm;

/// See the module.
#[derive(Default)]
pub(crate) struct SleepingThreads {
    /// Those that sleep for a time, in the [schedule](VmSchedule) of their VM.
    timed: Option<(Rc<LuaVm>, Rc<SleepingRun>)>,
    /// Those that let others run and go on then (`ngx.sleep(0)`).
    brief: Vec<u32>,
    /// The others have been let run.
    passed: bool,
}

impl SleepingThreads {
    /// Lets the coroutine `at` sleep for so long: when it is due, 0 for as soon as others have run.
    pub(crate) fn add(&mut self, vm: &Rc<LuaVm>, at: usize, ms: u64) -> u64 {
        let at = u32::try_from(at).expect("coroutines are counted in 32 bits");
        if ms == 0 {
            self.brief.push(at);
            return 0;
        }
        let (vm, run) = self.timed.get_or_insert_with(|| (vm.clone(), Rc::default()));
        vm.part::<VmSchedule>().add_sleeper(vm, run, at, ms)
    }

    /// Calls `go` for each whose time has come, with what [`SleepingThreads::add`] gave; the task is woken for the next.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, mut go: impl FnMut(usize, u64)) {
        if !self.brief.is_empty() {
            if std::mem::take(&mut self.passed) {
                self.brief.drain(..).for_each(|at| go(at as usize, 0));
            } else {
                self.passed = true;
                cx.waker().wake_by_ref();
            }
        }
        if let Some((_, run)) = &self.timed {
            run.wait(cx.waker());
            while let Some((at, due)) = run.take_due() {
                go(at as usize, due);
            }
        }
    }
}

impl Drop for SleepingThreads {
    fn drop(&mut self) {
        if let Some((vm, run)) = &self.timed {
            vm.part::<VmSchedule>().remove_run(run);
        }
    }
}
