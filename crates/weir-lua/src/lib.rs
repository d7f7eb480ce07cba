//! `ngx.*` over LuaJIT: Weir programmed as OpenResty is.
//!
//! A script of a phase is a [`Run`](run::Run): coroutines of the worker's VM, resumed by the request's own task as what
//! they wait for is there. The engine sees a handler like any other: one that decides at once, or waits. API functions
//! reach the request through a loan ([`lend`]); what they wait for is an [`Op`](op::Op) they leave with the run before
//! they yield. Lua runs on the worker's own stack and nowhere else.

mod advice;
pub mod agent;
mod api;
mod ask;
mod balancer;
#[cfg(lua_walk)]
mod census;
mod chunk;
mod cipher;
mod cli;
mod conf;
mod dict;
mod digest;
mod drive;
mod errlog;
mod events;
mod fast;
mod filter;
#[doc(hidden)]
pub mod fuzzed;
mod glance;
mod handler;
mod hash;
mod heap;
mod json;
mod lend;
mod library;
mod limit;
mod lines;
mod module;
mod notes;
mod op;
mod owned;
mod phase;
mod pipe;
mod receiver;
mod regex;
mod resolver;
mod run;
#[cfg(lua_walk)]
mod sample;
mod secure;
mod semaphore;
mod set;
mod sleepers;
mod socket;
mod socket_log;
mod state;
mod symbols;
mod sys;
mod tell;
mod thread;
mod timer;
mod times;
mod trap;
mod trim;
mod upstream;
mod variable;
mod vm;
mod worker_thread;

pub use cli::Program;
pub use conf::LuaConf;
pub use module::Lua;
