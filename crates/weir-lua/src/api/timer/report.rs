//! What is reported of a VM's timers (`weir lua timers`).

use std::collections::BTreeMap;

use crate::api::timer::VmTimers;
use crate::run::schedule::{PendingTimer, VmSchedule};
use crate::vm::lua_vm::LuaVm;

/// Timers of one function and kind that all wait, or all run.
pub(crate) struct TimerFigures {
    /// Where the function is defined.
    pub(crate) place: String,
    /// `ngx.timer.every`
    pub(crate) every: bool,
    pub(crate) count: u64,
    /// In how many nanoseconds the first of those that wait is due.
    pub(crate) due_ns: Option<u64>,
    /// For how many nanoseconds the oldest of those that run does.
    pub(crate) runs_ns: Option<u64>,
    /// The VM's configuration has been replaced.
    leaving: bool,
}

impl TimerFigures {
    /// In words.
    pub(crate) fn state(&self) -> &'static str {
        match (self.runs_ns, self.leaving) {
            (None, false) => "pending",
            (Some(_), false) => "running",
            (None, true) => "pending, old configuration",
            (Some(_), true) => "running, old configuration",
        }
    }
}

/// A timer that runs.
pub(super) struct ActiveTimer {
    pub(super) place: String,
    pub(super) every: bool,
    /// Since when, by the worker's clock.
    pub(super) since_ms: u64,
}

impl LuaVm {
    /// Those that wait, then those that run, most of a kind first; with no script running.
    pub(crate) fn timers_told(&self) -> Vec<TimerFigures> {
        let (now, leaving) = (weir_rt::now_ms(), self.is_leaving());
        let reported =
            |(place, every)| TimerFigures { place, every, count: 0, due_ns: None, runs_ns: None, leaving };
        let (mut waiting, mut active) = (BTreeMap::new(), BTreeMap::new());
        self.part::<VmSchedule>().with_timers(|timers| {
            for ((due, _), timer) in timers {
                let of = (self.place_of_timer(timer), timer.every.is_some());
                let one = waiting.entry(of.clone()).or_insert_with(|| reported(of));
                one.count += 1;
                // They come in the order in which they are due.
                one.due_ns.get_or_insert(due.saturating_sub(now).saturating_mul(1_000_000));
            }
        });
        for timer in self.part::<VmTimers>().running.borrow().values() {
            let of = (timer.place.clone(), timer.every);
            let one = active.entry(of.clone()).or_insert_with(|| reported(of));
            one.count += 1;
            one.runs_ns.get_or_insert(now.saturating_sub(timer.since_ms) * 1_000_000);
        }
        let mut list: Vec<TimerFigures> = waiting.into_values().chain(active.into_values()).collect();
        list.sort_by_key(|reported| (reported.runs_ns.is_some(), std::cmp::Reverse(reported.count)));
        list
    }

    fn place_of_timer(&self, timer: &PendingTimer) -> String {
        let l = self.main();
        l.push_anchored(timer.anchor);
        if timer.args > 0 {
            l.raw_get_index(-1, 1);
        }
        let place = l.defined_at(-1);
        l.pop(1 + i32::from(timer.args > 0));
        place.trim_start_matches(['=', '@']).to_owned()
    }
}

impl VmTimers {
    /// A timer runs from here on; its number.
    pub(super) fn begin(&self, timer: ActiveTimer) -> u64 {
        let number = self.ran.get();
        self.ran.set(number + 1);
        self.running.borrow_mut().insert(number, timer);
        number
    }
}
