//! A coroutine's stack, with Rust's types.
//!
//! None of these calls metamethods or raises a Lua error, but for want of memory; so they may be used between an
//! argument's reading and a result's pushing without a thought about unwinding.

mod tables;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use crate::luajit::sys::{self, CFunction, RawState, kind};

pub(crate) use tables::append_whole;

/// One coroutine of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LuaState(*mut RawState);

impl LuaState {
    /// The coroutine `l`.
    ///
    /// # Safety
    /// `l` is a coroutine of a VM that is open, belongs to this thread, and is anchored as long as this is used.
    pub(crate) unsafe fn new(l: *mut RawState) -> LuaState {
        LuaState(l)
    }

    pub(crate) fn raw(self) -> *mut RawState {
        self.0
    }

    pub(crate) fn top(self) -> c_int {
        // SAFETY: the coroutine belongs to an open VM of this thread (the contract of `new`); its top is only read.
        unsafe { sys::lua_gettop(self.0) }
    }

    pub(crate) fn set_top(self, top: c_int) {
        // SAFETY: callers shrink the stack, or grow it by what `reserve` has made room for.
        unsafe { sys::lua_settop(self.0, top) }
    }

    pub(crate) fn pop(self, count: c_int) {
        self.set_top(-count - 1);
    }

    /// Makes room for `extra` values; `false` when the stack would be too large.
    pub(crate) fn reserve(self, extra: c_int) -> bool {
        // SAFETY: the coroutine belongs to an open VM of this thread; without room it says so, and raises nothing.
        unsafe { sys::lua_checkstack(self.0, extra) != 0 }
    }

    pub(crate) fn kind(self, at: c_int) -> c_int {
        // SAFETY: any index may be asked.
        unsafe { sys::lua_type(self.0, at) }
    }

    pub(crate) fn is_none_or_nil(self, at: c_int) -> bool {
        self.kind(at) <= kind::NIL
    }

