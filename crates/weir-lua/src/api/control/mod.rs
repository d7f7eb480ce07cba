//! How scripts end and go elsewhere: `ngx.exit`, `exec`, `redirect`; and `ngx.status`, `headers_sent`, `get_phase`,
//! `is_subrequest`, `sleep`.

pub(crate) mod ffi;
pub(crate) mod on_abort;

use std::time::Duration;

use weir_engine::Text;
use weir_engine::log::LogLevel;
use weir_http::uri::{self, InternalTarget};
use weir_trace::WaitKind;

use crate::api::encode;
use crate::api::req::args_argument;
use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{
    ApiFunction, CallDone, CallOutcome, LuaRaise, expect_number, expect_string, function,
};
use crate::run::lend;
use crate::run::op::{ScriptEnd, ThreadOp};
use crate::run::settings::{ShownUri, exited};
use crate::vm::phase::{EXIT, OUTPUT, REQUEST, ScriptPhase, YIELDABLE};

pub(super) const TABLE: &[ApiFunction] = &[
    function("exit", EXIT, exit),
    function("exec", OUTPUT, exec),
    function("redirect", OUTPUT, redirect),
    function("sleep", YIELDABLE, sleep),
    function("_status", 0, status),
    function("_set_status", 0, set_status),
    function("resp._set_status", 0, set_reason),
    function("resp._bypass_if_checks", REQUEST, |l| {
        lend::exchange(|x| x.response.disable_not_modified = true)?;
        l.set_top(0);
        Ok(CallDone::Results(0))
    }),
    function("_headers_sent", 0, headers_sent),
    function("_is_subrequest", 0, |l| {
        l.push_boolean(lend::exchange(|x| x.is_subrequest())?);
        Ok(CallDone::Results(1))
    }),
    function("get_phase", 0, |l| {
        l.push_bytes(lend::phase().name().as_bytes());
        Ok(CallDone::Results(1))
    }),
];

/// Whether the status was sent to the client, or would have been by now in OpenResty.
pub(crate) fn is_sent() -> bool {
    lend::exchange(|x| x.response.header_sent).unwrap_or(false) || lend::run(|run| run.began).unwrap_or(false)
}

/// The status that the response has so far.
fn current_status() -> Result<u16, LuaRaise> {
    lend::exchange(|x| if x.response.status == 0 { 200 } else { x.response.status })
}

fn exit(l: LuaState) -> CallOutcome {
    let status = expect_number(l, 1, "exit")? as i64;
    if matches!(status, -2 | -4) {
        return Err(LuaRaise::text("bad argument to 'ngx.exit': does not accept NGX_AGAIN or NGX_DONE"));
    }
    if lend::phase() == ScriptPhase::SslSessionStore {
        // The session is made whatever the script thinks of it.
        lend::log_plain(LogLevel::Debug, &format_args!("lua exit with code {status}"));
        return Ok(CallDone::Results(0));
    }
    if lend::phase() == ScriptPhase::HeaderFilter {
        lend::exchange(|x| x.state::<FilterExit>().0 = Some(status))?;
        return Ok(CallDone::Results(0));
    }
    if lend::phase() == ScriptPhase::Balancer {
        crate::api::balancer::exit(status);
        return Ok(CallDone::Results(0));
    }
    if !matches!(status, -1 | 408 | 444 | 499) {
        check_subrequests()?;
    }
    // These leave what was said and has not gone yet unsent.
    let closes = matches!(status, 408 | 444 | 499);
    if status >= 200 && is_sent() && !closes {
        let now = current_status()?;
        if status >= 300 && i64::from(now) != status {
            let message = format!(
                "attempt to set status {status} via ngx.exit after sending out the response status {now}"
            );
            lend::exchange(|x| x.log(LogLevel::Error, &message))?;
        }
        lend::run(|run| run.op = Some(ThreadOp::End(ScriptEnd::Exit(i64::from(now)))))?;
    } else {
        lend::run(|run| run.op = Some(ThreadOp::End(ScriptEnd::Exit(status))))?;
    }
    Ok(CallDone::Yield(0))
}

/// What `ngx.exit` said in a header filter.
#[derive(Default)]
pub(crate) struct FilterExit(pub(crate) Option<i64>);

/// A script does not end while subrequests of its other threads are under way.
pub(super) fn check_subrequests() -> Result<(), LuaRaise> {
    match lend::run(|run| run.has_subrequests())? {
        true => Err(LuaRaise::text("attempt to abort with pending subrequests")),
        false => Ok(()),
    }
}

fn exec(l: LuaState) -> CallOutcome {
    if !(1..=2).contains(&l.top()) {
        return Err(LuaRaise::Text(format!("expecting one or two arguments, but got {}", l.top())));
    }
    let target = expect_string(&l, 1, "exec")?;
    if target.is_empty() {
        return Err(LuaRaise::text("The uri argument is empty"));
    }
    let Ok(InternalTarget { path, args: own }) = uri::internal_target(&target) else {
        let shown = String::from_utf8_lossy(&target).into_owned();
        lend::log(LogLevel::Error, &format_args!("unsafe URI \"{shown}\" was detected"));
        return Err(LuaRaise::text("unsafe uri"));
    };
    check_subrequests()?;
    if is_sent() {
        return Err(LuaRaise::text("attempt to call ngx.exec after sending out response headers"));
    }
    let args = match l.kind(2) {
        kind::NONE | kind::NIL => Vec::new(),
        kind::STRING | kind::NUMBER => expect_string(&l, 2, "exec")?,
        _ => args_argument(l, 2, "exec")?,
    };
    let parts = [own.unwrap_or_default(), &args];
    let args = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(&b'&');
    if path.first() == Some(&b'@') && !args.is_empty() {
        let (name, args) = (String::from_utf8_lossy(&path), String::from_utf8_lossy(&args));
        let message = format!("query strings {args} ignored when exec'ing named location {name}");
        lend::exchange(|x| x.log(LogLevel::Warn, &message))?;
    }
    lend::run(|run| run.op = Some(ThreadOp::End(ScriptEnd::Exec(path.into_owned(), args))))?;
    Ok(CallDone::Yield(0))
}

