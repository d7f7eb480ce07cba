//! Values of Lua on their way from one VM to another.

use std::ffi::c_void;

use crate::state::State;
use crate::sys::kind;

/// A copy of a value.
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
