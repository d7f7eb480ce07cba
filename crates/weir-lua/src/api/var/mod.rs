//! `ngx.var`.

pub(crate) mod ffi;

use weir_engine::Text;
use weir_engine::variable::VariableSource;

use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, function};
use crate::run::lend;
use crate::vm::phase::REQUEST;

pub(super) const TABLE: &[ApiFunction] =
    &[function("_var_get", REQUEST, get), function("_var_set", REQUEST, set)];

fn get(l: LuaState) -> CallOutcome {
    if l.kind(1) == kind::NUMBER {
        let number = l.number(1).unwrap_or_default() as usize;
        // Of all that a script may do with the bytes, copying them is the first. The whole match is not one of the
        // captures.
        let value = lend::exchange(|x| {
            let span = x.captures.get(number).filter(|_| number > 0)?;
            Some(x.arena.get(span).to_vec())
        })?;
        match value {
            Some(value) => l.push_bytes(&value),
            None => l.push_nil(),
        }
        return Ok(CallDone::Results(1));
    }
    let found = {
        let Some(name) = l.bytes(1) else {
            return Err(LuaRaise::text("bad variable name"));
        };
        let Ok(name) = std::str::from_utf8(name) else {
            l.push_nil();
            return Ok(CallDone::Results(1));
        };
        lend::exchange(|x| match x.variable_by_name(name) {
            Some(value) => {
                l.push_bytes(x.text(&value));
                true
            }
            None => false,
        })?
    };
    if !found {
        l.push_nil();
    }
    Ok(CallDone::Results(1))
}

fn set(l: LuaState) -> CallOutcome {
    let Some(name) = l.string(1) else { return Err(LuaRaise::text("bad variable name")) };
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let value = match l.kind(2) {
        kind::NIL | kind::NONE => None,
        kind::STRING | kind::NUMBER => l.bytes(2).map(<[u8]>::to_vec),
        _ => {
            return Err(LuaRaise::text(format!(
                "bad argument #1 to '__newindex' (string expected, got {})",
                l.kind_name(2)
            )));
        }
    };
    let outcome = lend::exchange(|x| {
        let server = x.server.clone();
        let tables = server.tables();
        match tables.variables.settable(&name) {
            None if tables.modules_setter(&name).is_some() => {
                let set = tables.modules_setter(&name).expect("just asked for");
                set(x, value.as_deref().unwrap_or_default());
                Ok(())
            }
            None if matches!(tables.modules_variable(&name), Some((VariableSource::Plain(_), _))) => {
                Err("not changeable")
            }
            None => Err(
                "not found for writing; maybe it is a built-in variable that is not changeable or you forgot \
                         to use \"set $",
            ),
            Some(false) => Err("not changeable"),
            Some(true) => {
                let index = tables.variables.find(&name).expect("it is settable");
                match value {
                    Some(value) => {
                        let span = x.arena.push(&value);
                        x.set_variable(index, Text::Span(span));
                    }
                    None => x.clear_variable(index),
                }
                Ok(())
            }
        }
    })?;
    match outcome {
        Ok(()) => Ok(CallDone::Results(0)),
        Err("not changeable") => Err(LuaRaise::text(format!("variable \"{name}\" not changeable"))),
        Err(words) => Err(LuaRaise::text(format!(
            "variable \"{name}\" {words}{name} '';\" in the config file to define it first"
        ))),
    }
}