fn redirect(l: LuaState) -> CallOutcome {
    if !(1..=2).contains(&l.top()) {
        return Err(LuaRaise::text("expecting one or two arguments"));
    }
    let target = expect_string(&l, 1, "redirect")?;
    let status = if l.top() == 1 { 302.0 } else { expect_number(l, 2, "redirect")? };
    if ![301.0, 302.0, 303.0, 307.0, 308.0].contains(&status) {
        return Err(LuaRaise::text(
            "only ngx.HTTP_MOVED_TEMPORARILY, ngx.HTTP_MOVED_PERMANENTLY, ngx.HTTP_PERMANENT_REDIRECT, \
             ngx.HTTP_SEE_OTHER, and ngx.HTTP_TEMPORARY_REDIRECT are allowed",
        ));
    }
    check_subrequests()?;
    if is_sent() {
        return Err(LuaRaise::text("attempt to call ngx.redirect after sending out the headers"));
    }
    if let Some(bad) = encode::unsafe_byte(&target) {
        let shown = encode::escaped_bytes(&target);
        return Err(LuaRaise::text(format!("unsafe byte \"0x{bad:02x}\" in redirect uri \"{shown}\"")));
    }
    lend::run(|run| run.op = Some(ThreadOp::End(ScriptEnd::Redirect(target, status as u16))))?;
    Ok(CallDone::Yield(0))
}

fn sleep(l: LuaState) -> CallOutcome {
    if l.top() != 1 {
        return Err(LuaRaise::text(format!("attempt to pass {} arguments, but accepted 1", l.top())));
    }
    let seconds = expect_number(l, 1, "sleep")?;
    if seconds < 0.0 {
        return Err(LuaRaise::text(format!("invalid sleep duration \"{}\"", (seconds * 1000.0) as i64)));
    }
    let ms = Duration::from_secs_f64(seconds.min(1e9)).as_millis() as u64;
    let reported = lend::any_exchange(|x| {
        x.log(LogLevel::Debug, &format_args!("lua ready to sleep for {ms} ms"));
        let heard = x.plan.core.error_log.enabled(LogLevel::Debug);
        heard.then(|| format!("lua sleep timer expired: \"{}?\"", ShownUri(x)).into())
    });
    let reported = reported.ok().flatten();
    lend::run(|run| {
        run.wait = WaitKind::Timer;
        run.op = Some(ThreadOp::Sleep(ms, reported));
    })?;
    Ok(CallDone::Yield(0))
}

fn status(l: LuaState) -> CallOutcome {
    if !lend::phase().is_in(REQUEST) {
        return Err(refused());
    }
    let status = lend::exchange(|x| match (x.response.err_status, x.response.status) {
        (0, 0) => exited(x).unwrap_or(0),
        (0, status) => status,
        (error, _) => error,
    })?;
    l.push_number(f64::from(status));
    Ok(CallDone::Results(1))
}

/// The status is not for the running script.
fn refused() -> LuaRaise {
    match lend::exchange(|_| ()) {
        Err(why) => why,
        Ok(()) => lend::disabled(),
    }
}

fn set_status(l: LuaState) -> CallOutcome {
    if !lend::phase().is_in(REQUEST) {
        return Err(refused());
    }
    if is_sent() {
        lend::exchange(|x| {
            x.log(LogLevel::Error, &"attempt to set ngx.status after sending out response headers");
        })?;
        return Ok(CallDone::Results(0));
    }
    let status = expect_number(l, 1, "status")?;
    if !(100.0..1000.0).contains(&status) {
        lend::exchange(|x| {
            x.log(LogLevel::Error, &format_args!("invalid HTTP status code {}", status.trunc()));
        })?;
        return Ok(CallDone::Results(0));
    }
    lend::exchange(|x| {
        x.response.status = status as u16;
        x.response.err_status = 0;
        x.response.reason = None;
    })?;
    Ok(CallDone::Results(0))
}

/// `ngx.resp.set_status(status, reason)`
fn set_reason(l: LuaState) -> CallOutcome {
    set_status(l)?;
    if let (false, Some(reason)) = (is_sent(), l.bytes(2)) {
        give_reason(reason)?;
    }
    Ok(CallDone::Results(0))
}

/// Gives the status line these words after the status.
fn give_reason(reason: &[u8]) -> Result<(), LuaRaise> {
    let status = current_status()?;
    let mut line = format!("{status} ").into_bytes();
    line.extend(reason.iter().copied().filter(|byte| !byte.is_ascii_control()));
    lend::exchange(|x| x.response.reason = Some(Text::Span(x.arena.push(&line))))
}

fn headers_sent(l: LuaState) -> CallOutcome {
    lend::exchange(|_| ())?;
    l.push_boolean(is_sent());
    Ok(CallDone::Results(1))
}
