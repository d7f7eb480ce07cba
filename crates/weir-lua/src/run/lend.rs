//! What a script reaches while it runs: its VM, the request that is lent to it, the run it belongs to.
//!
//! The exchange belongs to the engine. For the time of one `lua_resume` (or call) a [`ScriptLoan`] on the Rust stack points at
//! it, and API functions borrow through that, one at a time: none of them lets Lua run while it holds the borrow. Loans
//! nest: a filter's script runs while the engine sends what a handler's script has said, which waits.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{Ordering, compiler_fence};

use weir_engine::Exchange;
use weir_engine::log::LogLevel;

use crate::luajit::shared_page;
use crate::luajit::sys::RawState;
use crate::run::function::LuaRaise;
use crate::run::script_run::ScriptRun;
#[cfg(lua_walk)]
use crate::run::table_changes::TablesWatch;
use crate::run::variables::AllocatedBytes;
use crate::vm::limit::{MemoryLimit, enforce};
use crate::vm::lua_vm::LuaVm;
use crate::vm::phase::{REQUEST, ScriptPhase};

/// What is lent to a script.
pub(crate) struct ScriptLoan {
    vm: *const LuaVm,
    exchange: *mut Exchange,
    run: *mut ScriptRun,
    phase: ScriptPhase,
    /// The anchor of the request's `ngx.ctx`, once the script has asked for it.
    ctx: Cell<Option<i32>>,
    /// What [`hears_debug`] has found: the request stays in its block during a loan.
    hears_debug: Cell<Option<bool>>,
    before: *const ScriptLoan,
}

thread_local! {
    static CURRENT: Cell<*const ScriptLoan> = const { Cell::new(ptr::null()) };
}

/// Runs `script`, which may call API functions that borrow what is lent here.
pub(crate) fn lend<T>(
    vm: &LuaVm,
    phase: ScriptPhase,
    exchange: Option<&mut Exchange>,
    run: Option<&mut ScriptRun>,
    script: impl FnOnce() -> T,
) -> T {
    /// Takes back also when the script panics.
    struct LoanGuard(*const ScriptLoan, *const MemoryLimit);
    impl Drop for LoanGuard {
        fn drop(&mut self) {
            CURRENT.set(self.0);
            // SAFETY: the loan around this one, if there is one, holds a reference to its VM.
            unsafe { enforce(self.1) };
            shared_page::changed();
            shared_page::forget_time();
            compiler_fence(Ordering::Release);
        }
    }
    #[cfg(lua_walk)]
    let _tables = TablesWatch::begin(exchange.as_deref());
    let loan = ScriptLoan {
        vm,
        exchange: exchange.map_or(ptr::null_mut(), ptr::from_mut),
        run: run.map_or(ptr::null_mut(), ptr::from_mut),
        phase,
        ctx: Cell::new(None),
        hears_debug: Cell::new(None),
        before: CURRENT.get(),
    };
    // SAFETY: this function holds a reference to the VM until the guard puts the one before it in force again.
    let around = unsafe { enforce(vm.limits.memory.as_deref().map_or(ptr::null(), ptr::from_ref)) };
    let _guard = LoanGuard(loan.before, around);
    // The sampler's handler follows the pointer at any instruction from here on.
    compiler_fence(Ordering::Release);
    CURRENT.set(&raw const loan);
    shared_page::begin();
    let before = (vm.allocated(), vm.spent());
    let result = script();
    let (more, spent) = (vm.allocated() - before.0, vm.spent());
    // SAFETY: the reference that this came from is lent to this function until it ends, and the script that used it is
    // over.
    if let Some(x) = unsafe { loan.exchange.as_mut() } {
        if more > 0 {
            x.own_lasting::<AllocatedBytes>().0 += more;
        }
        if spent != before.1 {
            x.trace().note_vm(spent[0] - before.1[0], spent[1] - before.1[1]);
        }
    }
    result
}

/// The main coroutine of the VM that runs on this thread; also for the sampler's handler.
pub(crate) fn main() -> Option<*mut RawState> {
    // SAFETY: `lend` holds a reference to the VM as long as the loan is current.
    current().map(|loan| unsafe { &*loan.vm }.main().raw())
}

fn current() -> Option<&'static ScriptLoan> {
    // SAFETY: a loan is on the stack of `lend` as long as CURRENT points at it, and API functions, which alone ask,
    // end before `lend` does.
    unsafe { CURRENT.get().as_ref() }
}

/// Seconds since 1970: as the running script knows them, if one runs.
pub(crate) fn wall() -> f64 {
    if CURRENT.get().is_null() {
        shared_page::forget_time();
    }
    shared_page::wall()
}

/// The context of the running script.
pub(crate) fn phase() -> ScriptPhase {
    current().map_or(ScriptPhase::Init, |loan| loan.phase)
}

/// The anchor of the request's `ngx.ctx`, if the script has asked before.
pub(crate) fn ctx() -> Option<i32> {
    current()?.ctx.get()
}

/// Notes the anchor of the request's `ngx.ctx` for the rest of the loan: it may be another one in the next, since
/// redirects happen between them.
pub(crate) fn note_ctx(anchor: i32) {
    if let Some(loan) = current() {
        loan.ctx.set(Some(anchor));
    }
}

/// Whether a script runs. Finalizers may be called after the last one.
pub(crate) fn is_running() -> bool {
    current().is_some()
}

/// The VM of the running script.
pub(crate) fn vm<T>(use_it: impl FnOnce(&LuaVm) -> T) -> T {
    let loan = current().expect("API functions are called by scripts, which run inside of `lend`");
    // SAFETY: `lend` holds a reference to the VM as long as the loan is current.
    use_it(unsafe { &*loan.vm })
}

