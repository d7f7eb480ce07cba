//! `ngx.say`, `print`, `flush`, `eof`, `send_headers`.

pub(crate) mod ffi;

use weir_http::Method;

use crate::api::is_sent;
use crate::luajit::state::{LuaState, append_whole};
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, fail, function};
use crate::run::lend;
use crate::run::op::ThreadOp;
use crate::run::settings::{ScriptSettings, prepare};
use crate::vm::phase::OUTPUT;

pub(super) const TABLE: &[ApiFunction] = &[
    function("say", OUTPUT, |l| echo(l, "say", b"\n")),
    function("print", OUTPUT, |l| echo(l, "print", b"")),
    function("flush", OUTPUT, flush),
    function("eof", OUTPUT, eof),
    function("send_headers", OUTPUT, send_headers),
];

/// A script that has said this many bytes waits until they have left.
pub(crate) const AHEAD: usize = 256 << 10;
/// Room for what a script says, to begin with.
pub(crate) const FIRST_SAID: usize = 512;

/// The script has taken the client's connection over.
const RAW: &str = "raw request socket acquired";

fn echo(l: LuaState, name: &str, end: &[u8]) -> CallOutcome {
    if lend::run(|run| run.raw)? {
        return fail(l, RAW);
    }
    let (ended, broken) = lend::run(|run| (run.ended, run.broken))?;
    if broken {
        return fail(l, "nginx output filter error");
    }
    if ended {
        return fail(l, "seen eof");
    }
    let mut text = lend::run(|run| std::mem::take(&mut run.said))?;
    let before = text.len();
    if before == 0 {
        text.reserve(FIRST_SAID);
    }
    let mut outcome = Ok(());
    for at in 1..=l.top() {
        outcome = text_of(l, at, &mut text, &|reason| LuaRaise::argument(at, name, reason));
        if outcome.is_err() {
            text.truncate(before);
            break;
        }
    }
    if outcome.is_ok() {
        text.extend_from_slice(end);
    }
    let much = text.len() > AHEAD;
    let headless = is_header_only()?;
    lend::run(|run| run.said = text)?;
    // Nothing was said by a call that throws: the response is still to be decided.
    outcome?;
    begin()?;
    if headless {
        // It counts for `Content-Length` all the same.
        return fail(l, "header only");
    }
    l.set_top(0);
    if much {
        lend::run(|run| run.op = Some(ThreadOp::Flush))?;
        return Ok(CallDone::Yield(0));
    }
    l.push_number(1.0);
    Ok(CallDone::Results(1))
}

/// Whether the head has left that nothing follows: the request's method is HEAD.
fn is_header_only() -> Result<bool, LuaRaise> {
    Ok(lend::run(|run| run.began)? && lend::exchange(|x| x.request.head.method == Method::Head)?)
}

/// The head is done, as far as the script can see.
fn begin() -> Result<(), LuaRaise> {
    if !lend::run(|run| std::mem::replace(&mut run.began, true))? {
        let default_type = lend::run(|run| run.default_type)?;
        lend::exchange(|x| prepare(x, default_type))?;
    }
    Ok(())
}

/// Appends a value as `say` shows it; `bad` makes the error of one that it does not.
pub(crate) fn text_of(
    l: LuaState,
    at: i32,
    out: &mut Vec<u8>,
    bad: &dyn Fn(&str) -> LuaRaise,
) -> Result<(), LuaRaise> {
    if let Some(text) = l.string(at) {
        out.extend_from_slice(text);
        return Ok(());
    }
    match l.kind(at) {
        kind::NUMBER if l.number(at).is_some_and(|number| append_whole(out, number)) => {}
        kind::NUMBER => {
            // A copy: the value itself stays a number.
            l.push_value(at);
            out.extend_from_slice(l.bytes(-1).unwrap_or_default());
            l.pop(1);
        }
        kind::NIL | kind::NONE => out.extend_from_slice(b"nil"),
        kind::BOOLEAN => out.extend_from_slice(if l.boolean(at) { b"true" } else { b"false" }),
        kind::LIGHTUSERDATA if l.is_null(at) => out.extend_from_slice(b"null"),
        kind::TABLE => {
            let at = if at < 0 { l.top() + at + 1 } else { at };
            if l.gather(at, out) {
                return Ok(());
            }
            let Some(count) = l.sequence(at) else { return Err(bad("non-array table found")) };
            if !l.reserve(4) {
                return Err(bad("the table is nested too deep"));
            }
            for index in 1..=count {
                if l.append_element(at, index, out) {
                    continue;
                }
                let result = match l.kind(-1) {
                    kind::FUNCTION | kind::THREAD | kind::USERDATA | kind::CDATA => {
                        Err(bad(&format!("bad data type {} found", l.kind_name(-1))))
                    }
                    _ => text_of(l, -1, out, bad),
                };
                l.pop(1);
                result?;
            }
        }
        _ => {
            let reason = format!(
                "string, number, boolean, nil, ngx.null, or array table expected, but got {}",
                l.kind_name(at)
            );
            return Err(bad(&reason));
        }
    }
    Ok(())
}

fn flush(l: LuaState) -> CallOutcome {
    if l.top() > 1 {
        return Err(LuaRaise::text(format!("attempt to pass {} arguments, but accepted 0 or 1", l.top())));
    }
    if l.top() == 1 && l.kind(1) != kind::BOOLEAN {
        return Err(LuaRaise::argument(1, "flush", &format!("boolean expected, got {}", l.kind_name(1))));
    }
    if lend::run(|run| run.raw)? {
        return fail(l, RAW);
    }
    let (ended, broken) = lend::run(|run| (run.ended, run.broken))?;
    if ended {
        return fail(l, "seen eof");
    }
    if broken {
        return fail(l, "nginx output filter error");
    }
    if !is_sent() {
        return fail(l, "nothing to flush");
    }
    let buffers = lend::exchange(|x| {
        let buffering = x.plan.kept::<ScriptSettings>().is_none_or(|kept| kept.http10_buffering);
        // A response whose length is known needs no buffering to find it.
        let unknown = x.response.content_length.is_none();
        buffering && unknown && x.request.head.version < weir_http::Version::V11
    })?;
    if buffers {
        return fail(l, "buffering");
    }
    if is_header_only()? {
        return fail(l, "header only");
    }
    lend::run(|run| run.op = Some(ThreadOp::Flush))?;
    l.set_top(0);
    Ok(CallDone::Yield(0))
}

fn eof(l: LuaState) -> CallOutcome {
    if l.top() != 0 {
        return Err(LuaRaise::text("no argument is expected"));
    }
    if lend::run(|run| run.raw)? {
        return fail(l, RAW);
    }
    // A response to HEAD has ended with its head.
    if lend::run(|run| run.ended)? || is_header_only()? {
        return fail(l, "seen eof");
    }
    lend::run(|run| {
        (run.began, run.ended) = (true, true);
        run.op = Some(ThreadOp::Flush);
    })?;
    l.set_top(0);
    Ok(CallDone::Yield(0))
}

fn send_headers(l: LuaState) -> CallOutcome {
    if lend::run(|run| run.raw)? {
        return fail(l, RAW);
    }
    let sent = lend::exchange(|x| x.response.header_sent)?;
    if sent || lend::run(|run| run.began)? {
        l.push_number(1.0);
        return Ok(CallDone::Results(1));
    }
    lend::run(|run| {
        run.began = true;
        run.op = Some(ThreadOp::Flush);
    })?;
    l.set_top(0);
    Ok(CallDone::Yield(0))
}
