//! `ngx.ctx`: a table for each request, preserved through internal redirects.

pub(crate) mod connection;
pub(crate) mod ffi;

use std::rc::Rc;

use weir_engine::Exchange;
use weir_engine::log::LogLevel;

use crate::api::ssl;
use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, function};
use crate::run::lend;
use crate::run::settings::ScriptSettings;
use crate::vm::lua_vm::LuaVm;

pub(super) const TABLE: &[ApiFunction] = &[function("_ctx", 0, get), function("_set_ctx", 0, set)];

/// The anchor of a request's table.
#[derive(Default)]
pub(crate) struct RequestCtx(Option<(Rc<LuaVm>, i32)>);

impl Drop for RequestCtx {
    fn drop(&mut self) {
        if let Some((vm, anchor)) = self.0.take() {
            weir_engine::log::cycle(LogLevel::Debug, &format_args!("lua release ngx.ctx at ref {anchor}"));
            let main = vm.main();
            main.push_anchored(anchor);
            vm.note_ctx_fields(main.room());
            main.pop(1);
            main.release(anchor);
        }
    }
}

/// The table was made, or taken over, since the last internal redirect.
#[derive(Default)]
struct CtxPresence(bool);

/// The anchor of the request's table, if it has one.
pub(crate) fn anchor() -> Result<Option<i32>, LuaRaise> {
    if let known @ Some(_) = lend::ctx() {
        return Ok(known);
    }
    let anchor = lend::any_exchange(|x| {
        let (_, anchor) = x.own_lasting_if::<RequestCtx>()?.0.as_ref()?;
        let kept = x.plan.kept::<ScriptSettings>().is_none_or(|kept| kept.ctx_keep);
        (kept || x.state_if::<CtxPresence>().is_some_and(|here| here.0)).then_some(*anchor)
    })?;
    anchor.inspect(|anchor| lend::note_ctx(*anchor));
    Ok(anchor)
}

fn get(l: LuaState) -> CallOutcome {
    let anchor = anchor()?;
    if let Some(anchor) = anchor {
        l.push_anchored(anchor);
    } else {
        l.new_table(0, lend::vm(LuaVm::ctx_fields));
        ssl::push_inherited(l);
        l.push_value(-1);
        keep(l)?;
    }
    Ok(CallDone::Results(1))
}

fn set(l: LuaState) -> CallOutcome {
    if l.kind(1) != kind::TABLE {
        return Err(LuaRaise::Plain(format!("ctx should be a table while getting a {}", l.kind_name(1))));
    }
    l.push_value(1);
    keep(l)?;
    Ok(CallDone::Results(0))
}

/// Makes the table on top, which goes, the request's.
fn keep(l: LuaState) -> Result<(), LuaRaise> {
    lend::any_exchange(|_| ())?;
    keep_anchored(l.anchor())
}

/// Makes an anchored table the request's whose script runs.
pub(crate) fn keep_anchored(anchor: i32) -> Result<(), LuaRaise> {
    let vm = lend::vm(LuaVm::shared);
    lend::any_exchange(|x| give(x, vm, anchor))?;
    lend::note_ctx(anchor);
    Ok(())
}

/// The anchor of the table that `x` was given or made.
pub(crate) fn of(x: &mut Exchange) -> Option<i32> {
    x.own_lasting::<RequestCtx>().0.as_ref().map(|(_, anchor)| *anchor)
}

/// Makes an anchored table the request's. What was there before is released when it is dropped.
pub(crate) fn give(x: &mut Exchange, vm: Rc<LuaVm>, anchor: i32) {
    *x.own_lasting::<RequestCtx>() = RequestCtx(Some((vm, anchor)));
    x.state::<CtxPresence>().0 = true;
}
