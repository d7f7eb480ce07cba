//! Writing fields that have no value, several ones, or need more than a look, for compiled code: the values come first, one
//! by one, then where they belong.

use std::cell::RefCell;

use crate::api::ffi::{FOUND, REFUSED, changing, slice};
use crate::api::header::{add_values, response_name, safe_name, safe_value, set_response};
use crate::api::req::header::{add_request_values, set_request_values};
use crate::run::lend;
use crate::vm::phase::REQUEST;

thread_local! {
    static VALUES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A value of the field that is written next, number `at` from 1.
pub(crate) unsafe extern "C" fn field_value(at: i32, text: *const u8, len: usize) {
    // SAFETY: the prelude passes a Lua string, which its stack keeps during the call.
    let text = unsafe { slice(text, len) };
    VALUES.with_borrow_mut(|values| {
        if at == 1 {
            values.clear();
        }
        values.push(safe_value(text.to_vec()));
    });
}

/// Writes a field with the last `count` values: 0 `ngx.header`, 1 `add_header` of `ngx.resp`, 2 `ngx.req.set_header`, 3 `add_header`
/// of `ngx.req`. What is an error is refused, and nothing is written: the other functions have the words.
pub(crate) unsafe extern "C" fn set_field(what: i32, name: *const u8, len: usize, count: i32) -> i32 {
    // SAFETY: the prelude passes a Lua string, which its stack keeps during the call.
    let name = unsafe { slice(name, len) };
    changing(|| {
        let values = if count == 0 { Vec::new() } else { VALUES.take() };
        if !lend::phase().is_in(REQUEST) || values.len() != count as usize {
            return REFUSED;
        }
        let done = match what {
            0 => response_name(name).and_then(|name| set_response(&name, values)),
            1 => response_name(name).and_then(|name| add_values(&name, values)),
            2 => set_request_values(&safe_name(name), values),
            _ => add_request_values(&safe_name(name), values),
        };
        done.map_or(REFUSED, |()| FOUND)
    })
}
