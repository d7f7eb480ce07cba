//! Functions that scripts call: what Lua enters, where each may be called, and how it ends.
//!
//! Every function is a Rust function of the [`LuaState`] that gives a number of results or a [`LuaRaise`]. [`enter`] is
//! what Lua calls: it checks the context, keeps panics from Lua's frames, and raises or yields last, when nothing is
//! left to be dropped.

use std::ffi::{c_int, c_void};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::luajit::shared_page;
use crate::luajit::state::LuaState;
use crate::luajit::sys::{self, RawState};
use crate::run::lend;
use crate::run::script_run::ScriptRun;
use crate::vm::limit::{is_exceeded, unlimited};
use crate::vm::phase::REQUEST;

/// Why a function raises an error.
pub(crate) enum LuaRaise {
    /// With this message, after the place of the call.
    Text(String),
    /// With this message alone.
    Plain(String),
}

impl LuaRaise {
    pub(crate) fn text(message: impl Into<String>) -> LuaRaise {
        LuaRaise::Text(message.into())
    }

    /// `bad argument #1 to 'say' (...)`
    pub(crate) fn argument(at: c_int, function: &str, reason: &str) -> LuaRaise {
        LuaRaise::Text(format!("bad argument #{at} to '{function}' ({reason})"))
    }
}

/// How a function ends.
pub(crate) enum CallDone {
    /// With this many results on the stack.
    Results(c_int),
    /// It has left a [`ThreadOp`](crate::run::op::ThreadOp) with the run; this many values on the stack go with it.
    Yield(c_int),
}

pub(crate) type CallOutcome = Result<CallDone, LuaRaise>;

/// `nil, message`
pub(crate) fn fail(l: LuaState, message: &str) -> CallOutcome {
    l.push_nil();
    l.push_bytes(message.as_bytes());
    Ok(CallDone::Results(2))
}

/// A function of the table.
pub(crate) struct ApiFunction {
    /// Its name below `ngx`, with dots.
    pub(crate) name: &'static str,
    /// Where it may be called; 0 for everywhere.
    pub(crate) contexts: u32,
    pub(crate) body: fn(LuaState) -> CallOutcome,
}

pub(crate) const fn function(
    name: &'static str,
    contexts: u32,
    body: fn(LuaState) -> CallOutcome,
) -> ApiFunction {
    ApiFunction { name, contexts, body }
}

/// Pushes the closure that scripts see as `function`.
pub(crate) fn push(l: LuaState, function: &'static ApiFunction) {
    let place = std::ptr::from_ref(function).cast_mut().cast::<c_void>();
    // SAFETY: one value more than before, for which a C function has room; the table that the pointer leads to is static.
    unsafe {
        sys::lua_pushlightuserdata(l.raw(), place);
        sys::lua_pushcclosure(l.raw(), enter, 1);
    }
}

/// As [`push`]; the topmost `count` values, which go, are upvalues of the closure from the second on.
pub(crate) fn push_with(l: LuaState, function: &'static ApiFunction, count: c_int) {
    let place = std::ptr::from_ref(function).cast_mut().cast::<c_void>();
    l.push_pointer(place);
    l.insert(-1 - count);
    // SAFETY: `count` values and the pointer, which was put below them, are on the stack; the table it leads to is
    // static.
    unsafe { sys::lua_pushcclosure(l.raw(), enter, count + 1) };
}
unsafe extern "C-unwind" fn enter(raw: *mut RawState) -> c_int {
    // SAFETY: Lua calls with a coroutine that it keeps meanwhile; the upvalue is what `push` has put there.
    let (l, function) = unsafe {
        let place = sys::lua_touserdata(raw, sys::upvalue(1));
        (LuaState::new(raw), &*place.cast::<ApiFunction>())
    };
    shared_page::changed();
    match unlimited(|| run(l, function)) {
        CallEnding::Results(count) => count,
        // SAFETY: `count` values are on the stack, and nothing of Rust's is left to be dropped.
        CallEnding::Yield(count) => unsafe { sys::lua_yield(raw, count) },
        // SAFETY: the message is on the stack, and nothing of Rust's is left to be dropped.
        CallEnding::Raise => unsafe { sys::lua_error(raw) },
    }
}

/// [`CallOutcome`] with the message on the stack instead of in a `String`.
enum CallEnding {
    Results(c_int),
    Yield(c_int),
    Raise,
}

