//! What tables hold, seen in place: elements of their arrays as text, without a call of Lua's for each.

use std::ffi::c_int;
use std::ptr;

use crate::luajit::state::{LuaState, kind};
use crate::luajit::sys;

/// An element of an array.
enum TableElement<'l> {
    Text(&'l [u8]),
    Number(f64),
    /// Another value, none, or one that is not in the array.
    Other,
}

impl LuaState {
    /// Appends element `index` of the table `at`, if it is a text or a plain number in the array; any other is
    /// pushed, for the caller to look at, and `false`.
    pub(crate) fn append_element(self, at: c_int, index: usize, out: &mut Vec<u8>) -> bool {
        match self.element(at, index) {
            TableElement::Text(text) => out.extend_from_slice(text),
            TableElement::Number(number) if append_whole(out, number) => {}
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
        // SAFETY: callers have checked that a table is there.
        let number = unsafe { sys::weir_lua_numeral(self.0, at, n as u32) };
        (number >= 0.0).then_some(number)
    }

    /// Appends all texts and small whole numbers of the table `at`, and of those in it; `false`, and nothing appended, where
    /// one of them has anything else, or they are large.
    pub(crate) fn gather(self, at: c_int, out: &mut Vec<u8>) -> bool {
        for room in [ROOM, MORE_ROOM] {
            out.reserve(room);
            let spare = out.spare_capacity_mut();
            // SAFETY: callers have checked that a table is there; this many bytes may be written.
            let count = unsafe { sys::weir_lua_gather(self.0, at, spare.as_mut_ptr().cast(), spare.len()) };
            if let Ok(count) = usize::try_from(count) {
                // SAFETY: this many were written.
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
    fn element(&self, at: c_int, n: usize) -> TableElement<'_> {
        let (mut text, mut len, mut number) = (ptr::null(), 0, 0.0);
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        // SAFETY: callers have checked that a table is there; a string gives a pointer to `len` bytes, which the
        // table keeps.
        unsafe {
            match sys::weir_lua_element(self.0, at, n, &raw mut text, &raw mut len, &raw mut number) {
                1 => TableElement::Text(std::slice::from_raw_parts(text.cast(), len)),
                2 => TableElement::Number(number),
                _ => TableElement::Other,
            }
        }
    }

    /// The number of elements when the table `at` has only keys 1 to n.
    pub(crate) fn sequence(self, at: c_int) -> Option<usize> {
        // SAFETY: callers have checked that a table is there.
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

/// What [`LuaState::gather`] makes room for, at first and once more: protocols' commands fit into the first.
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
        let l = unsafe { LuaState::new(sys::luaL_newstate()) };
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
        // SAFETY: nothing uses it any more.
        unsafe { sys::lua_close(l.raw()) }
    }

    #[test]
    fn plain_tables_are_gathered_at_once() {
        // SAFETY: the VM is new, this thread's alone, and closed at the end of the test.
        let l = unsafe { LuaState::new(sys::luaL_newstate()) };
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
        // SAFETY: nothing uses it any more.
        unsafe { sys::lua_close(l.raw()) }
    }

    #[test]
    fn elements_of_arrays_are_seen_in_place() {
        // SAFETY: the VM is new, this thread's alone, and closed at the end of the test.
        let l = unsafe { LuaState::new(sys::luaL_newstate()) };
        l.new_table(4, 0);
        l.push_bytes(b"one");
        l.raw_set_index(-2, 1);
        l.push_number(2.5);
        l.raw_set_index(-2, 3);
        assert_eq!((l.sequence(-1), l.sequence(1)), (Some(3), Some(3)), "a hole counts");
        assert!(
            matches!(l.element(1, 1), TableElement::Text(b"one"))
                && matches!(l.element(-1, 3), TableElement::Number(2.5))
        );
        assert!(
            matches!(l.element(1, 2), TableElement::Other)
                && matches!(l.element(1, 100), TableElement::Other)
        );
        l.push_boolean(true);
        l.raw_set_index(-2, 0);
        assert_eq!(l.sequence(1), None, "0 is no element");
        l.new_table(0, 4);
        assert_eq!(l.sequence(-1), Some(0));
        l.push_boolean(true);
        l.set_field(-2, c"name");
        assert_eq!(l.sequence(-1), None);
        // SAFETY: nothing uses it any more.
        unsafe { sys::lua_close(l.raw()) }
    }
}
