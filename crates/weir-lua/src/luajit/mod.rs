//! LuaJIT itself: its C API, values on its stacks, what compiled code sees.

#[cfg(test)]
mod closures;
pub(crate) mod owned;
pub(crate) mod shared_page;
#[cfg(test)]
mod slabs;
#[cfg(lua_walk)]
pub(crate) mod stack_walk;
pub(crate) mod state;
pub(crate) mod symbols;
pub(crate) mod sys;
#[cfg(test)]
mod table_calls;
pub(crate) mod times;
