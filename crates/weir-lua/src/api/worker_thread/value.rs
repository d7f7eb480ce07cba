//! Values of Lua on their way from one VM to another.

use std::ffi::c_void;

use weir_engine::wire::{IpcReader, IpcWriter};

use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;

/// A copy of a value.
#[derive(Debug, PartialEq)]
pub(crate) enum LuaValue {
    Nil,
    Boolean(bool),
    Number(f64),
    Text(Vec<u8>),
    /// A light userdata: an address that means the same in all VMs of the process, as `ngx.null` does.
    Pointer(usize),
    /// Keys and values, without the metatable.
    Table(Vec<(LuaValue, LuaValue)>),
}

impl LuaValue {
    /// The values from `first` to the top of the stack.
    ///
    /// # Errors
    /// As OpenResty says it: functions, coroutines and userdata can't be copied, nor tables that nest too deep.
    pub(super) fn all(l: LuaState, first: i32) -> Result<Vec<LuaValue>, String> {
        (first..=l.top()).map(|at| LuaValue::read(l, at, 0)).collect()
    }

    /// The value at a place of the stack.
    ///
    /// # Errors
    /// As [`LuaValue::all`].
    pub(crate) fn read_at(l: LuaState, at: i32) -> Result<LuaValue, String> {
        LuaValue::read(l, at, 0)
    }

    fn read(l: LuaState, at: i32, depth: usize) -> Result<LuaValue, String> {
        let unsupported = |name: &str| Err(format!("unsupported Lua type{name}"));
        match l.kind(at) {
            kind::NIL | kind::NONE => Ok(LuaValue::Nil),
            kind::BOOLEAN => Ok(LuaValue::Boolean(l.boolean(at))),
            kind::NUMBER => Ok(LuaValue::Number(l.number(at).unwrap_or(0.0))),
            kind::STRING => Ok(LuaValue::Text(l.bytes(at).unwrap_or_default().to_vec())),
            kind::LIGHTUSERDATA => Ok(LuaValue::Pointer(l.pointer(at) as usize)),
            kind::TABLE => LuaValue::table(l, at, depth),
            kind::FUNCTION => unsupported(": LUA_TFUNCTION"),
            kind::USERDATA => unsupported(": LUA_TUSERDATA"),
            kind::THREAD => unsupported(": LUA_TTHREAD"),
            _ => unsupported(""),
        }
    }

    fn table(l: LuaState, at: i32, depth: usize) -> Result<LuaValue, String> {
        if depth >= DEEPEST || !l.reserve(8) {
            return Err(format!("suspicious circular references, table depth exceed max depth: {DEEPEST}"));
        }
        let mut pairs = Vec::new();
        l.push_nil();
        while l.next(at) {
            let value = l.top();
            let pair = LuaValue::read(l, value - 1, depth + 1)
                .and_then(|key| Ok((key, LuaValue::read(l, value, depth + 1)?)));
            match pair {
                Ok(pair) => pairs.push(pair),
                Err(why) => {
                    l.set_top(value - 2);
                    return Err(why);
                }
            }
            l.pop(1);
        }
        Ok(LuaValue::Table(pairs))
    }

    /// Writes the value for another process.
    ///
    /// # Errors
    /// An address means nothing there, but for that of `ngx.null`.
    pub(crate) fn encode(&self, out: &mut IpcWriter) -> Result<(), String> {
        match self {
            LuaValue::Nil => out.number(NIL),
            LuaValue::Boolean(value) => {
                [BOOLEAN, (*value).into()].iter().for_each(|number| out.number(*number));
            }
            LuaValue::Number(value) => {
                out.number(NUMBER);
                out.float(*value);
            }
            LuaValue::Text(text) => {
                out.number(TEXT);
                out.bytes(text);
            }
            LuaValue::Pointer(0) => out.number(NULL),
            LuaValue::Pointer(_) => return Err("unsupported Lua type: LUA_TLIGHTUSERDATA".to_owned()),
            LuaValue::Table(pairs) => {
                out.number(TABLE);
                out.number(pairs.len() as u64);
                for value in pairs.iter().flat_map(|(key, value)| [key, value]) {
                    value.encode(out)?;
                }
            }
        }
        Ok(())
    }

    /// Reads what [`LuaValue::encode`] has written; `None` if it is not that.
    pub(crate) fn decode(from: &mut IpcReader<'_>) -> Option<LuaValue> {
        LuaValue::decode_at(from, 0)
    }

    fn decode_at(from: &mut IpcReader<'_>, depth: usize) -> Option<LuaValue> {
        Some(match from.number()? {
            NIL => LuaValue::Nil,
            BOOLEAN => LuaValue::Boolean(from.number()? != 0),
            NUMBER => LuaValue::Number(from.float()?),
            TEXT => LuaValue::Text(from.bytes()?.to_vec()),
            NULL => LuaValue::Pointer(0),
            TABLE if depth < DEEPEST => {
                let pair = |from: &mut IpcReader<'_>| {
                    // No key of a table is nil, nor NaN.
                    let key = LuaValue::decode_at(from, depth + 1)?;
                    let proper =
                        !matches!(&key, LuaValue::Nil) && !matches!(&key, LuaValue::Number(n) if n.is_nan());
                    Some((proper.then_some(key)?, LuaValue::decode_at(from, depth + 1)?))
                };
                LuaValue::Table(from.list(pair)?)
            }
            _ => return None,
        })
    }

    /// Puts the value on top of a stack.
    pub(crate) fn push(&self, l: LuaState) {
        match self {
            LuaValue::Nil => l.push_nil(),
            LuaValue::Boolean(value) => l.push_boolean(*value),
            LuaValue::Number(value) => l.push_number(*value),
            LuaValue::Text(text) => l.push_bytes(text),
            LuaValue::Pointer(address) => {
                l.push_pointer(std::ptr::without_provenance_mut::<c_void>(*address));
            }
            LuaValue::Table(pairs) => {
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
        let text = |text: &str| LuaValue::Text(text.into());
        let inner = LuaValue::Table(vec![(LuaValue::Number(1.0), LuaValue::Pointer(0))]);
        let value = LuaValue::Table(vec![
            (text("a"), LuaValue::Boolean(true)),
            (LuaValue::Number(0.5), LuaValue::Nil),
            (text("t"), inner),
        ]);
        let mut out = IpcWriter::default();
        value.encode(&mut out).expect("all of it can be said");
        assert_eq!(LuaValue::decode(&mut IpcReader(&out.0)).as_ref(), Some(&value));
        for end in 0..out.0.len() {
            assert_eq!(LuaValue::decode(&mut IpcReader(&out.0[..end])), None, "{end}");
        }
        assert!(LuaValue::Pointer(8).encode(&mut IpcWriter::default()).is_err());
        let deep = (0..=DEEPEST)
            .fold(LuaValue::Nil, |inner, _| LuaValue::Table(vec![(LuaValue::Number(1.0), inner)]));
        let mut out = IpcWriter::default();
        deep.encode(&mut out).expect("no address in it");
        assert_eq!(LuaValue::decode(&mut IpcReader(&out.0)), None);
    }
}
