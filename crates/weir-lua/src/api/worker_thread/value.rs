//! Values of Lua on their way from one VM to another.

use std::ffi::c_void;

use weir_engine::wire::{Reader, Writer};

use crate::luajit::state::State;
use crate::luajit::sys::kind;

/// A copy of a value.
#[derive(Debug, PartialEq)]
pub(crate) enum Value {
    Nil,
    Boolean(bool),
    Number(f64),
    Text(Vec<u8>),
    /// A light userdata: an address that means the same in all VMs of the process, as `ngx.null` does.
    Pointer(usize),
    /// Keys and values, without the metatable.
    Table(Vec<(Value, Value)>),
}

impl Value {
    /// The values from `first` to the top of the stack.
    ///
    /// # Errors
    /// As OpenResty says it: functions, coroutines and userdata can't be copied, nor tables that nest too deep.
    pub(super) fn all(l: State, first: i32) -> Result<Vec<Value>, String> {
        (first..=l.top()).map(|at| Value::read(l, at, 0)).collect()
    }

    /// The value at a place of the stack.
    ///
    /// # Errors
    /// As [`Value::all`].
    pub(crate) fn read_at(l: State, at: i32) -> Result<Value, String> {
        Value::read(l, at, 0)
    }

    fn read(l: State, at: i32, depth: usize) -> Result<Value, String> {
        let unsupported = |name: &str| Err(format!("unsupported Lua type{name}"));
        match l.kind(at) {
            kind::NIL | kind::NONE => Ok(Value::Nil),
            kind::BOOLEAN => Ok(Value::Boolean(l.boolean(at))),
            kind::NUMBER => Ok(Value::Number(l.number(at).unwrap_or(0.0))),
            kind::STRING => Ok(Value::Text(l.bytes(at).unwrap_or_default().to_vec())),
            kind::LIGHTUSERDATA => Ok(Value::Pointer(l.pointer(at) as usize)),
            kind::TABLE => Value::table(l, at, depth),
            kind::FUNCTION => unsupported(": LUA_TFUNCTION"),
            kind::USERDATA => unsupported(": LUA_TUSERDATA"),
            kind::THREAD => unsupported(": LUA_TTHREAD"),
            _ => unsupported(""),
        }
    }

    fn table(l: State, at: i32, depth: usize) -> Result<Value, String> {
        if depth >= DEEPEST || !l.reserve(8) {
            return Err(format!("suspicious circular references, table depth exceed max depth: {DEEPEST}"));
        }
        let mut pairs = Vec::new();
        l.push_nil();
        while l.next(at) {
            let value = l.top();
            let pair = Value::read(l, value - 1, depth + 1)
                .and_then(|key| Ok((key, Value::read(l, value, depth + 1)?)));
            match pair {
                Ok(pair) => pairs.push(pair),
                Err(why) => {
                    l.set_top(value - 2);
                    return Err(why);
                }
            }
            l.pop(1);
        }
        Ok(Value::Table(pairs))
    }

    /// Writes the value for another process.
    ///
    /// # Errors
    /// An address means nothing there, but for that of `ngx.null`.
    pub(crate) fn encode(&self, out: &mut Writer) -> Result<(), String> {
        match self {
            Value::Nil => out.number(NIL),
            Value::Boolean(value) => [BOOLEAN, (*value).into()].iter().for_each(|number| out.number(*number)),
            Value::Number(value) => {
                out.number(NUMBER);
                out.float(*value);
            }
            Value::Text(text) => {
                out.number(TEXT);
                out.bytes(text);
            }
            Value::Pointer(0) => out.number(NULL),
            Value::Pointer(_) => return Err("unsupported Lua type: LUA_TLIGHTUSERDATA".to_owned()),
            Value::Table(pairs) => {
                out.number(TABLE);
                out.number(pairs.len() as u64);
                for value in pairs.iter().flat_map(|(key, value)| [key, value]) {
                    value.encode(out)?;
                }
            }
        }
        Ok(())
    }

    /// Reads what [`Value::encode`] has written; `None` if it is not that.
    pub(crate) fn decode(from: &mut Reader<'_>) -> Option<Value> {
        Value::decode_at(from, 0)
    }

    fn decode_at(from: &mut Reader<'_>, depth: usize) -> Option<Value> {
        Some(match from.number()? {
            NIL => Value::Nil,
            BOOLEAN => Value::Boolean(from.number()? != 0),
            NUMBER => Value::Number(from.float()?),
            TEXT => Value::Text(from.bytes()?.to_vec()),
            NULL => Value::Pointer(0),
            TABLE if depth < DEEPEST => {
                let pair = |from: &mut Reader<'_>| {
                    // No key of a table is nil, nor a number that is none.
                    let key = Value::decode_at(from, depth + 1)?;
                    let proper =
                        !matches!(&key, Value::Nil) && !matches!(&key, Value::Number(n) if n.is_nan());
                    Some((proper.then_some(key)?, Value::decode_at(from, depth + 1)?))
                };
                Value::Table(from.list(pair)?)
            }
            _ => return None,
        })
    }

    /// Puts the value on top of a stack.
    pub(crate) fn push(&self, l: State) {
        match self {
            Value::Nil => l.push_nil(),
            Value::Boolean(value) => l.push_boolean(*value),
            Value::Number(value) => l.push_number(*value),
            Value::Text(text) => l.push_bytes(text),
            Value::Pointer(address) => l.push_pointer(std::ptr::without_provenance_mut::<c_void>(*address)),
            Value::Table(pairs) => {
                l.reserve(8);
                l.new_table(0, pairs.len());
                for (key, value) in pairs {
                    key.push(l);
                    value.push(l);
                    l.raw_set(-3);
                }
            }
        }
    }
}

/// Tables inside one another that are copied.
const DEEPEST: usize = 100;
const NIL: u64 = 0;
const BOOLEAN: u64 = 1;
const NUMBER: u64 = 2;
const TEXT: u64 = 3;
const NULL: u64 = 4;
const TABLE: u64 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_reads_back_in_another_process() {
        let text = |text: &str| Value::Text(text.into());
        let inner = Value::Table(vec![(Value::Number(1.0), Value::Pointer(0))]);
        let value = Value::Table(vec![
            (text("a"), Value::Boolean(true)),
            (Value::Number(0.5), Value::Nil),
            (text("t"), inner),
        ]);
        let mut out = Writer::default();
        value.encode(&mut out).expect("all of it can be said");
        assert_eq!(Value::decode(&mut Reader(&out.0)).as_ref(), Some(&value));
        for end in 0..out.0.len() {
            assert_eq!(Value::decode(&mut Reader(&out.0[..end])), None, "{end}");
        }
        assert!(Value::Pointer(8).encode(&mut Writer::default()).is_err());
        let deep = (0..=DEEPEST).fold(Value::Nil, |inner, _| Value::Table(vec![(Value::Number(1.0), inner)]));
        let mut out = Writer::default();
        deep.encode(&mut out).expect("no address in it");
        assert_eq!(Value::decode(&mut Reader(&out.0)), None);
    }
}
