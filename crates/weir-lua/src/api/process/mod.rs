//! What `ngx.process` is made of.

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use weir_engine::worker::WorkerCounts;
use weir_rt::process::{parent, removed_for_shell, removed_variable, removed_variables};
use weir_rt::signal;
use weir_server::with_worker;

use crate::agent;
use crate::run::function::{ApiFunction, CallDone, LuaRaise, expect_string, function};
use crate::run::lend;
use crate::vm::lua_vm::LuaVm;
use crate::vm::phase::ScriptPhase;

thread_local! {
    /// Open while a program is started.
    static ENVIRONMENT: Cell<Option<OwnedFd>> = const { Cell::new(None) };
}

pub(crate) const TABLE: &[ApiFunction] = &[
    // Of the environment that the server was started with: in `init_by_lua` alone, which OpenResty's master runs.
    function("_environment", 0, |l| {
        let name = expect_string(&l, 1, "getenv")?;
        match (lend::phase() == ScriptPhase::Init)
            .then(|| removed_variable(OsStr::from_bytes(&name)))
            .flatten()
        {
            Some(value) => l.push_bytes(value.as_bytes()),
            None => l.push_nil(),
        }
        Ok(CallDone::Results(1))
    }),
    // What `ffi.C.environ` has there beside what is left: `NAME=value` of each; nil otherwise.
    function("_environment_list", 0, |l| {
        if lend::phase() != ScriptPhase::Init {
            l.push_nil();
            return Ok(CallDone::Results(1));
        }
        l.new_table(0, 0);
        for (at, (name, value)) in removed_variables().enumerate() {
            l.push_bytes(&[name.as_bytes(), b"=", value.as_bytes()].concat());
            l.raw_set_index(-2, at + 1);
        }
        Ok(CallDone::Results(1))
    }),
    // For programs that a script of `init_by_lua` starts: the number of a file that their shell is to read first.
    function("_environment_file", 0, |l| {
        let file = if lend::phase() == ScriptPhase::Init { removed_for_shell() } else { Ok(None) };
        match file.map_err(|error| LuaRaise::text(format!("the environment: {error}")))? {
            Some(file) => {
                l.push_number(f64::from(file.as_raw_fd()));
                ENVIRONMENT.set(Some(file));
            }
            None => l.push_nil(),
        }
        Ok(CallDone::Results(1))
    }),
    function("_environment_close", 0, |_| {
        ENVIRONMENT.set(None);
        Ok(CallDone::Results(0))
    }),
    function("_process.single", 0, |l| {
        l.push_boolean(lend::vm(|vm| vm.main_conf.one_process));
        Ok(CallDone::Results(1))
    }),
    function("_process.agent", 0, |l| {
        l.push_boolean(lend::vm(LuaVm::is_agent));
        Ok(CallDone::Results(1))
    }),
    function("_process.master", 0, |l| {
        let single = lend::vm(|vm| vm.main_conf.one_process);
        l.push_number(f64::from(if single { std::process::id() } else { parent() }));
        Ok(CallDone::Results(1))
    }),
    // What all workers have counted: accepted, requests, active, reading, writing, waiting.
    function("_process.counts", 0, |l| {
        let counts = match agent::is_here() {
            true => agent::counts(),
            false => with_worker(|worker| worker.counts()).unwrap_or_default(),
        };
        let WorkerCounts { accepted, requests, active, writing, waiting } = counts;
        let all = [accepted, requests, active, counts.reading(), writing, waiting];
        all.iter().for_each(|count| l.push_number(*count as f64));
        Ok(CallDone::Results(all.len() as i32))
    }),
    function("_process.quit", 0, |l| {
        let asked = signal::kill(std::process::id() as i32, signal::SIGQUIT);
        l.push_boolean(asked.is_ok());
        Ok(CallDone::Results(1))
    }),
    function("_process.enable", 0, |l| {
        let enabled = lend::vm(|vm| vm.home.upgrade().map(|home| home.configuration.want_agent()));
        l.push_boolean(enabled.is_some());
        Ok(CallDone::Results(1))
    }),
];
