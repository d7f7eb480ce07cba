//! A program in Lua instead of a server (`weir lua`): what is to run, its ways in and out, and its exit status.
//!
//! The configuration that the command makes calls `require "weir.cli"` in `init_worker_by_lua`, and that runs the program
//! in a timer: with the whole API that needs no request.

use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use weir_trace::WaitKind;

use crate::api::output_text;
use crate::luajit::state::LuaState;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, expect_string, function};
use crate::run::lend;
use crate::run::op::{PushResults, ThreadOp};
use crate::vm::phase::YIELDABLE;

/// The Lua program of a command line.
#[derive(Debug, Default)]
pub struct CliProgram {
    /// The path of a Lua file; `-` is standard input; `None`: there is only `-e`.
    pub file: Option<String>,
    /// Pieces of code that run before it.
    pub codes: Vec<String>,
    /// Modules that are loaded before those.
    pub modules: Vec<String>,
    /// The arguments after the file.
    pub arguments: Vec<String>,
    /// True with `-i`: lines are read and run after everything else.
    pub interactive: bool,
    /// What runs it was called `resty`, whose `print` is `ngx.say`.
    pub resty: bool,
}

static PROGRAM: OnceLock<CliProgram> = OnceLock::new();
static STATUS: (Mutex<Option<i32>>, Condvar) = (Mutex::new(None), Condvar::new());

impl CliProgram {
    /// This program is what the server of this process is for. Said once, before that starts.
    pub fn announce(self) {
        PROGRAM.get_or_init(|| self);
    }

    /// Waits for the program's end: its exit status.
    pub fn wait() -> i32 {
        let mut status = status();
        loop {
            if let Some(status) = *status {
                return status;
            }
            status = STATUS.1.wait(status).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Whether scripts are a program's: no requests wait for them.
pub(crate) fn is_program() -> bool {
    PROGRAM.get().is_some()
}

fn status() -> MutexGuard<'static, Option<i32>> {
    STATUS.0.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) const TABLE: &[ApiFunction] = &[
    function("_cli.program", 0, program),
    function("_cli.text", 0, text),
    function("_cli.line", YIELDABLE, line),
    function("_cli.done", 0, |l| {
        *status() = Some(l.number(1).unwrap_or(0.0) as i32);
        STATUS.1.notify_all();
        Ok(CallDone::Results(0))
    }),
];

/// What is to run: file, pieces of code, modules, arguments, whether lines are read, whether it is `resty` that runs.
fn program(l: LuaState) -> CallOutcome {
    let Some(program) = PROGRAM.get() else { return Err(LuaRaise::text("this is a server")) };
    match &program.file {
        Some(file) => l.push_bytes(file.as_bytes()),
        None => l.push_nil(),
    }
    for list in [&program.codes, &program.modules, &program.arguments] {
        l.new_table(list.len(), 0);
        for (at, text) in list.iter().enumerate() {
            l.push_bytes(text.as_bytes());
            l.raw_set_index(-2, at + 1);
        }
    }
    l.push_boolean(program.interactive);
    l.push_boolean(program.resty);
    Ok(CallDone::Results(6))
}

/// What `ngx.print` makes of its arguments.
fn text(l: LuaState) -> CallOutcome {
    let mut text = Vec::new();
    for at in 1..=l.top() {
        output_text(l, at, &mut text, &|reason| LuaRaise::argument(at, "print", reason))?;
    }
    l.push_bytes(&text);
    Ok(CallDone::Results(1))
}

/// A line of standard input without its end, after a prompt; nil at the input's end. Timers go on meanwhile.
fn line(l: LuaState) -> CallOutcome {
    let prompt = expect_string(&l, 1, "line")?;
    lend::run(|run| {
        run.wait = WaitKind::Other;
        run.op = Some(ThreadOp::Wait(Box::pin(async move {
            let line = weir_rt::blocking(move || read_line(&prompt)).await;
            Box::new(move |l: LuaState| {
                match &line {
                    Some(line) => l.push_bytes(line.as_bytes()),
                    None => l.push_nil(),
                }
                1
            }) as PushResults
        })));
    })?;
    Ok(CallDone::Yield(0))
}

/// An input or output that fails has ended.
fn read_line(prompt: &[u8]) -> Option<String> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    out.write_all(prompt).and_then(|()| out.flush()).ok()?;
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(1..) => Some(line.trim_end_matches(['\n', '\r']).to_owned()),
        Ok(0) | Err(_) => None,
    }
}
