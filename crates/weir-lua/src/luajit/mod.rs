//! LuaJIT itself: its C API, values on its stacks, what compiled code sees.

pub(crate) mod owned;
pub(crate) mod shared_page;
pub(crate) mod state;
pub(crate) mod symbols;
pub(crate) mod sys;
pub(crate) mod times;
