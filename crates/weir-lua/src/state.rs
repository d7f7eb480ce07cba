//! A coroutine's stack, with Rust's types.
//!
//! None of these calls metamethods or raises a Lua error, but for want of memory; so they may be used between an
//! argument's reading and a result's pushing without a thought about unwinding.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use crate::sys::{self, CFunction, LuaState, kind};

/// An element of an array.
enum Element<'l> {
    Text(&'l [u8]),
    Number(f64),
    /// Another value, none, or one that does not stand in the array.
    Other,
}

/// One coroutine of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State(*mut LuaState);

impl State {
    /// The coroutine `l`.
    ///
    /// # Safety
    /// `l` is a coroutine of a VM that is open, belongs to this thread, and is anchored as long as this is used.
    pub(crate) unsafe fn new(l: *mut LuaState) -> State {
        State(l)
    }

    pub(crate) fn raw(self) -> *mut LuaState {
        self.0
    }

    pub(crate) fn top(self) -> c_int {
        // SAFETY: `new`'s contract, as for every call below.
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
        // SAFETY: see `top`.
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
        // SAFETY: see `kind`.
        unsafe { (sys::lua_isnumber(self.0, at) != 0).then(|| sys::lua_tonumber(self.0, at)) }
    }

    pub(crate) fn boolean(self, at: c_int) -> bool {
        // SAFETY: see `kind`.
        unsafe { sys::lua_toboolean(self.0, at) != 0 }
    }

    pub(crate) fn thread(self, at: c_int) -> Option<State> {
        // SAFETY: see `kind`.
        let thread = unsafe { sys::lua_tothread(self.0, at) };
        (!thread.is_null()).then_some(State(thread))
    }

    /// The address that a userdata is, light or not; null for other values.
    pub(crate) fn pointer(self, at: c_int) -> *mut c_void {
        // SAFETY: see `kind`.
        unsafe { sys::lua_touserdata(self.0, at) }
    }

    /// Whether the value is `ngx.null`.
    pub(crate) fn is_null(self, at: c_int) -> bool {
        self.kind(at) == kind::LIGHTUSERDATA && self.pointer(at).is_null()
    }

    pub(crate) fn push_nil(self) {
        // SAFETY: a C function has room for 20 values more than it was given; who pushes more asks `reserve`.
        unsafe { sys::lua_pushnil(self.0) }
    }

    pub(crate) fn push_boolean(self, value: bool) {
        // SAFETY: as `push_nil`.
        unsafe { sys::lua_pushboolean(self.0, c_int::from(value)) }
    }

    pub(crate) fn push_number(self, value: f64) {
        // SAFETY: as `push_nil`.
        unsafe { sys::lua_pushnumber(self.0, value) }
    }

    pub(crate) fn push_bytes(self, text: &[u8]) {
        // SAFETY: as `push_nil`; Lua copies the bytes.
        unsafe { sys::lua_pushlstring(self.0, text.as_ptr().cast(), text.len()) }
    }

    pub(crate) fn push_function(self, function: CFunction) {
        // SAFETY: as `push_nil`.
        unsafe { sys::lua_pushcclosure(self.0, function, 0) }
    }

    /// `ngx.null`
    pub(crate) fn push_null(self) {
        // SAFETY: as `push_nil`.
        unsafe { sys::lua_pushlightuserdata(self.0, ptr::null_mut::<c_void>()) }
    }

    /// A pointer to what is there for ever.
    pub(crate) fn push_pointer(self, value: *mut c_void) {
        // SAFETY: as `push_nil`; Lua does not follow it.
        unsafe { sys::lua_pushlightuserdata(self.0, value) }
    }

    /// A pointer that is nothing but itself: `cjson.empty_array`.
    pub(crate) fn push_mark(self) {
        static MARK: u8 = 0;
        // SAFETY: as `push_nil`; nobody follows the pointer.
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
        // SAFETY: as `push_nil`; `at` is a value of the caller's.
        unsafe { sys::lua_pushvalue(self.0, at) }
    }

