//! LuaJIT's own modules in Lua (`jit.v`, `jit.dump` ...), which stand in the program.

use crate::api::{Done, Function, expect_string, function};

pub(crate) const TABLE: &[Function] = &[function("_jit_source", 0, |l| {
    let name = expect_string(&l, 1, "_jit_source")?;
    match MODULES.iter().find(|(known, _)| known.as_bytes() == name) {
        Some((_, source)) => l.push_bytes(source.as_bytes()),
        None => l.push_nil(),
    }
    Ok(Done::Results(1))
})];

macro_rules! modules {
    ($($name:literal)+) => {
        &[$(($name, include_str!(concat!(env!("OUT_DIR"), "/luajit-build/src/jit/", $name, ".lua")))),+]
    };
}

const MODULES: &[(&str, &str)] =
    modules!["v" "vmdef" "dump" "bc" "bcsave" "p" "zone" "dis_x86" "dis_x64" "dis_arm64"];
