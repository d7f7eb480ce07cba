//! A LuaJIT VM of a worker and what belongs to it: memory, limits, patterns, what was loaded.

pub(crate) mod chunk;
pub(crate) mod figures;
pub(crate) mod heap;
pub(crate) mod key_hash;
pub(crate) mod limit;
pub(crate) mod lua_vm;
pub(crate) mod patterns;
pub(crate) mod phase;
pub(crate) mod questions;
pub(crate) mod settings;
pub(crate) mod traps;
pub(crate) mod wait_sites;
