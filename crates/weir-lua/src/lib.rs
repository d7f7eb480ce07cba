//! `ngx.*` over LuaJIT: Weir programmed as OpenResty is.
//!
//! A script of a phase is a [`ScriptRun`](run::script_run::ScriptRun): coroutines of the worker's VM, resumed by the request's own task as what
//! they wait for is there. The engine sees a handler like any other: one that decides at once, or waits. API functions
//! reach the request through a loan ([`lend`](run::lend)); what they wait for is a [`ThreadOp`](run::op::ThreadOp) they leave with the run before
//! they yield. Lua runs on the worker's own stack and nowhere else.

mod agent;
mod api;
mod dict;
#[doc(hidden)]
pub mod fuzzed;
mod hooks;
mod inspect;
mod luajit;
mod run;
mod vm;

pub use api::cli::CliProgram;
pub use hooks::conf::LuaConf;
pub use hooks::kong::LuaKong;
pub use hooks::lmdb::Lmdb;
pub use hooks::module::Lua;
pub use hooks::privileged_agent;
