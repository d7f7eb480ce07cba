//! The stacks of a run's coroutines, as errors show them.

use crate::luajit::state::LuaState;
use crate::luajit::sys;
use crate::run::script_run::ScriptRun;
use crate::run::thread::ThreadKind;

impl ScriptRun {
    /// The stack of a coroutine that has ended like this. LuaJIT leaves none that can be read where memory was short.
    pub(super) fn trace_of(&self, state: LuaState, status: i32) -> String {
        match status {
            sys::status::ERRMEM => "\t(no memory)".to_owned(),
            _ => self.vm().main().traceback(state, 0),
        }
    }

    /// The stacks of a coroutine and of those that have resumed it, after those `below` that its error came from.
    pub(super) fn backtrace(&self, at: usize, status: i32, below: Vec<String>) -> String {
        let (mut text, mut number, mut next) = (String::new(), 0, Some(at));
        for lines in below.into_iter().take(DEEPEST) {
            text.push_str(&format!("\ncoroutine {number}:\n{lines}"));
            number += 1;
        }
        let first = number;
        // A light thread may have outlived its parent, in whose place another one is now: so the way up may be a circle.
        while let (Some(at), 0..DEEPEST) = (next, number) {
            let thread = &self.threads[at];
            if thread.anchor.is_none() {
                break;
            }
            let lines = self.trace_of(thread.state, if number == first { status } else { sys::status::OK });
            text.push_str(&format!("\ncoroutine {number}:\n{lines}"));
            number += 1;
            next = if thread.kind == ThreadKind::Entry { None } else { thread.parent };
        }
        text
    }
}

/// How many coroutines a traceback shows.
const DEEPEST: usize = 32;
