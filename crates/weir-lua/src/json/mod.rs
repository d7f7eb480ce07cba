//! JSON as `lua-cjson` (OpenResty's) reads and writes it: what `require "cjson"` gives.

mod decode;
mod encode;

use crate::api::{Done, Function, Outcome, Raise, function};
use crate::state::State;
use crate::sys::kind;

pub(crate) use decode::decode;
pub(crate) use encode::{Encoder, Sparse};

/// Tables and values may lie so deep in one another, unless a module says otherwise.
pub(crate) const DEPTH: usize = 1000;

/// `_json.encode(value, depth, precision, sparse_convert, sparse_ratio, sparse_safe, empty_as_object, keeps_slash,
/// keeps_invalid)` and `_json.decode(text, depth, with_array_mt)`; the prelude has the settings.
pub(crate) const TABLE: &[Function] = &[
    function("_json.encode", 0, |l| {
        let number = |at: i32, otherwise: f64| l.number(at).unwrap_or(otherwise);
        let encoder = Encoder {
            depth: number(2, DEPTH as f64) as usize,
            precision: number(3, 14.0) as usize,
            sparse: Sparse { convert: l.boolean(4), ratio: number(5, 2.0), safe: number(6, 10.0) },
            empty_as_object: l.boolean(7),
            keeps_slash: l.boolean(8),
            invalid_as_null: l.boolean(9),
        };
        let mut out = Vec::new();
        encoder.value(l, 1, 0, &mut out).map_err(Raise::Plain)?;
        l.push_bytes(&out);
        Ok(Done::Results(1))
    }),
    function("_json.decode", 0, decode_text),
];

fn decode_text(l: State) -> Outcome {
    if !matches!(l.kind(1), kind::STRING | kind::NUMBER) {
        let found = l.kind_name(1);
        return Err(Raise::text(format!("bad argument #1 to 'decode' (string expected, got {found})")));
    }
    let text = l.bytes(1).unwrap_or_default().to_vec();
    let depth = l.number(2).unwrap_or(DEPTH as f64) as usize;
    decode(l, &text, depth, l.boolean(3)).map_err(Raise::Plain)?;
    Ok(Done::Results(1))
}
