//! What the modules' own tests share.

use weir_engine::conf::{CORE_MODULES, HttpCore, MainCore, ServerCore, with_core};
use weir_engine::testing::run_all;
use weir_engine::{Exchange, Module, ModuleDef, Phase, Verdict};

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

/// What the handlers of a phase decide of `x`: the first that decides anything, as it is printed.
pub(crate) fn decided(x: &mut Exchange, phase: Phase) -> String {
    let plan = x.plan.clone();
    let mut verdicts = plan.phase(phase).iter().map(|entry| entry.handler.handle(x));
    let found = verdicts.find(|verdict| !matches!(verdict, Verdict::Declined | Verdict::Passed));
    format!("{:?}", found.unwrap_or(Verdict::Declined))
}

/// The whole core, and the module that is tested.
pub(crate) const fn whole_core_and<M: Module>() -> [ModuleDef; WITH_ONE] {
    with_core(&[ModuleDef::of::<M>()])
}

/// How many these are.
pub(crate) const WITH_ONE: usize = CORE_MODULES.len() + 1;

/// What `look` sees of a request for `target` with these fields, which end with their lines, under `http`.
pub(crate) fn asked<R>(
    modules: &'static [ModuleDef],
    http: &str,
    (target, fields): (&str, &str),
    look: impl FnOnce(&mut Exchange) -> R,
) -> R {
    let head = format!("GET {target} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
    run_all(modules, http, &[&head], async |mut all| look(&mut all[0]))
}