    /// The name of the type, as Lua's messages have it.
    pub(crate) fn kind_name(self, at: c_int) -> &'static str {
        match self.kind(at) {
            kind::NONE => "no value",
            kind::NIL => "nil",
            kind::BOOLEAN => "boolean",
            kind::NUMBER => "number",
            kind::STRING => "string",
            kind::TABLE => "table",
            kind::FUNCTION => "function",
            kind::THREAD => "thread",
            kind::CDATA => "cdata",
            _ => "userdata",
        }
    }

    /// A string's bytes, or a number's text. They stay while the value is on the stack.
    pub(crate) fn bytes(&self, at: c_int) -> Option<&[u8]> {
        if !matches!(self.kind(at), kind::STRING | kind::NUMBER) {
            return None;
        }
        let mut len = 0;
        // SAFETY: a string or number gives a pointer to `len` bytes that the stack keeps.
        unsafe {
            let text = sys::lua_tolstring(self.0, at, &raw mut len);
            Some(std::slice::from_raw_parts(text.cast(), len))
        }
    }

    /// A string's bytes. They stay while the value is on the stack.
    pub(crate) fn string(&self, at: c_int) -> Option<&[u8]> {
        if self.kind(at) != kind::STRING {
            return None;
        }
        let mut len = 0;
        // SAFETY: a string gives a pointer to `len` bytes that the stack keeps.
        unsafe {
            let text = sys::lua_tolstring(self.0, at, &raw mut len);
            Some(std::slice::from_raw_parts(text.cast(), len))
        }
    }

    /// A number, or a string that is one.
    pub(crate) fn number(self, at: c_int) -> Option<f64> {
        // SAFETY: any index may be asked, and the value is only read: a string that is a number stays a string.
        unsafe { (sys::lua_isnumber(self.0, at) != 0).then(|| sys::lua_tonumber(self.0, at)) }
    }

    pub(crate) fn boolean(self, at: c_int) -> bool {
        // SAFETY: any index may be asked, and the value is only read.
        unsafe { sys::lua_toboolean(self.0, at) != 0 }
    }

    pub(crate) fn thread(self, at: c_int) -> Option<LuaState> {
        // SAFETY: any index may be asked; the coroutine that is there is kept by the stack.
        let thread = unsafe { sys::lua_tothread(self.0, at) };
        (!thread.is_null()).then_some(LuaState(thread))
    }

    /// The address that a userdata is, light or not; null for other values.
    pub(crate) fn pointer(self, at: c_int) -> *mut c_void {
        // SAFETY: any index may be asked; the address is not followed here.
        unsafe { sys::lua_touserdata(self.0, at) }
    }

    /// Whether the value is `ngx.null`.
    pub(crate) fn is_null(self, at: c_int) -> bool {
        self.kind(at) == kind::LIGHTUSERDATA && self.pointer(at).is_null()
    }

    pub(crate) fn push_nil(self) {
        // SAFETY: a C function has room for 20 values more than it was given; a caller that pushes more calls
        // `reserve`.
        unsafe { sys::lua_pushnil(self.0) }
    }

    pub(crate) fn push_boolean(self, value: bool) {
        // SAFETY: one value: a C function has room for 20 more than it was given.
        unsafe { sys::lua_pushboolean(self.0, c_int::from(value)) }
    }

    pub(crate) fn push_number(self, value: f64) {
        // SAFETY: one value: a C function has room for 20 more than it was given.
        unsafe { sys::lua_pushnumber(self.0, value) }
    }

    pub(crate) fn push_bytes(self, text: &[u8]) {
        // SAFETY: one value: a C function has room for 20 more than it was given; Lua copies the bytes, which are
        // borrowed until then.
        unsafe { sys::lua_pushlstring(self.0, text.as_ptr().cast(), text.len()) }
    }

    pub(crate) fn push_function(self, function: CFunction) {
        // SAFETY: one value: a C function has room for 20 more than it was given; a function without upvalues takes
        // nothing.
        unsafe { sys::lua_pushcclosure(self.0, function, 0) }
    }

    /// `ngx.null`
    pub(crate) fn push_null(self) {
        // SAFETY: one value: a C function has room for 20 more than it was given; the pointer is null.
        unsafe { sys::lua_pushlightuserdata(self.0, ptr::null_mut::<c_void>()) }
    }

    /// A pointer to what is there for ever.
    pub(crate) fn push_pointer(self, value: *mut c_void) {
        // SAFETY: one value: a C function has room for 20 more than it was given; Lua does not follow the pointer.
        unsafe { sys::lua_pushlightuserdata(self.0, value) }
    }

    /// A pointer that is nothing but itself: `cjson.empty_array`.
    pub(crate) fn push_mark(self) {
        static MARK: u8 = 0;
        // SAFETY: one value: a C function has room for 20 more than it was given; nothing follows the pointer, and the
        // static stays.
        unsafe { sys::lua_pushlightuserdata(self.0, (&raw const MARK).cast_mut().cast()) }
    }

    /// Pushes what the registry has under `name`.
    pub(crate) fn push_registered(self, name: &CStr) {
        self.field(sys::REGISTRY, name);
    }

    /// Whether the value at `at` is what the registry has under `name`.
    pub(crate) fn is_registered(self, at: c_int, name: &CStr) -> bool {
        self.push_value(at);
        self.push_registered(name);
        // SAFETY: two values are on top.
        let same = unsafe { sys::lua_rawequal(self.0, -1, -2) != 0 };
        self.pop(2);
        same
    }

    /// Whether the table at `at` has the metatable that the registry has under `name`.
    pub(crate) fn has_metatable(self, at: c_int, name: &CStr) -> bool {
        // SAFETY: pushes a table or nothing.
        if unsafe { sys::lua_getmetatable(self.0, at) } == 0 {
            return false;
        }
        let same = self.is_registered(-1, name);
        self.pop(1);
        same
    }

    pub(crate) fn push_value(self, at: c_int) {
        // SAFETY: one value: a C function has room for 20 more than it was given; `at` is a value of the caller's.
        unsafe { sys::lua_pushvalue(self.0, at) }
    }

    /// Pushes this coroutine itself.
    pub(crate) fn push_self(self) {
        // SAFETY: one value: a C function has room for 20 more than it was given: the coroutine itself.
        unsafe { sys::lua_pushthread(self.0) };
    }

    pub(crate) fn insert(self, at: c_int) {
        // SAFETY: callers name a value of theirs.
        unsafe { sys::lua_insert(self.0, at) }
    }

    pub(crate) fn remove(self, at: c_int) {
        // SAFETY: callers name a value of theirs.
        unsafe { sys::lua_remove(self.0, at) }
    }

    /// Moves the topmost `count` values to `to`, a coroutine of the same VM.
    pub(crate) fn give(self, to: LuaState, count: c_int) {
        if count > 0 && self != to {
            // SAFETY: both are coroutines of one VM; there are `count` values, and room for them is made.
            unsafe {
                sys::lua_checkstack(to.0, count);
                sys::lua_xmove(self.0, to.0, count);
            }
        }
    }

    pub(crate) fn new_table(self, array: usize, hash: usize) {
        let size = |size: usize| c_int::try_from(size).unwrap_or(0);
        // SAFETY: one value: a C function has room for 20 more than it was given; the sizes are hints, 0 where they are
        // too large.
        unsafe { sys::lua_createtable(self.0, size(array), size(hash)) }
    }

    /// Gives the table on top, and those in it and in them, room for the fields that they have and no more.
    pub(crate) fn fit(self) {
        // SAFETY: callers have checked that a table is on top; without memory for a smaller one this raises an error, which ends
        // the start of a VM.
        unsafe { sys::weir_lua_fit(self.0) }
    }

    /// For how many fields the table on top has room beside its array.
    pub(crate) fn room(self) -> usize {
        // SAFETY: callers have checked that a table is on top.
        unsafe { sys::weir_lua_room(self.0) as usize }
    }

    /// Replaces the key on top by its value in the table `at`, without metamethods.
    pub(crate) fn raw_get(self, at: c_int) {
        // SAFETY: callers have checked that a table is there.
        unsafe { sys::lua_rawget(self.0, at) }
    }

    /// Takes key and value from the top into the table `at`, without metamethods. The key is not nil.
    pub(crate) fn raw_set(self, at: c_int) {
        // SAFETY: callers have checked that a table is there.
        unsafe { sys::lua_rawset(self.0, at) }
    }

    pub(crate) fn raw_get_index(self, at: c_int, n: usize) {
        // SAFETY: callers have checked that a table is there.
        unsafe { sys::lua_rawgeti(self.0, at, c_int::try_from(n).unwrap_or(c_int::MAX)) }
    }

    pub(crate) fn raw_set_index(self, at: c_int, n: usize) {
        // SAFETY: callers have checked that a table is there.
        unsafe { sys::lua_rawseti(self.0, at, c_int::try_from(n).unwrap_or(c_int::MAX)) }
    }

    /// The table's next pair after the key on top, which it replaces; `false` at the end.
    pub(crate) fn next(self, at: c_int) -> bool {
        // SAFETY: callers have checked that a table is there, and the key came from it.
        unsafe { sys::lua_next(self.0, at) != 0 }
    }

    /// Pushes a field of a table that has no metatable.
    pub(crate) fn field(self, at: c_int, name: &CStr) {
        // SAFETY: callers have checked that such a table is there.
        unsafe { sys::lua_getfield(self.0, at, name.as_ptr()) }
    }

    /// Takes the value on top into a field of a table that has no metatable.
    pub(crate) fn set_field(self, at: c_int, name: &CStr) {
        // SAFETY: callers have checked that such a table is there.
        unsafe { sys::lua_setfield(self.0, at, name.as_ptr()) }
    }

    pub(crate) fn set_metatable(self, at: c_int) {
        // SAFETY: a table or nil is on top.
        unsafe { sys::lua_setmetatable(self.0, at) };
    }

    /// Anchors the value on top, which goes, in the registry.
    pub(crate) fn anchor(self) -> c_int {
        // SAFETY: there is a value on top.
        unsafe { sys::luaL_ref(self.0, sys::REGISTRY) }
    }

    pub(crate) fn release(self, reference: c_int) {
        // SAFETY: the reference came from `anchor`.
        unsafe { sys::luaL_unref(self.0, sys::REGISTRY, reference) }
    }

    pub(crate) fn push_anchored(self, reference: c_int) {
        // SAFETY: one value: a C function has room for 20 more than it was given; the registry is a table, and any
        // number may be asked.
        unsafe { sys::lua_rawgeti(self.0, sys::REGISTRY, reference) }
    }

    /// Whether no function in C is between the coroutine's beginning and here.
    pub(crate) fn can_yield(self) -> bool {
        // SAFETY: the coroutine belongs to an open VM of this thread, whose state is only read.
        unsafe { sys::lua_isyieldable(self.0) != 0 }
    }

    /// Whether a coroutine is yielded, finished with an error, or neither.
    pub(crate) fn status(self) -> c_int {
        // SAFETY: the coroutine belongs to an open VM of this thread, whose state is only read.
        unsafe { sys::lua_status(self.0) }
    }

    /// Lua's text of what is where in the source, `chunk:line: `, of the function at `level`.
    pub(crate) fn place(self, level: c_int) -> String {
        // SAFETY: pushes one string.
        unsafe { sys::luaL_where(self.0, level) };
        let text = self.lossy(-1);
        self.pop(1);
        text
    }

    /// `file.lua:12: name(): ` of the function at `level`, its file without directories, as OpenResty's log lines
    /// begin; a name only where a Lua function has one.
    pub(crate) fn caller(self, level: c_int) -> String {
        let mut about = sys::LuaDebug::empty();
        // SAFETY: `about` lives during both calls; its texts are C strings that the VM keeps while the function is
        // active, and `short_source` is one inside of it.
        unsafe {
            if sys::lua_getstack(self.0, level, &raw mut about) == 0
                || sys::lua_getinfo(self.0, c"nSl".as_ptr(), &raw mut about) == 0
            {
                return String::new();
            }
            let text = |at: *const c_char| match at.is_null() {
                true => std::borrow::Cow::default(),
                false => CStr::from_ptr(at).to_string_lossy(),
            };
            let source = text(about.short_source.as_ptr());
            let file = source.rsplit(['/', '\\']).next().unwrap_or_default();
            let named = !text(about.name_what).is_empty() && text(about.what).starts_with('L');
            let name = if named { format!("{}(): ", text(about.name)) } else { String::new() };
            format!("{file}:{}: {name}", about.line)
        }
    }

    /// Whether the value is a function written in Lua.
    pub(crate) fn is_lua_function(self, at: c_int) -> bool {
        // SAFETY: any index may be asked, and the value is only read.
        self.kind(at) == kind::FUNCTION && unsafe { sys::lua_iscfunction(self.0, at) } == 0
    }

    /// Where the function is defined: its source as its chunk was named, and its first line.
    pub(crate) fn defined_at(self, at: c_int) -> String {
        let mut about = sys::LuaDebug::empty();
        self.push_value(at);
        // SAFETY: `about` lives during the call, which takes the function; the source is a C string that the function,
        // which
        // still is on the stack, keeps.
        let mut place = unsafe {
            sys::lua_getinfo(self.0, c">S".as_ptr(), &raw mut about);
            CStr::from_ptr(about.source).to_bytes().to_vec()
        };
        place.push(b':');
        append_whole(&mut place, f64::from(about.line_defined));
        // Not by formatting: timers report theirs, each time that one runs.
        String::from_utf8(place)
            .unwrap_or_else(|place| String::from_utf8_lossy(place.as_bytes()).into_owned())
    }

    /// The name by which the running function in C was called, and whether as a method.
    pub(crate) fn called(self) -> (String, bool) {
        let mut about = sys::LuaDebug::empty();
        // SAFETY: `about` lives during both calls; its names are C strings that the VM keeps while the function is
        // active, which is the
        // one that runs.
        unsafe {
            if sys::lua_getstack(self.0, 0, &raw mut about) == 0
                || sys::lua_getinfo(self.0, c"n".as_ptr(), &raw mut about) == 0
                || about.name.is_null()
            {
                return ("?".to_owned(), false);
            }
            let method = CStr::from_ptr(about.name_what) == c"method";
            (CStr::from_ptr(about.name).to_string_lossy().into_owned(), method)
        }
    }

    /// The call stack of `of`, a line each, without a heading.
    pub(crate) fn traceback(self, of: LuaState, level: c_int) -> String {
        // SAFETY: pushes one string; `of` is a coroutine of the same VM.
        unsafe { sys::luaL_traceback(self.0, of.0, ptr::null(), level) };
        let text = self.lossy(-1);
        self.pop(1);
        text.split_once('\n').map(|(_, lines)| lines.to_owned()).unwrap_or_default()
    }

    /// A string or number as text; empty for anything else.
    pub(crate) fn lossy(self, at: c_int) -> String {
        self.bytes(at).map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default()
    }
}

/// An error's value as a text.
pub(crate) fn error_text(state: LuaState) -> String {
    match state.bytes(-1) {
        Some(text) if state.top() > 0 => String::from_utf8_lossy(text).into_owned(),
        _ => "unknown reason".to_owned(),
    }
}
