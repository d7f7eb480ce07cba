//! What scripts call of `ngx.timer`.

use std::rc::Rc;

use weir_engine::Exchange;
use weir_engine::exchange::RunOrigin;

use crate::api::timer::VmTimers;
use crate::luajit::state::LuaState;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, expect_number, fail, function};
use crate::run::lend;
use crate::run::schedule::{PendingTimer, VmSchedule};
use crate::vm::lua_vm::LuaVm;
use crate::vm::phase::ScriptPhase;
use crate::vm::traps;

pub(crate) const TABLE: &[ApiFunction] = &[
    function("timer.at", 0, |l| begin(l, TimerKind::At)),
    function("timer.every", 0, |l| begin(l, TimerKind::Every)),
    function("timer.pending_count", 0, |l| {
        l.push_number(lend::vm(|vm| vm.part::<VmSchedule>().pending_timers()) as f64);
        Ok(CallDone::Results(1))
    }),
    function("timer.running_count", 0, |l| {
        l.push_number(lend::vm(|vm| vm.part::<VmTimers>().running()) as f64);
        Ok(CallDone::Results(1))
    }),
];

/// Which of the two functions made a timer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TimerKind {
    /// It fires once.
    At,
    /// It fires again and again.
    Every,
}

/// `ngx.timer.at(delay, function, argument…)`, `ngx.timer.every`
fn begin(l: LuaState, kind: TimerKind) -> CallOutcome {
    let every = kind == TimerKind::Every;
    let name = if every { "every" } else { "at" };
    if l.top() < 2 {
        return Err(LuaRaise::text(format!("expecting at least 2 arguments but got {}", l.top())));
    }
    let delay = (expect_number(l, 1, name)? * 1000.0) as i64;
    if every && delay == 0 {
        return Err(LuaRaise::text("delay cannot be zero"));
    }
    if !l.is_lua_function(2) {
        return Err(LuaRaise::argument(2, name, "Lua function expected"));
    }
    match lend::phase() {
        ScriptPhase::Init => return Err(LuaRaise::text("no request found")),
        ScriptPhase::ExitWorker => return Err(lend::disabled()),
        _ => {}
    }
    let vm = lend::vm(LuaVm::shared);
    // What was set to a negative time runs at once as in OpenResty, and never again.
    let (delay, next) = u64::try_from(delay).map_or((0, NEVER), |delay| (delay, delay));
    if delay > 0 && vm.is_leaving() {
        return fail(l, "process exiting");
    }
    if vm.part::<VmSchedule>().pending_timers() >= vm.main_conf.pending_timers() {
        traps::count("lua_max_pending_timers", &l.place(1));
        return fail(l, "too many pending timers");
    }
    let (anchor, args) = keep(l);
    let origin = lend::any_exchange(origin).ok();
    vm.begin_timer(delay, PendingTimer { anchor, args, every: every.then_some(next), origin });
    l.push_number(1.0);
    Ok(CallDone::Results(1))
}

/// Milliseconds that no server runs for.
const NEVER: u64 = u64::MAX >> 1;

/// Anchors the function, with its arguments in a table where it has some.
fn keep(l: LuaState) -> (i32, i32) {
    let count = l.top() - 1;
    if count == 1 {
        l.push_value(2);
        return (l.anchor(), 0);
    }
    l.new_table(count as usize, 0);
    for at in 0..count {
        l.push_value(at + 2);
        l.raw_set_index(-2, at as usize + 1);
    }
    (l.anchor(), count - 1)
}

/// What the timers of a request share.
#[derive(Default)]
struct SharedOrigin(Option<Rc<RunOrigin>>);

fn origin(x: &mut Exchange) -> Rc<RunOrigin> {
    let known = x.state::<SharedOrigin>().0.clone();
    known.unwrap_or_else(|| {
        let origin = Rc::new(x.leave_origin());
        x.state::<SharedOrigin>().0 = Some(origin.clone());
        origin
    })
}
