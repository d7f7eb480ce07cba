//! Times: `ngx.time`, `now`, `today`, `localtime`, `http_time` ...

pub(crate) mod ffi;

use weir_engine::Exchange;
use weir_http::date;
use weir_rt::clock;

use crate::luajit::shared_page;
use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, function};
use crate::run::lend;

pub(super) const TABLE: &[ApiFunction] = &[
    function("time", 0, |l| {
        l.push_number(shared_page::wall().floor());
        Ok(CallDone::Results(1))
    }),
    function("now", 0, |l| {
        l.push_number(shared_page::wall());
        Ok(CallDone::Results(1))
    }),
    function("today", 0, |l| local(l, 0, 10)),
    function("localtime", 0, |l| local(l, 0, 19)),
    function("utctime", 0, |l| Ok(push(l, now(), 0, 0, 19))),
    function("http_time", 0, |l| {
        let time = l.number(1).ok_or_else(|| LuaRaise::text("number argument only"))?;
        l.push_bytes(date::http(time as i64).as_ref());
        Ok(CallDone::Results(1))
    }),
    function("cookie_time", 0, |l| {
        let time = l.number(1).ok_or_else(|| LuaRaise::text("number argument only"))? as i64;
        let mut text = Vec::new();
        date::cookie(&mut text, time);
        l.push_bytes(&text);
        Ok(CallDone::Results(1))
    }),
    function("parse_http_time", 0, |l| {
        if l.kind(1) != kind::STRING {
            return Err(LuaRaise::text("string argument only"));
        }
        let text = l.bytes(1).unwrap_or_default().to_vec();
        match date::parse(&text) {
            Some(time) => l.push_number(time as f64),
            None => l.push_nil(),
        }
        Ok(CallDone::Results(1))
    }),
    function("req.start_time", crate::vm::phase::REQUEST, |l| {
        l.push_number(lend::exchange(started)?);
        Ok(CallDone::Results(1))
    }),
];

/// When the request began, as its first script that asked was given it: clocks go on between two, and are read at other moments.
#[derive(Default)]
struct ScriptStart(Option<f64>);

/// Seconds since 1970 at the request's beginning, with milliseconds: the same for all its scripts.
pub(crate) fn started(x: &mut Exchange) -> f64 {
    let start_ms = x.start_ms;
    *x.own_lasting::<ScriptStart>().0.get_or_insert_with(|| {
        // The wall time first: it renews the other one.
        let wall = (shared_page::wall() * 1000.0).round();
        (wall - weir_rt::now_ms().saturating_sub(start_ms) as f64) / 1000.0
    })
}

/// Whole seconds since 1970, as the running script knows them.
fn now() -> u64 {
    shared_page::wall() as u64
}

/// `2026-11-21 15:04:05`, from one byte to another.
fn local(l: LuaState, from: usize, to: usize) -> CallOutcome {
    let now = now();
    Ok(push(l, now, clock::local_offset(now) / 60, from, to))
}

fn push(l: LuaState, now: u64, offset: i32, from: usize, to: usize) -> CallDone {
    let text = date::error_log(now as i64, offset).map(|byte| if byte == b'/' { b'-' } else { byte });
    l.push_bytes(&text[from..to]);
    CallDone::Results(1)
}
