//! `ngx.shared.DICT:*`, as far as it is not [compiled](crate::fast).

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Done, Function, Outcome, Raise, fail, function};
use crate::dict::{Dict, Item, New, Stored, When};
use crate::lend;
use crate::phase::Phase;
use crate::state::State;
use crate::sys::kind;

pub(super) const TABLE: &[Function] = &[
    function("_dict.names", 0, |l| {
        let names = lend::vm(|vm| vm.dicts.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
        l.new_table(names.len(), 0);
        for (at, name) in names.iter().enumerate() {
            l.push_bytes(name.as_bytes());
            l.raw_set_index(-2, at + 1);
        }
        Ok(Done::Results(1))
    }),
    function("_dict.lpush", 0, |l| push(l, true)),
    function("_dict.rpush", 0, |l| push(l, false)),
    function("_dict.lpop", 0, |l| pop(l, true)),
    function("_dict.rpop", 0, |l| pop(l, false)),
    function("_dict.llen", 0, |l| {
        with_key(l, |l, dict, key| match dict.with_list(&key, |list| list.len()) {
            None => {
                l.push_number(0.0);
                Ok(Done::Results(1))
            }
            Some(None) => fail(l, "value not a list"),
            Some(Some(count)) => {
                l.push_number(count as f64);
                Ok(Done::Results(1))
            }
        })
    }),
    function("_dict.ttl", 0, |l| {
        with_key(l, |l, dict, key| match dict.ttl(&key) {
            None => fail(l, "not found"),
            Some(left) => {
                l.push_number(left as f64 / 1000.0);
                Ok(Done::Results(1))
            }
        })
    }),
    function("_dict.expire", 0, |l| {
        let ttl = milliseconds(l, 3, "exptime")?;
        with_key(l, |l, dict, key| {
            if is_ignored() || dict.expire(&key, ttl) {
                l.push_boolean(true);
                return Ok(Done::Results(1));
            }
            fail(l, "not found")
        })
    }),
    function("_dict.flush_expired", 0, |l| {
        let dict = dict(l)?;
        let most = l.number(2).unwrap_or(0.0);
        let most = if most > 0.0 { most as usize } else { usize::MAX };
        l.push_number(dict.flush_expired(most) as f64);
        Ok(Done::Results(1))
    }),
    function("_dict.get_keys", 0, |l| {
        let dict = dict(l)?;
        let most = if l.is_none_or_nil(2) { 1024.0 } else { l.number(2).unwrap_or(1024.0) };
        let keys = dict.keys(if most > 0.0 { most as usize } else { usize::MAX });
        l.new_table(keys.len(), 0);
        for (at, key) in keys.iter().enumerate() {
            l.push_bytes(key);
            l.raw_set_index(-2, at + 1);
        }
        Ok(Done::Results(1))
    }),
];

/// The dictionary that the method is called on.
fn dict(l: State) -> Result<Arc<Dict>, Raise> {
    let bad = || Raise::text("bad \"zone\" argument");
    if l.kind(1) != kind::TABLE {
        return Err(bad());
    }
    l.raw_get_index(1, 0);
    let number = l.number(-1);
    l.pop(1);
    let number = number.ok_or_else(bad)? as usize;
    lend::vm(|vm| vm.dicts.get(number.wrapping_sub(1)).map(|(_, dict)| dict.clone())).ok_or_else(bad)
}

/// Writes of `init_by_lua` count in the first worker's VM; the others run the same.
pub(crate) fn is_ignored() -> bool {
    lend::phase() == Phase::Init && lend::vm(|vm| vm.worker().is_some_and(|worker| worker > 0))
}

/// Calls `act` with the dictionary and the key that is the second argument; `nil, reason` without a proper one.
fn with_key(l: State, act: impl FnOnce(State, &Dict, Vec<u8>) -> Outcome) -> Outcome {
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
fn milliseconds(l: State, at: i32, name: &str) -> Result<u64, Raise> {
    if l.is_none_or_nil(at) {
        return Ok(0);
    }
    match l.number(at) {
        Some(seconds) if seconds >= 0.0 => Ok((seconds * 1000.0) as u64),
        _ => Err(Raise::text(format!("bad \"{name}\" argument"))),
    }
}

fn push(l: State, left: bool) -> Outcome {
    let item = match l.kind(3) {
        kind::STRING => Item::Text(l.bytes(3).unwrap_or_default().into()),
        kind::NUMBER => Item::Number(l.number(3).unwrap_or_default()),
        _ => return fail(l, "bad value type"),
    };
    with_key(l, |l, dict, key| {
        if is_ignored() {
            l.push_number(1.0);
            return Ok(Done::Results(1));
        }
        let add = |list: &mut VecDeque<Item>, item: Item| {
            if left {
                list.push_front(item);
            } else {
                list.push_back(item);
            }
            list.len()
        };
        let mut item = Some(item);
        loop {
            let pushed = dict.with_list(&key, |list| item.take().map_or(list.len(), |item| add(list, item)));
            match pushed {
                Some(Some(count)) => {
                    l.push_number(count as f64);
                    return Ok(Done::Results(1));
                }
                Some(None) => return fail(l, "value not a list"),
                None => {}
            }
            let Some(first) = item.clone() else { return fail(l, "no memory") };
            let list = New::List(VecDeque::from([first]));
            match dict.set(&key, list, 0, 0, When::Absent, true) {
                Stored::Yes(_) => {
                    l.push_number(1.0);
                    return Ok(Done::Results(1));
                }
                // Another worker has begun the list.
                Stored::Exists => {}
                _ => return fail(l, "no memory"),
            }
        }
    })
}

fn pop(l: State, left: bool) -> Outcome {
    with_key(l, |l, dict, key| {
        if is_ignored() {
            l.push_nil();
            return Ok(Done::Results(1));
        }
        match dict.with_list(&key, |list| if left { list.pop_front() } else { list.pop_back() }) {
            Some(None) => return fail(l, "value not a list"),
            Some(Some(Some(Item::Text(text)))) => l.push_bytes(&text),
            Some(Some(Some(Item::Number(number)))) => l.push_number(number),
            _ => l.push_nil(),
        }
        Ok(Done::Results(1))
    })
}
