//! `ngx.shared.DICT:*`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::{Done, Function, Outcome, Raise, fail, function};
use crate::dict::{Dict, Item, Stored, Value, When};
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
    function("_dict.get", 0, |l| get(l, false)),
    function("_dict.get_stale", 0, |l| get(l, true)),
    function("_dict.set", 0, |l| store(l, When::Always, true)),
    function("_dict.safe_set", 0, |l| store(l, When::Always, false)),
    function("_dict.add", 0, |l| store(l, When::Absent, true)),
    function("_dict.safe_add", 0, |l| store(l, When::Absent, false)),
    function("_dict.replace", 0, |l| store(l, When::Present, true)),
    function("_dict.delete", 0, |l| {
        l.set_top(2);
        store(l, When::Always, true)
    }),
    function("_dict.incr", 0, incr),
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
    function("_dict.flush_all", 0, |l| {
        let dict = dict(l)?;
        if !is_ignored() {
            dict.flush_all();
        }
        Ok(Done::Results(0))
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
    function("_dict.capacity", 0, |l| {
        l.push_number(dict(l)?.capacity() as f64);
        Ok(Done::Results(1))
    }),
    function("_dict.free_space", 0, |l| {
        l.push_number(dict(l)?.free_space() as f64);
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
fn is_ignored() -> bool {
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

fn get(l: State, stale: bool) -> Outcome {
    with_key(l, |l, dict, key| {
        let found = dict.get(&key, |value, flags, expired| {
            if expired && !stale {
                return Some(0);
            }
            match value {
                Value::Text(text) => l.push_bytes(text),
                Value::Number(number) => l.push_number(*number),
                Value::Boolean(value) => l.push_boolean(*value),
                Value::List(_) => return None,
            }
            match flags {
                0 => l.push_nil(),
                flags => l.push_number(f64::from(flags)),
            }
            l.push_boolean(expired);
            Some(3)
        });
        match found {
            Some(None) => fail(l, "value is a list"),
            None | Some(Some(0)) => {
                l.push_nil();
                Ok(Done::Results(1))
            }
            // Flags are told when there are any.
            Some(Some(_)) if !stale => {
                l.pop(1);
                if l.is_none_or_nil(-1) {
                    l.pop(1);
                    return Ok(Done::Results(1));
                }
                Ok(Done::Results(2))
            }
            Some(Some(count)) => Ok(Done::Results(count)),
        }
    })
}

fn store(l: State, when: When, evict: bool) -> Outcome {
    let ttl = milliseconds(l, 4, "exptime")?;
    let flags = if l.is_none_or_nil(5) { 0.0 } else { l.number(5).unwrap_or(0.0) };
    with_key(l, |l, dict, key| {
        let value = match l.kind(3) {
            kind::STRING => Value::Text(l.bytes(3).unwrap_or_default().into()),
            kind::NUMBER => Value::Number(l.number(3).unwrap_or_default()),
            kind::BOOLEAN => Value::Boolean(l.boolean(3)),
            kind::NIL | kind::NONE if when == When::Absent => {
                return fail(l, "attempt to add or replace nil values");
            }
            kind::NIL | kind::NONE if when == When::Present => {
                return fail(l, "attempt to add or replace nil values");
            }
            kind::NIL | kind::NONE => {
                if !is_ignored() {
                    dict.delete(&key);
                }
                return Ok(stored(l, Stored::Yes(false)));
            }
            _ => return fail(l, "bad value type"),
        };
        let outcome = match is_ignored() {
            true => Stored::Yes(false),
            false => dict.set(&key, value, ttl, flags as u32, when, evict),
        };
        Ok(stored(l, outcome))
    })
}

fn stored(l: State, outcome: Stored) -> Done {
    let (error, forced) = match outcome {
        Stored::Yes(forced) => (None, forced),
        Stored::Exists => (Some("exists"), false),
        Stored::NotFound => (Some("not found"), false),
        Stored::NoMemory(forced) => (Some("no memory"), forced),
    };
    l.push_boolean(error.is_none());
    match error {
        Some(words) => l.push_bytes(words.as_bytes()),
        None => l.push_nil(),
    }
    l.push_boolean(forced);
    Done::Results(3)
}

fn incr(l: State) -> Outcome {
    let by = l.number(3).ok_or_else(|| Raise::text("bad \"value\" argument"))?;
    let init = match l.is_none_or_nil(4) {
        true => None,
        false => Some(l.number(4).ok_or_else(|| Raise::text("bad \"init\" argument: number expected"))?),
    };
    let ttl = milliseconds(l, 5, "init_ttl")?;
    if !l.is_none_or_nil(5) && init.is_none() {
        return Err(Raise::text("must provide \"init\" when providing \"init_ttl\""));
    }
    with_key(l, |l, dict, key| {
        let mut sum = 0.0;
        let outcome = dict.update(&key, |value| match (value, init) {
            (Some(Value::Number(number)), _) => {
                sum = number + by;
                Ok((Value::Number(sum), None))
            }
            (Some(_), _) => Err("not a number"),
            (None, Some(init)) => {
                sum = init + by;
                Ok((Value::Number(sum), Some(ttl)))
            }
            (None, None) => Err("not found"),
        });
        match outcome {
            Err(words) => fail(l, words),
            Ok(Stored::Yes(forced)) => {
                l.push_number(sum);
                if init.is_none() {
                    return Ok(Done::Results(1));
                }
                l.push_nil();
                l.push_boolean(forced);
                Ok(Done::Results(3))
            }
            Ok(_) => fail(l, "no memory"),
        }
    })
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
            let list = Value::List(Mutex::new(VecDeque::from([first])));
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
