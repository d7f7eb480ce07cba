//! A script that runs: what is lent to it, its coroutines and what they wait for.

pub(crate) mod backtrace;
pub(crate) mod body_receiver;
pub(crate) mod captured;
pub(crate) mod drive;
pub(crate) mod function;
pub(crate) mod lend;
pub(crate) mod log_notes;
pub(crate) mod op;
pub(crate) mod owned_run;
pub(crate) mod schedule;
pub(crate) mod script_run;
pub(crate) mod settings;
pub(crate) mod sleepers;
pub(crate) mod start;
#[cfg(lua_walk)]
mod table_changes;
pub(crate) mod thread;
mod traced_files;
pub(crate) mod variables;
