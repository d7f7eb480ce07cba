//! JSON as `lua-cjson` (OpenResty's) reads and writes it: what `require "cjson"` gives.

mod decode;
mod encode;

use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, function};

pub(crate) use decode::decode;
pub(crate) use encode::{JsonEncoder, SparseArrays};

/// Tables and values may lie so deep in one another, unless a module says otherwise.
pub(crate) const DEPTH: usize = 1000;

/// `_json.encode(value, depth, precision, sparse_convert, sparse_ratio, sparse_safe, empty_as_object, keeps_slash,
/// keeps_invalid)` and `_json.decode(text, depth, with_array_mt)`; the prelude has the settings.
pub(crate) const TABLE: &[ApiFunction] = &[
    function("_json.encode", 0, |l| {
        let number = |at: i32, otherwise: f64| l.number(at).unwrap_or(otherwise);
        let encoder = JsonEncoder {
            depth: number(2, DEPTH as f64) as usize,
            precision: number(3, 14.0) as usize,
            sparse: SparseArrays { convert: l.boolean(4), ratio: number(5, 2.0), safe: number(6, 10.0) },
            empty_as_object: l.boolean(7),
            keeps_slash: l.boolean(8),
            invalid_as_null: l.boolean(9),
        };
        let mut out = Vec::new();
        encoder.value(l, 1, 0, &mut out).map_err(LuaRaise::Plain)?;
        l.push_bytes(&out);
        Ok(CallDone::Results(1))
    }),
    function("_json.decode", 0, decode_text),
];

fn decode_text(l: LuaState) -> CallOutcome {
    if !matches!(l.kind(1), kind::STRING | kind::NUMBER) {
        let found = l.kind_name(1);
        return Err(LuaRaise::text(format!("bad argument #1 to 'decode' (string expected, got {found})")));
    }
    let text = l.bytes(1).unwrap_or_default().to_vec();
    let depth = l.number(2).unwrap_or(DEPTH as f64) as usize;
    decode(l, &text, depth, l.boolean(3)).map_err(LuaRaise::Plain)?;
    Ok(CallDone::Results(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::vm::lua_vm::LuaVm;
    use crate::vm::settings::VmSettings;

    fn written(l: LuaState) -> Result<Vec<u8>, String> {
        let sparse = SparseArrays { convert: false, ratio: 2.0, safe: 10.0 };
        let (depth, precision) = (DEPTH, 17);
        let encoder = JsonEncoder {
            depth,
            precision,
            sparse,
            empty_as_object: true,
            keeps_slash: false,
            invalid_as_null: false,
        };
        let mut out = Vec::new();
        encoder.value(l, -1, 0, &mut out).map(|()| out)
    }

    /// Texts that are mostly JSON.
    fn texts() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop::sample::select(vec![
            &b"{"[..],
            b"}",
            b"[",
            b"]",
            b":",
            b",",
            b"\"",
            b"\\",
            b"\\u00e9",
            b"\\ud83d\\ude00",
            b"\\ud83d",
            b"null",
            b"true",
            b"fals",
            b"1",
            b"-0.5e",
            b"+3",
            b"1e400",
            b" ",
            b"a",
            b"\0",
            b"\xff",
            b"\"a\":",
            b"[[",
            b"nan",
        ]);
        prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        /// Whatever comes, there is a value or a message, and the stack is as it should be.
        #[test]
        fn any_text_is_read_or_refused(list in prop::collection::vec(texts(), 1..50)) {
            let vm = LuaVm::start(VmSettings::default(), Default::default(), crate::hooks::wiring::WIRING).expect("a VM");
            let l = vm.main();
            for text in list {
                let top = l.top();
                let done = decode(l, &text, 100, false);
                prop_assert_eq!(l.top(), top + i32::from(done.is_ok()));
                l.set_top(top);
            }
        }

        /// What was written is read as what it was.
        #[test]
        fn texts_and_numbers_come_back(
            pairs in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..20), -1e15..1e15), 1..20),
        ) {
            let vm = LuaVm::start(VmSettings::default(), Default::default(), crate::hooks::wiring::WIRING).expect("a VM");
            let l = vm.main();
            for (text, number) in pairs {
                l.new_table(2, 0);
                l.push_bytes(&text);
                l.raw_set_index(-2, 1);
                l.push_number(number);
                l.raw_set_index(-2, 2);
                let json = written(l).expect("an array");
                decode(l, &json, 100, false).expect("what was written");
                l.raw_get_index(-1, 1);
                prop_assert_eq!(l.bytes(-1), Some(&text[..]));
                l.pop(1);
                l.raw_get_index(-1, 2);
                prop_assert_eq!(l.number(-1), Some(number));
                l.set_top(0);
            }
        }
    }
}