fn run(l: LuaState, function: &'static ApiFunction) -> CallEnding {
    let outcome = if function.contexts != 0 && !lend::phase().is_in(function.contexts) {
        Err(match lend::phase().is_alone() && wants_request(function) {
            true => LuaRaise::text("API disabled in the current context"),
            false => lend::disabled(),
        })
    } else {
        // No Lua function that raises is called inside, so no Lua error is caught here by mistake.
        catch_unwind(AssertUnwindSafe(|| (function.body)(l)))
            .unwrap_or_else(|_| Err(LuaRaise::Text(format!("panic in ngx.{}", function.name))))
    };
    match outcome.map_err(|why| named_as_called(l, function, why)) {
        // Here the limit did not hold; the script gets to know of it now.
        Ok(CallDone::Results(_)) if is_exceeded() => raise(l, LuaRaise::text("not enough memory")),
        Ok(CallDone::Results(count)) => CallEnding::Results(count),
        Ok(CallDone::Yield(count)) if l.can_yield() => CallEnding::Yield(count),
        Ok(CallDone::Yield(_)) => {
            // What was asked for is forgotten; without a run nothing was.
            let _ = lend::run(ScriptRun::call_off);
            // As LuaJIT says it: without a place, which the traceback after it gives.
            raise(l, LuaRaise::Plain("attempt to yield across C-call boundary".to_owned()))
        }
        Err(error) => raise(l, error),
    }
}

/// An error about an argument has the name by which the function was called: none where `pcall` did.
fn named_as_called(l: LuaState, function: &ApiFunction, why: LuaRaise) -> LuaRaise {
    let name = function.name.rsplit('.').next().unwrap_or_default();
    let LuaRaise::Text(message) = why else { return why };
    let given = format!(" to '{name}' (");
    // What is not of OpenResty's API has its own name always.
    let own = function.name.starts_with('_') && !function.name.starts_with("_dict.");
    if own
        || !message.starts_with("bad argument #")
        || NAMED_BY_TEXT.contains(&function.name)
        || !message.contains(&given)
        || l.called().0 != "?"
        || !l.place(1).is_empty()
    {
        return LuaRaise::Text(message);
    }
    LuaRaise::Text(message.replacen(&given, " to '?' (", 1))
}

/// Functions that OpenResty has in Lua, where errors name them however they were called.
const NAMED_BY_TEXT: &[&str] = &[
    "exit",
    "escape_uri",
    "unescape_uri",
    "flush",
    "on_abort",
    "thread.spawn",
    "thread.wait",
    "thread.kill",
    "req.set_header",
    "req.clear_header",
];

/// Whether the function says that there is no request, where others say that this is no place for them.
fn wants_request(function: &ApiFunction) -> bool {
    let of_request =
        function.name.starts_with("req.") && !matches!(function.name, "req.read_body" | "req.socket");
    of_request || function.contexts & REQUEST == REQUEST
}

/// Where a script has called: what is between it and the function is the API's own part in Lua.
fn place(l: LuaState) -> String {
    (1..5).map(|level| l.place(level)).find(|place| !place.starts_with("ngx/")).unwrap_or_default()
}

fn raise(l: LuaState, raise: LuaRaise) -> CallEnding {
    let text = match raise {
        LuaRaise::Text(message) => place(l) + &message,
        LuaRaise::Plain(message) => message,
    };
    l.push_bytes(text.as_bytes());
    CallEnding::Raise
}

/// A string argument, or a number's text.
pub(crate) fn expect_string(l: &LuaState, at: c_int, function: &str) -> Result<Vec<u8>, LuaRaise> {
    l.bytes(at)
        .map(<[u8]>::to_vec)
        .ok_or_else(|| LuaRaise::argument(at, function, &format!("string expected, got {}", l.kind_name(at))))
}

/// A number argument.
pub(crate) fn expect_number(l: LuaState, at: c_int, function: &str) -> Result<f64, LuaRaise> {
    l.number(at)
        .ok_or_else(|| LuaRaise::argument(at, function, &format!("number expected, got {}", l.kind_name(at))))
}

/// Fails as OpenResty does for a wrong number of arguments; `words` say which are right, and how it goes on.
pub(crate) fn expect_count(l: LuaState, wanted: RangeInclusive<c_int>, words: &str) -> Result<(), LuaRaise> {
    if wanted.contains(&l.top()) {
        Ok(())
    } else {
        Err(LuaRaise::text(format!("expecting {words} {}", l.top())))
    }
}
