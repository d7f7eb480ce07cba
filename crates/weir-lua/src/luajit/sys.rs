//! LuaJIT's C API, as far as it is used (`lua.h`, `lauxlib.h`, `luajit.h`).
//!
//! Functions that can raise a Lua error unwind through their caller; they are `C-unwind`, and never called from within
//! `catch_unwind` with arguments that make them raise: a Lua error is no Rust panic, catching it ends the process.

use std::ffi::{c_char, c_int, c_void};

use crate::luajit::times::VmTimes;

/// `struct weir_table_change` of `tables.h`.
#[repr(C)]
pub(crate) struct RawTableChange {
    pub(crate) since: u64,
    pub(crate) until: u64,
    /// Elements of the array with that of number 0, before and after.
    pub(crate) array: [u32; 2],
    /// Places for other keys.
    pub(crate) hash: [u32; 2],
    pub(crate) frame: *mut c_void,
}

/// `struct weir_tables` of `tables.h`.
#[repr(C)]
pub(crate) struct TableHooks {
    pub(crate) clock: extern "C" fn() -> u64,
    pub(crate) changed: extern "C" fn(*mut RawState, *const RawTableChange),
}

/// A coroutine, or the main one of a VM.
#[repr(C)]
pub(crate) struct RawState {
    _private: [u8; 0],
}

/// What Lua calls for hooks.
pub(crate) type HookFunction = unsafe extern "C-unwind" fn(*mut RawState, *mut LuaDebug);

/// What Lua calls.
pub(crate) type CFunction = unsafe extern "C-unwind" fn(*mut RawState) -> c_int;

/// `lua_Alloc`: `old` bytes at a block become `new`.
pub(crate) type AllocFunction =
    unsafe extern "C" fn(data: *mut c_void, block: *mut c_void, old: usize, new: usize) -> *mut c_void;

/// What `lua_gc` does.
pub(crate) mod gc {
    use std::ffi::c_int;

    pub(crate) const RESTART: c_int = 1;
    pub(crate) const COLLECT: c_int = 2;
    pub(crate) const COUNT: c_int = 3;
    pub(crate) const COUNTB: c_int = 4;
    pub(crate) const SETSTEPMUL: c_int = 7;
}

pub(crate) const REGISTRY: c_int = -10000;
pub(crate) const GLOBALS: c_int = -10002;
/// All results of a call.
pub(crate) const MULTRET: c_int = -1;

/// A hook every so many instructions.
pub(crate) const MASKCOUNT: c_int = 1 << 3;

/// `lua_upvalueindex`
pub(crate) const fn upvalue(at: c_int) -> c_int {
    GLOBALS - at
}

/// What `lua_resume` and `lua_pcall` return.
pub(crate) mod status {
    use std::ffi::c_int;

    pub(crate) const OK: c_int = 0;
    pub(crate) const YIELD: c_int = 1;
    pub(crate) const ERRMEM: c_int = 4;
}

pub(crate) mod kind {
    use std::ffi::c_int;

    pub(crate) const NONE: c_int = -1;
    pub(crate) const NIL: c_int = 0;
    pub(crate) const BOOLEAN: c_int = 1;
    pub(crate) const LIGHTUSERDATA: c_int = 2;
    pub(crate) const NUMBER: c_int = 3;
    pub(crate) const STRING: c_int = 4;
    pub(crate) const TABLE: c_int = 5;
    pub(crate) const FUNCTION: c_int = 6;
    pub(crate) const USERDATA: c_int = 7;
    pub(crate) const THREAD: c_int = 8;
    pub(crate) const CDATA: c_int = 10;
}

