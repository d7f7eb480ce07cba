//! `ngx.shared.DICT:*`, as far as it is not [compiled](crate::api::ffi).

pub(crate) mod ffi;
pub(crate) mod ffi_agent;

use std::sync::Arc;

use crate::agent;
use crate::dict::call::{DictCall, DictOutcome, DictReply};
use crate::dict::{DictItem, ListEnd, SharedDict};
use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, LuaRaise, expect_count, expect_number, fail, function};
use crate::run::lend;
use crate::vm::phase::ScriptPhase;

pub(super) const TABLE: &[ApiFunction] = &[
    function("_dict.names", 0, |l| {
        let names = lend::vm(|vm| vm.dicts.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
        l.new_table(names.len(), 0);
        for (at, name) in names.iter().enumerate() {
            l.push_bytes(name.as_bytes());
            l.raw_set_index(-2, at + 1);
        }
        Ok(CallDone::Results(1))
    }),
    function("_dict.lpush", 0, |l| push(l, ListEnd::Left)),
    function("_dict.rpush", 0, |l| push(l, ListEnd::Right)),
    function("_dict.lpop", 0, |l| pop(l, ListEnd::Left)),
    function("_dict.rpop", 0, |l| pop(l, ListEnd::Right)),
    function("_dict.llen", 0, |l| {
        expect_count(l, 2..=2, "2 arguments, but only seen")?;
        with_key(l, |l, dict, key| answer(l, dict.ask(DictCall::Length(&key))))
    }),
    function("_dict.ttl", 0, |l| with_key(l, |l, dict, key| answer(l, dict.ask(DictCall::Ttl(&key))))),
    function("_dict.expire", 0, |l| {
        let ttl = milliseconds(l, 3, "exptime")?;
        with_key(l, |l, dict, key| match is_ignored() {
            true => answer(l, DictOutcome::Boolean.into()),
            false => match dict.ask(DictCall::Expire(&key, ttl)) {
                reply if reply.outcome == DictOutcome::Done => answer(l, DictOutcome::Boolean.into()),
                reply => answer(l, reply),
            },
        })
    }),
    function("_dict.flush_expired", 0, |l| {
        expect_count(l, 1..=2, "1 or 2 argument(s), but saw")?;
        let dict = dict(l)?;
        let most = if l.top() == 1 { 0.0 } else { expect_number(l, 2, "flush_expired")? };
        answer(l, dict.ask(DictCall::FlushExpired(most_of(most))))
    }),
    function("_dict.get_keys", 0, |l| {
        expect_count(l, 1..=2, "1 or 2 argument(s), but saw")?;
        let dict = dict(l)?;
        let most = if l.top() == 1 { 1024.0 } else { expect_number(l, 2, "get_keys")? };
        let DictReply { keys, .. } = dict.ask(DictCall::Keys(most_of(most)));
        l.new_table(keys.len(), 0);
        for (at, key) in keys.iter().enumerate() {
            l.push_bytes(key);
            l.raw_set_index(-2, at + 1);
        }
        Ok(CallDone::Results(1))
    }),
];

/// A dictionary, or its name where it is the server's and scripts are the privileged agent's.
enum DictPlace {
    Here(Arc<SharedDict>),
    There(String),
}

impl DictPlace {
    fn ask(&self, call: DictCall<'_>) -> DictReply {
        match self {
            DictPlace::Here(dict) => call.perform(dict),
            DictPlace::There(name) => agent::ask(name, &call),
        }
    }
}

/// None and less mean all.
fn most_of(most: f64) -> u64 {
    if most > 0.0 { most as u64 } else { u64::MAX }
}

/// What a method returns.
fn answer(l: LuaState, reply: DictReply) -> crate::run::function::CallOutcome {
    match reply.outcome {
        DictOutcome::Done => l.push_bytes(&reply.text),
        DictOutcome::Number => l.push_number(reply.number),
        DictOutcome::Boolean => l.push_boolean(true),
        DictOutcome::Nothing => l.push_nil(),
        DictOutcome::NotFound => return fail(l, "not found"),
        DictOutcome::Other | DictOutcome::List | DictOutcome::Exists => return fail(l, "value not a list"),
        DictOutcome::NoMemory => return fail(l, "no memory"),
    }
    Ok(CallDone::Results(1))
}

/// The dictionary that the method is called on.
fn dict(l: LuaState) -> Result<DictPlace, LuaRaise> {
    let bad = || LuaRaise::text("bad \"zone\" argument");
    if l.kind(1) != kind::TABLE {
        return Err(bad());
    }
    l.raw_get_index(1, 0);
    let number = l.number(-1);
    l.pop(1);
    let number = number.ok_or_else(bad)? as usize;
    let place = |(name, dict): &(String, Arc<SharedDict>)| match agent::is_here() {
        true => DictPlace::There(name.clone()),
        false => DictPlace::Here(dict.clone()),
    };
    lend::vm(|vm| vm.dicts.get(number.wrapping_sub(1)).map(place)).ok_or_else(bad)
}

/// Writes of `init_by_lua` count in the VM that runs it first; the others run the same. What a VM collects when it is closed (a lock
/// that is given back) runs for no script.
pub(crate) fn is_ignored() -> bool {
    lend::is_running() && lend::phase() == ScriptPhase::Init && lend::vm(|vm| vm.main_conf.repeats_init)
}

/// Calls `act` with the dictionary and the key that is the second argument; `nil, reason` without a proper one.
fn with_key(
    l: LuaState,
    act: impl FnOnce(LuaState, &DictPlace, Vec<u8>) -> crate::run::function::CallOutcome,
) -> crate::run::function::CallOutcome {
    let dict = dict(l)?;
    let key = match l.kind(2) {
        kind::NIL | kind::NONE => return fail(l, "nil key"),
        kind::STRING | kind::NUMBER => {
            l.push_value(2);
            let key = l.bytes(-1).unwrap_or_default().to_vec();
            l.pop(1);
            key
        }
        kind::BOOLEAN => {
            if l.boolean(2) {
                b"true".to_vec()
            } else {
                b"false".to_vec()
            }
        }
        _ => return fail(l, "bad key type"),
    };
    match key.len() {
        0 => fail(l, "empty key"),
        65536.. => fail(l, "key too long"),
        _ => act(l, &dict, key),
    }
}

/// Seconds as milliseconds; nothing is 0.
fn milliseconds(l: LuaState, at: i32, name: &str) -> Result<u64, LuaRaise> {
    if l.is_none_or_nil(at) {
        return Ok(0);
    }
    match l.number(at) {
        Some(seconds) if seconds >= 0.0 => Ok((seconds * 1000.0) as u64),
        _ => Err(LuaRaise::text(format!("bad \"{name}\" argument"))),
    }
}

fn push(l: LuaState, end: ListEnd) -> crate::run::function::CallOutcome {
    expect_count(l, 3..=3, "3 arguments, but only seen")?;
    let item = match l.kind(3) {
        kind::STRING => DictItem::Text(l.bytes(3).unwrap_or_default().into()),
        kind::NUMBER => DictItem::Number(l.number(3).unwrap_or_default()),
        _ => return fail(l, "bad value type"),
    };
    with_key(l, |l, dict, key| match is_ignored() {
        true => answer(l, DictReply::number(1.0)),
        false => answer(l, dict.ask(DictCall::Push { key: &key, item, end })),
    })
}

fn pop(l: LuaState, end: ListEnd) -> crate::run::function::CallOutcome {
    expect_count(l, 2..=2, "2 arguments, but only seen")?;
    with_key(l, |l, dict, key| match is_ignored() {
        true => answer(l, DictOutcome::Nothing.into()),
        false => answer(l, dict.ask(DictCall::Pop { key: &key, end })),
    })
}
