//! `ngx.log` and `print`.

use weir_engine::log::LogLevel;

use crate::api::ffi::guarded;
use crate::api::output_text;
use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, expect_number, function};
use crate::run::lend;
use crate::vm::phase::ScriptPhase;
use crate::vm::traps;

pub(super) const TABLE: &[ApiFunction] = &[
    function("log", 0, |l| {
        let level = expect_number(l, 1, "log")?;
        let Some(known) = self::level(level) else {
            return Err(LuaRaise::argument(1, "log", &format!("bad log level: {level}")));
        };
        write(l, known, 2)
    }),
    function("_print", 0, |l| write(l, LogLevel::Notice, 1)),
    function("_warn_global", 0, |l| {
        if serves() {
            let name = l.lossy(1);
            note_trap(&format!("global {name}"), &l.place(2), || {
                format!(
                    "[lua] writing a global Lua variable ('{name}') which may lead to race conditions between concurrent \
                     requests, so prefer the use of 'local' variables\nstack traceback:\n{}",
                    l.traceback(l, 2)
                )
            });
        }
        Ok(CallDone::Results(0))
    }),
    function("_warn_blocking", 0, |l| {
        if serves() {
            let (name, place) = (l.lossy(1), l.place(2));
            if traps::count(&name, &place) == Some(1) {
                let message =
                    format!("[lua] {place}{name} blocks the worker, and with it all of its requests");
                lend::log(LogLevel::Notice, &message);
            }
        }
        Ok(CallDone::Results(0))
    }),
];

/// The level that scripts know by this number.
pub(crate) fn level(number: f64) -> Option<LogLevel> {
    LEVELS.get(number as usize).filter(|_| number >= 0.0).copied()
}

/// Whether the script's worker serves requests meanwhile.
fn serves() -> bool {
    !matches!(lend::phase(), ScriptPhase::Init | ScriptPhase::InitWorker | ScriptPhase::ExitWorker)
        && !crate::api::cli::is_program()
}

/// By number, from `ngx.STDERR`.
const LEVELS: [LogLevel; 9] = [
    LogLevel::Stderr,
    LogLevel::Emerg,
    LogLevel::Alert,
    LogLevel::Crit,
    LogLevel::Error,
    LogLevel::Warn,
    LogLevel::Notice,
    LogLevel::Info,
    LogLevel::Debug,
];

/// Whether a message of this level is written anywhere, for compiled code: 0 or 1, which an unknown level is, too.
pub(super) extern "C" fn hears(level: i32) -> i32 {
    guarded(|| match usize::try_from(level).ok().and_then(|level| LEVELS.get(level)) {
        Some(known) => i32::from(lend::hears(*known)),
        None => 1,
    })
}

/// Logs the arguments from number `from` on. What is not logged is not looked at, as in OpenResty.
fn write(l: LuaState, level: LogLevel, from: i32) -> CallOutcome {
    if !lend::hears(level) {
        return Ok(CallDone::Results(0));
    }
    let mut text = b"[lua] ".to_vec();
    text.extend_from_slice(l.caller(1).as_bytes());
    for at in from..=l.top() {
        if l.kind(at) == kind::TABLE {
            // `__tostring`, or the type and address, as the prelude has made of it.
            return Err(LuaRaise::argument(
                at + 1 - from,
                "log",
                "expected table to have __tostring metamethod",
            ));
        }
        let other = |reason: &str| match l.kind(at) {
            kind::FUNCTION | kind::THREAD | kind::USERDATA | kind::CDATA => {
                let reason = format!("string, number, boolean, or nil expected, got {}", l.kind_name(at));
                LuaRaise::argument(at + 1 - from, "log", &reason)
            }
            _ => LuaRaise::argument(at + 1 - from, "log", reason),
        };
        output_text(l, at, &mut text, &other)?;
    }
    let message = String::from_utf8_lossy(&text);
    lend::log(level, &message);
    Ok(CallDone::Results(0))
}

/// Times after which a place is logged again.
const AGAIN: u64 = 1000;

/// Scripts have reached `place` (`file:line: `) once more, where they do `what`; `message` says what is wrong with
/// that.
fn note_trap(what: &str, place: &str, message: impl FnOnce() -> String) {
    let Some(times) = traps::count(what, place) else { return };
    if times == 1 {
        lend::log(LogLevel::Warn, &message());
    } else if times % AGAIN == 0 {
        lend::log(LogLevel::Warn, &format_args!("{}, {times} times so far", message()));
    }
}