/// Uses the request that is lent to the running script.
///
/// # Errors
/// No exchange is lent.
pub(crate) fn exchange<T>(use_it: impl FnOnce(&mut Exchange) -> T) -> Result<T, LuaRaise> {
    if phase().is_alone() {
        return Err(LuaRaise::text("API disabled in the current context"));
    }
    any_exchange(use_it)
}

/// As [`exchange`] for compiled code, where the script's phase has requests; `None`: it has not, or no exchange is lent.
#[inline]
pub(crate) fn request<T>(use_it: impl FnOnce(&mut Exchange) -> T) -> Option<T> {
    let loan = current()?;
    if !loan.phase.is_in(REQUEST) {
        return None;
    }
    // SAFETY: as in `if_exchange`.
    unsafe { loan.exchange.as_mut() }.map(use_it)
}

/// As [`exchange`], also where it is of no request ([`Exchange::is_alone`]): for its settings, its log, what it keeps.
///
/// # Errors
/// No exchange is lent.
pub(crate) fn any_exchange<T>(use_it: impl FnOnce(&mut Exchange) -> T) -> Result<T, LuaRaise> {
    if_exchange(use_it).ok_or_else(|| LuaRaise::text("no request found"))
}

/// As [`any_exchange`]; `None`: no exchange is lent.
#[inline]
fn if_exchange<T>(use_it: impl FnOnce(&mut Exchange) -> T) -> Option<T> {
    let exchange = current().map_or(ptr::null_mut(), |loan| loan.exchange);
    // SAFETY: `lend` holds the exclusive reference that this came from, and does not use it while the script runs; API
    // functions call this once at a time, since `use_it` never runs Lua.
    unsafe { exchange.as_mut() }.map(use_it)
}

/// What the server is doing while scripts of `phase` run, as log lines end.
pub(crate) fn doing(phase: ScriptPhase) -> &'static str {
    match phase {
        ScriptPhase::Balancer => DOING_BALANCER,
        ScriptPhase::Log => " while logging request",
        ScriptPhase::Preread => " while prereading client data",
        ScriptPhase::ProxySslCertificate => " while loading proxy ssl certificate by lua",
        _ => "",
    }
}

/// Logs a message of the running script: of its request, if it has one.
pub(crate) fn log(level: LogLevel, message: &dyn std::fmt::Display) {
    let doing = if level == LogLevel::Debug { "" } else { doing(phase()) };
    let reported = weir_engine::log::up_to(LONGEST, || {
        any_exchange(|x| x.log(level, &format_args!("{message}{doing}")))
    });
    if reported.is_err() {
        // As in OpenResty, where `init_by_lua` logs before there are contexts, and debug lines have none.
        match phase() {
            other if level != LogLevel::Debug && !matches!(other, ScriptPhase::Init) => {
                weir_engine::log::cycle(level, &format_args!("{message}, context: {}", other.context()));
            }
            _ => weir_engine::log::cycle(level, message),
        }
    }
}

/// Whether a message of this level is written anywhere: what is not need not be composed.
pub(crate) fn hears(level: LogLevel) -> bool {
    any_exchange(|x| x.hears(level)).unwrap_or(true)
}

/// Lines of scripts may be as long as OpenResty's nginx has them.
const LONGEST: usize = 4096;

/// As [`log_plain`], with what the server is doing.
pub(crate) fn log_doing(level: LogLevel, message: &dyn std::fmt::Display) {
    let doing = if level == LogLevel::Debug { "" } else { doing(phase()) };
    log_plain(level, &format_args!("{message}{doing}"));
}

/// Logs a message as it is, with what nginx says about the request, if there is one.
pub(crate) fn log_plain(level: LogLevel, message: &dyn std::fmt::Display) {
    if level == LogLevel::Debug && !hears_debug() {
        return;
    }
    weir_engine::log::up_to(LONGEST, || {
        if if_exchange(|x| x.log(level, message)).is_none() {
            weir_engine::log::cycle(level, message);
        }
    });
}

/// Whether lines of the level `debug` about the running script's request are logged; so they are where it has none.
#[inline]
pub(crate) fn hears_debug() -> bool {
    let Some(loan) = current() else { return true };
    if let Some(heard) = loan.hears_debug.get() {
        return heard;
    }
    let heard = if_exchange(|x| x.connection.debug || x.plan.core.error_log.enabled(LogLevel::Debug));
    loan.hears_debug.set(Some(heard.unwrap_or(true)));
    heard.unwrap_or(true)
}

/// What [`hears_debug`] has found does not hold any longer.
pub(crate) fn forget_debug() {
    if let Some(loan) = current() {
        loan.hears_debug.set(None);
    }
}

/// The function that was called is not for the running script's context.
pub(crate) fn disabled() -> LuaRaise {
    LuaRaise::Text(format!("API disabled in the context of {}", phase().context()))
}

/// Uses the run of the script that runs.
///
/// # Errors
/// It is one that can't wait.
pub(crate) fn run<T>(use_it: impl FnOnce(&mut ScriptRun) -> T) -> Result<T, LuaRaise> {
    let run = current().map_or(ptr::null_mut(), |loan| loan.run);
    // SAFETY: `lend` holds the exclusive reference that this came from, and does not use it while the script runs; API
    // functions
    // call this once at a time, since `use_it` never runs Lua.
    match unsafe { run.as_mut() } {
        Some(run) => Ok(use_it(run)),
        None => Err(LuaRaise::text("no co ctx found")),
    }
}

/// What nginx's messages say is being done while a server is chosen.
pub(crate) const DOING_BALANCER: &str = " while connecting to upstream";
