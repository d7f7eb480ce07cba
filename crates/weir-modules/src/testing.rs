//! What the modules' own tests share.

use weir_engine::conf::{HttpCore, MainCore, ServerCore};
use weir_engine::{Module, ModuleDef};

/// `bytes` in pieces as long as `cuts` say, the last one all that is left.
pub(crate) fn pieces<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut rest = bytes;
    let mut pieces = Vec::with_capacity(cuts.len() + 1);
    for cut in cuts {
        let (piece, after) = rest.split_at(rest.len().min(*cut));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

/// The core's modules, and the one that is tested.
pub(crate) const fn core_and<M: Module>() -> [ModuleDef; 4] {
    [
        ModuleDef::of::<MainCore>(),
        ModuleDef::of::<HttpCore>(),
        ModuleDef::of::<ServerCore>(),
        ModuleDef::of::<M>(),
    ]
}
