//! Values of Rust's that scripts hold: userdata with a reference, given back when Lua collects them.

use std::any::TypeId;
use std::ffi::{CStr, c_int};
use std::ptr;
use std::rc::Rc;

use crate::luajit::state::LuaState;
use crate::luajit::sys::{self, RawState, kind};

/// What is in a userdata of [`LuaState::push_owned`].
#[repr(C)]
struct OwnedValue<T> {
    /// That of `T`: no other userdata begins with these 16 bytes.
    kind: TypeId,
    value: *const T,
}

/// `__gc` of what [`LuaState::push_owned`] made.
unsafe extern "C-unwind" fn drop_owned<T: 'static>(l: *mut RawState) -> c_int {
    // SAFETY: Lua calls it once for a userdata of `push_owned::<T>`; a script that calls it itself finds a null pointer
    // afterwards.
    unsafe {
        let place = sys::lua_touserdata(l, 1).cast::<OwnedValue<T>>();
        if !place.is_null() {
            let value = (&raw mut (*place).value).replace(ptr::null());
            if !value.is_null() {
                drop(Rc::from_raw(value));
            }
        }
    }
    0
}

impl LuaState {
    /// Pushes a userdata that holds `value` until Lua collects it. Its metatable is in the registry under `name`,
    /// which belongs to this type of value alone.
    pub(crate) fn push_owned<T: 'static>(self, value: Rc<T>, name: &CStr) {
        // SAFETY: room for it, filled before anything can fail; `drop_owned::<T>` gives the reference back, and is the
        // metatable's only for userdata made here.
        unsafe {
            let place = sys::lua_newuserdata(self.raw(), size_of::<OwnedValue<T>>()).cast::<OwnedValue<T>>();
            place.write_unaligned(OwnedValue { kind: TypeId::of::<T>(), value: Rc::into_raw(value) });
        }
        self.push_registered(name);
        if self.is_none_or_nil(-1) {
            self.pop(1);
            self.new_table(0, 2);
            self.push_function(drop_owned::<T>);
            self.set_field(-2, c"__gc");
            // Scripts don't get at it.
            self.push_boolean(false);
            self.set_field(-2, c"__metatable");
            self.push_value(-1);
            self.set_field(sys::REGISTRY, name);
        }
        self.set_metatable(-2);
    }

    /// What a userdata of [`LuaState::push_owned`] holds.
    pub(crate) fn owned<T: 'static>(self, at: c_int) -> Option<Rc<T>> {
        if self.kind(at) != kind::USERDATA {
            return None;
        }
        // SAFETY: any value may be asked; a userdata has as many bytes as it says, and is on the stack.
        unsafe {
            if sys::lua_objlen(self.raw(), at) != size_of::<OwnedValue<T>>() {
                return None;
            }
            held(sys::lua_touserdata(self.raw(), at).cast())
        }
    }

    /// As [`LuaState::owned`], of the userdata in element `n` of the table `at`, without a value on the stack.
    pub(crate) fn owned_in<T: 'static>(self, at: c_int, n: usize) -> Option<Rc<T>> {
        // SAFETY: callers have checked that a table is there, which holds the userdata; that has this many bytes.
        let place = unsafe { sys::weir_lua_userdata(self.raw(), at, n as u32, size_of::<OwnedValue<T>>()) };
        if !place.is_null() {
            // SAFETY: a userdata of this many bytes, which the table, and so the stack, keeps.
            return unsafe { held(place.cast()) };
        }
        self.raw_get_index(at, n);
        let value = self.owned(-1);
        self.pop(1);
        value
    }
}

/// What a userdata holds, if it is one of `T`.
///
/// # Safety
/// The userdata has as many bytes as an `OwnedValue<T>`, and is reachable.
unsafe fn held<T: 'static>(place: *const OwnedValue<T>) -> Option<Rc<T>> {
    // SAFETY: a userdata that begins with the type's own number was made by `push_owned::<T>`, and holds a reference
    // until
    // it is collected, when nothing leads to it any more.
    unsafe {
        if (&raw const (*place).kind).read_unaligned() != TypeId::of::<T>() {
            return None;
        }
        let value = (&raw const (*place).value).read_unaligned();
        if value.is_null() {
            return None;
        }
        Rc::increment_strong_count(value);
        Some(Rc::from_raw(value))
    }
}
