//! Frames that people need not see: those by which the server comes to a request's code.
//!
//! Between a request's location, phase and module and what that module runs there are some forty frames of the event
//! loop, the connection and the phases, the same in every stack. A flame graph shows them as one.

use std::ops::Range;

use crate::stacks::{FrameOrigin, StackFrame, StackSet};

/// The frames of `stack`, outermost first, that lead to the code of a module or a script; where there is none, those up to
/// the last one that passes requests on. Empty if they are fewer than [`FEWEST`].
pub(crate) fn range(stack: &[&StackFrame]) -> Range<usize> {
    let is_native = |frame: &&StackFrame| frame.origin == FrameOrigin::Native;
    let Some(first) = stack.iter().position(is_native) else { return 0..0 };
    let is_code = |frame: &&StackFrame| !is_native(frame) || CODE.iter().any(|code| is_of(&frame.name, code));
    let leads = |frame: &&StackFrame| RUNTIME.iter().any(|runtime| is_of(&frame.name, runtime));
    let code = stack[first..].iter().position(is_code);
    let end = code.or_else(|| stack[first..].iter().rposition(leads).map(|last| last + 1)).unwrap_or(0);
    if end < FEWEST { 0..0 } else { first..first + end }
}

/// The same stacks with those frames as one, called [`SERVER`].
pub(crate) fn folded(stacks: &StackSet) -> StackSet {
    let mut folded = stacks.without_stacks();
    for (stack, weight) in stacks.iter() {
        let frames: Vec<&StackFrame> = stack.iter().map(|&frame| &stacks.frames()[frame as usize]).collect();
        let hidden = range(&frames);
        let server = (!hidden.is_empty()).then(|| StackFrame::new(FrameOrigin::Native, SERVER));
        let before = frames[..hidden.start].iter().map(|frame| (*frame).clone());
        let after = frames[hidden.end..].iter().map(|frame| (*frame).clone());
        folded.add(before.chain(server).chain(after), weight);
    }
    folded
}

/// A function's name for people: a closure, and what is made of an `async` function, by the function it is in.
pub(crate) fn of_closure(name: &str) -> &str {
    let mut name = name;
    while let Some((function, last)) = name.rsplit_once("::")
        && last.starts_with('{')
        && last.ends_with('}')
        && !function.is_empty()
    {
        name = function;
    }
    name
}

/// Whether a function is of a crate or module: `weir_rt::`, also as the type of an implementation, `<weir_rt::`.
fn is_of(name: &str, module: &str) -> bool {
    name.trim_start_matches(['<', '&']).starts_with(module)
}

/// What the frames are called together.
pub(crate) const SERVER: &str = "server";
/// Two frames more are no harm.
const FEWEST: usize = 3;
/// Where the code of modules and scripts begins.
const CODE: [&str; 4] = ["weir_modules::", "weir_lua::", "weir_upstream::", "weir::welcome"];
/// What passes requests on: the connection, the phases; and how a thread begins. What the loop is called for by the code of
/// a request, such as opening files, is not among them.
const RUNTIME: [&str; 5] =
    ["weir_server::", "weir_engine::phase", "weir_engine::engine", "std::thread", "start_thread"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::{StackWeight, WeightUnit};

    fn frame(name: &str) -> StackFrame {
        let origin = match name {
            "/a" => FrameOrigin::Route,
            "content" => FrameOrigin::Phase,
            name if name.contains(".lua:") => FrameOrigin::Lua,
            _ => FrameOrigin::Native,
        };
        StackFrame::new(origin, name)
    }

    /// The names of the only stack, folded.
    fn shown(names: &[&str]) -> Vec<String> {
        let mut stacks = StackSet::new("cpu", WeightUnit::Nanoseconds);
        stacks.add(names.iter().map(|name| frame(name)), StackWeight { count: 1, value: 7 });
        let folded = folded(&stacks);
        let (stack, weight) = folded.iter().next().expect("a stack");
        assert_eq!(weight.value, 7);
        stack.iter().map(|&frame| folded.frames()[frame as usize].name.clone()).collect()
    }

    const LOOP: [&str; 6] = [
        "start_thread",
        "std::thread::lifecycle::start",
        "<alloc::boxed::Box<dyn FnOnce()> as core::ops::FnOnce<()>>::call_once",
        "<weir_rt::task::Task as Pollable>::poll",
        "weir_engine::exchange::Exchange::run",
        "weir_engine::phase::Walk::run",
    ];

    #[test]
    fn what_leads_to_the_code_is_one_frame() {
        let code = ["weir_modules::filters::gzip::compress", "weir_rt::file::read", "deflate"];
        let stack: Vec<&str> = ["/a", "content"].iter().chain(&LOOP).chain(&code).copied().collect();
        assert_eq!(shown(&stack), ["/a", "content", "server", code[0], code[1], code[2]]);
        let script: Vec<&str> = LOOP.iter().chain(&["weir_lua::run::drive", "a.lua:3"]).copied().collect();
        assert_eq!(shown(&script), ["server", "weir_lua::run::drive", "a.lua:3"]);
        // What the engine does itself is seen.
        let own = ["weir_engine::response::write", "weir_rt::net::writev", "writev"];
        let engine: Vec<&str> = LOOP.iter().chain(&own).copied().collect();
        assert_eq!(shown(&engine), ["server", own[0], own[1], own[2]]);
        assert_eq!(shown(&["start_thread", "weir_rt::wait"]), ["start_thread", "weir_rt::wait"], "too few");
        assert_eq!(shown(&["start_thread", "a.lua:3"]), ["start_thread", "a.lua:3"], "too few");
        assert_eq!(shown(&["/a", "wait timer"]).len(), 2);
    }

    #[test]
    fn closures_are_called_after_their_function() {
        for (name, called) in [
            ("a::b::{closure#0}", "a::b"),
            ("a::b::{{closure}}::{async_fn#1}", "a::b"),
            ("a::b::{impl#3}::c", "a::b::{impl#3}::c"),
            ("{closure#0}", "{closure#0}"),
            ("::{closure#0}", "::{closure#0}"),
            ("memcpy", "memcpy"),
        ] {
            assert_eq!(of_closure(name), called);
        }
    }
}
