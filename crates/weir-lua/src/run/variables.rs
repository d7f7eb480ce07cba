//! `$lua_cpu_time` and `$lua_alloc`: what a request's scripts took.

use weir_engine::variable::Variable;
use weir_engine::{Exchange, Text};
use weir_http::h1;
use weir_trace::SiteKind;

pub(crate) const VARIABLES: &[Variable] = &[
    Variable::new("lua_cpu_time", cpu_time).volatile().changeable(),
    Variable::new("lua_alloc", alloc).volatile().changeable(),
];

/// Bytes that the scripts of a request have allocated so far; a subrequest has its own.
#[derive(Default)]
pub(crate) struct AllocatedBytes(pub(crate) u64);

/// Milliseconds with three decimals that scripts and the functions they called have run; waiting is not among it. No value
/// where boundaries are not recorded.
fn cpu_time(x: &mut Exchange) -> Option<Text> {
    let us = x.ran_in(|site| site.kind == SiteKind::LuaResume || site.name.ends_with("_by_lua"))? / 1_000;
    Some(Text::Span(x.arena.write(|out| h1::thousandths(out, us))))
}

fn alloc(x: &mut Exchange) -> Option<Text> {
    let bytes = x.own_lasting::<AllocatedBytes>().0.to_string();
    Some(Text::Span(x.arena.push(bytes.as_bytes())))
}
