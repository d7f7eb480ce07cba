//! Lines for a log on another machine: below `weir.log`.

use std::rc::Rc;
use std::sync::Arc;

use weir_engine::log::{HostNames, SocketLog};

use crate::luajit::state::LuaState;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, expect_string, fail, function};
use crate::run::lend;
use crate::vm::phase::ScriptPhase;

pub(crate) const TABLE: &[ApiFunction] =
    &[function("_log.open", 0, open), function("_log.write", 0, write), function("_log.state", 0, state)];

/// `open(server)`
fn open(l: LuaState) -> CallOutcome {
    let name = expect_string(&l, 1, "open")?;
    // A look-up by the system blocks the worker; before it serves requests that is harmless.
    let names = match lend::phase() {
        ScriptPhase::Init | ScriptPhase::InitWorker => HostNames::LookedUp,
        _ => HostNames::Refused,
    };
    match SocketLog::open(&String::from_utf8_lossy(&name), names) {
        Ok(log) => {
            l.push_owned(Rc::new(SocketLogHandle(log)), NAME);
            Ok(CallDone::Results(1))
        }
        Err(why) => fail(l, &why),
    }
}

/// A log that a script has.
struct SocketLogHandle(Arc<SocketLog>);

fn of(l: LuaState) -> Result<Arc<SocketLog>, LuaRaise> {
    let held: Option<Rc<SocketLogHandle>> = l.owned(1);
    held.map(|held| held.0.clone()).ok_or_else(|| LuaRaise::text("not a log"))
}

/// `write(log, text)`: a line, or several, the last with or without its newline.
fn write(l: LuaState) -> CallOutcome {
    let log = of(l)?;
    let Some(text) = l.bytes(2) else {
        return Err(LuaRaise::argument(2, "write", &format!("string expected, got {}", l.kind_name(2))));
    };
    let taken = if text.ends_with(b"\n") { log.write(text) } else { log.write(&[text, b"\n"].concat()) };
    if !taken {
        return fail(l, "buffer full");
    }
    l.push_boolean(true);
    Ok(CallDone::Results(1))
}

/// `state(log)`: written, dropped, waiting bytes, whether the server can be reached.
fn state(l: LuaState) -> CallOutcome {
    let state = of(l)?.state();
    for figure in [state.written, state.dropped, state.waiting] {
        l.push_number(figure as f64);
    }
    l.push_boolean(state.up);
    Ok(CallDone::Results(4))
}

const NAME: &std::ffi::CStr = c"weir.log";
