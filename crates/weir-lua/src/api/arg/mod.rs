//! `ngx.arg` of body filters.

pub(crate) mod ffi;

use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, function};
use crate::run::lend;
use crate::vm::phase::ScriptPhase;

pub(super) const TABLE: &[ApiFunction] =
    &[function("_arg_get", 0, get), function("_arg_set", ScriptPhase::BodyFilter as u32, set)];

/// The piece that a body filter looks at.
#[derive(Default)]
pub(crate) struct FilterArg {
    /// `ngx.arg[1]`
    pub(crate) bytes: Vec<u8>,
    /// `ngx.arg[2]`: it is the last one.
    pub(crate) last: bool,
}

fn get(l: LuaState) -> CallOutcome {
    if lend::phase() == ScriptPhase::Set {
        let number = l.number(1).unwrap_or_default();
        return lend::exchange(|x| {
            let args = &x.state::<SetArgs>().0;
            match args.get((number as usize).wrapping_sub(1)).filter(|_| number >= 1.0) {
                Some(arg) => l.push_bytes(arg),
                None => l.push_nil(),
            }
            Ok(CallDone::Results(1))
        })?;
    }
    if lend::phase() != ScriptPhase::BodyFilter {
        return Err(LuaRaise::Plain("API disabled in the current context".to_owned()));
    }
    let number = l.number(1).unwrap_or_default();
    lend::exchange(|x| {
        let arg = x.state::<FilterArg>();
        match number {
            1.0 => l.push_bytes(&arg.bytes),
            2.0 => l.push_boolean(arg.last),
            _ => l.push_nil(),
        }
    })?;
    Ok(CallDone::Results(1))
}

fn set(l: LuaState) -> CallOutcome {
    let number = l.number(1).unwrap_or_default();
    if number == 2.0 {
        let last = l.boolean(2);
        lend::exchange(|x| x.state::<FilterArg>().last = last)?;
        return Ok(CallDone::Results(0));
    }
    if number != 1.0 {
        return Err(LuaRaise::text("bad argument index"));
    }
    let bytes = match l.kind(2) {
        kind::NIL => Vec::new(),
        _ => {
            let mut bytes = Vec::new();
            crate::api::output_text(l, 2, &mut bytes, &|_| LuaRaise::text("bad chunk data type"))?;
            bytes
        }
    };
    lend::exchange(|x| x.state::<FilterArg>().bytes = bytes)?;
    Ok(CallDone::Results(0))
}

/// What the script asks for as `ngx.arg[n]`.
#[derive(Default)]
pub(crate) struct SetArgs(pub(crate) Vec<Vec<u8>>);