/// `lua_Debug`: what is known of an active function.
#[repr(C)]
pub(crate) struct LuaDebug {
    event: c_int,
    pub(crate) name: *const c_char,
    pub(crate) name_what: *const c_char,
    pub(crate) what: *const c_char,
    pub(crate) source: *const c_char,
    pub(crate) line: c_int,
    upvalues: c_int,
    pub(crate) line_defined: c_int,
    last_line_defined: c_int,
    /// `LUA_IDSIZE` bytes.
    pub(crate) short_source: [c_char; 60],
    frame: c_int,
}

impl LuaDebug {
    /// One to be filled by `lua_getstack`.
    pub(crate) const fn empty() -> LuaDebug {
        LuaDebug {
            event: 0,
            name: std::ptr::null(),
            name_what: std::ptr::null(),
            what: std::ptr::null(),
            source: std::ptr::null(),
            line: 0,
            upvalues: 0,
            line_defined: 0,
            last_line_defined: 0,
            short_source: [0; 60],
            frame: 0,
        }
    }
}

#[rustfmt::skip]
unsafe extern "C-unwind" {
    pub(crate) fn weir_lua_time(times: *const VmTimes);
    pub(crate) fn luaL_newstate() -> *mut RawState;
    pub(crate) fn luaL_openlibs(l: *mut RawState);
    pub(crate) fn lua_close(l: *mut RawState);
    pub(crate) fn lua_newthread(l: *mut RawState) -> *mut RawState;
    pub(crate) fn lua_pushthread(l: *mut RawState) -> c_int;
    pub(crate) fn lua_xmove(from: *mut RawState, to: *mut RawState, n: c_int);
    pub(crate) fn lua_resume(l: *mut RawState, args: c_int) -> c_int;
    pub(crate) fn lua_yield(l: *mut RawState, results: c_int) -> c_int;
    pub(crate) fn lua_isyieldable(l: *mut RawState) -> c_int;
    pub(crate) fn lua_status(l: *mut RawState) -> c_int;
    pub(crate) fn lua_pcall(l: *mut RawState, args: c_int, results: c_int, handler: c_int) -> c_int;
    pub(crate) fn lua_error(l: *mut RawState) -> c_int;

    pub(crate) fn lua_gettop(l: *mut RawState) -> c_int;
    pub(crate) fn lua_settop(l: *mut RawState, at: c_int);
    pub(crate) fn lua_checkstack(l: *mut RawState, extra: c_int) -> c_int;
    pub(crate) fn lua_pushvalue(l: *mut RawState, at: c_int);
    pub(crate) fn lua_remove(l: *mut RawState, at: c_int);
    pub(crate) fn lua_insert(l: *mut RawState, at: c_int);
    pub(crate) fn lua_type(l: *mut RawState, at: c_int) -> c_int;

    pub(crate) fn lua_toboolean(l: *mut RawState, at: c_int) -> c_int;
    pub(crate) fn lua_tonumber(l: *mut RawState, at: c_int) -> f64;
    pub(crate) fn lua_iscfunction(l: *mut RawState, at: c_int) -> c_int;
    pub(crate) fn lua_isnumber(l: *mut RawState, at: c_int) -> c_int;
    pub(crate) fn lua_tolstring(l: *mut RawState, at: c_int, len: *mut usize) -> *const c_char;
    pub(crate) fn lua_touserdata(l: *mut RawState, at: c_int) -> *mut c_void;
    pub(crate) fn lua_tothread(l: *mut RawState, at: c_int) -> *mut RawState;

    pub(crate) fn lua_pushnil(l: *mut RawState);
    pub(crate) fn lua_pushboolean(l: *mut RawState, value: c_int);
    pub(crate) fn lua_pushnumber(l: *mut RawState, value: f64);
    pub(crate) fn lua_pushlstring(l: *mut RawState, text: *const c_char, len: usize);
    pub(crate) fn lua_pushcclosure(l: *mut RawState, function: CFunction, upvalues: c_int);
    pub(crate) fn lua_pushlightuserdata(l: *mut RawState, value: *mut c_void);

    pub(crate) fn lua_objlen(l: *mut RawState, at: c_int) -> usize;
    pub(crate) fn lua_newuserdata(l: *mut RawState, size: usize) -> *mut c_void;
    pub(crate) fn lua_createtable(l: *mut RawState, array: c_int, hash: c_int);
    pub(crate) fn lua_rawget(l: *mut RawState, at: c_int);
    pub(crate) fn lua_rawset(l: *mut RawState, at: c_int);
    pub(crate) fn lua_rawgeti(l: *mut RawState, at: c_int, n: c_int);
    pub(crate) fn lua_rawseti(l: *mut RawState, at: c_int, n: c_int);
    pub(crate) fn lua_getfield(l: *mut RawState, at: c_int, name: *const c_char);
    pub(crate) fn lua_setfield(l: *mut RawState, at: c_int, name: *const c_char);
    pub(crate) fn lua_getmetatable(l: *mut RawState, at: c_int) -> c_int;
    pub(crate) fn lua_rawequal(l: *mut RawState, one: c_int, other: c_int) -> c_int;
    pub(crate) fn lua_setmetatable(l: *mut RawState, at: c_int) -> c_int;
    pub(crate) fn lua_next(l: *mut RawState, at: c_int) -> c_int;

    pub(crate) fn lua_getstack(l: *mut RawState, level: c_int, about: *mut LuaDebug) -> c_int;
    pub(crate) fn lua_getinfo(l: *mut RawState, what: *const c_char, about: *mut LuaDebug) -> c_int;

    pub(crate) fn lua_sethook(l: *mut RawState, hook: Option<HookFunction>, mask: c_int, count: c_int) -> c_int;
    pub(crate) fn lua_gc(l: *mut RawState, what: c_int, data: c_int) -> c_int;
    pub(crate) fn lua_getallocf(l: *mut RawState, data: *mut *mut c_void) -> AllocFunction;
    pub(crate) fn lua_setallocf(l: *mut RawState, function: AllocFunction, data: *mut c_void);

    // Not LuaJIT's: build.rs puts them there.
    pub(crate) fn weir_lua_watch_tables(hooks: *const TableHooks);
    pub(crate) fn weir_lua_overdue(message: *const c_char);
    pub(crate) fn weir_lua_raise();
    pub(crate) fn weir_lua_stack(floor: *mut c_char);
    pub(crate) fn weir_lua_unframe(l: *mut RawState);
    pub(crate) fn weir_lua_fix(l: *mut RawState);
    pub(crate) fn weir_lua_random(l: *mut RawState, before: *mut u32, after: *const u32);
    pub(crate) fn weir_lua_fit(l: *mut RawState);
    pub(crate) fn weir_lua_room(l: *mut RawState) -> u32;
    pub(crate) fn weir_lua_array(l: *mut RawState, at: c_int) -> c_int;
    pub(crate) fn weir_lua_element(l: *mut RawState, at: c_int, n: u32, text: *mut *const c_char, len: *mut usize, number: *mut f64) -> c_int;

    pub(crate) fn weir_lua_gather(l: *mut RawState, at: c_int, out: *mut c_char, room: usize) -> isize;
    pub(crate) fn weir_lua_numeral(l: *mut RawState, at: c_int, n: u32) -> f64;
    pub(crate) fn weir_lua_userdata(l: *mut RawState, at: c_int, n: u32, size: usize) -> *mut c_void;

    pub(crate) fn luaL_ref(l: *mut RawState, table: c_int) -> c_int;
    pub(crate) fn luaL_unref(l: *mut RawState, table: c_int, reference: c_int);
    pub(crate) fn luaL_where(l: *mut RawState, level: c_int);
    pub(crate) fn luaL_traceback(l: *mut RawState, of: *mut RawState, message: *const c_char, level: c_int);
    pub(crate) fn luaL_loadbuffer(l: *mut RawState, text: *const c_char, len: usize, name: *const c_char) -> c_int;
}