    /// Pushes this coroutine itself.
    pub(crate) fn push_self(self) {
        // SAFETY: as `push_nil`.
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
    pub(crate) fn give(self, to: State, count: c_int) {
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
        // SAFETY: as `push_nil`.
        unsafe { sys::lua_createtable(self.0, size(array), size(hash)) }
    }

    /// For how many fields the table on top has room beside its array.
    pub(crate) fn room(self) -> usize {
        // SAFETY: callers have checked that a table is on top.
        unsafe { sys::weir_lua_room(self.0) as usize }
    }

    /// Replaces the key on top by its value in the table `at`, without metamethods.
    pub(crate) fn raw_get(self, at: c_int) {
        // SAFETY: callers have checked that a table stands there.
        unsafe { sys::lua_rawget(self.0, at) }
    }

    /// Takes key and value from the top into the table `at`, without metamethods. The key is not nil.
    pub(crate) fn raw_set(self, at: c_int) {
        // SAFETY: callers have checked that a table stands there.
        unsafe { sys::lua_rawset(self.0, at) }
    }

    pub(crate) fn raw_get_index(self, at: c_int, n: usize) {
        // SAFETY: callers have checked that a table stands there.
        unsafe { sys::lua_rawgeti(self.0, at, c_int::try_from(n).unwrap_or(c_int::MAX)) }
    }

    pub(crate) fn raw_set_index(self, at: c_int, n: usize) {
        // SAFETY: callers have checked that a table stands there.
        unsafe { sys::lua_rawseti(self.0, at, c_int::try_from(n).unwrap_or(c_int::MAX)) }
    }

    /// The table's next pair behind the key on top, which it replaces; `false` at the end.
    pub(crate) fn next(self, at: c_int) -> bool {
        // SAFETY: callers have checked that a table stands there, and the key came from it.
        unsafe { sys::lua_next(self.0, at) != 0 }
    }

    /// Pushes a field of a table that has no metatable.
    pub(crate) fn field(self, at: c_int, name: &CStr) {
        // SAFETY: callers have checked that such a table stands there.
        unsafe { sys::lua_getfield(self.0, at, name.as_ptr()) }
    }

    /// Takes the value on top into a field of a table that has no metatable.
    pub(crate) fn set_field(self, at: c_int, name: &CStr) {
        // SAFETY: callers have checked that such a table stands there.
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
        // SAFETY: as `push_nil`.
        unsafe { sys::lua_rawgeti(self.0, sys::REGISTRY, reference) }
    }

    /// Whether no function in C stands between the coroutine's beginning and here.
    pub(crate) fn can_yield(self) -> bool {
        // SAFETY: see `top`.
        unsafe { sys::lua_isyieldable(self.0) != 0 }
    }

    /// Whether a coroutine is yielded, finished with an error, or neither.
    pub(crate) fn status(self) -> c_int {
        // SAFETY: see `top`.
        unsafe { sys::lua_status(self.0) }
    }

    /// Lua's text of what stands where in the source, `chunk:line: `, of the function at `level`.
    pub(crate) fn place(self, level: c_int) -> String {
        // SAFETY: pushes one string.
        unsafe { sys::luaL_where(self.0, level) };
        let text = self.lossy(-1);
        self.pop(1);
        text
    }

    /// `file.lua:12: name(): ` of the function at `level`, its file without folders, as OpenResty's log lines begin;
    /// a name only where a Lua function has one.
    pub(crate) fn caller(self, level: c_int) -> String {
        let mut about = sys::Debug::empty();
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
        // SAFETY: see `top`.
        self.kind(at) == kind::FUNCTION && unsafe { sys::lua_iscfunction(self.0, at) } == 0
    }

    /// Where the function is defined: its source as its chunk was named, and its first line.
    pub(crate) fn defined_at(self, at: c_int) -> String {
        let mut about = sys::Debug::empty();
        self.push_value(at);
        // SAFETY: `about` lives during the call, which takes the function; the source is a C string that the function, which
        // still stands on the stack, keeps.
        let mut place = unsafe {
            sys::lua_getinfo(self.0, c">S".as_ptr(), &raw mut about);
            CStr::from_ptr(about.source).to_bytes().to_vec()
        };
        place.push(b':');
        append_whole(&mut place, f64::from(about.line_defined));
        // Not by formatting: timers tell theirs, each time that one runs.
        String::from_utf8(place)
            .unwrap_or_else(|place| String::from_utf8_lossy(place.as_bytes()).into_owned())
    }

    /// The name by which the running function in C was called, and whether as a method.
    pub(crate) fn called(self) -> (String, bool) {
        let mut about = sys::Debug::empty();
        // SAFETY: as in `caller`.
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
    pub(crate) fn traceback(self, of: State, level: c_int) -> String {
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

    /// Appends element `index` of the table `at`, if it is a text or a plain number that stands in the array; any other is
    /// pushed, for the caller to look at, and `false`.
    pub(crate) fn append_element(self, at: c_int, index: usize, out: &mut Vec<u8>) -> bool {
        match self.element(at, index) {
            Element::Text(text) => out.extend_from_slice(text),
            Element::Number(number) if append_whole(out, number) => {}
            _ => {
                self.raw_get_index(at, index);
                return false;
            }
        }
        true
    }

    /// The number in element `n` of the array of the table `at`, 0 where nothing is; `None` for what has to be looked at
    /// more closely.
    pub(crate) fn numeral(self, at: c_int, n: usize) -> Option<f64> {
        // SAFETY: callers have checked that a table stands there.
        let number = unsafe { sys::weir_lua_numeral(self.0, at, n as u32) };
        (number >= 0.0).then_some(number)
    }

    /// Appends all texts and small whole numbers of the table `at`, and of those in it; `false`, and nothing appended, where
    /// anything else stands in one of them, or they are large.
    pub(crate) fn gather(self, at: c_int, out: &mut Vec<u8>) -> bool {
        for room in [ROOM, MORE_ROOM] {
            out.reserve(room);
            let spare = out.spare_capacity_mut();
            // SAFETY: callers have checked that a table stands there; so many bytes may be written.
            let count = unsafe { sys::weir_lua_gather(self.0, at, spare.as_mut_ptr().cast(), spare.len()) };
            if let Ok(count) = usize::try_from(count) {
                // SAFETY: so many were written.
                unsafe { out.set_len(out.len() + count) };
                return true;
            }
            if count == NOT_PLAIN {
                break;
            }
        }
        false
    }

    /// Element `n` of the table's array. Text stays while it is in the table.
    fn element(&self, at: c_int, n: usize) -> Element<'_> {
        let (mut text, mut len, mut number) = (ptr::null(), 0, 0.0);
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        // SAFETY: callers have checked that a table stands there; a string gives a pointer to `len` bytes, which the
        // table keeps.
        unsafe {
            match sys::weir_lua_element(self.0, at, n, &raw mut text, &raw mut len, &raw mut number) {
                1 => Element::Text(std::slice::from_raw_parts(text.cast(), len)),
                2 => Element::Number(number),
                _ => Element::Other,
            }
        }
    }

    /// The number of elements when the table `at` has only keys 1 to n.
    pub(crate) fn sequence(self, at: c_int) -> Option<usize> {
        // SAFETY: callers have checked that a table stands there.
        if let Ok(count) = usize::try_from(unsafe { sys::weir_lua_array(self.0, at) }) {
            return Some(count);
        }
        let at = if at < 0 { self.top() + at + 1 } else { at };
        let (mut most, mut count) = (0.0, 0usize);
        self.push_nil();
        while self.next(at) {
            self.pop(1);
            let number = if self.kind(-1) == kind::NUMBER { self.number(-1) } else { None };
            match number {
                Some(number) if number >= 1.0 && number.fract() == 0.0 => most = f64::max(most, number),
                _ => {
                    self.pop(1);
                    return None;
                }
            }
            count += 1;
        }
        // Holes count as nils, as in OpenResty.
        if most > 1e6 && most > count as f64 * 2.0 { None } else { Some(most as usize) }
    }
}

/// An error's value as a text.
pub(crate) fn error_text(state: State) -> String {
    match state.bytes(-1) {
        Some(text) if state.top() > 0 => String::from_utf8_lossy(text).into_owned(),
        _ => "unknown reason".to_owned(),
    }
}

/// Appends a number as Lua shows it, if that is a whole one of few digits.
pub(crate) fn append_whole(out: &mut Vec<u8>, number: f64) -> bool {
    if number.fract() != 0.0 || number.abs() >= WHOLE {
        return false;
    }
    let (mut digits, mut at, mut rest) = ([0; 16], 16, number.abs() as u64);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0.0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
    true
}

/// What [`State::gather`] makes room for, at first and once more: protocols' commands fit into the first.
const ROOM: usize = 256;
const MORE_ROOM: usize = 16 * 1024;
/// `weir_lua_gather` has found what it does not write.
const NOT_PLAIN: isize = -1;

/// Numbers from here on have more digits than the 14 that Lua shows.
const WHOLE: f64 = 1e14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_shown_as_lua_shows_them() {
        // SAFETY: the VM is this thread's, and closed last.
        let l = unsafe { State::new(sys::luaL_newstate()) };
        for number in [0.0, 7.0, -1.0, 10.0, -120.0, 65536.0, 99_999_999_999_999.0, -99_999_999_999_999.0] {
            let mut shown = Vec::new();
            assert!(append_whole(&mut shown, number), "{number}");
            l.push_number(number);
            assert_eq!(l.bytes(-1), Some(&shown[..]));
            l.pop(1);
        }
        for number in [0.5, 1e14, -1e15, f64::NAN, f64::INFINITY] {
            assert!(!append_whole(&mut Vec::new(), number), "{number}");
        }
        // SAFETY: nobody uses it any more.
        unsafe { sys::lua_close(l.raw()) }
    }

    #[test]
    fn plain_tables_are_gathered_at_once() {
        // SAFETY: as above.
        let l = unsafe { State::new(sys::luaL_newstate()) };
        l.new_table(4, 0);
        l.push_bytes(b"*");
        l.raw_set_index(-2, 1);
        l.push_number(1_234_567_890.0 / 10.0);
        l.raw_set_index(-2, 2);
        l.new_table(2, 0);
        l.push_number(0.0);
        l.raw_set_index(-2, 1);
        l.push_bytes(&[b'x'; 300]);
        l.raw_set_index(-2, 2);
        l.raw_set_index(-2, 3);
        let mut out = b"before ".to_vec();
        assert!(l.gather(1, &mut out));
        assert_eq!(out, [&b"before *1234567890"[..], &[b'x'; 300]].concat());
        for number in [-0.0, 0.5, -1.0, 1e9, f64::NAN] {
            l.push_number(number);
            l.raw_set_index(-2, 4);
            assert!(!l.gather(-1, &mut out), "{number}");
        }
        l.push_boolean(true);
        l.raw_set_index(-2, 4);
        assert!(!l.gather(-1, &mut out), "not a text");
        assert_eq!(out.len(), 318);
        // SAFETY: nobody uses it any more.
        unsafe { sys::lua_close(l.raw()) }
    }

    #[test]
    fn elements_of_arrays_are_seen_in_place() {
        // SAFETY: as above.
        let l = unsafe { State::new(sys::luaL_newstate()) };
        l.new_table(4, 0);
        l.push_bytes(b"one");
        l.raw_set_index(-2, 1);
        l.push_number(2.5);
        l.raw_set_index(-2, 3);
        assert_eq!((l.sequence(-1), l.sequence(1)), (Some(3), Some(3)), "a hole counts");
        assert!(
            matches!(l.element(1, 1), Element::Text(b"one"))
                && matches!(l.element(-1, 3), Element::Number(2.5))
        );
        assert!(matches!(l.element(1, 2), Element::Other) && matches!(l.element(1, 100), Element::Other));
        l.push_boolean(true);
        l.raw_set_index(-2, 0);
        assert_eq!(l.sequence(1), None, "0 is no element");
        l.new_table(0, 4);
        assert_eq!(l.sequence(-1), Some(0));
        l.push_boolean(true);
        l.set_field(-2, c"name");
        assert_eq!(l.sequence(-1), None);
        // SAFETY: nobody uses it any more.
        unsafe { sys::lua_close(l.raw()) }
    }
}
