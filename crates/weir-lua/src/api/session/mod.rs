//! What scripts of sessions of `stream` call in place of requests' functions: `ngx.say`, `print`, `flush`, `eof`, `exit`. What they say
//! goes to the client's connection as it is said; a session has no head that it might come before.

use std::rc::Rc;

use weir_engine::log::LogLevel;
use weir_engine::transport::wire::ClientWire;
use weir_trace::WaitKind;

use crate::api::balancer;
use crate::api::output_text;
use crate::api::socket::{SessionClient, settings};
use crate::luajit::state::LuaState;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, expect_number, fail, function};
use crate::run::lend;
use crate::run::op::{OpWait, PushResults, ScriptEnd, ThreadOp};
use crate::vm::phase::{EXIT, OUTPUT, ScriptPhase};

pub(super) const TABLE: &[ApiFunction] = &[
    function("_session.is", 0, |l| {
        l.push_boolean(lend::vm(|vm| vm.main_conf.stream));
        Ok(CallDone::Results(1))
    }),
    function("_session.say", OUTPUT, |l| echo(l, "say", b"\n")),
    function("_session.print", OUTPUT, |l| echo(l, "print", b"")),
    function("_session.flush", OUTPUT, flush),
    function("_session.eof", OUTPUT, eof),
    function("_session.exit", EXIT, exit),
];

/// A script that has said more than this many bytes which the client has not taken waits until it has.
const AHEAD: u64 = 256 << 10;

/// The client's connection, unless the script has said that nothing more comes.
///
/// # Errors
/// The session is one of datagrams: scripts send those by `ngx.req.socket`.
fn client() -> Result<Option<Rc<ClientWire>>, LuaRaise> {
    lend::exchange(|x| {
        if x.transport.flow().is_some() {
            return Err(LuaRaise::text("API disabled in the current context"));
        }
        let ended = x.state::<SessionClient>().ended;
        Ok(if ended { None } else { x.transport.wire().cloned() })
    })?
}

fn echo(l: LuaState, name: &str, end: &[u8]) -> CallOutcome {
    let Some(wire) = client()? else { return fail(l, "seen eof") };
    let mut text = wire.stream.spare();
    for at in 1..=l.top() {
        output_text(l, at, &mut text, &|reason| LuaRaise::argument(at, name, reason))?;
    }
    text.extend_from_slice(end);
    wire.compose(|out| out.extend_from_slice(&text));
    wire.stream.give_spare(text);
    wire.flush();
    if wire.stream.error().is_some() {
        return fail(l, "nginx output filter error");
    }
    if wire.pending() > AHEAD {
        return wait(l, wire);
    }
    l.push_number(1.0);
    Ok(CallDone::Results(1))
}

fn flush(l: LuaState) -> CallOutcome {
    if l.top() > 1 {
        return Err(LuaRaise::text(format!("attempt to pass {} arguments, but accepted 0 or 1", l.top())));
    }
    match client()? {
        Some(wire) => wait(l, wire),
        None => fail(l, "seen eof"),
    }
}

/// Has the coroutine wait until the client has taken what was said; others of its script go on.
fn wait(l: LuaState, wire: Rc<ClientWire>) -> CallOutcome {
    let timeout = settings()?.send_timeout();
    l.set_top(0);
    let sent: OpWait = Box::pin(async move {
        let timer = weir_rt::Timer::new();
        timer.touch(timeout);
        let sent = wire.stream.drained(0, Some(&timer)).await;
        Box::new(move |l: LuaState| match sent {
            Ok(()) => {
                l.push_number(1.0);
                1
            }
            Err(error) => {
                l.push_nil();
                let late = matches!(error, weir_rt::SendError::TimedOut);
                l.push_bytes(if late { b"timeout" } else { b"client aborted" });
                2
            }
        }) as PushResults
    });
    lend::run(|run| {
        run.wait = WaitKind::ClientWrite;
        run.op = Some(ThreadOp::Wait(sent));
    })?;
    Ok(CallDone::Yield(0))
}

fn eof(l: LuaState) -> CallOutcome {
    if l.top() != 0 {
        return Err(LuaRaise::text("no argument is expected"));
    }
    let Some(wire) = client()? else { return fail(l, "seen eof") };
    lend::exchange(|x| {
        x.log(LogLevel::Debug, &"lua send eof");
        x.state::<SessionClient>().ended = true;
    })?;
    // One that is gone needs no end.
    let _gone = wire.stream.shutdown_write();
    l.push_number(1.0);
    Ok(CallDone::Results(1))
}

fn exit(l: LuaState) -> CallOutcome {
    let status = expect_number(l, 1, "exit")? as i64;
    if matches!(status, -2 | -4) {
        return Err(LuaRaise::text("bad argument to 'ngx.exit': does not accept NGX_AGAIN or NGX_DONE"));
    }
    match lend::phase() {
        ScriptPhase::Balancer => balancer::exit(status),
        // The session of TLS is made whatever the script thinks of it.
        ScriptPhase::SslSessionStore => {}
        _ => {
            lend::run(|run| run.op = Some(ThreadOp::End(ScriptEnd::Exit(status))))?;
            return Ok(CallDone::Yield(0));
        }
    }
    Ok(CallDone::Results(0))
}
